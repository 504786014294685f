"""Running the observations that apply: every module of the rooms of observers, in the order of what they need.

An observer is a module of ``machine/``, ``packages/``, ``binaries/`` or ``model/`` (what these read with lies in their
``reading/``). It has ``KEYS``, the facts that it gives, ``observe(request)``, which returns each of them once, and may
have ``NEEDS``, keys that must have been observed before. What cannot be read is
:class:`~envdoctor.facts.values.Unknown` with its reason; what is known not to exist is ``ABSENT``. It judges nothing,
imports nothing of the environment, and looks at nothing but what the request names.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from importlib import import_module
from typing import Protocol, cast

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.cached import CachedFacts
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.request import Request
from envdoctor.text.files import Spent, digest
from envdoctor.text.message import Message, said_by


class Observer(Protocol):
    """What a module of an observers' room offers."""

    __name__: str
    KEYS: tuple[str, ...]

    def observe(self, request: Request) -> list[Fact]: ...


def gather(request: Request, rooms: Iterable[str]) -> FactSet:
    """The request's facts and those that the observers of the rooms give. Raises :class:`ObservationError`."""
    facts = request.facts.copy()
    request = request._replace(facts=facts)
    for observer in _ordered([one for room in rooms for one in observers(room)]):
        facts.update(_guarded(observer, request))
    return facts


def gather_kept(request: Request, rooms: Sequence[str]) -> FactSet:
    """Like `gather` of an environment on disk, but reuse cached facts whose sources have not changed.

    An observer with ``KEPT = True`` rests on nothing but the request's environment on disk (read through its
    ``files``), rows of tables, and other facts. What rests on more says so by ``request.place.files.looks = None``.
    """
    facts = request.facts.copy()
    request = request._replace(facts=facts)
    place = request.place
    layout = [one for name, one in place._asdict().items() if name != "files"]
    asked = (*rooms, place.files.root, request.platform)
    name = digest(repr((asked, place.site_packages))).hex()
    cached = CachedFacts(request.cache, "facts", name, key=(asked, layout), facts=facts, rows=request.rows)
    facts.update(cached.get(place.files, *filter(os.path.isdir, place.site_packages[:1])))
    confined = request._replace(facts=cached.facts, rows=cached.rows, environ={}, cache=None)
    for observer in _ordered([one for room in rooms for one in observers(room, cached.observers)]):
        if not getattr(observer, "KEPT", False):
            facts.update(_guarded(observer, request))
            continue
        place.files.looks = cached.looks
        found = _guarded(observer, confined)
        if place.files.looks is not None:
            cached.add(found, observer.__name__)
        place.files.looks = None
        facts.update(found)
    facts.kept = cached.kept or cached.put()
    return facts


def _guarded(observer: Observer, request: Request) -> list[Fact]:
    """The observer's facts; a mistake of ours, or a file system that behaves oddly, costs these facts and no others."""
    try:
        return observer.observe(request)
    except ObservationError:
        raise
    except Spent as spent:
        name, reason = "", Unknown(said_by(spent))
    except Exception as error:
        if os.environ.get("ENVDOCTOR_DEBUG"):
            raise
        name = observer.__name__.rpartition(".")[2]
        reason = Unknown(Message("the observation {} failed: {}", name, type(error).__name__))
    if request.layout is not None and request.layout.files.looks is not None:
        request.layout.files.looks.failed = True
    return [Fact(key, reason, name, "") for key in observer.KEYS if not key.endswith("*")]


def observers(room: str, known: Container[str] = ()) -> list[Observer]:
    """Return the observers of a room, without those whose facts are ``known``."""
    # pkgutil would do the same and costs 3 ms to import.
    folder = os.path.join(os.path.dirname(__file__), room)
    names = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py") and name != "__init__.py")
    modules = [f"envdoctor.observe.{room}.{name}" for name in names]
    return [cast(Observer, import_module(name)) for name in modules if name not in known]


def _ordered(observers: Sequence[Observer]) -> list[Observer]:
    ordered: list[Observer] = []
    waiting = list(observers)
    while waiting:
        missing = {key for one in waiting for key in one.KEYS}
        ready = [one for one in waiting if missing.isdisjoint(getattr(one, "NEEDS", ()))]
        if not ready:
            raise RuntimeError(f"observations wait for each other: {sorted(missing)}")
        ordered += ready
        waiting = [one for one in waiting if one not in ready]
    return ordered
