"""From observations to results: each judged, and those that came out alike together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.probe.running import UNUSABLE, Outcome
from envdoctor.probe.verdict import Verdict, judge_all
from envdoctor.text.message import NOTHING, Message

#: From the worst to the best.
ORDER = ("fail", "crash", "oom", "timeout", "killed", "garbage", "error", "warn", "pass", "skip")
#: How an ending is called in a record: its verdict and its signature.
_ENDED = {
    "timeout": ("timeout", "timeout"),
    "killed": ("killed", "killed"),
    "crash": ("crash", "crash"),
    "oom": ("oom", "out-of-memory"),
    "sticky": ("error", "sticky-error"),
    "garbage": ("garbage", "garbage"),
    "output-limit": ("garbage", "output-limit"),
    "failed": ("error", "failed"),
    "lost": ("error", "lost"),
    **{name: ("error", name) for name in UNUSABLE},
}
#: How it is called when a job that was done alone had ended so beside others; "died-once" otherwise.
_ONCE = {"crash": "crashed-once", "timeout": "hung-once"}
_MODULI = (128, 64, 32, 16)
#: A key length below this fits into one tile of every kernel.
_SHORT = 16


class Case(NamedTuple):
    """One observation with its verdict."""

    observation: Mapping[str, Any]
    verdict: Verdict

    @property
    def params(self) -> Mapping[str, Any]:
        """Its parameters by name."""
        params = self.observation.get("params")
        return params if isinstance(params, Mapping) else {}

    def param(self, name: str) -> str | None:
        """A parameter of the case as text."""
        return text_of(self.params, name)

    @property
    def title(self) -> str:
        """The case in a line: its name, or its parameters."""
        name = self.observation.get("case")
        if isinstance(name, str) and name:
            return name[:300]
        return " ".join(f"{key}={value}" for key, value in self.params.items())[:300]


class Group(NamedTuple):
    """Cases of one probe on one device, in one dtype and with one backend and model, that came out alike.

    ``cases`` are empty for a child that died: then ``detail`` says how. ``ran`` counts all cases with this probe,
    device, dtype and backend. ``right`` are those of them that passed.
    """

    name: str
    device: str
    dtype: str | None
    backend: str | None
    model: str | None
    verdict: str
    signature: str
    cases: tuple[Case, ...]
    ran: int
    right: tuple[Case, ...]
    detail: Message = NOTHING

    @property
    def wrong(self) -> bool:
        """Whether this is something that a person must see."""
        return self.verdict not in ("pass", "skip")

    @property
    def times(self) -> int:
        """How often it came out so; a child that died counts once."""
        return max(1, sum(case.verdict.verdict == self.verdict for case in self.cases))

    @property
    def worst(self) -> Case | None:
        """The case to show: the one that is furthest off; of lost values the first, because a grid begins simply."""
        alike = [case for case in self.cases if case.verdict.verdict == self.verdict]
        return max(alike, key=lambda case: 0.0 if "nan" in self.signature else case.verdict.ratio or 0.0, default=None)

    @property
    def why(self) -> str:
        """What is wrong, a clause."""
        return self.detail or (self.worst.verdict.why if self.worst is not None else "")

    @property
    def ratio(self) -> float | None:
        """The largest ratio; None when there is none that is finite."""
        ratios = [case.verdict.ratio for case in self.cases if case.verdict.ratio is not None]
        return max((ratio for ratio in ratios if math.isfinite(ratio)), default=None)

    def values(self, name: str) -> tuple[str, ...]:
        """What a parameter was in these cases: numbers in order, words in alphabetical order."""
        found = {value for case in self.cases if (value := case.param(name)) is not None}
        return tuple(sorted(found, key=lambda text: (float(text) if _is_length(text) else math.inf, text)))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Autograd nodes that ran, the most frequent first."""
        said = Counter(node for case in self.cases if (node := text_of(case.observation, "node")) is not None)
        return tuple(node for node, _ in said.most_common())

    @property
    def tensors(self) -> tuple[str, ...]:
        """Tensors that are wrong in some case."""
        return tuple(dict.fromkeys(name for case in self.cases for name in case.verdict.tensors))

    @property
    def lse(self) -> tuple[float, float] | None:
        """Least and largest logsumexp of a score row over the cases."""
        pairs = [case.observation.get("lse") for case in self.cases]
        both = [[_float(end) for end in pair] for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
        ends = [pair for pair in both if all(map(math.isfinite, pair))]
        if not ends:
            return None
        return min(pair[0] for pair in ends), max(pair[1] for pair in ends)

    @property
    def tile(self) -> str | None:
        """What the key lengths of these cases share where those of comparable right ones do not: ``%128=64``, ``<16``.

        Comparable is what has a mask and a stress of the wrong cases. One length alone shares everything with itself,
        and a key of length 1 has gradients of zero: neither says anything.
        """
        wrong = sorted({int(text) for text in self.values("S") if _is_length(text)})
        alike = [
            case
            for case in self.right
            if all((case.param(name) or "") in (self.values(name) or ("",)) for name in ("mask", "stress"))
        ]
        right = {int(text) for case in alike if (text := case.param("S")) and _is_length(text) and text != "1"}
        if not wrong or not right:
            return None
        if wrong[-1] < _SHORT <= min(right):
            return f"<{_SHORT}"
        for modulus in _MODULI if len(wrong) > 1 else ():
            rests = {length % modulus for length in wrong}
            if len(rests) == 1 and not rests & {length % modulus for length in right}:
                return f"%{modulus}={rests.pop()}"
        return None

    @property
    def batch(self) -> str | None:
        """What of the batch matters: ``padded``, ``size`` or ``any``; None where the batch was not varied."""
        if self.signature.startswith("mask-"):
            return "padded"
        if not any(case.param("padding") for case in (*self.cases, *self.right)):
            return None
        if not self.signature.startswith("batch-"):
            return "any"
        return "size" if "none" in self.values("padding") else "padded"


def cases_of(outcomes: Iterable[Outcome]) -> list[Case]:
    """Every observation that is a case, judged, in the order in which they came."""
    observations = [observation for outcome in outcomes for observation in outcome.observations]
    verdicts = judge_all(observations)
    return [Case(seen, verdict) for seen, verdict in zip(observations, verdicts, strict=True) if verdict is not None]


_Family = tuple[str, str, str | None, str | None]


def groups_of(outcomes: Sequence[Outcome], cases: Iterable[Case] | None = None) -> list[Group]:
    """The results, by probe in the order of the run, the worst first. A child that died is a group of its own.

    ``cases`` are those of the outcomes, for who has judged them already.
    """
    families: dict[_Family, list[Case]] = {_family(outcome): [] for outcome in outcomes}
    for case in cases_of(outcomes) if cases is None else cases:
        said = case.observation
        family = (str(said.get("probe")), str(said.get("device")), text_of(said, "dtype"), text_of(said, "backend"))
        families.setdefault(family, []).append(case)
    groups: list[Group] = []
    ran = {family: sum(case.verdict.verdict != "skip" for case in members) for family, members in families.items()}
    for family, members in families.items():
        right = [case for case in members if case.verdict.verdict == "pass"]
        kinds: dict[tuple[str, str | None], list[Case]] = {}
        for case in members:
            kinds.setdefault((case.verdict.signature, case.param("model")), []).append(case)
        for (signature, model), alike in kinds.items():
            verdict = min((case.verdict.verdict for case in alike), key=_rank)
            same = tuple(case for case in right if case.param("model") == model)
            groups.append(Group(*family, model, verdict, signature, tuple(alike), ran[family], same))
    for outcome in outcomes:
        family = _family(outcome)
        if outcome.ending != "ok":
            verdict, signature = _ENDED[outcome.ending]
            groups.append(Group(*family, None, verdict, signature, (), ran[family], (), outcome.detail))
        if outcome.earlier:
            detail = Message(
                "at first {}, in a process with other experiments: {}", outcome.earlier, outcome.earlier_detail
            )
            signature = _ONCE.get(outcome.earlier, "died-once")
            groups.append(Group(*family, None, "warn", signature, (), ran[family], (), detail))
    places = {name: place for place, name in enumerate(dict.fromkeys(outcome.job.probe for outcome in outcomes))}
    return sorted(groups, key=lambda group: (places.get(group.name, len(places)), _rank(group.verdict)))


def _family(outcome: Outcome) -> _Family:
    return outcome.job.probe, outcome.device, outcome.job.dtype, outcome.job.backend


def _is_length(text: str) -> bool:
    """Whether it is a number of keys: a recording may hold other digits, or thousands of them."""
    return text.isascii() and text.isdigit() and len(text) < 10


def _rank(verdict: str) -> int:
    return ORDER.index(verdict) if verdict in ORDER else 0


def text_of(observation: Mapping[str, Any], key: str) -> str | None:
    """A field as text; None where it is not there."""
    value = observation.get(key)
    return None if value is None else str(value)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
