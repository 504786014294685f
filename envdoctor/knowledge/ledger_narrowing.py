"""Leave out releases that no set can have, before a search that would try them all (arc consistency)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from envdoctor.knowledge.ledger_taking import Asked, Candidate, allows

#: Packages that are looked at again; a hard list takes some hundred.
_MOST = 3_000


class Choices(Protocol):
    """What can be taken, and what that requires."""

    def matches(self, name: str, asked: Sequence[Asked]) -> list[str] | None:
        """The releases of a package that meet all that is asked; None where others may meet it too."""

    def get_dependencies(self, candidate: Candidate) -> Iterable[Asked]:
        """What a release requires."""


class Contradiction(NamedTuple):
    """No release of the package meets all that is asked for."""

    name: str
    causes: tuple[Asked, ...]


def narrow(choices: Choices, asked: Sequence[Asked]) -> dict[str, set[str]] | Contradiction:
    """Return, of packages that any set must have, the releases that it may have; those left out certainly contradict
    what is asked for or what every release of another package requires."""
    return _Narrowing(choices, asked).run()


class _Narrowing:
    def __init__(self, choices: Choices, asked: Sequence[Asked]) -> None:
        self._choices = choices
        self._asks: dict[str, list[Asked]] = {}
        for one in asked:
            self._asks.setdefault(one.name, []).append(one)
        self._first: dict[str, list[str] | None] = {}
        self._left: dict[str, set[str]] = {}
        self._meeting: dict[tuple[str, str], set[str] | None] = {}
        self._possible: dict[tuple[str, str], bool] = {}
        self._required: dict[str, list[tuple[str, Asked]]] = {}
        self._askers: dict[str, set[str]] = {}
        self._queue = dict.fromkeys(self._asks)

    def run(self) -> dict[str, set[str]] | Contradiction:
        for name in self._asks:
            self._begin(name)
            if self._left.get(name) == set():
                return Contradiction(name, tuple(self._asks[name]))
        for _ in range(_MOST):
            if not self._queue:
                break
            name = next(iter(self._queue))
            del self._queue[name]
            contradiction = self._visit(name) if name in self._left else None
            if contradiction is not None:
                return contradiction
        return self._left

    def _begin(self, name: str) -> None:
        found = self._choices.matches(name, self._asks.get(name, []))
        self._first[name] = found
        if found is not None:
            self._left[name] = set(found)

    def _visit(self, name: str) -> Contradiction | None:
        left = self._left[name]
        required = [(version, wanted) for version, wanted in self._requirements(name) if version in left]
        why = {version: wanted for version, wanted in required if not self._is_possible(wanted)}
        if why:
            left -= set(why)
            self._queue.update(dict.fromkeys(self._askers.get(name, ())))
            if not left:
                wanted = next(iter(why.values()))
                others = [one for one in self._asks.get(wanted.name, ()) if one.pin or one.specifiers]
                return Contradiction(name, (*self._asks.get(name, ()), wanted, *others))
        by_name: dict[str, list[tuple[str, Asked]]] = {}
        for version, wanted in required:
            if version in left:
                by_name.setdefault(wanted.name, []).append((version, wanted))
                self._askers.setdefault(wanted.name, set()).add(name)
        for other, pairs in by_name.items():
            if len({version for version, _ in pairs}) == len(left):  # whatever is taken asks for it
                contradiction = self._bound(other, [wanted for _, wanted in pairs])
                if contradiction is not None:
                    return contradiction
        return None

    def _requirements(self, name: str) -> list[tuple[str, Asked]]:
        if name not in self._required:
            extras = tuple(sorted({extra for one in self._asks.get(name, ()) for extra in one.extras}))
            self._required[name] = [
                (version, wanted)
                for version in self._first[name] or ()
                for wanted in self._choices.get_dependencies(Candidate(name, extras, version))
                if wanted.name != name
            ]
        return self._required[name]

    def _bound(self, name: str, wanted: Sequence[Asked]) -> Contradiction | None:
        if name not in self._first:
            self._begin(name)
            self._queue[name] = None
        if name not in self._left:
            return None
        meeting: set[str] = set()
        for one in {one.specifiers: one for one in wanted}.values():
            found = self._met(one)
            if found is None:
                self._left.pop(name, None)
                return None
            meeting |= found
        left = self._left[name] & meeting
        if len(left) < len(self._left[name]):
            self._left[name] = left
            self._queue.update(dict.fromkeys((name, *self._askers.get(name, ()))))
        if not left:
            return Contradiction(name, (*self._asks.get(name, ()), wanted[0]))
        return None

    def _is_possible(self, wanted: Asked) -> bool:
        key = wanted.name, wanted.specifiers
        if wanted.name not in self._first:
            if key not in self._possible:
                self._possible[key] = self._choices.matches(wanted.name, [wanted]) != []
            return self._possible[key]
        found = self._met(wanted)
        return found is None or wanted.name not in self._left or bool(found & self._left[wanted.name])

    def _met(self, wanted: Asked) -> set[str] | None:
        """The releases that meet a requirement beside the lines of the list; None where others may."""
        key = wanted.name, wanted.specifiers
        if key not in self._meeting:
            first = self._first[wanted.name]
            met = {version for version in first or () if allows(wanted.specifiers, version)}
            if first is not None and not met:  # some are taken only where they are pinned
                found = self._choices.matches(wanted.name, [*self._asks.get(wanted.name, ()), wanted])
                first = None if found is None or found else first
            self._meeting[key] = None if first is None else met
        return self._meeting[key]
