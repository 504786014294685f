"""Modules and names: which releases have them, and where they went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envdoctor.answers.answer import Moved
from envdoctor.answers.changed import changed_place
from envdoctor.answers.history import Found, found_by_table, offering
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.judge.messages import text_of
from envdoctor.knowledge.ledger import Released
from envdoctor.knowledge.lookup import Move, name_moves

#: A name that so many modules have is one that modules import from each other, and says nothing about where it lives.
_MODULES = 6
#: How many names of a module are looked for elsewhere, and which part of them another module must have.
_SAMPLE, _PART = 12, 0.5


def place_text(module: str, name: str = "") -> str:
    """``transformers.HybridCache``"""
    return f"{module}.{name}" if name else module


def home_of(situation: Situation, package: str, module: str, name: str = "") -> Found | None:
    """The releases of a package that have it, by what changed between them, else by the ledger where it has read names,
    else by the table of moved names; None when none says anything."""
    released, changed = situation.by_names(package), changed_place(situation, package, module, name)
    kind, thing = ("name" if name else "module"), place_text(module, name)
    moves = [move for move in name_moves(situation.matrix, module, name) if move.package == package]
    if released is not None:
        having = offering(released, module, name)
        finer = changed is not None and changed.having is not None and len(changed.having.read) > len(having.read)
        if finer or (changed is not None and not having.yes):
            return changed
        if having.yes or not moves:
            return Found.read(situation, package, having, (kind, thing))
    return found_by_table(situation, moves[0], kind, thing) if moves else changed


def moved_of(situation: Situation, package: str, module: str, name: str = "") -> list[Moved]:
    """What to use instead: by the table, else by what the ledger's harvest saw, else where the newest or the installed
    release has the same names."""
    told = [moved_to(move) for move in name_moves(situation.matrix, module, name) if move.new or move.write]
    if told:
        return told[:1]
    released = situation.by_names(package) or situation.changes(package)
    if released is None:
        return []
    version = _judged(released, situation.version(package))
    if (released.offers(module, name, version) if name else released.exists(module, version)) is True:
        return []
    places = released.items("moved", f"{module}:{name}", version) if name else ()
    found = [] if isinstance(places, Unknown) else list(places)
    other_places = _other_modules(released, module, name, version) if name else _other_homes(released, module, version)
    found = found or list(other_places)
    return [_in_package(released, place) for place in found[:2]]


def is_submodule(situation: Situation, package: str, module: str, name: str) -> bool:
    """Whether what is no attribute of a module is a module below it, which an import of its own makes one."""
    released = situation.by_names(package) or situation.changes(package)
    if released is None:
        return False
    version = _judged(released, situation.version(package))
    bound = released.has("offers", module, name, version) is True
    return not bound and released.listed("offers", f"{module}.{name}", version) is True


def moved_to(move: Move) -> Moved:
    """A row of the table as part of an answer."""
    write = text_of(move.write) if move.write else None
    return Moved(move.new.replace(":", "."), move.new_package, move.new_releases, write, move.source)


def _judged(released: Released, installed: str) -> str:
    """The release in which a new place is looked for: the installed one where the ledger can judge it."""
    known = released.read
    if installed and not isinstance(released.items("open", known[-1], installed), Unknown):
        return installed
    return known[-1]


def _in_package(released: Released, place: str) -> Moved:
    module, _, name = place.partition(":")
    return Moved(place_text(module, name), released.name, offering(released, module, name).specifier or "")


def _other_modules(released: Released, module: str, name: str, version: str) -> Iterator[str]:
    """The modules that have the name in this release; none when it is one of those that many modules import."""
    others = _having(released, name, module, version)
    public = [other for other in others if not any(part.startswith("_") for part in other.split("."))]
    if public and len(public) <= _MODULES:
        yield f"{min(public, key=lambda other: (-_alike(other, module), other.count('.'), other))}:{name}"


def _having(released: Released, name: str, module: str, version: str) -> list[str]:
    """The other modules that have a name in this release."""
    others = (other for other in released.subjects_with("offers", name) if other not in (module, "*"))
    return [other for other in others if released.has("offers", other, name, version) is True]


def _other_homes(released: Released, module: str, version: str) -> Iterator[str]:
    """The module that has most of what this one had in its last release."""
    versions = offering(released, module).versions
    had = released.items("offers", module, versions[-1]) if versions else ()
    if isinstance(had, Unknown):
        return
    if not had:
        yield from _namesakes(released, module, version)
        return
    counts: Counter[str] = Counter()
    names = sorted((name for name in had if not name.startswith("_")), key=lambda name: (-len(name), name))[:_SAMPLE]
    for name in names:
        counts.update(_having(released, name, module, version))
    fitting = [other for other, count in counts.items() if count >= _PART * len(names)]
    if fitting:
        yield min(fitting, key=lambda other: (-counts[other], -_alike(other, module), other.count("."), other))


def _namesakes(released: Released, module: str, version: str) -> Iterator[str]:
    """The one module that is called the same and lies elsewhere, for a module that was gone before the first release
    that was read."""
    last = f".{module.rpartition('.')[2]}"
    same = [other for other in released.subjects("offers") if other.endswith(last)]
    there = [other for other in same if released.listed("offers", other, version) is True]
    yield from there if len(there) == 1 else ()


def _alike(one: str, other: str) -> int:
    """How many parts two dotted names share."""
    return len(set(one.split(".")) & set(other.split(".")))
