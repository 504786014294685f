"""What releases take of each other, by the ledger: what is missing beside a release, and which releases fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, lru_cache, reduce
from operator import and_
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.knowledge.ledger import Ledger, Released
from envdoctor.versions.names import normalise
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import Requirement, read_requirement


class Taken(NamedTuple):
    """``module`` of another package, or its ``name`` ("" for the module itself), as ``place`` (a module) takes it when
    ``entry`` is imported (``import peft``, ``from trl import SFTTrainer``); or what ``place`` asks for itself then
    (``wanted``, a requirement). ``beside`` are the distributions and versions without which it is not taken."""

    entry: str
    module: str
    name: str
    wanted: Requirement | None
    place: str
    beside: tuple[Requirement, ...]


@lru_cache(maxsize=512)
def taken(consumer: Released, version: str) -> tuple[Taken, ...]:
    """What a version takes of others; nothing where that is not known."""
    by_subject = ((subject, consumer.items("takes", subject, version)) for subject in consumer.subjects("takes"))
    known = ((subject, items) for subject, items in by_subject if not isinstance(items, Unknown))
    return tuple(read_taken(subject, item) for subject, items in known for item in items)


@lru_cache(maxsize=10_000)
def read_taken(subject: str, item: str) -> Taken:
    """A line of the section [takes]."""
    what, _, rest = item.partition(" @")
    place, _, beside = rest.partition(" if ")
    module, _, name = what.partition(":")
    entry, _, asked = subject.partition(":")
    statement = f"from {entry} import {asked}" if asked else f"import {entry}"
    wanted = None if module.replace(".", "").isidentifier() else read_requirement(what)
    needs = tuple(map(read_requirement, beside.split(" and "))) if beside else ()
    return Taken(statement, "" if wanted else module, name, wanted, place, needs)


def missing(
    ledger: Ledger, consumer: Released, version: str, installed: Callable[[str], Value], skip: Collection[str] = ()
) -> Iterator[tuple[Taken, str]]:
    """What a version takes and the installed releases certainly do not have, with the package that would have it.

    ``installed`` gives the version of a package, ABSENT where it is not installed. Packages of ``skip`` are left out.
    """
    for take in taken(consumer, version):
        if not all(_meets(installed(need.name), need) for need in take.beside):
            continue
        provider = provider_of(ledger, take)
        if provider is None:
            if take.module and (name := normalise(take.module)) not in skip and installed(name) is ABSENT:
                yield from [(take, name)] * _requires(consumer, version, name)
        elif provider is not consumer and provider.name not in skip:
            there = installed(provider.name)
            if lacks(provider, take, there) or (
                there is ABSENT and take.module and _requires(consumer, version, provider.name)
            ):
                yield take, provider.name


def fitting_providers(ledger: Ledger, consumer: Released, version: str, provider: Released) -> Releases:
    """Return the releases of a provider that have all that a version of the consumer takes of it."""
    having = [_having(provider, take) for take in _of_provider(ledger, consumer, version, provider)]
    return reduce(and_, having, Releases.every(provider.read))


def fitting_consumers(ledger: Ledger, consumer: Released, provider: Released, version: str) -> Releases:
    """Return the releases of a consumer that take nothing of the provider which that version has not."""

    has = cache(lambda take: _has(provider, take, version))
    takes = (_of_provider(ledger, consumer, release, provider) for release in consumer.read)
    return Releases.of(consumer.read, [all(map(has, several)) for several in takes])


@lru_cache(maxsize=1 << 12)
def _having(provider: Released, take: Taken) -> Releases:
    return Releases.of(provider.read, [_has(provider, take, one) for one in provider.read])


def _of_provider(ledger: Ledger, consumer: Released, version: str, provider: Released) -> Iterable[Taken]:
    """What a version of the consumer takes of the provider, wherever it does."""
    takes = (take for take in taken(consumer, version) if provider_of(ledger, take) is provider)
    return dict.fromkeys(take._replace(entry="", place="") for take in takes)


def provider_of(ledger: Ledger, take: Taken) -> Released | None:
    """The package that something is taken of; None for one that the ledger does not know."""
    owner = take.wanted.name if take.wanted else ledger.owner(take.module)
    return ledger.package(owner) if owner else None


def lacks(provider: Released, take: Taken, version: Value) -> bool:
    """Whether a version of the provider certainly has not what is taken there, nor does without it."""
    return isinstance(version, str) and _has(provider, take, version) is False


def _has(provider: Released, take: Taken, version: str) -> bool | None:
    """Whether a version of the provider has what is taken there, or does without it; None where nobody can tell."""
    if not all(_meets(version, need) for need in take.beside if need.name == provider.name):
        return True
    if take.wanted:
        return satisfies(version, take.wanted.specifiers)
    parent, _, last = take.module.rpartition(".")
    if take.name:
        found = provider.offers(take.module, take.name, version)
    else:
        found = provider.offers(parent, last, version) if parent else provider.exists(take.module, version)
    return found if isinstance(found, bool) else None


def _meets(version: Value, need: Requirement) -> bool:
    return isinstance(version, str) and (not need.specifiers or satisfies(version, need.specifiers) is True)


def _requires(consumer: Released, version: str, name: str) -> bool:
    """Whether the metadata of a version requires another package wherever it is installed."""
    return any(one.name == name and not one.marker for one in consumer.requires(version))
