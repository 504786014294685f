"""The verdict engine gives the recordings of four torch releases the verdicts that they are known to have."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recordings
from observing import shipped

from envdoctor.app import Sources
from envdoctor.app.probe import ProbeRequest, probe
from envdoctor.experiments import Verdict, judge
from envdoctor.report import render

ATTENTION = ["sp_241", "sp_250", "sp_251", "sp_213", "sdpa_full_213"]
#: Recorded on releases whose attention is right.
HEALTHY = ATTENTION[1:]
#: Recorded on torch 2.5, which hides NaN.
HIDDEN = ("sp_250", "sp_251")
MODELS = ["mp_241", "mp_250", "mp_251", "mp_213", "mp_long"]


@cache
def replayed(name: str) -> list[tuple[dict[str, Any], Verdict | None]]:
    """The records of one file, each with the verdict that it has today."""
    return [(record, judge(observation)) for record, observation in recordings.judged(name)]


def test_all_stored_verdicts_but_the_two_documented_ones_come_out_again() -> None:
    others = []
    seen = 0
    for name in ATTENTION + MODELS:
        for record, verdict in replayed(name):
            seen += 1
            assert verdict is not None
            if verdict.verdict != record["verdict"].lower():
                others.append((name, record["i"], record["dtype"], record["verdict"], verdict.verdict))
    assert seen == 4870 + 40  # and 40 skips
    # The prototype warned above 3; the limit is 4.
    assert others == [("sp_241", 124, "bf16", "WARN", "pass"), ("sp_241", 125, "f16", "WARN", "pass")]


@pytest.mark.parametrize("release", ["241", "250", "251", "213"])
def test_each_version_pair_fails_on_the_releases_that_it_failed_on(release: str) -> None:
    for record in recordings.lines(f"pairs_{release}"):
        verdicts = [judge(observation) for observation in recordings.pair(record)]
        if record["verdict"] == "INFO":
            assert verdicts == []
            continue
        words = {verdict.verdict for verdict in verdicts if verdict}
        assert ("fail" in words) == (record["verdict"] == "FAIL"), record
        assert words <= {"pass", "fail"}


def _verdicts(name: str, chosen: Callable[[Any], bool] = lambda record: True) -> Counter[tuple[str, str]]:
    return Counter(verdict[:2] for record, verdict in replayed(name) if verdict is not None and chosen(record))


def test_no_recorded_case_of_a_right_release_raises_an_alarm() -> None:
    attention = [_verdicts(name, lambda record: record.get("kind") == "case") for name in HEALTHY]
    # Left padding without position_ids moves RoPE: with weights × 40 in half that is worth a warning.
    chosen = [
        _verdicts(name, lambda record: "kind" not in record and (record["side"] == "right" or record["posids"]))
        for name in MODELS
    ]
    assert {word for result in attention for word, _ in result} == {"pass", "skip"}
    assert {word for result in chosen for word, _ in result} == {"pass"}
    assert sum(result["pass", "ok"] for result in attention + chosen) > 3500


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        # Dead rows and lost accuracy are told apart on torch 2.4.1.
        ("sp_241", {("fail", "dead-row-nan"): 290, ("fail", "inaccurate"): 406 - 290}),
        # Hidden NaN is all that is wrong with torch 2.5.
        *((name, {("pass", "ok"): 798, ("skip", "skipped"): 8, ("fail", "nan-hidden"): 4}) for name in HIDDEN),
        # Pure fp16 training is named by its loss.
        ("mp_213", {("fail", "nan-loss"): 39, ("pass", "ok"): 233 + 39, ("warn", "batch-differs"): 1}),
    ],
)
def test_what_is_wrong_with_a_release_is_told_apart(name: str, counts: dict[tuple[str, str], int]) -> None:
    result = _verdicts(name)
    assert {kind: result[kind] for kind in counts} == counts
    assert name not in HIDDEN or result.keys() == counts.keys()


def test_rows_of_one_key_do_not_fail_by_a_ratio_of_two_noises() -> None:
    """Where S = 1 the exact dQ and dK are 0: the probe lets only o and dV decide, and nothing else changes."""
    degenerate = [pair for pair in recordings.judged("sp_241") if pair[0].get("S") == 1 and "ratio" in pair[0]]
    assert max(max(record["ratio"].values()) for record, _ in degenerate) > 3000
    by_ratio = [judge({**observation, "gate": ["o", "dv"]}) for record, observation in degenerate]
    assert {verdict.verdict for verdict in by_ratio if verdict and verdict.signature == "inaccurate"} <= {"warn"}


def test_twelve_thousand_healthy_ratios_lie_far_below_the_limit() -> None:
    healthy = [
        value
        for name in HEALTHY
        for _, observation in recordings.judged(name)
        for value in observation.get("ratio", {}).values()
    ]
    assert len(healthy) == 12_096
    assert max(healthy) == pytest.approx(2.82)


#: What cuDNN's attention gives of padded batches: NaN or wrong, in the output or in gradients.
WRONG: dict[str, dict[str, Any]] = {
    "NaN gradients": {"nonfinite": {"dq": 128}, "ratio": {"o": 0.9, "dk": 1.0, "dv": 1.1}},
    "NaN output": {"nonfinite": {"o": 64, "dq": 64}, "ratio": {"dk": 1.0, "dv": 1.1}},
    "wrong gradients": {"ratio": {"o": 0.9, "dq": 95.6, "dk": 40.0, "dv": 1.1}},
    "wrong output": {"ratio": {"o": 57.0, "dq": 61.0, "dk": 58.0, "dv": 60.0}},
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_stand_in_of_torch_2_5_0_on_hopper_ends_in_the_kernel_and_its_cures(kind: str, tmp_path: Path) -> None:
    """No card with torch 2.5.0 can be had: its cases as a CPU gave them, with what is told of cuDNN's kernel."""
    path = tmp_path / "stand-in-of-an-H100-with-torch-2.5.0.jsonl"
    recordings.hopper(path, WRONG[kind])
    report = probe(ProbeRequest(replay=path, sources=Sources()), matrix=shipped())
    (finding,) = (finding for finding in report.findings if finding.superseded_by is None)
    assert (finding.id, finding.severity, report.exit_code) == ("probe-cudnn-attention-2-5-0", "error", 1)
    assert "cuDNN attention" in finding.message.en
    fixes = " ".join(fix.summary.en for fix in finding.fixes)
    assert all(cure in fixes for cure in ("enable_cudnn_sdp(False)", "torch 2.5.1", "torch 2.4.1"))
    text = render(report)
    assert "stand-in-of-an-H100-with-torch-2.5.0.jsonl" in text and "NVIDIA H100 80GB HBM3 (stand-in)" in text
