"""Reading TOML files, with one sentence for a person when a file cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["TomlError", "load_toml", "parse_toml"]

_LARGEST = 8 * 1024 * 1024


class TomlError(ValueError):
    """A TOML file cannot be read: which, and what is wrong with it (with the parser's line and column)."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.problem = problem


def load_toml(path: Path) -> dict[str, Any]:
    """The parsed document. Raises :class:`TomlError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise TomlError(str(path), f"larger than {_LARGEST // 1024 // 1024} MiB, not read")
        data = path.read_bytes()
    except OSError as error:
        raise TomlError(str(path), f"cannot be read: {error.strerror or error}") from None
    return parse_toml(data, str(path))


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """Parse UTF-8 bytes. Raises :class:`TomlError`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise TomlError(name, f"not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(name, f"not TOML: {error}") from None
    except RecursionError:
        raise TomlError(name, "nested too deeply to be read") from None
    return document
