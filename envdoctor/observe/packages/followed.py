"""Follows the imports of an environment's packages. Runs in a bounded child.

``link.py`` says what it is asked. It answers with ``stops``, pairs of what stops an import, or a class, and the
statements, or classes, that it stops; ``why`` not all could be followed; ``needed``, the top-level modules without
which they fail; ``unread``, files and folders that an import reads and that could not be read here, each with the
reason and which Python cannot run it (:class:`~envdoctor.source.library.Unreadable`); ``files`` and ``folders``, what
was looked at for it.
"""

import sys
from collections.abc import Mapping
from typing import Any

from envdoctor.source.deciding import OutOfBudget
from envdoctor.source.importing import Importing
from envdoctor.source.inheriting import Inheriting
from envdoctor.source.library import Library
from envdoctor.source.values import UNKNOWN, Stop, World
from envdoctor.system.files import Files, Looks
from envdoctor.versions.pep440 import release_of
from envdoctor.versions.requirement import normalise

_RECURSION = 6000
#: How often what stops imports is taken as mended, to find what would stop them then.
_MOST_ROUNDS = 4
_LONGEST = 300
#: A statement, its module, the name in it or None, and whether that is a class to be compared with its base classes.
Entry = tuple[str, str, str | None, bool]
Found = tuple[list[Stop], list[Stop]]

#: Modules of Python that other releases have than the one that runs this.
_STANDARD = {"__main__", "annotationlib", "asynchat", "asyncore", "cgi", "compression", "distutils", "imp", "tomllib"}


def answer(**question: Any) -> dict[str, Any]:
    """Answer in a process of its own."""
    sys.setrecursionlimit(_RECURSION)
    return followed(question)


def followed(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the parent is told."""
    files = Files(question["root"])
    looks = files.looks = Looks()
    library = Library(question["folders"], files)
    following = Importing(library, _world(question))
    inheriting = Inheriting(following)
    stopped: dict[Stop, list[str]] = {}
    why = None
    # Another release has a name that is not offered.
    entries = [entry for entry in question["entries"] if not entry[2] or following.names.has(*entry[1:3]) is not False]

    def follow(entry: Entry, again: int) -> Found | None:
        """Return what stops a statement, and its class; None when it could not be followed to the end."""
        _, module, name, derives = entry
        try:
            stops = following.statement(module, [name] if name else [])
            of_class = inheriting.unfit(module, name) if derives and name and not stops and not again else ()
        except (OutOfBudget, RecursionError):
            return None
        return stops, list(of_class)

    for again in range(_MOST_ROUNDS):
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
        parties = {_parties(stop) for stop in stopped}
        shown = {stop: what for stop, what in found.items() if stop.consumer and (stop.kind != "raise" or stop.text)}
        stopped |= {stop: what for stop, what in shown.items() if _parties(stop) not in parties}
        if not failing:
            break
        following.mend(found)
        entries = failing
    return {
        "stops": [[_told(stop), statements] for stop, statements in stopped.items()],
        "why": why,
        "needed": sorted(following.needed),
        "unread": [
            *([path, str(one), one.fails] for path, one in following.unread.items()),
            *([path, f"cannot be listed: {reason}", ""] for path, reason in library.closed.items()),
        ],
        "files": looks.files,
        "folders": looks.folders,
    }


def _world(question: Mapping[str, Any]) -> World:
    versions: Mapping[str, str] = question["versions"]
    complete = bool(question["complete"])
    followed = frozenset(question["followed"])
    python = release_of(question["python"]) if question["python"] else None
    return World(
        version=lambda name: versions.get(normalise(name), None if complete else UNKNOWN),
        owners={module: (name,) for module, name in question["owners"].items()},
        python=(*python, 0, 0, 0)[:3] if python else None,
        platform=question["platform"],
        standard=frozenset(sys.stdlib_module_names) | _STANDARD,
        followed=followed.__contains__,
        complete=complete,
    )


def _parties(stop: Stop) -> tuple[str, str]:
    return stop.consumer.partition(".")[0], stop.module.partition(".")[0]


def _told(stop: Stop) -> dict[str, Any]:
    kind = "demand" if stop.kind == "raise" and stop.name.startswith("require_version") else stop.kind
    return {**stop._asdict(), "kind": kind, "text": stop.text[:_LONGEST]}
