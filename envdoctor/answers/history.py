"""Which releases of one package have something: by what the ledger read of them, and of those between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from envdoctor.answers.answer import Home
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Released
from envdoctor.knowledge.moved_names import Move
from envdoctor.versions.pep440 import NotASpecifier, nearest, satisfies
from envdoctor.versions.spans import spell_spans


class History(NamedTuple):
    """``versions`` are the releases that were read, in order; ``has`` says of each whether it has the thing. ``doubt``
    is the reason why one that seems to lack it may have it, ``unsure`` of how many that cannot be told."""

    released: Released
    versions: tuple[str, ...]
    has: tuple[bool, ...]
    doubt: str = ""
    unsure: int = 0

    @property
    def specifier(self) -> str | None:
        """The releases that have it, for people."""
        return spell_spans(self.versions, self.has)

    def __invert__(self) -> History:
        return self._replace(has=tuple(not one for one in self.has))

    def __or__(self, other: object) -> History:
        if not isinstance(other, History):
            return NotImplemented
        has = tuple(one or two for one, two in zip(self.has, other.has, strict=True))
        return self._replace(has=has, doubt=self.doubt or other.doubt)

    def also(self, moves: Iterable[Move]) -> History:
        """The same with the releases that rows of the table name: they know what decorators take."""
        rows = [move for move in moves if move.package == self.released.name and move.releases != "<0"]
        more = tuple(any(move.has(version) is True for move in rows) for version in self.versions)
        return self | self._replace(has=more)

    def releases(self) -> list[str]:
        """Every release that has it and was not withdrawn, in order; one that was not read when both its neighbours
        have it."""
        has = dict(zip(self.versions, self.has, strict=True))
        found: list[str] = []
        between: list[str] = []
        before = False
        for release in self.released.releases:
            if release.version not in has:
                between += [] if release.yanked else [release.version]
                continue
            if before and has[release.version]:
                found += between
            between, before = [], has[release.version]
            if before and not release.yanked:
                found.append(release.version)
        return found


class Found(NamedTuple):
    """The releases that have something, for people, and as what the ledger read (None: by a table)."""

    home: Home
    history: History | None

    @classmethod
    def read(cls, situation: Situation, history: History, kind: str, thing: str, there: bool | Unknown | None) -> Found:
        """What the ledger read; ``there`` is its answer for the installed version."""
        package = history.released.name
        ends = history.versions[0], history.versions[-1]
        installed = situation.version(package)
        known = None if isinstance(there, Unknown) or not installed else there
        return cls(Home(package, kind, thing, history.specifier, *ends, history.doubt, installed, known), history)

    def usable(self, situation: Situation) -> list[str]:
        """The releases that have it and may be installed here, the nearest first."""
        if self.history is not None:
            return usable_releases(self.history, self.home.installed, situation.python)
        known = situation.matrix.part("releases", "releases").get(self.home.package, ())
        parts = (self.home.releases or "").split(" or ")
        fitting = [version for version in known if any(allows(part, version) for part in parts)]
        return nearest(fitting, self.home.installed, known) if self.home.installed else fitting[::-1]


def found_by_table(situation: Situation, move: Move, kind: str, thing: str) -> Found:
    """The same by a row of the table."""
    installed = situation.version(move.package)
    there = move.has(installed) if installed else None
    releases = None if move.releases == "<0" else move.releases.replace(" | ", " or ")
    return Found(Home(move.package, kind, thing, releases, installed=installed, there=there), None)


def spans_history(released: Released, spans: Iterable[tuple[str, str | None]]) -> History:
    """The releases in any of the spans (first, last or None)."""
    versions = tuple(released.read)
    places = {version: place for place, version in enumerate(versions)}
    has = [False] * len(versions)
    for since, until in spans:
        last = places[until] if until is not None else len(versions) - 1
        has[places[since] : last + 1] = [True] * (last + 1 - places[since])
    return History(released, versions, tuple(has))


def name_history(released: Released, module: str, name: str) -> History:
    """The releases in which ``from module import name`` finds it: bound there, or a module below it."""
    found = spans_history(released, released.spans("offers", module, name))
    found |= subject_history(released, "offers", f"{module}.{name}")
    return _doubted(found, lambda version: released.offers(module, name, version))


def module_history(released: Released, module: str) -> History:
    """The releases that have a module."""
    found = subject_history(released, "offers", module)
    return _doubted(found, lambda version: released.exists(module, version))


def _doubted(history: History, answer: Callable[[str], bool | Unknown]) -> History:
    """With the reason why a release that seems to lack it may have it, when there is one."""
    lacking = [version for version, there in zip(history.versions, history.has, strict=True) if not there]
    unsure = [given.reason for given in map(answer, lacking) if isinstance(given, Unknown)]
    return history._replace(doubt=unsure[0], unsure=len(unsure)) if unsure else history


def subject_history(released: Released, section: str, subject: str) -> History:
    """The releases in which a section of the ledger has a subject."""
    versions = tuple(released.read)
    return History(released, versions, tuple(released.listed(section, subject, one) is True for one in versions))


def usable_releases(history: History, installed: str, python: str) -> list[str]:
    """The releases of a history that this Python ("": any) may install, the nearest to the installed one first, or the
    newest where that is not known."""
    asked = {release.version: release.requires_python for release in history.released.releases}
    fitting = [version for version in history.releases() if not python or allows(asked[version], python)]
    every = [release.version for release in history.released.releases]
    return nearest(fitting, installed, every) if installed else fitting[::-1]


def allows(specifier: str, version: str) -> bool:
    """Whether a version is one of a specifier; of one that cannot be read, any is."""
    try:
        return satisfies(version, specifier)
    except NotASpecifier:
        return True
