"""Which of the things that releases take of others can be missing: the rest is not worth its room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.matrix import Ledger, Released, TakenNames
from envdoctor.matrix.lookup import lacks, provider_of, read_taken
from envdoctor.versions import normalise, read_requirement

Found = Mapping[str, Sequence[str]]

__all__ = ["Breaking"]


class Breaking:
    """What can be missing, by the releases that the ledger has of the others from the day ``since`` on."""

    def __init__(self, ledger: Ledger, since: str) -> None:
        self.ledger, self.since = ledger, since
        self._known: dict[tuple[object, ...], bool] = {}

    def of(self, package: str, found: Found, required: Sequence[str]) -> dict[str, list[str]]:
        """The items of [takes] of a release that requires this: what some release of the other package has and another
        one has not, what no release need have but the metadata asks for, and versions that are asked for; each of one
        place."""
        always = {one.name for one in map(read_requirement, required) if not one.marker}
        kept: dict[str, list[str]] = {}
        for subject, items in found.items():
            places: dict[tuple[str, str], str] = {}
            for item in items:
                take = read_taken(subject, item)
                provider = provider_of(self.ledger, take)
                what, _, place = item.partition(" @")
                if provider is None or provider.name != package:
                    if not self._can_break(take, provider):
                        top = take.module.partition(".")[0]
                        if take.need or take.beside or (provider.name if provider else normalise(top)) not in always:
                            continue
                        what, place = top, subject.partition(":")[0]
                    places.setdefault((what, " ".join(place.split(" ")[1:])), f"{what} @{place}")
            if places:
                kept[subject] = sorted(places.values())
        whole = {item.partition(" @")[0] for subject, items in kept.items() if ":" not in subject for item in items}
        for subject in [subject for subject in kept if ":" in subject]:
            kept[subject] = [item for item in kept[subject] if item.partition(" @")[0] not in whole]
        return {subject: items for subject, items in kept.items() if items}

    def _can_break(self, take: TakenNames, provider: Released | None) -> bool:
        if provider is None:
            return False
        key = take.module, take.name, take.need, take.beside
        if key not in self._known:
            if take.need:
                there = [one.version for one in provider.releases if one.date >= self.since]
                self._known[key] = any(lacks(provider, take, version) for version in there)
            else:
                without = any(lacks(provider, take, version) for version in provider.read)
                having = (one for one in provider.read if provider.exists(take.module, one) is True)
                self._known[key] = without and any(not lacks(provider, take, one) for one in having)
        return self._known[key]
