"""Each judge: what passes, what warns, what fails, how it is called, and that missing measures never pass."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.experiments import Job, Outcome, Verdict, cases_of, judge

FINE = {"o": 0.8, "dq": 0.9, "dk": 1.1, "dv": 1.2}
DEGENERATE = {"o": 0.8, "dq": 3504.0, "dk": 3504.0, "dv": 1.0}
NAN, INF = float("nan"), float("inf")


def attention(**fields: Any) -> dict[str, Any]:
    return {"judge": "attention", "dtype": "bf16", "ratio": FINE, **fields}


def rounding(**fields: Any) -> dict[str, Any]:
    return {"judge": "rounding", "dtype": "fp16", **fields}


def batch(**fields: Any) -> dict[str, Any]:
    return {"judge": "batch", "dtype": "bf16", "e1": 0.01, "eN": 0.011, **fields}


def verdicts_of(*observations: Mapping[str, Any]) -> list[Verdict]:
    return [case.verdict for case in cases_of([Outcome(Job("a", "cpu", "quick"), observations, "ok")])]


@pytest.mark.parametrize(
    ("dtype", "ratio", "expected"),
    [
        ("bf16", 4.0, "pass"),
        ("bf16", 4.01, "warn"),
        ("bf16", 8.0, "warn"),
        ("bf16", 8.01, "fail"),
        ("fp16", 4.01, "warn"),
        ("fp16", 8.01, "fail"),
        ("fp32", 8.0, "pass"),
        ("fp32", 8.01, "warn"),
        ("fp32", 64.0, "warn"),
        ("fp32", 64.01, "fail"),
        (None, 8.01, "fail"),
    ],
)
def test_the_worst_tensor_decides_by_the_limits_of_the_dtype(dtype: str, ratio: float, expected: str) -> None:
    right = expected == "pass"
    signature, tensors = ("ok", ()) if right else ("inaccurate", ("dk",))
    result = judge(attention(dtype=dtype, ratio={**FINE, "dk": ratio}))
    assert result is not None
    assert result[:4] == (expected, signature, tensors, ratio)


PASS, GARBAGE = ("pass", "ok"), ("garbage", "unreadable")
#: An observation, and how its verdict begins: the word, its signature, the tensors.
VERDICTS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    # Own limits override those of the dtype; odd ones are garbage.
    (attention(ratio={**FINE, "o": 20.0}, limits=[30, 60, "normal on a CPU"]), PASS),
    (attention(limits=[0.5, 0.6]), ("fail",)),
    *[(attention(limits=limits), ("garbage",)) for limits in ([8], [8, 4], "48", [1, "x"], [NAN, 4])],
    # A lost value fails before any ratio is looked at, an output before the gradients that follow from it.
    (attention(ratio={"o": 0.8, "dk": 500.0, "dv": 1.0}, nonfinite={"dq": 64}), ("fail", "nan-gradient", ("dq",))),
    (
        attention(ratio={}, nonfinite={"dv": 1, "o": 2, "dq": 3, "dk": 4}),
        ("fail", "nan-output", ("o", "dq", "dk", "dv")),
    ),
    *[(attention(ratio={**FINE, "dq": odd}), ("fail", "nan-gradient")) for odd in (INF, NAN, "inf", "nan")],
    # NaN in dead rows is a warning, a failure where it reaches keys, and less than wrong numbers.
    (attention(dead_rows_nonfinite=8), ("warn", "dead-row-nan", ("o",))),
    (
        attention(ratio={"o": 0.8, "dq": 0.9}, nonfinite={"dk": 768, "dv": 768}, dead_rows_nonfinite=256),
        ("fail", "dead-row-nan", ("dk", "dv")),
    ),
    (attention(ratio={**FINE, "o": 90.0}, dead_rows_nonfinite=8), ("fail", "inaccurate")),
    # A tensor outside the gate fails only by lost values.
    (attention(ratio=DEGENERATE, gate=["o", "dv"]), PASS),
    (attention(ratio={"o": 0.8, "dk": 1.0, "dv": 1.0}, nonfinite={"dq": 1}, gate=["o", "dv"]), ("fail",)),
    (rounding(ratio={"dw": 4822.0}), ("fail", "inaccurate", ("dw",))),
    (rounding(ratio={"o": 1.0}), PASS),
    (rounding(nonfinite={"loss": 0, "parameters": 0}), PASS),
    (rounding(nonfinite={"loss": 1, "parameters": 9}), ("fail", "nan-loss")),
    (rounding(nonfinite={"parameters": 9}), ("fail", "nan-parameters")),
    (rounding(), GARBAGE),
    (rounding(ratio={"o": -1.0}), GARBAGE),
    (rounding(ratio={"o": "-inf"}), GARBAGE),
    # A batch is judged by how much worse it is than one by one.
    (batch(eN=0.04), PASS),
    (batch(eN=0.041), ("warn", "batch-differs")),
    (batch(eN=0.08), ("warn", "batch-differs")),
    (batch(eN=0.0801), ("fail", "batch-differs")),
    (batch(eN="nan"), ("fail", "batch-nan")),
    (batch(nonfinite={"loss": 1, "gradients": 5}), ("fail", "batch-nan", ("loss", "gradients"))),
    (batch(e1="nan", eN="nan", nonfinite={"gradients": 5}), ("fail", "nan-gradient")),
    (batch(e1="nan"), ("fail", "nan-gradient")),
    (batch(pad_nonfinite=3), ("warn", "pad-nan")),
    (batch(e1=0.0, eN=0.0), PASS),
    (batch(e1=0.03, eN=0.03, most=0.03), PASS),
    (batch(e1=0.03, eN=0.03, most="nan"), ("fail", "samples-differ")),
    (batch(e1=0.01, eN=0.4, most=0.03), ("fail", "batch-differs")),
    (batch(e1=1e-3, eN=-1e-3), GARBAGE),
    ({"judge": "batch", "eN": 0.1}, GARBAGE),
    ({"judge": "exact", "equal": True}, PASS),
    ({"judge": "exact", "equal": False}, ("fail", "differs")),
    ({"judge": "exact", "equal": False, "soft": True, "signature": "not-repeatable"}, ("warn", "not-repeatable")),
    ({"judge": "exact", "equal": "yes"}, GARBAGE),
    ({"judge": "exact", "difference": 0.001, "limit": 0.001}, PASS),
    ({"judge": "exact", "difference": 0.0011, "limit": 0.001}, ("fail", "differs")),
    ({"judge": "exact", "difference": NAN, "limit": 0.001}, ("fail", "differs")),
    ({"judge": "exact", "difference": 0.1}, GARBAGE),
    ({"judge": "exact", "difference": -1.0, "limit": 0}, GARBAGE),
    ({"judge": "change", "relative": 0.01, "limit": 0.01}, PASS),
    ({"judge": "change", "relative": 7.9, "limit": 0.01, "signature": "x-y"}, ("fail", "x-y")),
    ({"judge": "change", "relative": "nan", "limit": 0.01}, ("fail", "changed")),
    ({"judge": "change", "relative": -1.0, "limit": 1e-3}, GARBAGE),
    ({"judge": "growth", "kib": [5, 10, 10]}, PASS),
    ({"judge": "growth", "kib": [5, 10, 10, 8]}, PASS),
    ({"judge": "growth", "kib": [5, 10, 10, 10.5]}, ("fail", "grows")),
    *[({"judge": "growth", "kib": kib}, GARBAGE) for kib in ([5, 10, "nan"], [5, "inf", 10], [5, 10, -1], [5, 10])],
    ({"judge": "honesty", "row_nan": 8, "expected": 8, "elsewhere": 0}, PASS),
    ({"judge": "honesty", "row_nan": 7, "expected": 8, "elsewhere": 0}, ("fail", "nan-hidden")),
    ({"judge": "honesty", "row_nan": 0, "expected": 64, "elsewhere": 0}, ("fail", "nan-hidden")),
    # Where it does no harm.
    ({"judge": "honesty", "row_nan": 8, "expected": 8, "elsewhere": 1}, ("fail", "nan-spreads")),
    ({"judge": "honesty", "row_nan": 0, "expected": 0, "elsewhere": 0}, GARBAGE),
    ({"judge": "honesty", "row_nan": 8, "expected": 8}, GARBAGE),
    ({"judge": "import", "outcome": "works", "errors": []}, PASS),
    ({"judge": "import", "outcome": "hangs", "errors": []}, ("fail", "import-fails", (), None, "it did not end")),
    ({"judge": "horoscope"}, GARBAGE),
    ({"skip": "no such argument", "judge": "attention"}, ("skip", "skipped")),
    ({"error": "CUDA error: an illegal memory access", "sticky": True}, ("error", "sticky-error")),
    ({"error": "boom", "skip": "x"}, ("error", "error")),
    ({"error": "CUDA out of memory", "oom": True}, ("oom", "out-of-memory")),
]


@pytest.mark.parametrize(("observation", "expected"), VERDICTS)
def test_each_rule_says_the_word_of_its_violation(observation: dict[str, Any], expected: tuple[Any, ...]) -> None:
    result = judge(observation)
    assert result is not None
    assert result[: len(expected)] == expected


@pytest.mark.parametrize("missing", ["o", "dq", "dk", "dv"])
def test_a_tensor_that_was_not_measured_is_no_pass(missing: str) -> None:
    ratio = {name: value for name, value in FINE.items() if name != missing}
    unmeasured = attention(ratio=ratio)
    result = verdicts_of(unmeasured, {**unmeasured, "nonfinite": {missing: 0}}, {**unmeasured, "unjudged": [missing]})
    assert [verdict.verdict for verdict in result] == ["garbage", "garbage", "pass"]


def test_a_verdict_says_by_how_much() -> None:
    lost, off = verdicts_of(attention(nonfinite={"dq": 64}), batch(e1=0.4, eN=0.4, most=0.03))
    assert "dq 64" in lost.why
    assert (off.verdict, off.signature) == ("fail", "samples-differ")
    assert off.why == "gradients of single samples are off by 0.4, those of the batch as well; up to 0.03 is right"


def test_what_fails_with_padding_alone_is_named_after_the_mask() -> None:
    glm = {"model": "glm", "attn": "sdpa", "gain": "bias"}
    equal = batch(params={**glm, "padding": "none"})
    padded = batch(eN="nan", params={**glm, "padding": "left", "position_ids": True})
    differs = batch(eN=0.9, params={**glm, "padding": "right"})
    other = batch(eN="nan", params={**glm, "model": "llama", "padding": "left"})
    result = verdicts_of(padded, equal, differs, other)
    assert [verdict.signature for verdict in result] == ["mask-nan", "ok", "mask-differs", "batch-nan"]
    sick = verdicts_of(padded, batch(eN="nan", params={**glm, "padding": "none"}))
    assert [verdict.signature for verdict in sick] == ["batch-nan", "batch-nan"]


def test_what_only_informs_has_no_verdict() -> None:
    assert verdicts_of({"kind": "info", "judge": "attention"}, {"kind": "environment"}, {"case": "which backend"}) == []


_WORD = st.sampled_from(["o", "dq", "loss", "padding", "nan", "-inf", "none", ""])
_ONE = st.none() | st.booleans() | st.integers() | st.floats() | _WORD
_ANY = _ONE | st.lists(_ONE, max_size=4) | st.dictionaries(_WORD, _ONE | st.lists(_ONE, max_size=2), max_size=4)
_FIELDS = [
    *("ratio", "nonfinite", "gate", "unjudged", "limits", "dead_rows_nonfinite", "e1", "eN", "pad_nonfinite", "equal"),
    *("difference", "limit", "relative", "kib", "row_nan", "expected", "elsewhere", "params", "dtype"),
    *("signature", "soft", "tensors"),
]


@given(
    st.sampled_from(["attention", "rounding", "batch", "exact", "change", "growth", "honesty"]),
    st.dictionaries(st.sampled_from(_FIELDS), _ANY),
)
def test_whatever_a_child_prints_gets_a_verdict(name: str, fields: dict[str, Any]) -> None:
    (result,) = verdicts_of({"judge": name, **fields})
    assert result.verdict in ("pass", "warn", "fail", "garbage")
    json.dumps(result)


@given(st.dictionaries(st.sampled_from(["o", "dq", "dk", "dv"]), st.floats(min_value=0)), st.booleans())
def test_attention_never_passes_with_a_bad_or_missing_ratio(ratio: dict[str, float], half: bool) -> None:
    (result,) = verdicts_of(attention(ratio=ratio, dtype="bf16" if half else "fp32"))
    good = len(ratio) == 4 and max(ratio.values()) <= (4 if half else 8)
    assert (result.verdict == "pass") == good
