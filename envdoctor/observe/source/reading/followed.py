"""Follows the imports of an environment's packages. Runs in a bounded child.

It reads one JSON object on stdin (``link.py`` says what is in it) and answers with one: ``stops``, pairs of what stops
an import, or a class, and the statements, or classes, that it stops; ``why`` not all could be followed; ``files`` and
``folders``, what was looked at for it.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

from envdoctor.sandbox.two import Ahead, by_two, processors
from envdoctor.source.importing import Importing, OutOfBudget
from envdoctor.source.inheriting import Inheriting
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.offers import absolute
from envdoctor.source.world import UNKNOWN, Stop, World
from envdoctor.text.files import Files, Looks
from envdoctor.text.looks import add
from envdoctor.versions.names import normalise
from envdoctor.versions.pep440 import release_of

__all__ = ["answer", "main"]

_RECURSION = 6000
#: How often what stops imports is taken as mended, to find what would stop them then.
_MOST_ROUNDS = 4
_LONGEST = 300
#: What most others take from.
_FIRST = ("torch", "transformers")
_MARK = Struct("<qq")
#: What stands in a module for tools that check types, and imports.
_FOR_TYPES = re.compile(rb"^if (?:\w+\.)?TYPE_CHECKING:[^\n]*\n(?:[ ]+[^\n]*\n|\n){0,20000}", re.MULTILINE)
_IMPORTS = re.compile(
    rb"^[ ]*(?:import[ ]+([\w.]+)|from[ ]+(\.*)(\w[\w.]*)?[ ]+import[ ]+(?:\(([\w\s,]*)|([\w ,]*)))", re.MULTILINE
)

#: A statement, its module, the name in it or None, and whether that is a class to be compared with its base classes.
Entry = tuple[str, str, str | None, bool]
Found = tuple[list[Stop], list[Stop]]


def main() -> None:
    """Answer the question on stdin, and end."""
    sys.setrecursionlimit(_RECURSION)
    gc.disable()  # syntax trees are many small objects without circles: collecting takes half of the time
    asked = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(answer(asked, divided=processors() > 1), separators=(",", ":")))
    sys.stdout.flush()
    os._exit(0)  # taking the names and trees of thousands of modules down one by one takes a tenth of the time


def answer(asked: Mapping[str, Any], *, divided: bool = False) -> dict[str, Any]:
    """What the parent is told. ``divided``: by a copy of this process beside it."""
    files = Files(asked["root"])
    looks = files.looks = Looks()
    library = Library(asked["folders"], files)
    following = Importing(library, _world(asked))
    inheriting = Inheriting(library, following)
    stopped: dict[Stop, list[str]] = {}
    why = None
    # Another release has a name that is not offered.
    entries = [entry for entry in asked["entries"] if not entry[2] or following.names.has(*entry[1:3]) is not False]

    def follow(entry: Entry, again: int) -> Found | None:
        """What stops a statement, and its class; None when it could not be followed to the end."""
        _, module, name, derives = entry
        try:
            stops = following.statement(module, [name] if name else [])
            of_class = inheriting.unfit(module, name) if derives and name and not stops and not again else ()
        except (OutOfBudget, RecursionError):
            return None
        return stops, list(of_class)

    for again in range(_MOST_ROUNDS):
        if divided and not again:
            results = _divided(entries, lambda entry: follow(entry, 0), following, looks)
        else:
            results = [follow(entry, again) for entry in entries]
        found: dict[Stop, list[str]] = {}
        failing = []
        for entry, result in zip(entries, results, strict=True):
            statement, module, name, _ = entry
            if result is None:
                why = why or f"what `{statement}` takes could not be followed to the end"
                continue
            for stop in result[0]:
                found.setdefault(stop, []).append(statement)
            if result[0]:
                failing.append(entry)
            for stop in result[1]:
                found.setdefault(stop, []).append(f"{module}.{name}")
        # What fails behind it is told of packages of which nothing is told yet: a cure has to meet that too.
        told = {_parties(stop) for stop in stopped}
        stopped |= {stop: what for stop, what in found.items() if _is_told(stop) and _parties(stop) not in told}
        if not failing:
            break
        following.mend(found)
        entries = failing
    return {
        "stops": [[_told(stop), statements] for stop, statements in stopped.items()],
        "why": why,
        "files": looks.files,
        "folders": looks.folders,
    }


def _divided(
    entries: Sequence[Entry], follow: Callable[[Entry], Found | None], following: Importing, looks: Looks
) -> list[Found | None]:
    """What ``follow`` says of each: first of the packages that most others take from, whose files are read meanwhile by
    a copy of this process, then by two, package by package, of the others."""
    library, modules = following.library, [*_FIRST, *(module for _, module, _, _ in entries)]
    packages: dict[str, list[int]] = {}
    for number, (_, module, _, _) in enumerate(entries):
        packages.setdefault(module.partition(".")[0], []).append(number)
    first = [number for top in _FIRST for number in packages.pop(top, ())]
    ahead = Ahead(lambda: _short_sources(library, following.world, modules, looks))
    library.ahead = lambda path: _noted(path, ahead.take(path), looks)
    results = {number: follow(entries[number]) for number in first}
    ahead.end()
    groups = list(packages.values())
    done, seen = by_two(
        len(groups),
        lambda group: [(number, follow(entries[number])) for number in groups[group]],
        lambda: (looks.files, looks.folders),
    )
    for number, result in (one for group in done.values() for one in group):
        results[number] = result and ([_stop(stop) for stop in result[0]], [_stop(stop) for stop in result[1]])
    if seen is not None:
        add(looks, *seen)
    return [results[number] for number in range(len(entries))]


def _short_sources(library: Library, world: World, modules: Iterable[str], looks: Looks) -> Iterator[tuple[str, bytes]]:
    """The modules that these import, about in the order in which they do, each behind the mark of its file."""
    seen: set[str] = set()
    waiting = list(modules)[::-1]
    while waiting:
        module = waiting.pop()
        parent = module.rpartition(".")[0]
        if module in seen or not world.followed(module.partition(".")[0]):
            continue
        if parent and parent not in seen:
            waiting += (module, parent)
            continue
        seen.add(module)
        found = library.find(module)
        if found is None or found.kind != "source":
            continue
        try:
            short = library.short(found.path)
        except Unreadable:
            continue
        yield found.path, _MARK.pack(*looks.files[found.path]) + short
        taken = []
        for name, dots, rest, *names in _IMPORTS.findall(_FOR_TYPES.sub(b"", short)):
            base = absolute((rest or name).decode() or None, len(dots), module, bool(found.paths))
            taken.append(base)
            if any(names) and (package := library.find(base)) is not None and package.paths:
                taken += (f"{base}.{one}" for one in b"".join(names).decode().replace(",", " ").split())
        waiting += taken[::-1]


def _noted(path: str, made: bytes | None, looks: Looks) -> bytes | None:
    """A source that was made ahead, whose file counts as looked at then."""
    if made is None:
        return None
    looks.files.setdefault(path, _MARK.unpack_from(made))
    return made[_MARK.size :]


def _stop(told: Sequence[Any]) -> Stop:
    """A stop that may have come as JSON."""
    stop = Stop._make(told)
    return stop._replace(parameters=tuple(stop.parameters))


def _world(asked: Mapping[str, Any]) -> World:
    versions: Mapping[str, str] = asked["versions"]
    complete = bool(asked["complete"])
    followed = frozenset(asked["followed"])
    python = release_of(asked["python"]) if asked["python"] else None
    return World(
        version=lambda name: versions.get(normalise(name), None if complete else UNKNOWN),
        owners={module: (name,) for module, name in asked["owners"].items()},
        python=(*python, 0, 0, 0)[:3] if python else None,
        platform=asked["platform"],
        standard=frozenset(sys.stdlib_module_names) | {"distutils", "imp", "__main__", "asyncore", "asynchat", "cgi"},
        followed=followed.__contains__,
        complete=complete,
    )


def _is_told(stop: Stop) -> bool:
    return bool(stop.consumer) and (stop.kind != "raise" or bool(stop.text))


def _parties(stop: Stop) -> tuple[str, str]:
    return stop.consumer.partition(".")[0], stop.module.partition(".")[0]


def _told(stop: Stop) -> dict[str, Any]:
    kind = "demand" if stop.kind == "raise" and stop.name.startswith("require_version") else stop.kind
    return {**stop._asdict(), "kind": kind, "text": stop.text[:_LONGEST]}
