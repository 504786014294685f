"""Histories: what was so in which releases, as lines of the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from envdoctor.matrix.ledger import letters

__all__ = ["history"]

#: A subject that is there without items.
_BARE = ""


def history(versions: Sequence[str], found: Sequence[Mapping[str, Collection[str]]]) -> Iterator[str]:
    """Yield the lines of a section: ``found`` has for each of the rising ``versions`` the items by subject."""
    places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, subjects in enumerate(found):
        for subject, items in subjects.items():
            for item in items or (_BARE,):
                places[subject][item].append(place)
    for subject in sorted(places):
        spans: dict[tuple[int, int], list[str]] = defaultdict(list)
        for item, where in places[subject].items():
            for span in _runs(where):
                spans[span].append(item)
        for (since, until), items in sorted(spans.items()):
            end = "" if until == len(versions) - 1 else letters(until)
            yield "\t".join([subject, f"{letters(since)}..{end}", *sorted(filter(None, items))])


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of the runs of neighbours among rising numbers."""
    first = last = None
    for place in places:
        if last is not None and first is not None and place != last + 1:
            yield first, last
            first = place
        first = place if first is None else first
        last = place
    if first is not None and last is not None:
        yield first, last
