"""What the shipped rules make of a result: one finding for one cause, the most specific one, and how much it weighs."""

from collections.abc import Mapping
from typing import Any

import pytest
from known import given
from known import judged as judgement_of
from observing import shipped

from envdoctor.judge import Finding

CUDNN = "ScaledDotProductCudnnAttentionBackward0"
ATTENTION: dict[str, Any] = {
    **{"name": "attention", "device": "cuda", "in_use": True, "dtype": "bf16", "backend": "default"},
    **{"attention": "sdpa", "node": "ScaledDotProductFlashAttentionBackward0", "verdict": "fail"},
    **{"signature": "nan-gradient", "tensors": "dq", "masks": ["alltrue", "bool_left", "min_left"]},
    **{"stresses": ["shift-"], "lengths": ["64", "192"], "tile": "%128=64", "model": "absent", "batch": "absent"},
    **{"ratio": 1.2, "wrong": 28, "cases": 150, "example": "L64 S64 D64 alltrue bhsd hf shift-"},
    **{"detail": "values that are not finite", "settles": "attention"},
}


def judged(*records: Mapping[str, Any], **packages: str) -> list[Finding]:
    """The findings that stand for themselves, for results like :data:`ATTENTION` with these columns changed."""
    values: dict[str, Any] = {"probe": [{**ATTENTION, **record} for record in records]}
    values.update({f"pkg.{name}": version for name, version in packages.items()})
    matrix = shipped()
    judgement = judgement_of(given(values, matrix.registry), matrix.of_scopes("probe"))
    return [finding for finding in judgement.findings if finding.superseded_by is None]


HALF = {"signature": "inaccurate", "tensors": "o", "tile": "absent", "stresses": ["shift-"]}
DEAD = {"signature": "dead-row-nan", "tensors": "dk, dv", "tile": "absent", "masks": ["bool_left"]}


@pytest.mark.parametrize(
    ("record", "packages", "expected"),
    [
        ({"node": CUDNN}, {}, "probe-cudnn-attention-tile-64"),
        ({"node": CUDNN, "dtype": "fp16"}, {"torch": "2.13.0+cu130"}, "probe-cudnn-attention-tile-64"),
        ({"node": CUDNN, "masks": ["causal", "bool_left"]}, {}, "probe-cudnn-attention-gradient-nan"),
        ({"node": CUDNN, "tensors": "dq, dk, dv", "tile": "absent"}, {}, "probe-cudnn-attention-gradient-nan"),
        ({"node": CUDNN, "tensors": "dq, dk, dv", "tile": "absent"}, {"torch": "2.5.0"}, "probe-cudnn-attention-2-5-0"),
        (
            {"node": CUDNN, "tensors": "dk, dv", "tile": "absent", "example": "L1 S128 D64 none bhsd hf shift-"},
            {},
            "probe-cudnn-attention-one-query",
        ),
        ({"node": CUDNN, "masks": ["f32_left"], "tile": "absent", **{"signature": "nan-output", "tensors": "o"}},
         {}, "probe-cudnn-float32-mask"),
        ({**HALF, "node": CUDNN, "stresses": ["unit"]}, {}, "probe-cudnn-attention-inaccurate"),
        ({}, {}, "probe-attention-gradient-nan"),
        ({"signature": "nan-output", "tensors": "o"}, {}, "probe-attention-output-nan"),
        ({"signature": "inaccurate", "node": "ScaledDotProductEfficientAttentionBackward0", "tile": "%32=1"},
         {}, "probe-efficient-attention-last-key"),
        ({**HALF, "ratio": 12.0}, {"torch": "2.13.0"}, "probe-attention-inaccurate"),
        ({**HALF, "verdict": "warn"}, {}, "probe-attention-less-accurate"),
        ({**HALF, "backend": "math", "node": "UnsafeViewBackward0"}, {"torch": "2.4.1"},
         "probe-math-attention-half-logits"),
        (DEAD, {"torch": "2.4.1"}, "probe-dead-rows-before-2-5"),
        (DEAD, {"torch": "2.13.0"}, "probe-dead-rows-nan-gradient"),
        ({**DEAD, "verdict": "warn"}, {"torch": "2.13.0"}, "probe-dead-rows-nan-output"),
        ({"name": "something-new", "signature": "odd"}, {}, "experiment-gives-wrong-numbers"),
        ({"verdict": "crash", "signature": "crash"}, {}, "experiment-crashes"),
        ({"verdict": "oom", "signature": "out-of-memory"}, {}, "probe-out-of-memory"),
        ({"verdict": "timeout", "signature": "timeout"}, {}, "probe-timed-out"),
        ({"verdict": "killed", "signature": "killed"}, {}, "probe-killed"),
        ({"verdict": "error", "signature": "sticky-error"}, {}, "probe-sticky-cuda-error"),
        ({"in_use": False, "device": "cpu"}, {}, "probe-other-device-wrong"),
    ],
)  # fmt: skip
def test_a_result_has_one_finding_the_most_specific_one(
    record: dict[str, Any], packages: dict[str, str], expected: str
) -> None:
    assert [finding.id for finding in judged(record, **packages)] == [expected]


def folded(finding: Finding) -> list[Any]:
    """The results that the finding stands for besides its own."""
    return [fact.value for fact in finding.facts if fact.key == "probe"]


@pytest.mark.parametrize("verdict", ["pass", "skip"])
def test_what_is_right_or_was_not_measured_is_no_finding(verdict: str) -> None:
    right = {"verdict": verdict, "signature": "ok", "tensors": "absent", "masks": [], "tile": "absent"}
    assert judged(right, {**right, "name": "padded-batch"}, torch="2.4.1", transformers="4.48.0") == []


def test_a_device_that_training_would_not_use_gives_notes_at_most() -> None:
    for signature in ("nan-gradient", "nan-output", "inaccurate", "dead-row-nan"):
        for verdict in ("fail", "warn", "crash"):
            result = judged({"in_use": False, "signature": signature, "verdict": verdict}, torch="2.4.1")
            assert {finding.severity for finding in result} <= {"note"}


def test_one_cause_in_several_dtypes_is_one_finding() -> None:
    hidden = {"name": "nan-honesty", "device": "cpu", "signature": "nan-hidden", "tensors": "o", "tile": "absent"}
    records = [{**hidden, "dtype": dtype} for dtype in ("bf16", "fp16", "fp32")]
    (finding,) = judged(*records)
    assert finding.id == "probe-nan-hidden"
    assert folded(finding) == [f"nan-honesty cpu {dtype} default nan-hidden" for dtype in ("fp16", "fp32")]
    kinds = [("fp16", "inaccurate"), ("bf16", "wrong-scale"), ("fp16", "wrong-scale")]
    norm = {"name": "rms-norm", "tile": "absent"}
    norms = [{**norm, "dtype": dtype, "signature": signature} for dtype, signature in kinds]
    assert [finding.id for finding in judged(*norms, torch="2.5.1")] == ["probe-rms-norm-to-2-5-1"]
    # A failure of another kind beside it stays a finding of its own.
    result = judged(*norms, {"name": "something-new", "signature": "odd"}, torch="2.5.1")
    assert {finding.id for finding in result} == {"probe-rms-norm-to-2-5-1", "experiment-gives-wrong-numbers"}


MODEL = {
    **{"name": "padded-batch", "backend": "sdpa", "model": "glm", "batch": "padded", "tile": "absent"},
    **{"node": "absent", "tensors": "gradients", "masks": [], "stresses": []},
}


def test_a_broken_kernel_stands_for_models_that_compute_with_it() -> None:
    models = [{**MODEL, "signature": "mask-nan", "model": name} for name in ("glm", "qwen2")]
    (finding,) = judged({"node": CUDNN}, {"node": CUDNN, "dtype": "fp16"}, *models)
    assert finding.id == "probe-cudnn-attention-tile-64"
    assert folded(finding) == [
        "attention cuda fp16 default nan-gradient",
        "padded-batch cuda bf16 sdpa mask-nan glm",
        "padded-batch cuda bf16 sdpa mask-nan qwen2",
    ]


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ({"signature": "mask-differs"}, "probe-padded-batch-differs"),  # lost gradients make no wrong ones
        ({"signature": "mask-nan", "dtype": "fp16"}, "probe-padded-batch-nan"),
        ({"signature": "mask-nan", "device": "cpu"}, "probe-padded-batch-nan"),
        ({"signature": "mask-nan", "attention": "eager", "backend": "eager"}, "probe-padded-batch-nan"),
        ({"signature": "mask-nan", "attention": "absent"}, "probe-padded-batch-nan"),
    ],
)
def test_a_broken_kernel_does_not_stand_for_what_it_cannot_explain(model: dict[str, Any], rule: str) -> None:
    result = judged({"node": CUDNN}, {**MODEL, **model})
    assert [finding.id for finding in result] == ["probe-cudnn-attention-tile-64", rule]
