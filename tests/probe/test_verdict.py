"""Each judge: what passes, what warns, what fails, how it is called, and that missing measures never pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.probe import Verdict, judge
from envdoctor.probe.verdict import judge_all

FINE = {"o": 0.8, "dq": 0.9, "dk": 1.1, "dv": 1.2}


def verdict_of(**observation: Any) -> Verdict:
    found = judge(observation)
    assert found is not None
    return found


def attention(**fields: Any) -> Verdict:
    return verdict_of(**{"judge": "attention", "dtype": "bf16", "ratio": FINE, **fields})


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
    found = attention(dtype=dtype, ratio={**FINE, "dk": ratio})
    assert found.verdict == expected
    assert found.ratio == ratio
    assert found.signature == ("ok" if expected == "pass" else "inaccurate")
    assert found.tensors == (() if expected == "pass" else ("dk",))


def test_own_limits_override_those_of_the_dtype() -> None:
    assert attention(ratio={**FINE, "o": 20.0}, limits=[30, 60, "normal on a CPU"]).verdict == "pass"
    assert attention(limits=[0.5, 0.6]).verdict == "fail"


@pytest.mark.parametrize("limits", [[8], [8, 4], "48", [1, "x"], [float("nan"), 4]])
def test_odd_limits_are_garbage(limits: Any) -> None:
    assert attention(limits=limits).verdict == "garbage"


def test_a_lost_value_fails_before_any_ratio_is_looked_at() -> None:
    found = attention(ratio={"o": 0.8, "dk": 500.0, "dv": 1.0}, nonfinite={"dq": 64})
    assert (found.verdict, found.signature, found.tensors) == ("fail", "nan-gradient", ("dq",))
    assert "dq 64" in found.why


def test_a_lost_output_is_named_before_the_gradients_that_follow_from_it() -> None:
    found = attention(ratio={}, nonfinite={"dv": 1, "o": 2, "dq": 3, "dk": 4})
    assert (found.signature, found.tensors) == ("nan-output", ("o", "dq", "dk", "dv"))


def test_an_infinite_ratio_is_a_lost_value() -> None:
    for odd in (float("inf"), float("nan"), "inf", "nan"):
        assert attention(ratio={**FINE, "dq": odd}).signature == "nan-gradient"


def test_nan_in_dead_rows_alone_is_a_warning_and_a_failure_where_it_reaches_keys() -> None:
    assert attention(dead_rows_nonfinite=8)[:3] == ("warn", "dead-row-nan", ("o",))
    lost = attention(ratio={"o": 0.8, "dq": 0.9}, nonfinite={"dk": 768, "dv": 768}, dead_rows_nonfinite=256)
    assert lost[:3] == ("fail", "dead-row-nan", ("dk", "dv"))


def test_wrong_numbers_outweigh_nan_in_dead_rows() -> None:
    assert attention(ratio={**FINE, "o": 90.0}, dead_rows_nonfinite=8).signature == "inaccurate"


def test_a_tensor_outside_the_gate_fails_only_by_lost_values() -> None:
    degenerate = {"o": 0.8, "dq": 3504.0, "dk": 3504.0, "dv": 1.0}
    assert attention(ratio=degenerate, gate=["o", "dv"]).verdict == "pass"
    assert attention(ratio={"o": 0.8, "dk": 1.0, "dv": 1.0}, nonfinite={"dq": 1}, gate=["o", "dv"]).verdict == "fail"


@pytest.mark.parametrize("missing", ["o", "dq", "dk", "dv"])
def test_a_tensor_that_was_not_measured_is_no_pass(missing: str) -> None:
    ratio = {name: value for name, value in FINE.items() if name != missing}
    assert attention(ratio=ratio).verdict == "garbage"
    assert attention(ratio=ratio, nonfinite={missing: 0}).verdict == "garbage"
    assert attention(ratio=ratio, unjudged=[missing]).verdict == "pass"


def test_rounding_judges_whatever_was_measured() -> None:
    assert verdict_of(judge="rounding", dtype="fp16", ratio={"dw": 4822.0}).tensors == ("dw",)
    assert verdict_of(judge="rounding", dtype="fp16", ratio={"o": 1.0}).verdict == "pass"
    assert verdict_of(judge="rounding", nonfinite={"loss": 0, "parameters": 0}).verdict == "pass"
    assert verdict_of(judge="rounding", nonfinite={"loss": 1, "parameters": 9}).signature == "nan-loss"
    assert verdict_of(judge="rounding", nonfinite={"parameters": 9}).signature == "nan-parameters"
    assert verdict_of(judge="rounding", dtype="fp16").verdict == "garbage"


def batch(**fields: Any) -> dict[str, Any]:
    return {"judge": "batch", "dtype": "bf16", "e1": 0.01, "eN": 0.011, **fields}


@pytest.mark.parametrize(("together", "expected"), [(0.04, "pass"), (0.041, "warn"), (0.08, "warn"), (0.0801, "fail")])
def test_a_batch_is_judged_by_how_much_worse_it_is_than_one_by_one(together: float, expected: str) -> None:
    found = verdict_of(**batch(eN=together))
    assert (found.verdict, found.signature) == (expected, "ok" if expected == "pass" else "batch-differs")


def test_a_batch_that_is_lost_where_single_samples_are_not_is_named_so() -> None:
    assert verdict_of(**batch(eN="nan"))[:2] == ("fail", "batch-nan")
    assert verdict_of(**batch(nonfinite={"loss": 1, "gradients": 5}))[:3] == (
        "fail",
        "batch-nan",
        ("loss", "gradients"),
    )
    assert verdict_of(**batch(e1="nan", eN="nan", nonfinite={"gradients": 5}))[:2] == ("fail", "nan-gradient")
    assert verdict_of(**batch(e1="nan"))[:2] == ("fail", "nan-gradient")
    assert verdict_of(**batch(pad_nonfinite=3))[:2] == ("warn", "pad-nan")
    assert verdict_of(judge="batch", eN=0.1).verdict == "garbage"


def test_a_batch_that_is_no_worse_than_its_samples_is_wrong_where_these_are() -> None:
    found = verdict_of(**batch(e1=0.4, eN=0.4, most=0.03))
    assert (found.verdict, found.signature) == ("fail", "samples-differ")
    assert found.why == "gradients of single samples are off by 0.4, those of the batch as well; up to 0.03 is right"
    assert verdict_of(**batch(e1=0.03, eN=0.03, most=0.03)).verdict == "pass"
    assert verdict_of(**batch(e1=0.01, eN=0.4, most=0.03)).signature == "batch-differs"


def test_an_exact_gradient_is_not_divided_by() -> None:
    assert verdict_of(**batch(e1=0.0, eN=0.0)).verdict == "pass"


def test_what_fails_with_padding_alone_is_named_after_the_mask() -> None:
    glm = {"model": "glm", "attn": "sdpa", "gain": "bias"}
    equal = batch(params={**glm, "padding": "none"})
    padded = batch(eN="nan", params={**glm, "padding": "left", "position_ids": True})
    differs = batch(eN=0.9, params={**glm, "padding": "right"})
    other = batch(eN="nan", params={**glm, "model": "llama", "padding": "left"})
    found = judge_all([padded, equal, differs, other])
    assert [verdict and verdict.signature for verdict in found] == ["mask-nan", "ok", "mask-differs", "batch-nan"]
    sick = judge_all([padded, batch(eN="nan", params={**glm, "padding": "none"})])
    assert [verdict and verdict.signature for verdict in sick] == ["batch-nan", "batch-nan"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"judge": "exact", "equal": True}, ("pass", "ok")),
        ({"judge": "exact", "equal": False}, ("fail", "differs")),
        ({"judge": "exact", "equal": False, "soft": True, "signature": "not-repeatable"}, ("warn", "not-repeatable")),
        ({"judge": "exact", "equal": "yes"}, ("garbage", "unreadable")),
        ({"judge": "exact", "difference": 0.001, "limit": 0.001}, ("pass", "ok")),
        ({"judge": "exact", "difference": 0.0011, "limit": 0.001}, ("fail", "differs")),
        ({"judge": "exact", "difference": float("nan"), "limit": 0.001}, ("fail", "differs")),
        ({"judge": "exact", "difference": 0.1}, ("garbage", "unreadable")),
        ({"judge": "change", "relative": 0.01, "limit": 0.01}, ("pass", "ok")),
        ({"judge": "change", "relative": 7.9, "limit": 0.01, "signature": "x-y"}, ("fail", "x-y")),
        ({"judge": "change", "relative": "nan", "limit": 0.01}, ("fail", "changed")),
        ({"judge": "growth", "kib": [5, 10, 10]}, ("pass", "ok")),
        ({"judge": "growth", "kib": [5, 10, 10, 8]}, ("pass", "ok")),
        ({"judge": "growth", "kib": [5, 10, 10, 10.5]}, ("fail", "grows")),
        ({"judge": "growth", "kib": [5, 10, "nan"]}, ("garbage", "unreadable")),
        ({"judge": "growth", "kib": [5, "inf", 10]}, ("garbage", "unreadable")),
        ({"judge": "growth", "kib": [5, 10, -1]}, ("garbage", "unreadable")),
        ({"judge": "change", "relative": -1.0, "limit": 1e-3}, ("garbage", "unreadable")),
        ({"judge": "exact", "difference": -1.0, "limit": 0}, ("garbage", "unreadable")),
        ({"judge": "rounding", "ratio": {"o": -1.0}}, ("garbage", "unreadable")),
        ({"judge": "rounding", "ratio": {"o": "-inf"}}, ("garbage", "unreadable")),
        ({"judge": "batch", "e1": 1e-3, "eN": -1e-3}, ("garbage", "unreadable")),
        ({"judge": "growth", "kib": [5, 10]}, ("garbage", "unreadable")),
        ({"judge": "growth", "kib": [1, 1, 1], "reserved_kib": [0, 0, 4096]}, ("pass", "ok")),
        ({"judge": "growth", "kib": [1, 1, 1], "reserved_kib": [0, 0, 4097]}, ("warn", "reserved-grows")),
        ({"judge": "honesty", "row_nan": 8, "expected": 8, "elsewhere": 0}, ("pass", "ok")),
        ({"judge": "honesty", "row_nan": 7, "expected": 8, "elsewhere": 0}, ("fail", "nan-hidden")),
        ({"judge": "honesty", "row_nan": 8, "expected": 8, "elsewhere": 1}, ("fail", "nan-spreads")),
        ({"judge": "honesty", "row_nan": 0, "expected": 0, "elsewhere": 0}, ("garbage", "unreadable")),
        ({"judge": "honesty", "row_nan": 8, "expected": 8}, ("garbage", "unreadable")),
        ({"judge": "horoscope"}, ("garbage", "unreadable")),
        ({"skip": "no such argument", "judge": "attention"}, ("skip", "skipped")),
        ({"error": "CUDA error: an illegal memory access", "sticky": True}, ("error", "sticky-error")),
        ({"error": "boom", "skip": "x"}, ("error", "error")),
        ({"error": "CUDA out of memory", "oom": True}, ("oom", "out-of-memory")),
    ],
)
def test_each_rule_says_the_word_of_its_violation(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    assert verdict_of(**fields)[:2] == expected


def test_what_only_informs_has_no_verdict() -> None:
    assert judge({"kind": "info", "judge": "attention"}) is None
    assert judge({"kind": "environment"}) is None
    assert judge({"case": "which backend"}) is None


_WORD = st.sampled_from(["o", "dq", "loss", "padding", "nan", "-inf", "none", ""])
_ONE = st.none() | st.booleans() | st.integers() | st.floats() | _WORD
_ANY = _ONE | st.lists(_ONE, max_size=4) | st.dictionaries(_WORD, _ONE | st.lists(_ONE, max_size=2), max_size=4)
_FIELDS = [
    *("ratio", "nonfinite", "gate", "unjudged", "limits", "dead_rows_nonfinite", "e1", "eN", "pad_nonfinite", "equal"),
    *("difference", "limit", "relative", "kib", "reserved_kib", "row_nan", "expected", "elsewhere", "params", "dtype"),
    *("signature", "soft", "tensors"),
]


@given(
    st.sampled_from(["attention", "rounding", "batch", "exact", "change", "growth", "honesty"]),
    st.dictionaries(st.sampled_from(_FIELDS), _ANY),
)
def test_whatever_a_child_prints_gets_a_verdict(name: str, fields: dict[str, Any]) -> None:
    found = judge_all([{"judge": name, **fields}])[0]
    assert found is not None
    assert found.verdict in ("pass", "warn", "fail", "garbage")
    json.dumps(found)


@given(st.dictionaries(st.sampled_from(["o", "dq", "dk", "dv"]), st.floats(min_value=0)), st.booleans())
def test_attention_never_passes_with_a_bad_or_missing_ratio(ratio: dict[str, float], half: bool) -> None:
    found = attention(ratio=ratio, dtype="bf16" if half else "fp32")
    good = len(ratio) == 4 and max(ratio.values()) <= (4 if half else 8)
    assert (found.verdict == "pass") == good
