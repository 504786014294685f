"""What a user's text names: a folder, or a repository and perhaps a revision; and the other names of its vendor."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.system.message import Message, MessageError

_LONGEST = 4096
#: The Hub's rule for names (huggingface_hub.utils.validate_repo_id): letters, digits, ``-``, ``_`` and ``.``, no ``-``
#: or ``.`` at either end, no ``--`` or ``..``, at most 96 characters a part.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?\Z")
#: What git allows in the name of a branch or a tag.
_REVISION = re.compile(r"(?!-)[^\s\x00-\x1f\x7f~^:?*\[\\]{1,255}\Z")
#: A day, or a moment of it, in the place of a revision.
_MOMENT = re.compile(r"@\d{4}-\d{2}-\d{2}[T\d:.+Z-]{0,30}\Z")
#: An address: ``hf://`` as HfFileSystem writes it, a page of a Hub or of a mirror, also without its scheme.
_ADDRESS = re.compile(r"(?:hf://|https?://([^/\s@?#]+)/|((?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com))/)", re.I)
#: What stands between the name of a repository and a revision in the address of a page.
_PAGES = ("tree", "blob", "raw", "resolve", "blame", "edit", "commit", "commits")
#: Servers of models or of code that are no Hub, and what they are called.
_OTHERS = {"modelscope.": "ModelScope", "github.com": "GitHub", "gitee.com": "Gitee", "gitlab.com": "GitLab"}


class NameProblem(MessageError, ValueError):
    """The text names no model. The message is a sentence that begins with the text: what is wrong, what to give."""


class NamedModel(NamedTuple):
    """What a text names: a folder's absolute path, or a repository and perhaps a revision of it."""

    folder: str | None
    repo: str | None
    revision: str | None


def parse_name(text: str, cwd: str, environ: Mapping[str, str]) -> NamedModel:
    """Return what a text names. An existing folder wins over a repository's name; a config.json means its folder.

    Forms: a path, ``ORG/NAME``, ``NAME`` (the oldest models), either with ``@REVISION``, ``hf://ORG/NAME@REVISION``,
    the address of a model's page, file, commit or pull request.
    Raises :class:`NameProblem`.
    """
    shown = printable(text)
    if not text.strip() or "\0" in text or len(text) > _LONGEST:
        raise NameProblem('"{}" is no name: give ORG/NAME or a folder', shown)
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    path = os.path.join(cwd, home + text[1:] if home and re.match(r"~(?:[/\\]|\Z)", text) else text)
    if os.path.isfile(path) and os.path.basename(path) == "config.json":
        path = os.path.dirname(path)
    if os.path.isdir(path):
        return NamedModel(os.path.abspath(path), None, None)
    if os.path.lexists(path):
        problem = Message("is a symbolic link that leads nowhere or in a circle")
        if os.path.exists(path):
            problem = Message("is neither a folder nor a file")
        if os.path.isfile(path):
            problem = Message("is a file: give config.json, or the folder that holds it")
        raise NameProblem("{} {}", shown, problem)
    address = _ADDRESS.match(text)
    name, at, revision = _in_address(text, address, shown) if address else text.partition("@")
    if re.match(r"ms:|modelscope:", text):
        raise NameProblem("{}: {} is not read; download the model and give its folder", shown, "ModelScope")
    if name.count("/") == 2 and not written_as_path(name):
        name = name.removesuffix("/")
    if not is_repo_name(name):
        if "://" not in text and not address and (written_as_path(name) or name.endswith("/") or name.count("/") > 1):
            raise NameProblem("{}: no such folder", shown)
        raise NameProblem(
            "{} is neither a folder nor a repository name (ORG/NAME of letters, digits, '-', '_' and '.')", shown
        )
    if re.fullmatch(r"(?=.*\d)[0-9a-f]{7,40}", name):
        raise NameProblem("{} is a commit: give the model before it, ORG/NAME {}", shown, shown)
    if at and not is_revision(revision) and not _MOMENT.match(revision):
        raise NameProblem("{}: what follows @ is not a revision (a branch, a tag or a commit)", shown)
    return NamedModel(None, name, revision or None)


def is_address(text: str) -> bool:
    """Return whether a text is the address of a page or of a repository, and not a plain name."""
    return _ADDRESS.match(text) is not None


def _in_address(text: str, address: re.Match[str], shown: str) -> tuple[str, str, str]:
    """Return the repository and the revision in an address, and an ``@`` between them if there is one."""
    from urllib.parse import unquote

    host = (address[1] or address[2] or "").lower()
    other = next((name for part, name in _OTHERS.items() if part in host), None)
    if other:
        raise NameProblem("{}: {} is not read; download the model and give its folder", shown, other)
    words = [unquote(word) for word in re.split(r"[?#]", text[address.end() :])[0].strip("/").split("/")]
    if words[0] in ("datasets", "spaces"):
        raise NameProblem("{} is the address of a dataset or a space: give a model", shown)
    words = words[1:] if words[0] == "models" and len(words) > 2 else words
    at = next((number for number, word in enumerate(words[:2]) if "@" in word), None)
    if at is not None:
        last, _, revision = words[at].partition("@")
        size, behind = at + 1, [revision, *words[at + 1 :]]
        words = [*words[:at], last]
    else:
        pages = (*_PAGES, "discussions")
        size = 1 if len(words) > 1 and words[1] in pages else 2
        page = words[size] if len(words) > size else ""
        behind = ["refs", "pr", *words[size + 1 :]] if page == "discussions" else words[size + 1 :]
        behind = behind if page in pages else []
    return "/".join(words[:size]), "@" if behind else "", "/".join(behind[: 3 if behind[:2] == ["refs", "pr"] else 1])


def is_repo_name(name: str) -> bool:
    """Return whether the Hub would accept the name of a repository: ``ORG/NAME`` or ``NAME``."""
    parts = name.split("/")
    if len(parts) > 2 or "--" in name or ".." in name or name.endswith((".git", ".json")):
        return False
    return all(_PART.match(part) for part in parts)


def is_revision(text: str) -> bool:
    """Return whether a branch, a tag or a commit can be called so."""
    return _REVISION.match(text) is not None and ".." not in text


def spellings(repo: str, aliases: Mapping[str, str]) -> list[str]:
    """Return the repository's name, then what the other names of its vendor make of it.

    ``aliases`` maps an organisation, or a whole repository, to its present name; case does not matter there.
    """
    present = {old.lower(): new for old, new in aliases.items()}

    def others(name: str) -> list[str]:
        now = present.get(name.lower(), name)
        former = sorted(old for old, new in aliases.items() if new.lower() == now.lower())
        return sorted({now, *former})

    organisation, slash, name = repo.rpartition("/")
    whole = [other for other in others(repo) if "/" in other]
    moved = [f"{other}/{name}" for other in others(organisation) if "/" not in other] if slash else []
    return list(dict.fromkeys([repo, *whole, *moved]))


def printable(text: str, limit: int = 200) -> str:
    """Return at most ``limit`` of a text, with control, bidirectional and surrogate characters as escapes."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def written_as_path(text: str) -> bool:
    """Return whether a text cannot be the name of a repository or of a revision, because it is written as a path."""
    is_path = text.startswith((".", "/", "~")) or text.endswith(".json") or "\\" in text
    return is_path or re.match("[A-Za-z]:/", text) is not None
