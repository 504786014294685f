"""What a run may be whose settings are not all told, each of them as it may be too, and what of it may be shown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envdoctor.peak.closed_form import CONTEXT, GIB, Need
from envdoctor.peak.tracing import Job
from envdoctor.versions.pep440 import satisfies


def unstated_of(
    given: Mapping[str, Any], job: Job, rows: Sequence[Mapping[str, Any]], version: str | None
) -> Iterator[tuple[str, Job]]:
    """Yield each setting that ``given``, the recipe, leaves open of the ``job`` of a training run, and the job as it is
    the other way. ``rows`` are of the table memory-frameworks, ``version`` is that of transformers (None: not
    known)."""
    framework = str(given.get("framework") or "")
    for row in rows:
        others = framework not in row.get("frameworks", [framework])
        older = version is not None and "releases" in row and not satisfies(version, row["releases"])
        if row["name"] in given or others or older:
            continue
        changed = dict(job)
        for key, value in row["may_be"].items():
            match job[key], value:
                case dict() as before, dict():
                    changed[key] = {**before, **value}
                case _, dict():
                    pass  # the run has no adapter, or no packed weights
                case _:
                    changed[key] = value
        if changed != job:
            yield row["name"], changed


#: A setting is named that changes so many bytes.
_LEAST = GIB / 20


class Shown:
    """Between which ends the measures of a run lie whose ``need`` is known if it is as it was taken; ``names`` are the
    settings by which it may differ. What each changes counts by its square, because not all of them are otherwise at
    once. The allocator holds no more than ``most`` bytes; both ends reach ``further`` times as far."""

    def __init__(self, need: Need, most: float, further: float = 1.0) -> None:
        self.names = list[str]()
        self._need, self._most, self._further = need, most, further
        self._squares = {name: [0.0, 0.0] for name in Need._fields[:3]}
        self._weights = math.inf

    def more(self, name: str, held: float) -> None:
        """Note that the allocator may hold so many bytes more."""
        for measure in ("reserved", "process"):
            self._note(name, measure, 0.0, held)

    def otherwise(self, name: str, weights: float, here: Need, other_weights: float, there: Need) -> None:
        """Note what a run that is otherwise needs, beside the run as it was taken."""
        self._weights = min(self._weights, weights, other_weights)
        for measure, (low, _, high), (bottom, _, top) in zip(self._squares, here[:3], there[:3], strict=True):
            self._note(name, measure, max(low - bottom, 0.0), max(top - high, 0.0))

    def _note(self, name: str, measure: str, *ends: float) -> None:
        for place, size in enumerate(ends):
            self._squares[measure][place] += size**2
        if max(ends) >= _LEAST and name not in self.names:
            self.names.append(name)

    def spans(self) -> dict[str, tuple[float, float]]:
        """Return the least and the most bytes by measure; never less than the weights."""
        spans = {}
        for (measure, (below, above)), (low, _, high) in zip(self._squares.items(), self._need[:3], strict=True):
            least = max(low - math.sqrt(below), min(low, self._weights))
            spans[measure] = least, max(high, min(high + math.sqrt(above), self._most))
        # Where nobody measured what a process has beside its tensors, it may be anything.
        (low, _), (least, _, most) = spans["reserved"], CONTEXT
        low, high = low + least * GIB, self._need.reserved[2] + most * GIB
        spans["process"] = min(spans["process"][0], low), max(spans["process"][1], min(high, self._most))
        return {
            measure: (low / self._further, max(high, min(high * self._further, self._most)))
            for measure, (low, high) in spans.items()
        }
