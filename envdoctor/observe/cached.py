"""Facts that were found before, kept on disk for the next run together with all that they rest on."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envdoctor import __version__
from envdoctor.facts.factset import FactSet, Kept
from envdoctor.facts.values import Fact, restored, written
from envdoctor.text import looks
from envdoctor.text.cache import CacheFolder
from envdoctor.text.files import Files, Looks, digest
from envdoctor.text.message import packed, unpacked

Rows = Callable[..., Sequence[Mapping[str, Any]]]

#: Changes when the same sources give other facts, or facts are written down otherwise.
_FORMAT = 6
_LARGEST = 16 << 20
_MOST_ENTRIES = 32
#: Stands for the value of a fact that is as it was kept.
_SAME = "="


class CachedFacts:
    """One entry of envdoctor's cache ``home`` (None: nothing is kept), in the folder ``kind``.

    Its facts count again for as long as the ``key``, the facts and rows that somebody asked for, and the files that
    somebody looked at are as they were. ``facts`` and ``rows`` are handed to those who look anew, and ``looks`` to the
    files that they read. ``kept`` are the facts of the entry, ``observers`` those who need not look again.
    """

    def __init__(
        self,
        home: str | None,
        kind: str,
        name: str,
        *,
        key: object,
        facts: FactSet,
        rows: Rows = lambda *table: (),
    ) -> None:
        self._entries = CacheFolder(home, kind, _MOST_ENTRIES)
        self._name = f"{name}.json"
        self._key = repr((_FORMAT, __version__, sys.version_info[:3], key))
        self._now, self._tables = facts, rows
        self._started = time.time_ns()
        self._asked: dict[str, str] = {}
        self._rows: dict[tuple[str, ...], str] = {}
        self._found: dict[str, Fact] = {}
        self.facts: FactSet = facts if home is None else _Noting(facts, self._note)
        self.looks = Looks()
        self.observers: list[str] = []
        self.kept: Kept | None = None

    def get(self, files: Files, *base: str) -> Iterable[Fact]:
        """Return the facts of the entry; none when anything is not as it was. Most files lie in ``base``."""
        data = self._entries.read(self._name, _LARGEST)
        if data is None:
            return ()
        try:
            end = 8 + int(bytes(data[:8]), 16)
            told = bytes(data[8:end])
            entry = json.loads(told)
            if (
                entry["key"] == self._key
                and all(self._token(key) == asked for key, asked in entry["asked"].items())
                and all(_checksum(self._tables(*table)) == known for table, known in entry["rows"])
                and looks.same(data[end:], files, *base)
            ):
                found = {
                    key: Fact(key, restored(value), unpacked(origin), source)
                    for key, value, origin, source in entry["facts"]
                }
                self.observers = [str(name) for name in entry["observers"]]
                self.kept = self._as_kept(told, found)
        except Exception:  # whatever is wrong with an entry, or takes too long to compare, is a missing entry
            pass
        return self.kept.facts.values() if self.kept else ()

    def rows(self, *table: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a table, which count from now on."""
        rows = self._tables(*table)
        self._rows[table] = _checksum(rows)
        return rows

    def add(self, facts: Iterable[Fact], observer: str = "") -> None:
        """Take what an observer found."""
        self._found.update((fact.key, fact) for fact in facts)
        self.observers += [observer] if observer else []

    def put(self) -> Kept | None:
        """Keep what was found, unless something that it rests on was changed just now."""
        if not looks.settled(self.looks, self._started):
            return None
        entry = {
            "key": self._key,
            "asked": self._asked,
            "rows": list(self._rows.items()),
            "facts": [(key, written(value), packed(origin), kind) for key, value, origin, kind in self._found.values()],
            "observers": self.observers,
        }
        told = json.dumps(entry, separators=(",", ":")).encode()
        data = b"%08x" % len(told) + told + looks.written(self.looks)
        if len(data) > _LARGEST:
            return None
        self._entries.write(self._name, data)
        return self._as_kept(told, self._found)

    def _as_kept(self, told: bytes, found: Mapping[str, Fact]) -> Kept:
        return Kept(f"{digest(told).hex()}-{self._name}", found)

    def _note(self, key: str) -> None:
        """Somebody asks for a fact: unless it was found here, its value counts."""
        if key not in self._found and key not in self._asked:
            self._asked[key] = self._token(key)

    def _token(self, key: str) -> str:
        fact, kept = self._now.get(key), self._now.kept
        return _SAME if kept is not None and kept.facts.get(key) is fact else repr(fact)


class _Noting(FactSet):
    """Facts that note which of them somebody asks for."""

    def __init__(self, facts: FactSet, note: Callable[[str], None]) -> None:
        super().__init__()
        self._of, self._note = facts, note

    def get(self, key: str) -> Fact:
        self._note(key)
        return self._of.get(key)


def _checksum(rows: object) -> str:
    return digest(repr(rows)).hex()
