"""What derivations computed last time, for the facts of an environment that envdoctor's cache knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from envdoctor import __version__
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Value, restored, written
from envdoctor.text.cache import CacheFolder, sealed, unsealed
from envdoctor.text.message import packed, unpacked

#: Changes when the same facts give something else, or are written down otherwise.
_FORMAT = 5
_LARGEST = 4 << 20
_MOST_ENTRIES = 32
_SAME = "="


class Output(NamedTuple):
    """One value that a derivation gave: ``refines`` when it replaces a list that the derivation read."""

    key: str
    value: Value
    origin: str
    source: str
    refines: bool


class Memory:
    """The outputs of derivations, each with the facts that it asked for: kept ones by being the same, others by their
    value. Without a ``home`` (envdoctor's cache folder), or for facts that were not kept, nothing is remembered.
    ``edition`` tells by which tables they were computed."""

    def __init__(self, facts: FactSet, home: str | None, edition: str) -> None:
        self._now = facts
        self._same: dict[str, Fact] = dict(facts.kept.facts) if facts.kept else {}
        self._changed: set[str] = set()
        self._kept = home is not None and facts.kept is not None
        self._entries = CacheFolder(home if self._kept else None, "derived")
        name = facts.kept.name if facts.kept else ""
        self._key = [_FORMAT, __version__, edition, name]
        self._name = name.rpartition("-")[2]
        self._told: list[list[object]] = []
        self._new = False
        data = unsealed(self._entries.read(self._name, _LARGEST))
        self._known: dict[str, tuple[dict[str, str], list[Any], list[Output]]] = {}
        try:
            entry = json.loads(bytes(data or b"{}"))
            for name, asked, told in entry["told"] if entry["key"] == self._key else ():
                outputs = [Output(key, restored(value), unpacked(origin), *more) for key, value, origin, *more in told]
                self._known[name] = dict(asked), told, outputs
        except Exception:  # whatever is wrong with an entry means "not there"
            self._known = {}

    @property
    def names(self) -> list[str]:
        """The derivations that are remembered, in their order."""
        return list(self._known)

    def outputs(self, name: str) -> list[Output] | None:
        """What the derivation gave for the same facts; None when they are other ones."""
        if name not in self._known:
            return None
        asked, told, outputs = self._known[name]
        if any(key in self._changed or self._token(key) != one for key, one in asked.items()):
            return None
        self._told.append([name, asked, told])
        return outputs

    def add(self, name: str, asked: Sequence[str], outputs: Sequence[Output]) -> None:
        """Remember what it gave now."""
        if not self._kept:
            return
        self._new = True
        self._changed.update(one.key for one in outputs)
        told = [(one.key, written(one.value), packed(one.origin), *one[3:]) for one in outputs]
        self._told.append([name, {key: self._token(key) for key in asked}, told])

    def follows(self, key: str) -> None:
        """The fact as it is now follows from remembered ones."""
        self._same[key] = self._now.get(key)

    def write(self) -> None:
        """Keep what was added."""
        if self._new:
            data = json.dumps({"key": self._key, "told": self._told}, separators=(",", ":")).encode()
            if len(data) < _LARGEST:
                self._entries.write(self._name, sealed(data))
                self._entries.trim(_MOST_ENTRIES, ".json")

    def _token(self, key: str) -> str:
        fact = self._now.get(key)
        return _SAME if self._same.get(key) is fact else repr(fact.value)
