"""Sets of releases: the releases of one package that have a feature, and all between two versions; as people write
them, ``>=4.36,<4.48``, several runs joined by `` or `` (in tables ``|``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from envdoctor.versions.pep440 import Order, dotted, order, release_of

#: Releases from the first one to below the second one; None: without an end.
Range = tuple[tuple[int, ...], tuple[int, ...] | None]

EVERY: tuple[Range, ...] = (((), None),)


class Releases(NamedTuple):
    """The releases among the ``read`` ones (oldest first) that have a feature, as bits (the lowest is the oldest):
    ``yes`` have it, ``unsure`` may have it, and ``doubt`` says why that is unknown."""

    read: Sequence[str]
    yes: int
    unsure: int = 0
    doubt: str = ""

    @classmethod
    def of(cls, read: Sequence[str], answers: Iterable[bool | None], doubt: str = "") -> Releases:
        """Return the set by an answer for each release, None where it is unknown."""
        yes = unsure = 0
        for place, answer in enumerate(answers):
            yes |= (answer is True) << place
            unsure |= (answer is None) << place
        return cls(read, yes, unsure, doubt)

    @classmethod
    def between(cls, read: Sequence[str], spans: Iterable[tuple[int, int]]) -> Releases:
        """Return the releases from the first to the last place of any of the spans."""
        yes = 0
        for first, last in spans:
            yes |= (1 << last + 1) - (1 << first)
        return cls(read, yes)

    def __and__(self, other: Releases) -> Releases:
        yes = self.yes & other.yes
        unsure = (self.yes | self.unsure) & (other.yes | other.unsure) & ~yes
        return Releases(self.read, yes, unsure, self.doubt or other.doubt)

    def __or__(self, other: Releases) -> Releases:
        yes = self.yes | other.yes
        return Releases(self.read, yes, (self.unsure | other.unsure) & ~yes, self.doubt or other.doubt)

    def __invert__(self) -> Releases:
        return self._replace(yes=((1 << len(self.read)) - 1) & ~(self.yes | self.unsure))

    @property
    def possible(self) -> Releases:
        """Return the releases that have it or may have it."""
        return Releases(self.read, self.yes | self.unsure)

    @property
    def versions(self) -> list[str]:
        """Return the versions that have it, oldest first."""
        return [version for place, version in enumerate(self.read) if self.yes >> place & 1]

    def place_of(self, version: str) -> int:
        """Return the index of a version among the read ones, or where it would be; 0 if it is not a version."""
        key = order(version)
        return bisect_left(self.read, key, key=_key) if key is not None else 0

    def has(self, version: str) -> bool | None:
        """Return whether a version has it. A version that was not read takes the answer of its two neighbours if these
        agree."""
        place = self.place_of(version)
        if place == len(self.read):
            return None
        first = place if _key(self.read[place]) == order(version) else place - 1
        if first < 0 or any(self.unsure >> index & 1 for index in (first, place)):
            return None
        answers = {bool(self.yes >> index & 1) for index in (first, place)}
        return answers.pop() if len(answers) == 1 else None

    def nearest(self, version: str) -> Releases:
        """Return the unbroken run of releases with the feature that is nearest to a version, the newer of two equally
        near ones; empty if no release has it."""
        at = self.place_of(version)
        runs = reversed(self._runs())
        run = min(runs, key=lambda run: max(run[0] - at, at - run[1], 0), default=None)
        return Releases.between(self.read, [run] if run else [])

    def by_distance(self, version: str) -> list[str]:
        """Return the versions that have it, the nearest to a version first, counted in releases; the newest first if it
        is not a version."""
        places = [place for first, last in self._runs() for place in range(first, last + 1)]
        release = version.partition("+")[0]
        at = self.place_of(release) if order(release) is not None else len(self.read)
        return [self.read[place] for place in sorted(places, key=lambda place: abs(place - at))]

    @property
    def specifier(self) -> str | None:
        """Return ``>=4.46,<5.0`` for people, several runs joined by `` or ``; empty if all have it, None if none has.

        An upper bound is the next release that was read, or the first of its minor if no earlier release of that minor
        was read, because the ones between are unknown. The last release has no upper bound."""
        spans = []
        for first, last in self._runs():
            low = [f">={_short(self.read[first])}"] if first else []
            high = [f"<{_bound(*self.read[last : last + 2])}"] if last + 1 < len(self.read) else []
            spans.append(",".join(low + high))
        return " or ".join(spans) if spans else None

    def excluding(self, version: str) -> str:
        """Return the specifier of a run without a version, which may be older or newer than all read releases."""
        text = self.specifier or ""
        at, newest = self.place_of(version), len(self.read) - 1
        if at > newest and self.yes >> newest & 1:
            return ",".join(filter(None, [text, f"<={self.read[newest]}"]))
        if at == 0 and self.yes & 1 and self.read[0] != version:
            return ",".join(filter(None, [f">={self.read[0]}", text]))
        return text

    def _runs(self) -> list[tuple[int, int]]:
        """Return the first and the last index of each unbroken run of releases that have it."""
        places = range(len(self.read))
        firsts = [place for place in places if self.yes >> place & 1 and not self.yes << 1 >> place & 1]
        lasts = [place for place in places if self.yes >> place & 1 and not self.yes >> place + 1 & 1]
        return list(zip(firsts, lasts, strict=True))


def _key(version: str) -> Order:
    return order(version) or Order(0, ())


def _bound(last: str, following: str) -> str:
    """Return ``4.51`` for the bound between 4.50.3 and 4.51.3, and ``4.51.3`` between 4.51.0 and 4.51.3."""
    minor = following.split(".")[:2]
    return ".".join(minor) if last.split(".")[:2] != minor and minor[-1].isdigit() else _short(following)


def _short(version: str) -> str:
    """Shorten 4.51.0 to ``4.51``, as people write bounds."""
    while version.count(".") > 1 and version.endswith(".0"):
        version = version[:-2]
    return version


def lies_in(version: str, ranges: str) -> bool | None:
    """Return whether the release of a version is in the ranges of a text; None if it is not a version."""
    release = release_of(version)
    return None if release is None else contains(parse_ranges(ranges), release)


@lru_cache(maxsize=1 << 12)
def parse_ranges(text: str) -> tuple[Range, ...]:
    """Parse the ranges of a text; an empty text is every release. Raises ValueError unless all are ``>=`` or ``<``."""
    parsed: list[Range] = []
    for part in text.replace(" or ", "|").split("|"):
        ends: dict[str, tuple[int, ...]] = {}
        for clause in filter(None, map(str.strip, part.split(","))):
            operator = ">=" if clause.startswith(">=") else "<"
            release = dotted(clause.removeprefix(operator).strip())
            if not clause.startswith(operator) or release is None:
                raise ValueError(f"{clause!r} is neither >= nor < a release")
            ends[operator] = release if any(release) else ()  # 0 is below every release
        parsed.append((ends.get(">=", ()), ends.get("<")))
    return tuple(parsed)


def intersect(ranges: Iterable[Range], other: Iterable[Range]) -> tuple[Range, ...]:
    """Return the releases that are in both."""
    shared: list[Range] = []
    for (low, high), (other_low, other_high) in product(ranges, other):
        start = max(low, other_low)
        stop = min((end for end in (high, other_high) if end is not None), default=None)
        if stop is None or start < stop:
            shared.append((start, stop))
    return tuple(sorted(shared, key=lambda item: item[0]))


def contains(ranges: Iterable[Range], release: tuple[int, ...]) -> bool:
    """Return whether one range has the release, which :func:`~envdoctor.versions.pep440.release_of` gives."""
    return any(low <= release and (high is None or release < high) for low, high in ranges)


def spell_ranges(ranges: Iterable[Range]) -> str:
    """Write the ranges: ``>=4.36,<4.48 or >=5.1``; ``any`` for every release and ``none`` for no release."""
    texts = []
    for low, high in ranges:
        clauses = [f">={_dotted(low)}"] if low else []
        clauses += [f"<{_dotted(high)}"] if high is not None else []
        texts.append(",".join(clauses) or "any")
    return " or ".join(texts) or "none"


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release if len(release) > 1 else (*release, 0)))
