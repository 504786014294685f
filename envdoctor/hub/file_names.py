"""What a file's name says: whether it is safe (a hostile list names ``../../.ssh/id_rsa``), and what it is about."""

from __future__ import annotations

import re

from envdoctor.text.message import Message

_LONGEST = 1024
_DRIVE = re.compile(r"[A-Za-z]:")
#: Names (without their folder) of what is about the model and not of it.
_ABOUT = re.compile(
    r"""(?: readme .* | .* \.md | (?:model_)? licen[cs]e [^/]* | notice [^/]* | use_policy .* | citation .*
    | \.gitattributes | \.gitignore | \.ds_store
    | .* \. (?: png | jpe?g | gif | svg | webp | ico | pdf | mp4 | webm | mov | mp3 ) )\Z""",
    re.IGNORECASE | re.VERBOSE,
)


def refusal_of_name(path: object) -> Message | None:
    """Why a path of a listing is refused, as a clause; None for a clean relative path."""
    if not isinstance(path, str) or not path:
        return Message("it has no name")
    if len(path) > _LONGEST:
        return Message("its name has {} characters", f"{len(path):,}")
    if not path.isprintable():
        return Message("its name has control characters")
    if path.startswith("/") or _DRIVE.match(path):
        return Message("its name is an absolute path")
    if "\\" in path:
        return Message("its name has a backslash")
    if any(part in ("", ".", "..") for part in path.split("/")):
        return Message("its name leads out of the repository")
    return None


def is_text_about_the_model(path: str) -> bool:
    """Whether a file describes the model (README, licence, images, .gitattributes) and is no part of it."""
    return _ABOUT.match(path.rpartition("/")[2]) is not None
