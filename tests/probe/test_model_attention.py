"""A model's own heads: a kernel that is at fault is named by what cures it, NaN or wrong but finite."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted import jobs, seen

from envdoctor.experiments import Job, Outcome

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CURED = "probe-attention-right-without-cudnn"
EXPECTED = {
    "healthy": set(),
    "own": set(),
    "cudnn-nan": {CURED},
    "cudnn-wrong": {CURED},
    "cudnn-grows": {CURED},
    "flash-wrong": {"probe-attention-right-without-flash"},
    "any-wrong": {"experiment-gives-wrong-numbers"},
}


OWN = {"num_attention_heads": 4, "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 16}
ODD = {"num_attention_heads": "many"}


def wanted_by_slow(folder: Path) -> dict[str, tuple[str | None, list[Job]]]:
    """The same experiment under each fault, and for two models that somebody gives."""
    (job,) = jobs("model-attention")
    wanted: dict[str, tuple[str | None, list[Job]]] = {
        name: (None if name == "healthy" else name, [job]) for name in EXPECTED
    }
    for name, config in (("own", OWN), ("odd", ODD)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        wanted[name] = (None, [replace(job, model=str(folder / name))])
    return wanted


@pytest.mark.parametrize("fault", EXPECTED)
def test_the_kernel_is_named_and_its_switch_was_tried(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    result = seen(outcomes[fault])
    assert result.roots == EXPECTED[fault], [group.why for group in result.wrong]
    assert len(result.cases) == 11
    if fault.startswith("cudnn"):
        (finding,) = result.told
        assert "enable_cudnn_sdp(False)" in finding.fixes[0].summary.en
    if fault in ("cudnn-nan", "cudnn-wrong"):
        assert {case.param("phase") for case in result.cases if case.verdict.wrong} == {"training", "evaluation"}


def test_the_heads_are_those_of_glm_4_or_of_the_model_that_was_given(outcomes: dict[str, list[Outcome]]) -> None:
    assert "32 heads over 2, " in seen(outcomes["healthy"]).cases[0].title
    assert "4 heads over 2, " in seen(outcomes["own"]).cases[0].title


def test_a_model_whose_heads_cannot_be_told_is_not_measured(outcomes: dict[str, list[Outcome]]) -> None:
    (case,) = seen(outcomes["odd"]).cases
    assert case.verdict.verdict == "skip" and "cannot be told" in case.verdict.why
