"""What stopped an environment's imports, kept for the next run: one JSON file an environment.

An entry counts only for the same question, the same folders of packages and the same files that were read for it, by
size and time of change. Every failure of the disk means "not there".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from envdoctor import __version__
from envdoctor.text.cache import CacheFolder
from envdoctor.text.files import Files

__all__ = ["FollowedCache"]

#: Changes when other things are found in the same files.
_FORMAT = 2
_LARGEST = 4 << 20
_MOST_ENTRIES = 32
_TEXTS = ("kind", "consumer", "module", "name", "text", "keyword")


class FollowedCache:
    """The entry of one environment below ``home`` (envdoctor's cache folder); without a home there is none."""

    def __init__(self, home: str | None, folders: Sequence[str], asked: Mapping[str, Any]) -> None:
        self._entries = CacheFolder(home, "links")
        self._folders = folders
        self._name = sha256("\0".join(folders).encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"
        question = json.dumps([_FORMAT, __version__, asked], sort_keys=True)
        self._key = sha256(question.encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, files: Files) -> dict[str, Any] | None:
        """The answer for these files, or None."""
        data = self._entries.read(self._name, _LARGEST)
        try:
            found = json.loads(data or b"")
            if found["key"] != self._key or found["folders"] != [self._time(folder, files) for folder in self._folders]:
                return None
            if not all(self._same(path, size, time, files) for path, size, time in found["files"]):
                return None
            stops = [[_stop(stop), [str(one) for one in stopped]] for stop, stopped in found["stops"]]
            why = found["why"]
        except (ValueError, TypeError, KeyError, RecursionError, OSError):
            return None
        return {"stops": stops, "why": why} if why is None or isinstance(why, str) else None

    def put(self, answer: Mapping[str, Any]) -> None:
        """Keep an answer; whole or not at all."""
        folders = [self._time(folder, Files()) for folder in self._folders]
        data = json.dumps({"key": self._key, "folders": folders, **answer}, separators=(",", ":")).encode()
        if len(data) <= _LARGEST:
            self._entries.write(self._name, data)
            self._entries.trim(_MOST_ENTRIES, ".json")

    @staticmethod
    def _time(folder: str, files: Files) -> int:
        try:
            return files.status(folder).st_mtime_ns
        except OSError:
            return -1

    @staticmethod
    def _same(path: str, size: int, time: int, files: Files) -> bool:
        status = files.status(path)
        return status.st_size == size and status.st_mtime_ns == time


def _stop(stop: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ``ValueError`` for what is no stop."""
    if not all(isinstance(stop[column], str) for column in _TEXTS) or not isinstance(stop["line"], int):
        raise ValueError("not a stop")
    parameters = [str(one) for one in stop["parameters"]]
    texts = {column: stop[column] for column in _TEXTS}
    return {**texts, "line": stop["line"], "parameters": parameters, "always": stop["always"] is True}
