"""Clauses about releases outside of what others require, as the ledger has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from envdoctor.knowledge.ledger import Ledger, Released
from envdoctor.versions.pep440 import satisfies

#: The operand of a condition: the release is not one that the other package of the clause requires.
OUTSIDE = "outside-requirement"
_OPPOSITE = {">=": "<", "<": ">=", "<=": ">", ">": "<=", "==": "!=", "!=": "=="}


class NoWindow(ValueError):
    """The ledger has no requirement that the clause speaks of; the message is a clause for the author."""


def outside_windows(clause: Mapping[str, Any], ledger: Ledger | None) -> list[dict[str, Any]]:
    """Return a clause for each row of releases that require the same of the package whose condition is
    :data:`OUTSIDE`; the other condition on a package names the releases that are meant. Raises :class:`NoWindow`."""
    required = [key for key, operand in clause.items() if operand == OUTSIDE]
    askers = [key for key in clause if key.startswith("pkg.") and key not in required]
    if len(required) != 1 or len(askers) != 1 or not required[0].startswith("pkg."):
        raise NoWindow(f'one package that is "{OUTSIDE}" and one other package, which requires it, are expected')
    name, asker = required[0].removeprefix("pkg."), askers[0].removeprefix("pkg.")
    released = ledger.package(asker) if ledger is not None else None
    clauses = []
    for asked, specifiers in _rows(released, name, clause[askers[0]]) if released is not None else ():
        for releases, others in _opposites(asked, specifiers):
            clauses.append({**clause, askers[0]: releases, required[0]: others})
    if not clauses:
        raise NoWindow(f"the ledger has no release of {asker} that requires certain releases of {name}")
    return clauses


class _Row(NamedTuple):
    """Releases in a row that require the same: the first, the last, and the one behind it (None: there is none)."""

    first: str
    last: str
    behind: str | None


def _rows(released: Released, name: str, meant: str) -> Iterator[tuple[_Row, tuple[str, ...]]]:
    """Yield each row of the releases that are meant and require certain releases of ``name``, with the specifiers."""
    versions = [one.version for one in released.releases if one.metadata]
    asked = [(version, _required(released, version, name)) for version in versions if satisfies(version, meant)]
    for specifiers, pairs in groupby(asked, lambda pair: pair[1]):
        row = [version for version, _ in pairs]
        behind = versions[versions.index(row[-1]) + 1 :]
        if specifiers:
            yield _Row(row[0], row[-1], behind[0] if behind else None), specifiers


def _required(released: Released, version: str, name: str) -> tuple[str, ...]:
    """Return the specifiers of what a release requires of a package everywhere: markers are for some Pythons, or for
    extras."""
    found = [one.specifiers for one in released.requires(version) if one.name == name and not one.marker]
    return tuple(sorted(part.strip() for specifiers in found for part in specifiers.split(",") if part.strip()))


def _opposites(row: _Row, specifiers: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield releases of the asker with what lies outside of the specifiers.

    Releases that are newer than the ledger require at least what its newest does: a floor hardly ever falls, but a
    ceiling rises.
    """
    turned = [_turned(specifier) for specifier in specifiers]
    below = [operand for operand in turned if operand.startswith(("<", "=="))]
    above = [operand for operand in turned if operand not in below]
    if row.behind is not None:
        yield f">={row.first},<{row.behind}", below + above
        return
    if below:
        yield f">={row.first}", below
    if above:
        yield f">={row.first},<={row.last}", above


def _turned(specifier: str) -> str:
    match = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([^=\s]+)", specifier)
    if match is None:
        raise NoWindow(f"nothing is outside of {specifier!r} that a rule could say")
    return _OPPOSITE[match[1]] + match[2]
