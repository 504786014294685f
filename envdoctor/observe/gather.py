"""Running the observers of rooms, in the order in which one rests on another; and facts that were found before, kept on
disk for the next run together with all that they rest on."""

import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from envdoctor import __version__
from envdoctor.facts.factset import FactSet, Kept
from envdoctor.facts.values import Fact, Unknown, restored, written
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.request import Observer, Request
from envdoctor.system.cache import CacheFolder, same_looks, settled, written_looks
from envdoctor.system.files import Files, Looks, Spent, digest
from envdoctor.system.message import Message, packed, said_by, unpacked

#: The observers of each room, by module, in the order in which they run: behind those whose facts they ask for.
_OBSERVERS = (
    ("machine", "machine.system", "compilers cuda_toolkit"),
    ("machine", "machine.driver", "driver"),
    ("machine", "machine.system", "system variables"),
    ("packages", "packages.installed", "installed"),
    ("packages", "machine.system", "build_parts"),
    ("packages", "packages.version_files", "shared_files"),
    ("binaries", "binaries.loading", "library_shadow"),
    ("source", "packages.link", "link"),
    ("packages", "packages.import_shadow", "import_shadow"),
    ("packages", "packages.package_damage", "package_damage"),
    ("packages", "packages.version_files", "torch_build"),
    ("binaries", "binaries.extension", "extension"),
    ("binaries", "binaries.loading", "torch_archs torch_loading libstdcxx"),
    ("model", "model.config", "config named"),
    ("model", "model.code", "remote_code"),
    ("model", "model.config", "tokenizer_and_weights"),
    ("model", "model.code", "registered"),
    ("code", "code.use", "use"),
)
Rows = Callable[..., Sequence[Mapping[str, Any]]]

#: Changes when the same sources give other facts, or facts are written down otherwise.
_FORMAT = 8
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
        self, home: str | None, kind: str, name: str, *, key: object, facts: FactSet, rows: Rows = lambda *table: ()
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
            content = bytes(data[8:end])
            entry = json.loads(content)
            if (
                entry["key"] == self._key
                and all(self._token(key) == token for key, token in entry["asked"].items())
                and all(_checksum(self._tables(*table)) == checksum for table, checksum in entry["rows"])
                and same_looks(data[end:], files, *base)
            ):
                facts = {
                    key: Fact(key, restored(value), unpacked(origin), source)
                    for key, value, origin, source in entry["facts"]
                }
                self.observers = [str(name) for name in entry["observers"]]
                self.kept = self._as_kept(content, facts)
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
        if not settled(self.looks, self._started):
            return None
        entry = {
            "key": self._key,
            "asked": self._asked,
            "rows": list(self._rows.items()),
            "facts": [(key, written(value), packed(origin), kind) for key, value, origin, kind in self._found.values()],
            "observers": self.observers,
        }
        content = json.dumps(entry, separators=(",", ":")).encode()
        data = b"%08x" % len(content) + content + written_looks(self.looks)
        if len(data) > _LARGEST:
            return None
        self._entries.write(self._name, data)
        return self._as_kept(content, self._found)

    def _as_kept(self, content: bytes, facts: Mapping[str, Fact]) -> Kept:
        return Kept(f"{digest(content).hex()}-{self._name}", facts)

    def _note(self, key: str) -> None:
        """Somebody asks for a fact: unless it was found here, its value counts."""
        if key not in self._found and key not in self._asked:
            self._asked[key] = self._token(key)

    def _token(self, key: str) -> str:
        fact, cached = self._now.get(key), self._now.kept
        return _SAME if cached is not None and cached.facts.get(key) is fact else repr(fact)


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


def gather(request: Request, rooms: Iterable[str]) -> FactSet:
    """Return the request's facts and those that the observers of the rooms give. Raises :class:`ObservationError`."""
    facts = request.facts.copy()
    request = request._replace(facts=facts)
    for observer in observers(*rooms):
        facts.update(_guarded(observer, request))
    return facts


def gather_kept(request: Request, rooms: Sequence[str]) -> FactSet:
    """Like `gather` of an environment on disk, but reuse cached facts whose sources have not changed."""
    facts = request.facts.copy()
    request = request._replace(facts=facts)
    place = request.place
    layout = [part for name, part in place._asdict().items() if name != "files"]
    question = (*rooms, place.files.root, request.platform)
    name = digest(repr((question, place.site_packages))).hex()
    cached = CachedFacts(request.cache, "facts", name, key=(question, layout), facts=facts, rows=request.rows)
    facts.update(cached.get(place.files, *filter(os.path.isdir, place.site_packages[:1])))
    confined = request._replace(facts=cached.facts, rows=cached.rows, environ={}, cache=None)
    for observer in observers(*rooms, known=tuple(cached.observers)):
        if not observer.kept:
            facts.update(_guarded(observer, request))
            continue
        place.files.looks = cached.looks
        answer = _guarded(observer, confined)
        if place.files.looks is not None:
            cached.add(answer, observer.name)
        place.files.looks = None
        facts.update(answer)
    facts.kept = cached.kept or cached.put()
    return facts


def _guarded(observer: Observer, request: Request) -> list[Fact]:
    """Return the observer's facts; a mistake of ours, or a file system that behaves oddly, costs these alone."""
    try:
        return observer.observe(request)
    except ObservationError:
        raise
    except Spent as spent:
        name, reason = "", Unknown(said_by(spent))
    except Exception as error:
        if os.environ.get("ENVDOCTOR_DEBUG"):
            raise
        name = observer.name
        reason = Unknown(Message("the observation {} failed: {}", name, type(error).__name__))
    if request.layout is not None and request.layout.files.looks is not None:
        request.layout.files.looks.failed = True
    return [Fact(key, reason, name, "") for key in observer.keys if not key.endswith("*")]


def observers(*rooms: str, known: Container[str] = ()) -> Iterator[Observer]:
    """Yield the observers of the rooms; modules of those whose facts are ``known`` are not imported for them."""
    for room, module, names in _OBSERVERS:
        for name in names.split() if room in rooms else ():
            if name not in known:
                yield getattr(import_module(f"envdoctor.observe.{module}"), name)
