"""Which releases of one package have something: by what the ledger read of them, and of those between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.answers.answer import Home
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Released
from envdoctor.knowledge.lookup import Move
from envdoctor.versions.pep440 import NotASpecifier, satisfies
from envdoctor.versions.releases import Releases


class Found(NamedTuple):
    """The releases that have something, for people, and as what the ledger read (None: by a table)."""

    home: Home
    having: Releases | None

    @classmethod
    def read(
        cls, situation: Situation, package: str, having: Releases, told: tuple[str, str], moves: Sequence[Move] = ()
    ) -> Found:
        """Return what the ledger read, ``told`` as kind and thing, with the releases that rows of the table name: they
        know what decorators take."""
        installed = situation.version(package)
        rows = [move for move in moves if move.package == package and move.releases != "<0"]
        if rows:
            having |= Releases.of(having.read, [any(move.has(one) for move in rows) for one in having.read])
        there = True if any(move.has(installed) for move in rows) else having.has(installed)
        ends = having.read[0], having.read[-1]
        return cls(Home(package, *told, having.specifier, *ends, having.doubt, installed, there), having)

    def usable(self, situation: Situation) -> list[str]:
        """Return the releases that have it and may be installed here, the nearest first."""
        if self.having is not None:
            return usable_releases(situation, self.home.package, self.having)
        known = situation.matrix.part("releases", "releases").get(self.home.package, ())
        parts = (self.home.releases or "").split(" or ")
        having = Releases.of(known, [any(allows(part, version) for part in parts) for version in known])
        return having.by_distance(self.home.installed)


def found_by_table(situation: Situation, move: Move, kind: str, thing: str) -> Found:
    """The same by a row of the table."""
    installed = situation.version(move.package)
    there = move.has(installed) if installed else None
    releases = None if move.releases == "<0" else move.releases.replace(" | ", " or ")
    return Found(Home(move.package, kind, thing, releases, installed=installed, there=there), None)


def offering(released: Released, module: str, name: str = "") -> Releases:
    """Return the releases that have a module, or in which ``from module import name`` finds the name."""
    answers = [released.offers(module, name, one) if name else released.exists(module, one) for one in released.read]
    doubt = next((one.reason for one in answers if isinstance(one, Unknown)), "")
    return Releases.of(released.read, [None if isinstance(one, Unknown) else one for one in answers], doubt)


def usable_releases(situation: Situation, package: str, having: Releases) -> list[str]:
    """Return the releases of a set that were not withdrawn and that this Python may install, the nearest to the
    installed one first, or the newest if that is not known."""
    released, python = situation.ledger.package(package), situation.python
    listed = released.releases if released is not None else ()
    fits = [
        not one.yanked and having.has(one.version) is True and (not python or allows(one.requires_python, python))
        for one in listed
    ]
    return Releases.of([one.version for one in listed], fits).by_distance(situation.version(package))


def allows(specifier: str, version: str) -> bool:
    """Whether a version is one of a specifier; of one that cannot be read, any is."""
    try:
        return satisfies(version, specifier)
    except NotASpecifier:
        return True
