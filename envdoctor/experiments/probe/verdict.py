"""Judge one observation of a probe: pass, warn, fail, or why there is no answer. Pure; needs no torch.

An observation is a plain mapping as a probe emitted it; ``judge`` in it names the rule:

* ``attention`` and ``rounding``: ``ratio`` {tensor: error against float64 divided by the error of a rounding model},
  ``nonfinite`` {tensor: count where the float64 reference is finite and fits the dtype}, ``dead_rows_nonfinite``
  (output of rows that may see no key), ``dead_dq_nonfinite`` (their dq, whose truth is 0: wrong where ``params.dout``
  is not "expand", which sends gradients into such rows), ``gate`` (tensors whose ratio counts; every one must have
  been measured, or be in ``unjudged`` because its reference overflows the dtype; default o, dq, dk, dv for attention,
  and whatever was measured for rounding), ``limits`` ([pass, warn] or [pass, warn, reason]).
* ``batch``: ``e1`` and ``eN`` (relative error of the gradient one sample at a time and as one batch), ``nonfinite``
  {loss, logits, gradients: count}, ``pad_nonfinite`` (logits at pad positions), ``most`` (what ``e1`` may be).
* ``exact``: ``equal``, or ``difference`` with ``limit``.  ``change``: ``relative`` with ``limit``.
* ``growth``: ``kib`` allocated at the end of each cycle over the same shapes.
* ``honesty``: ``row_nan`` of ``expected`` in the poisoned row, non-finite values ``elsewhere``.

``exact`` and ``change`` take the word of a violation from ``signature`` (not-repeatable, accumulation-scale, …);
``soft`` makes a violation of these, and a hidden NaN, a warning. Judged in this order: finite, then accurate; a later
step never softens an earlier one. An observation that lacks what its judge needs is "garbage", never a pass.

Numbers may come as the words "nan" and "inf", for those who write strict JSON; none can be negative.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from envdoctor.system.message import NOTHING, Message, joined, quoted, said_by

#: (pass up to, warn up to) for the ratio. Half precision: 12,096 ratios of healthy kernels (torch 2.5.0, 2.5.1, 2.13.0;
#: math, flash and default on a CPU) have median 0.88 and maximum 2.82, while kernels that round logits to half have 57
#: to 208 under a constant offset (fixtures/probe_recordings). fp32: healthy kernels of 2.13.0 on a CPU stay below 3
#: (benchmarks/results); the room above is for GPUs, whose float32 may be made of three products in tf32.
LIMITS: Mapping[str, tuple[float, float]] = {"bf16": (4.0, 8.0), "fp16": (4.0, 8.0), "fp32": (8.0, 64.0)}

#: For a whole gradient, batch against one by one: 777 healthy ratios lie in 0.67 … 1.88; RoPE of shifted positions in
#: fp16 with weights × 40 reaches 4.5 without a bug.
_BATCH = (4.0, 8.0)

#: Least error of one sample at a time, so that an exact gradient is not divided by.
_TINY = 1e-12

_TENSORS = ("o", "dq", "dk", "dv")
#: The ending of a statement without an exception.
_ENDINGS = {"hangs": Message("it did not end"), "crashes": Message("its process ended")}


class _UnreadableObservation(Exception):
    """A field is missing or is not what its name says; the text says which."""


class Verdict(NamedTuple):
    """``verdict`` (pass, warn, fail, skip, error, partial, oom, garbage), ``signature`` (a dashed word, ok), wrong
    ``tensors``, worst ``ratio`` (None if there is no finite one) and ``why``, a clause with the numbers."""

    verdict: str
    signature: str = "ok"
    tensors: tuple[str, ...] = ()
    ratio: float | None = None
    why: Message = NOTHING

    @property
    def wrong(self) -> bool:
        """Return whether a person must see it: a warning or worse, but not a skip."""
        return self.verdict not in ("pass", "skip")


def judge(observation: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict of one observation; None if it is not a case (``kind`` info or environment, or no judge)."""
    if observation.get("kind", "case") != "case":
        return None
    if observation.get("error") is not None:
        text = quoted(str(observation["error"]))
        if observation.get("oom") is True:
            return Verdict("oom", "out-of-memory", why=text)
        if observation.get("partial") is True:
            return Verdict("partial", "not-tried", why=text)
        return Verdict("error", "sticky-error" if observation.get("sticky") else "error", why=text)
    if observation.get("skip") is not None:
        return Verdict("skip", "skipped", why=quoted(str(observation["skip"])))
    name = observation.get("judge")
    if name in (None, "none"):
        return None
    rule = _JUDGES.get(str(name))
    if rule is None:
        return Verdict("garbage", "unreadable", why=Message("no judge is called {}", repr(name)))
    try:
        return rule(observation)
    except _UnreadableObservation as error:
        return Verdict("garbage", "unreadable", why=said_by(error))


def _limits(observation: Mapping[str, Any]) -> tuple[float, float]:
    """Return (pass up to, warn up to) of an observation: its ``limits``, else its dtype's (bf16's if unknown)."""
    own = observation.get("limits")
    if own is None:
        return LIMITS.get(str(observation.get("dtype")), LIMITS["bf16"])
    if not isinstance(own, Sequence) or isinstance(own, str) or len(own) not in (2, 3):
        raise _UnreadableObservation(Message("limits are not [pass, warn, reason]"))
    passes, warns = _number(own[0], "limits"), _number(own[1], "limits")
    if not 0 <= passes <= warns:
        raise _UnreadableObservation(Message("limits are not in order"))
    return passes, warns


# --- the judges ------------------------------------------------------------------------------------------------------


def _by_ratio(observation: Mapping[str, Any], default: tuple[str, ...]) -> Verdict:
    """Return the verdict by finiteness first, then by the worst ratio among the tensors that count."""
    ratios = {
        name: _number(value, Message("ratio of {}", name)) for name, value in _mapping(observation, "ratio").items()
    }
    lost = _counts(observation, "nonfinite")
    unjudged = _names(observation, "unjudged")
    gate = _names(observation, "gate") if observation.get("gate") is not None else default
    missing = [name for name in gate if name not in ratios and name not in lost and name not in unjudged]
    if missing:
        raise _UnreadableObservation(Message("{} was not measured", ", ".join(missing)))
    if not (ratios or unjudged or _mapping(observation, "nonfinite")):
        raise _UnreadableObservation(Message("nothing was measured"))
    dead = _count(observation, "dead_rows_nonfinite")
    dead_dq = _count(observation, "dead_dq_nonfinite")
    if dead_dq and params_of(observation).get("dout") != "expand":
        lost["dq"] = lost.get("dq", 0) + dead_dq
    # A ratio that is itself not finite says that the error is not: the same as a lost value.
    lost.update({name: 1 for name, value in ratios.items() if not math.isfinite(value) and name not in lost})
    passes, warns = _limits(observation)
    counted = {name: value for name, value in ratios.items() if math.isfinite(value) and name in (gate or ratios)}
    worst = max(counted.values(), default=None)
    if lost:
        tensors, listed = _listed(lost)
        why = Message("values that are not finite where the float64 result is: {}", listed)
        # The gradient of a row that sees no key counts as little as its output.
        own = tuple(name for name in tensors if name != "dq" or not dead or lost[name] > dead_dq)
        return Verdict("fail", _lost_signature(own, dead), tensors, worst, why)
    wrong = _ordered(name for name, value in counted.items() if value > passes)
    if wrong:
        name = max(counted, key=counted.__getitem__)
        text = "error of {} is {} times that of unavoidable rounding; up to {} is right"
        why = Message(text, name, f"{worst:.3g}", f"{passes:g}")
        verdict = "fail" if counted[name] > warns else "warn"
        return Verdict(verdict, "inaccurate", wrong, worst, why)
    if dead:
        why = Message("{} values that are not finite, only in the output of rows that may see no key", dead)
        return Verdict("warn", "dead-row-nan", ("o",), worst, why)
    return Verdict("pass", ratio=worst)


def _lost_signature(tensors: tuple[str, ...], dead: int) -> str:
    if "loss" in tensors:
        return "nan-loss"
    if "parameters" in tensors:
        return "nan-parameters"
    if dead and set(tensors) <= {"dk", "dv"}:
        return "dead-row-nan"  # 0 · NaN of a dead row's output enters the gradients of the keys of the whole sample
    gradients = all(name == "gradients" or name in _TENSORS[1:] for name in tensors)
    return "nan-gradient" if gradients else "nan-output"


def _batch(observation: Mapping[str, Any]) -> Verdict:
    lost = _counts(observation, "nonfinite")
    alone = _number(observation.get("e1"), "e1")
    together = _number(observation.get("eN"), "eN")
    if not math.isfinite(together) and not lost:
        lost = {"gradients": 1}
    if lost:
        tensors, listed = _listed(lost)
        if math.isfinite(alone):
            why = Message("not finite in the batch ({}), finite one by one", listed)
            return Verdict("fail", "batch-nan", tensors, why=why)
        why = Message("not finite ({}), one by one as well", listed)
        return Verdict("fail", _lost_signature(tensors, 0), tensors, why=why)
    if not math.isfinite(alone):
        why = Message("not finite one by one, finite in the batch")
        return Verdict("fail", "nan-gradient", ("gradients",), why=why)
    ratio = together / max(alone, _TINY)
    passes, warns = _limits(observation) if observation.get("limits") is not None else _BATCH
    if ratio > passes:
        text = "gradient of the batch is {} times as wrong as one by one ({} against {})"
        why = Message(text, f"{ratio:.3g}", f"{together:.3g}", f"{alone:.3g}")
        return Verdict("fail" if ratio > warns else "warn", "batch-differs", ("gradients",), ratio, why)
    most = observation.get("most")
    if most is not None and not alone <= (most := _number(most, "most")):
        text = "gradients of single samples are off by {}, those of the batch as well; up to {} is right"
        why = Message(text, f"{alone:.2g}", f"{most:g}")
        return Verdict("fail", "samples-differ", ("gradients",), ratio, why)
    padding = _count(observation, "pad_nonfinite")
    if padding:
        why = Message("{} logits that are not finite, only at pads", padding)
        return Verdict("warn", "pad-nan", ("logits",), ratio, why)
    return Verdict("pass", ratio=ratio)


def _exact(observation: Mapping[str, Any]) -> Verdict:
    equal = observation.get("equal")
    if equal is not None:
        if not isinstance(equal, bool):
            raise _UnreadableObservation(Message("equal is neither true nor false"))
        if equal:
            return Verdict("pass")
        return _violation(observation, "differs", Message("two results that must be equal differ"))
    return _within(observation, "difference", "differs", "difference {}, at most {} is right")


def _within(observation: Mapping[str, Any], key: str, word: str, text: str) -> Verdict:
    measure, limit = (_number(observation.get(name), name) for name in (key, "limit"))
    if measure <= limit:  # false for NaN
        return Verdict("pass")
    return _violation(observation, word, Message(text, f"{measure:.3g}", f"{limit:g}"))


def _violation(observation: Mapping[str, Any], default: str, why: Message) -> Verdict:
    word = str(observation.get("signature") or default)
    verdict = "warn" if observation.get("soft") is True else "fail"
    return Verdict(verdict, word, _names(observation, "tensors"), None, why)


def _growth(observation: Mapping[str, Any]) -> Verdict:
    """Return the verdict on bytes after each cycle: the last must equal the second, because two cycles fill caches."""
    problem = Message("{} is not a list of numbers", "kib")
    kib = [_number(value, "kib") for value in _field(observation, "kib", Sequence, problem)]
    if not all(map(math.isfinite, kib)):
        raise _UnreadableObservation(Message("{} is not finite", "kib"))
    if len(kib) < 3:
        raise _UnreadableObservation(Message("growth needs at least three cycles"))
    grown = kib[-1] - kib[1]
    if not grown <= 0:
        each = f"{grown / (len(kib) - 2):.3g}"
        why = Message("{} KiB more after {} cycles, {} a cycle", f"{grown:g}", len(kib), each)
        return Verdict("fail", "grows", ("memory",), None, why)
    return Verdict("pass")


def _honesty(observation: Mapping[str, Any]) -> Verdict:
    nans, expected = _count(observation, "row_nan", True), _count(observation, "expected", True)
    elsewhere = _count(observation, "elsewhere", True)
    if expected < 1:
        raise _UnreadableObservation(Message("nothing was poisoned"))
    if nans < expected:
        text = "a NaN in the input comes out as {} NaN of {}: the rest are numbers that look right"
        why = Message(text, nans, expected)
        return Verdict("fail", "nan-hidden", ("o",), None, why)
    if elsewhere:
        why = Message("a NaN in one row comes out in {} values of other rows", elsewhere)
        return Verdict("fail", "nan-spreads", ("o",), None, why)
    return Verdict("pass")


def _import(observation: Mapping[str, Any]) -> Verdict:
    if observation.get("outcome") == "works":
        return Verdict("pass")
    return Verdict("fail", "import-fails", why=failure_of(observation))


def failure_of(observation: Mapping[str, Any]) -> Message:
    """Return why the statement failed, as a clause: the first cause of its exception."""
    cause = cause_of(observation)
    clause = joined([text for text in (text_in(cause, "type"), text_in(cause, "message")) if text], ": ")
    return clause or _ENDINGS.get(str(observation.get("outcome")), Message("it gave no answer"))


def cause_of(observation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last of the exceptions that led to one another; empty if the child sent none."""
    errors = observation.get("errors")
    last = errors[-1] if isinstance(errors, list) and errors else None
    return last if isinstance(last, Mapping) else {}


def text_in(record: Mapping[str, Any], key: str) -> str:
    """Return a field as text of at most 400 characters; empty if it is not text."""
    text = record.get(key)
    return text[:400] if isinstance(text, str) else ""


_JUDGES: Mapping[str, Callable[[Mapping[str, Any]], Verdict]] = {
    "attention": partial(_by_ratio, default=_TENSORS),
    "rounding": partial(_by_ratio, default=()),
    "batch": _batch,
    "exact": _exact,
    "change": partial(_within, key="relative", word="changed", text="relative difference {}, at most {} is right"),
    "growth": _growth,
    "honesty": _honesty,
    "import": _import,
}


def _ordered(tensors: Iterable[str]) -> tuple[str, ...]:
    """Return attention's tensors in their usual order, others after them as they came."""
    listed = list(tensors)
    return tuple([name for name in _TENSORS if name in listed] + [name for name in listed if name not in _TENSORS])


def _listed(lost: Mapping[str, int]) -> tuple[tuple[str, ...], str]:
    """Return the tensors in their order, and the same with their counts as text."""
    tensors = _ordered(lost)
    return tensors, ", ".join(f"{name} {lost[name]}" for name in tensors)


def params_of(observation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of an observation by name; empty if it has none."""
    params = observation.get("params")
    return params if isinstance(params, Mapping) else {}


def twin_of(observation: Mapping[str, Any]) -> str:
    """Return the key that a padded case and its twin of equal lengths share."""
    varied = ("padding", "position_ids", "lengths", "empty", "B", "S")
    place = [observation.get(name) for name in ("probe", "device", "dtype", "backend")]
    shared = [(str(name), str(value)) for name, value in params_of(observation).items() if name not in varied]
    return repr((place, sorted(shared)))


def text_of(observation: Mapping[str, Any], key: str) -> str | None:
    """Return a field as text; None if it is missing."""
    value = observation.get(key)
    return None if value is None else str(value)


def float_of(value: object) -> float:
    """Return a field as a number; NaN if it is not one."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


# --- fields from a child, where anything may be missing or odd --------------------------------------------------------


def _number(value: object, name: str) -> float:
    """Return a number that is not negative, as every measure is; JSON lacks nan and inf, so these are words."""
    if isinstance(value, str) and value.lower() in ("nan", "inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _UnreadableObservation(Message("{} is not a number", name))
    if value < 0:
        raise _UnreadableObservation(Message("{} is negative", name))
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _field(observation: Mapping[str, Any], key: str, kind: Any, problem: Message, default: Any = None) -> Any:
    """Return a field of this kind; the default if it is missing. Raises the ``problem`` for another kind."""
    value = default if observation.get(key) is None else observation[key]
    if not isinstance(value, kind) or isinstance(value, str):
        raise _UnreadableObservation(problem)
    return value


def _mapping(observation: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object; empty if it is missing."""
    return _field(observation, key, Mapping, Message("{} is not an object", key), {})  # type: ignore[no-any-return]


def _counts(observation: Mapping[str, Any], key: str) -> dict[str, int]:
    """Return the names whose count is not zero."""
    counts = {
        str(name): _whole(value, Message("{} of {}", key, name)) for name, value in _mapping(observation, key).items()
    }
    return {name: number_of for name, number_of in counts.items() if number_of}


def _count(observation: Mapping[str, Any], key: str, required: bool = False) -> int:
    """Return a count; 0 if it is missing and not ``required``."""
    value = observation.get(key)
    return 0 if value is None and not required else _whole(value, key)


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _UnreadableObservation(Message("{} is not a count", name))
    return value


def _names(observation: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of names; empty if it is missing."""
    return tuple(map(str, _field(observation, key, Sequence, Message("{} is not a list of names", key), ())))
