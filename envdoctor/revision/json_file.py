"""JSON objects of a snapshot, read as hostile input: size, depth, repeated keys, numbers without end."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread

__all__ = ["DEEPEST", "JsonFile", "parse_object", "read_object"]

#: Levels of nesting that are followed. Configurations of the Hub's models have at most about ten.
DEEPEST = 60
_LONG_NUMBER = re.compile(rb"[0-9]{4301}")


class JsonFile(NamedTuple):
    """A JSON object. ``repeated`` are keys that are given twice in one object (readers disagree on which one counts;
    ``data`` holds the last, as Python and transformers do)."""

    data: dict[str, Any]
    repeated: tuple[str, ...] = ()


def read_object(snapshot: Snapshot, path: str, limit: int) -> JsonFile | Unread | None:
    """The object in ``path``; None when the snapshot has no such file, unread with the reason when it cannot be had."""
    if path not in snapshot.files:
        return None
    content = snapshot.read(path, limit)
    return content if isinstance(content, Unread) else parse_object(content, path)


def parse_object(content: bytes, path: str) -> JsonFile | Unread:
    """The object in UTF-8 bytes; unread when it is no JSON, no object or nested more than :data:`DEEPEST` levels."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) != len(items) and len(repeated) < 20:
            seen: set[str] = set()
            for key, _ in items:
                if key in seen and key not in repeated:
                    repeated.append(key)
                seen.add(key)
        return table

    # Before 3.10.7 Python read a number of a million digits, in minutes.
    if not hasattr(sys, "get_int_max_str_digits") and _LONG_NUMBER.search(content):
        return Unread(path, "it holds a number that is too long to read")
    try:
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        return Unread(path, f"it is not UTF-8 text (byte {error.start})")
    except json.JSONDecodeError as error:
        return Unread(path, f"it is not JSON (line {error.lineno}, column {error.colno}: {error.msg})")
    except ValueError:
        return Unread(path, "it holds a number that is too long to read")
    except (RecursionError, MemoryError):
        return Unread(path, "it is nested too deeply, or too large in memory, to be read")
    if not isinstance(data, dict):
        return Unread(path, f"it is not a JSON object but {_article(data)}")
    if _deeper(data, DEEPEST):
        return Unread(path, f"it is nested more than {DEEPEST} levels deep")
    return JsonFile(data, tuple(repeated))


def _article(data: object) -> str:
    if isinstance(data, list):
        return "a list"
    if isinstance(data, str):
        return "text"
    return "null" if data is None else "true or false" if isinstance(data, bool) else "a number"


def _deeper(data: object, levels: int) -> bool:
    """Whether anything lies below that many levels. Level by level: recursion is what a hostile file would break."""
    layer: list[Any] = [data]
    for _ in range(levels):
        layer = [
            child
            for container in layer
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not layer:
            return False
    return True
