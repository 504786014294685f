"""What was found in an environment's files, kept for the next run: one entry an environment.

An observer with ``KEPT = True`` rests on nothing but the request's environment on disk (read through its ``files``),
rows of tables, and other facts. Its facts count again for as long as all that it looked at is as it was; what rests on
more says so by ``request.place.files.looks = None``. Every failure of the disk means "not there".
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor import __version__
from envdoctor.facts.factset import FactSet, Kept
from envdoctor.facts.values import Fact, restored, written
from envdoctor.observe.request import Request
from envdoctor.text import looks
from envdoctor.text.cache import CacheFolder, sealed, unsealed
from envdoctor.text.files import Looks, digest
from envdoctor.text.message import packed, unpacked

#: Changes when other things are found in the same files, or are written down otherwise.
_FORMAT = 5
_LARGEST = 16 << 20
_MOST_ENTRIES = 32


class Known(NamedTuple):
    """What is known from last time, and the observers (module names) that need not look again."""

    kept: Kept | None = None
    observers: frozenset[str] = frozenset()


class KeptFacts:
    """The entry of the request's environment for these rooms below the request's cache folder."""

    def __init__(self, request: Request, rooms: Iterable[str]) -> None:
        place = request.place
        layout = [one for name, one in place._asdict().items() if name != "files"]
        asked = (*rooms, place.files.root, request.platform)
        self._key = repr((_FORMAT, __version__, sys.version_info[:3], asked, layout))
        self._entries = CacheFolder(request.cache, "facts")
        self._name = f"{digest(repr((asked, place.site_packages))).hex()}.json"
        self._request = request
        self._started = time.time_ns()
        self._looks = Looks()
        self._asked: set[str] = set()
        self._rows: dict[tuple[str, ...], str] = {}
        self._found: list[Fact] = []
        self._observers: list[str] = []

    def get(self) -> Known:
        """What still counts; nothing when anything is not as it was."""
        data = unsealed(self._entries.read(self._name, _LARGEST))
        if data is None:
            return Known()
        value, rows, place = self._request.value, self._request.rows, self._request.place
        try:
            end = 8 + int(bytes(data[:8]), 16)
            told = bytes(data[8:end])
            entry = json.loads(told)
            if (
                entry["key"] == self._key
                and all(repr(value(key)) == asked for key, asked in entry["asked"].items())
                and all(_checksum(rows(*table)) == known for table, known in entry["rows"])
                and looks.same(data[end:], place.files, *filter(os.path.isdir, place.site_packages[:1]))
            ):
                facts = [
                    Fact(key, restored(found), unpacked(origin), source)
                    for key, found, origin, source in entry["facts"]
                ]
                return Known(self._kept(told, facts), frozenset(entry["observers"]))
        except Exception:  # whatever is wrong with an entry, or takes too long to compare, means "not there"
            pass
        return Known()

    def request(self, facts: FactSet) -> Request:
        """The request as an observer that is kept sees it."""
        return self._request._replace(facts=_Heard(facts, self._asked), rows=self._heard_rows, environ={}, cache=None)

    def _heard_rows(self, *table: str) -> Sequence[Mapping[str, Any]]:
        rows = self._request.rows(*table)
        self._rows[table] = _checksum(rows)
        return rows

    def listen(self) -> None:
        """From now on, what is looked at counts."""
        self._request.place.files.looks = self._looks

    def heard(self, observer: str, facts: Iterable[Fact]) -> None:
        """What the observer found since then."""
        files = self._request.place.files
        if files.looks is self._looks:
            self._observers.append(observer)
            self._found += facts
        files.looks = None

    def put(self) -> Kept | None:
        """Keep it all, unless something was changed just now."""
        if not looks.settled(self._looks, self._started):
            return None
        own = {fact.key for fact in self._found}
        entry = {
            "key": self._key,
            "asked": {key: repr(self._request.value(key)) for key in sorted(self._asked - own)},
            "rows": list(self._rows.items()),
            "facts": [(fact.key, written(fact.value), packed(fact.origin), fact.source) for fact in self._found],
            "observers": self._observers,
        }
        told = json.dumps(entry, separators=(",", ":")).encode()
        data = sealed(b"%08x" % len(told) + told + looks.written(self._looks))
        if len(data) > _LARGEST:
            return None
        self._entries.write(self._name, data)
        self._entries.trim(_MOST_ENTRIES, ".json")
        return self._kept(told, self._found)

    def _kept(self, told: bytes, facts: Iterable[Fact]) -> Kept:
        return Kept(f"{digest(told).hex()}-{self._name}", {fact.key: fact for fact in facts})


class _Heard(FactSet):
    """Facts that note which of them somebody asked for."""

    def __init__(self, facts: FactSet, asked: set[str]) -> None:
        super().__init__()
        self._of, self._asked = facts, asked

    def get(self, key: str) -> Fact:
        self._asked.add(key)
        return self._of.get(key)


def _checksum(rows: object) -> str:
    return digest(repr(rows)).hex()
