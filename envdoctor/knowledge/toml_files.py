"""Reading TOML files, with one sentence for a person when a file cannot be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["TomlError", "load_toml", "parse_toml"]

_LARGEST = 8 * 1024 * 1024


class TomlError(ValueError):
    """A TOML file cannot be read; the message names the file and the place."""


def load_toml(path: Path) -> dict[str, Any]:
    """The parsed document. Raises :class:`TomlError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise TomlError(f"{path}: larger than {_LARGEST // 1024 // 1024} MiB, not read")
        data = path.read_bytes()
    except OSError as error:
        raise TomlError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse_toml(data, str(path))


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """Parse UTF-8 bytes. Raises :class:`TomlError`, which carries the parser's line and column."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise TomlError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise TomlError(f"{name}: nested too deeply to be read") from None
    return document
