"""A model's own heads: a kernel that is at fault is named by what cures it, NaN or wrong but finite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted import jobs, planted, seen
from sharing import once

from envdoctor.experiments import Outcome

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


@pytest.fixture(scope="module")
def observed(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    (job,) = jobs("model-attention")
    wanted = {name: (None if name in ("healthy", "own") else name, [job]) for name in EXPECTED}
    folder = tmp_path_factory.mktemp("chatglm")
    config = {"num_attention_heads": 4, "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 16}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    wanted["own"] = (None, [replace(job, model=str(folder))])
    return once(tmp_path_factory, "model-attention", lambda scratch: planted(torch_python, Path(scratch), wanted))


@pytest.mark.parametrize("fault", EXPECTED)
def test_the_kernel_is_named_and_its_switch_was_tried(observed: dict[str, list[Outcome]], fault: str) -> None:
    found = seen(observed[fault])
    assert found.roots == EXPECTED[fault], [group.why for group in found.wrong]
    assert len(found.cases) == 11
    if fault.startswith("cudnn"):
        (finding,) = found.told
        assert "enable_cudnn_sdp(False)" in finding.fixes[0].summary.en
    if fault in ("cudnn-nan", "cudnn-wrong"):
        assert {case.param("phase") for case in found.cases if case.verdict.wrong} == {"training", "evaluation"}


def test_the_heads_are_those_of_glm_4_or_of_the_model_that_was_given(observed: dict[str, list[Outcome]]) -> None:
    assert "32 heads over 2, " in seen(observed["healthy"]).cases[0].title
    assert "4 heads over 2, " in seen(observed["own"]).cases[0].title


def test_a_model_whose_heads_cannot_be_told_is_not_measured(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": "many"}', encoding="utf-8")
    (job,) = jobs("model-attention", model=str(tmp_path))
    (outcome,) = planted(torch_python, tmp_path, {"own": (None, [job])})["own"]
    (case,) = seen([outcome]).cases
    assert case.verdict.verdict == "skip" and "cannot be told" in case.verdict.why
