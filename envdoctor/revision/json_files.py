"""JSON objects among the files of a snapshot."""

from __future__ import annotations

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.models.json_object import LARGEST, JsonObject, JsonProblem, parse_object
from envdoctor.text.message import Message


def read_json(snapshot: Snapshot, path: str, limit: int = LARGEST) -> JsonObject | Unread | None:
    """The object in ``path``; None when the snapshot has no such file, unread with the reason when it cannot be had."""
    if path not in snapshot.files:
        return None
    content = snapshot.read(path, limit)
    return content if isinstance(content, Unread) else parse_json(content, path)


def parse_json(content: bytes, path: str) -> JsonObject | Unread:
    """The object in a file's bytes."""
    try:
        return parse_object(content)
    except JsonProblem as error:
        return Unread(path, Message("it {}", error))
