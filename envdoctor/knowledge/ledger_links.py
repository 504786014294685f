"""What releases take of each other, by the ledger: what is missing beside a release, and which releases fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Ledger, Released

__all__ = ["Taken", "fitting_consumers", "fitting_providers", "missing", "taken"]


class Taken(NamedTuple):
    """``module`` of another package, or its ``name`` ("" for the module itself), as ``place`` (a module) takes it when
    ``entry`` is imported (``import peft``, ``from trl import SFTTrainer``). ``beside`` are the distributions without
    which it is not taken."""

    entry: str
    module: str
    name: str
    place: str
    beside: tuple[str, ...]


def taken(consumer: Released, version: str) -> Iterator[Taken]:
    """What a version takes of others; nothing where that is not known."""
    for subject in consumer.subjects("takes"):
        items = consumer.items("takes", subject, version)
        if not isinstance(items, Unknown):
            yield from (_read(subject, item) for item in items)


def missing(
    ledger: Ledger, consumer: Released, version: str, installed: Callable[[str], str | None], skip: Collection[str] = ()
) -> Iterator[tuple[Taken, str]]:
    """What a version takes and the installed releases certainly do not have, with the package that would have it.

    ``installed`` gives the version of a package, None where it is not installed or not known. Packages of ``skip`` are
    left out.
    """
    for take in taken(consumer, version):
        provider = _provider(ledger, take, consumer)
        if provider is None or provider.name in skip:
            continue
        there = installed(provider.name)
        if there and all(map(installed, take.beside)) and _offers(provider, take, there) is False:
            yield take, provider.name


def fitting_providers(ledger: Ledger, consumer: Released, version: str, provider: Released, near: str) -> str | None:
    """The releases of a provider that have all that a version of the consumer takes of it, as a constraint
    (``transformers>=4.40,<5.0``): of several spans the one nearest to ``near``; None where there is none."""
    takes = [take for take in taken(consumer, version) if _provider(ledger, take, consumer) is provider]
    fits = [all(_offers(provider, take, one) is not False for take in takes) for one in provider.read]
    return _nearest(provider, fits, near) if takes and not all(fits) else None


def fitting_consumers(ledger: Ledger, consumer: Released, near: str, provider: Released, version: str) -> str | None:
    """The releases of a consumer that take nothing of the provider which that version has not, as a constraint; None
    where it is not known that the one ``near`` does."""
    answers: dict[tuple[str, str], bool] = {}
    if not provider.covers(version):
        return None

    def fits(release: str) -> bool:
        for take in taken(consumer, release):
            if _provider(ledger, take, consumer) is provider:
                key = take.module, take.name
                if key not in answers:
                    answers[key] = _offers(provider, take, version) is not False
                if not answers[key]:
                    return False
        return True

    if fits(near):
        return None
    return _nearest(consumer, [fits(one) for one in consumer.read], near)


def _read(subject: str, item: str) -> Taken:
    what, _, rest = item.partition(" @")
    place, _, beside = rest.partition(" if ")
    module, _, name = what.partition(":")
    entry, _, asked = subject.partition(":")
    statement = f"from {entry} import {asked}" if asked else f"import {entry}"
    return Taken(statement, module, name, place, tuple(beside.split(" and ")) if beside else ())


def _provider(ledger: Ledger, take: Taken, consumer: Released) -> Released | None:
    owner = ledger.owner(take.module)
    provider = ledger.package(owner) if owner else None
    return provider if provider is not None and provider.by_names and provider is not consumer else None


def _offers(provider: Released, take: Taken, version: str) -> bool | Unknown:
    if take.name:
        return provider.offers(take.module, take.name, version)
    if "." not in take.module:
        return True
    parent, _, last = take.module.rpartition(".")
    return provider.offers(parent, last, version)


def _nearest(package: Released, fits: list[bool], near: str) -> str | None:
    """The run of fitting releases that is nearest to a version, as a constraint."""
    versions = package.read
    place = package.place_of(near)
    best: tuple[int, int, int] | None = None
    start = 0
    while start < len(fits):
        if not fits[start]:
            start += 1
            continue
        end = start
        while end + 1 < len(fits) and fits[end + 1]:
            end += 1
        distance = max(start - place, place - end, 0)
        if best is None or distance <= best[0]:
            best = distance, start, end
        start = end + 1
    if best is None:
        return None
    low = [f">={versions[best[1]]}"] if best[1] else []
    high = [f"<{versions[best[2] + 1]}"] if best[2] + 1 < len(versions) else []
    return package.name + ",".join(low + high)
