"""What the ledger says of one thing that code asks of a package: a dotted name, a keyword of a call, an overridden
method; in one release, and in which releases."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Ledger, Released
from envdoctor.source.overriding import can_be_called
from envdoctor.versions.releases import Releases

_HOPS = 8
_TAKES_ANY = Unknown("it hands on any keyword")
_NOT_READ = Unknown("the ledger does not say which parameters it takes")
_NOT_CALLED = Unknown("the ledger does not say how it is called")


class Asked(NamedTuple):
    """What is asked of a package: ``module`` and, below it, a dotted ``name``; of what is found there the ``keyword``,
    or that it can be overridden by a method with ``parameters`` (as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``)."""

    module: str
    name: str = ""
    keyword: str = ""
    parameters: tuple[str, ...] | None = None

    @property
    def dotted(self) -> str:
        """``transformers.Trainer.compute_loss``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Lacking(NamedTuple):
    """What is not there: a ``module``, a ``name``, a ``keyword``, or the ``override`` that does not fit; ``what`` is
    the dotted name of the module or of what lies in one, ``call`` how an overridden method is called."""

    kind: str
    what: str
    call: str = ""


#: The installed version of another distribution; None when it is not known, or not there.
VersionOf = Callable[[str], str | None]


def answer(
    ledger: Ledger, released: Released, asked: Asked, version: str, other: VersionOf
) -> Lacking | Unknown | None:
    """What a release lacks of what is asked for; None when it has it. What hands on any keyword may yet refuse it."""
    lacking = _name(released, asked.module, asked.name, version)
    if lacking is not None or not (asked.keyword or asked.parameters is not None):
        return lacking
    place = place_of(released, asked.module, asked.name, version)
    if asked.keyword:
        taken = _parameters(ledger, released, place, version, other, _HOPS)
        if isinstance(taken, Unknown):
            return taken
        if asked.keyword in taken:
            return None
        return _TAKES_ANY if "**" in taken else Lacking("keyword", asked.dotted)
    calls = _calls(ledger, released, place, version, other, _HOPS)
    if isinstance(calls, Unknown):
        return calls
    public = f"{asked.module}:{asked.name}"
    if not calls and place == public and any(True for _ in released.items_of("alias", public.rpartition(".")[0])):
        return _NOT_CALLED  # in other releases it is known where the class is
    unfit = next((call for call in calls if not can_be_called(asked.parameters or (), call)), None)
    return None if unfit is None else Lacking("override", asked.dotted, unfit)


def where(
    ledger: Ledger, released: Released, asked: Asked, other: VersionOf, user: tuple[Released, str] | None = None
) -> Releases:
    """Return the releases of a package that have what is asked for. With ``user`` a version of another package is asked
    for it, whose classes inherit from those of this one: the releases with which that has it."""

    def lacking(version: str) -> Lacking | Unknown | None:
        if user is None:
            return answer(ledger, released, asked, version, other)
        return answer(ledger, user[0], asked, user[1], lambda name: version if name == released.name else other(name))

    found = map(lacking, released.read)
    return Releases.of(released.read, [None if isinstance(one, Unknown) else one is None for one in found])


def inherited_from(
    ledger: Ledger, released: Released, asked: Asked, version: str, other: VersionOf
) -> tuple[Released, ...]:
    """The other packages that a class has base classes from, the nearest first: what is asked for may be theirs."""
    found: dict[str, Released] = {}
    waiting = [(released, place_of(released, asked.module, asked.name.partition(".")[0], version), version)]
    for package, place, its_version in waiting:
        home = _home(package, place, its_version)
        items = [_items(package, section, home, its_version) for section in ("parameters", "calls")]
        for base in (item[1:] for one in items if not isinstance(one, Unknown) for item in one if item[0] == "&"):
            elsewhere = _elsewhere(ledger, package, base, its_version, other)
            if not isinstance(elsewhere, Unknown) and len(waiting) < _HOPS * 2:
                waiting.append((elsewhere[0], base, elsewhere[1]))
                if elsewhere[0] is not released:
                    found.setdefault(elsewhere[0].name, elsewhere[0])
    return tuple(found.values())


def known_module(released: Released, module: str, version: str) -> Lacking | Unknown | None:
    """Whether a release has a module; the first of the packages around it that is missing."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        inner = ".".join(parts[:count])
        there = _exists(released, inner, version)
        if there is True:
            continue
        bound = (
            there is False
            and count > 1
            and released.has("offers", ".".join(parts[: count - 1]), parts[count - 1], version)
        )
        if bound:
            there = Unknown(f"{inner} is no file of its own")  # it may be a module by another name
        if there is False:
            return Lacking("module", inner)
        return there if isinstance(there, Unknown) else Unknown("not known")
    return None


def place_of(released: Released, module: str, name: str, version: str) -> str:
    """Where a public name is defined, as ``module:Qualified.name``; the name itself when nothing else is known."""
    parts = name.split(".")
    while len(parts) > 1 and _exists(released, f"{module}.{parts[0]}", version) is True:
        module, parts = f"{module}.{parts[0]}", parts[1:]
    place = f"{module}:{parts[0]}"
    for _ in range(_HOPS):
        found = _items(released, "alias", place, version)
        if isinstance(found, Unknown) or len(found) != 1:
            break
        place = found[0]
    return ".".join([place, *parts[1:]])


def _home(released: Released, place: str, version: str) -> str:
    """The same of a place as base classes are written, ``transformers:TrainingArguments``."""
    module, _, name = place.partition(":")
    return place_of(released, module, name, version)


def went_to(released: Released, dotted: str, version: str) -> str | None:
    """The new dotted name of one that went, by the files of the releases themselves; None when it is not known."""
    module, _, name = dotted.rpartition(".")
    found = released.items("moved", f"{module}:{name}", version)
    return found[0].replace(":", ".") if not isinstance(found, Unknown) and len(found) == 1 else None


def _name(released: Released, module: str, name: str, version: str) -> Lacking | Unknown | None:
    missing = known_module(released, module, version)
    if missing is not None:
        return missing
    for part in filter(None, name.split(".")):
        there = _offers(released, module, part, version)
        if there is not True:
            return Lacking("name", f"{module}.{part}") if there is False else there
        if _exists(released, f"{module}.{part}", version) is not True or released.has("offers", module, part, version):
            return None  # a name, and what it stands for is not followed
        module = f"{module}.{part}"
    return None


def _parameters(  # noqa: PLR0917 (a question and how far it may go)
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf, hops: int
) -> set[str] | Unknown:
    """The names of the parameters, with those of the base classes."""
    items = _signature(released, _home(released, place, version), version) if hops else _NOT_READ
    if isinstance(items, Unknown):
        return items
    taken = {item for item in items if not item.startswith("&")}
    for base in (item[1:] for item in items if item.startswith("&")):
        elsewhere = _elsewhere(ledger, released, base, version, other)
        if isinstance(elsewhere, Unknown):
            return elsewhere
        inherited = _parameters(ledger, elsewhere[0], base, elsewhere[1], other, hops - 1)
        if isinstance(inherited, Unknown):
            return inherited
        taken |= inherited
    return taken


def _elsewhere(
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf
) -> tuple[Released, str] | Unknown:
    """The package that a place belongs to, and its version."""
    if place.partition(".")[0].partition(":")[0] in released.modules:
        return released, version
    owner = ledger.package(ledger.owner(place.partition(":")[0]) or "")
    installed = other(owner.name) if owner is not None else None
    return (owner, installed) if owner is not None and installed else Unknown(f"{place} is not known")


def _calls(  # noqa: PLR0917
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf, hops: int
) -> tuple[str, ...] | Unknown:
    """How a method is called by its class, or by the base classes that it has it from."""
    place = _home(released, place, version)
    items = _items(released, "calls", place, version)
    if isinstance(items, Unknown) or items or not hops:
        return items
    owner, _, method = place.rpartition(".")
    bases = _items(released, "calls", owner, version)
    for base in (one[1:] for one in bases if one.startswith("&")) if not isinstance(bases, Unknown) else ():
        found = _elsewhere(ledger, released, base, version, other)
        if not isinstance(found, Unknown):
            inherited = _calls(ledger, found[0], f"{base}.{method}", found[1], other, hops - 1)
            if isinstance(inherited, Unknown) or inherited:
                return inherited
    return ()


# The same is asked for every name of a script, for every release, and again for every change that is tried.


@lru_cache(maxsize=1 << 16)
def _exists(released: Released, module: str, version: str) -> bool | Unknown:
    return released.exists(module, version)


@lru_cache(maxsize=1 << 16)
def _offers(released: Released, module: str, name: str, version: str) -> bool | Unknown:
    return released.offers(module, name, version)


@lru_cache(maxsize=1 << 16)
def _items(released: Released, section: str, subject: str, version: str) -> tuple[str, ...] | Unknown:
    return released.items(section, subject, version)


@lru_cache(maxsize=1 << 16)
def _signature(released: Released, place: str, version: str) -> tuple[str, ...] | Unknown:
    there = released.listed("parameters", place, version)
    return released.items("parameters", place, version) if there is True else _NOT_READ
