"""Read TOML files, with one sentence for a person when a file cannot be read."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, MessageError

#: The most bytes of a TOML file.
LARGEST = 8 << 20
#: tomllib's time grows with the square of a key's parts; no real file has so many.
_MOST_PARTS = 200
_TEXTS = (
    rb"(?s)\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"\"\")?|'''(?:[^']|'(?!''))*(?:''')?"
    rb"|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|#[^\n]*"
)


class TomlError(MessageError, ValueError):
    """A TOML file cannot be read: its name, and the problem (with the parser's line and column)."""

    def __init__(self, name: str, problem: Message) -> None:
        super().__init__(Message("{}: {}", name, problem))
        self.problem = problem


def load_toml(path: Path) -> dict[str, Any]:
    """Parse a regular file. Raises :class:`TomlError`."""
    try:
        data = Files().whole(str(path), LARGEST)
    except OSError as error:
        raise TomlError(str(path), Message("cannot be read: {}", because_of(error))) from None
    return parse_toml(data, str(path))


def _dots(parts: Iterable[bytes]) -> int:
    """Return the largest number of dots in a part."""
    return max(part.count(b".") for part in parts)


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """Parse UTF-8 bytes. Raises :class:`TomlError`."""
    try:  # its compiled wheels are three times as fast as what Python brings
        import tomli as tomllib
    except ImportError:
        import tomllib  # type: ignore[no-redef,unused-ignore]
    if _dots(data.split(b"\n")) >= _MOST_PARTS <= _dots(re.split(rb"[^\w. \t-]", re.sub(_TEXTS, b"a", data))):
        raise TomlError(name, Message("not TOML that can be read: a key has {} parts or more", _MOST_PARTS))
    try:
        document: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise TomlError(name, Message("not UTF-8 text (byte {})", error.start)) from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(name, Message("not TOML: {}", error)) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise TomlError(name, Message("not TOML that can be read: {}", error)) from None
    except RecursionError:
        raise TomlError(name, Message("nested too deeply to be read")) from None
    return document
