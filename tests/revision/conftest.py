"""Snapshots from texts: what a repository looks like to the comparison, without a hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from envdoctor.hub import FileEntry, Unread


class TextSnapshot:
    """A snapshot of given contents. ``reads`` lists the paths that were read, ``broken`` those that cannot be."""

    def __init__(self, contents: Mapping[str, bytes], *, broken: Mapping[str, str], unhashed: Sequence[str]) -> None:
        self.repo = "org/model"
        self.asked = "org/model"
        self.revision = None
        self.label = "org/model"
        self.complete = True
        self.refused: tuple[Unread, ...] = ()
        self.contents = contents
        self.broken = broken
        self.reads: list[str] = []
        self.files = {
            path: FileEntry(path, len(content), self._oid(path, unhashed)) for path, content in contents.items()
        }

    def _oid(self, path: str, unhashed: Sequence[str]) -> str | None:
        return None if path in unhashed else "sha1:" + hashlib.sha1(self.contents[path]).hexdigest()

    def read(self, path: str, limit: int) -> bytes | Unread:
        self.reads.append(path)
        if path in self.broken:
            return Unread(path, self.broken[path])
        content = self.contents[path]
        if len(content) > limit:
            return Unread(path, f"it has {len(content)} bytes; at most {limit} are read")
        return content

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | Unread:
        content = self.contents[path]
        return [content[offset:][:length] for offset, length in ranges]

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        return {path: Unread(path, "no headers here") for path in paths}


@pytest.fixture
def snapshot() -> Callable[..., TextSnapshot]:
    """``snapshot({"config.json": {...}, "merges.txt": "..."})``: tables become JSON, texts UTF-8."""

    def build(
        files: Mapping[str, Any], *, broken: Mapping[str, str] | None = None, unhashed: Sequence[str] = ()
    ) -> TextSnapshot:
        contents = {
            path: value
            if isinstance(value, bytes)
            else value.encode()
            if isinstance(value, str)
            else json.dumps(value).encode()
            for path, value in files.items()
        }
        return TextSnapshot(contents, broken=broken or {}, unhashed=unhashed)

    return build
