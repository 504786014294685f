"""What releases take of each other, by the ledger: what is missing beside a release, and which releases fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.knowledge.ledger import Ledger, Released
from envdoctor.versions.names import normalise
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.requirement import Requirement, read_requirement
from envdoctor.versions.spans import nearest_span, spell_spans


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


def fitting_providers(ledger: Ledger, consumer: Released, version: str, provider: Released, near: str) -> str | None:
    """The releases of a provider that have all that a version of the consumer takes of it, as a constraint
    (``transformers>=4.40,<5.0``): of several spans the one nearest to ``near``; None where there is none."""
    takes = [take for take in taken(consumer, version) if provider_of(ledger, take) is provider]
    fits = [all(_has(provider, take, one) is True for take in takes) for one in provider.read]
    return _nearest(provider, fits, near) if takes and not all(fits) else None


def fitting_consumers(ledger: Ledger, consumer: Released, near: str, provider: Released, version: str) -> str | None:
    """The releases of a consumer that take nothing of the provider which that version has not, as a constraint; None
    where it is not known that the one ``near`` does."""
    answers: dict[Taken, bool] = {}
    if not provider.covers(version):
        return None

    def fits(release: str) -> bool:
        for take in taken(consumer, release):
            if provider_of(ledger, take) is provider:
                key = take._replace(entry="", place="")
                if key not in answers:
                    answers[key] = _has(provider, take, version) is True
                if not answers[key]:
                    return False
        return True

    if fits(near):
        return None
    return _nearest(consumer, [fits(one) for one in consumer.read], near)


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


def _nearest(package: Released, fits: list[bool], near: str) -> str | None:
    """The row of fitting releases that is nearest to a version, as a constraint."""
    row = nearest_span(fits, package.place_of(near))
    spelled = spell_spans(package.read, [place in row for place in range(len(fits))])
    return None if spelled is None else package.name + spelled
