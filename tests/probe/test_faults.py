"""Emulated kernel bugs, one at a time: the quick suite finds each, by its right name, and finds nothing without one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from envdoctor.probe.catalogue import PAYLOAD
from envdoctor.probe.grouping import Case, Group
from envdoctor.probe.verdict import judge

INSIDE = Path(__file__).parent / "inside"

pytestmark = pytest.mark.torch


class Expected(NamedTuple):
    """What the quick attention grid must say of a fault.

    ``only`` holds for the parameters of every failing case, so that the report points at the cause; ``tile`` is what
    their key lengths have in common.
    """

    signature: str
    tensors: tuple[str, ...]
    only: Callable[[Mapping[str, Any]], bool] = lambda params: True
    tile: str | None = None


def padded(params: Mapping[str, Any]) -> bool:
    return bool(params["mask"].startswith("bool_"))


def offset(params: Mapping[str, Any]) -> bool:
    return bool(params["stress"] == "shift-")


EXPECTED = {
    "tile-nan": Expected(
        "nan-gradient",
        ("dq",),
        lambda params: offset(params) and params["mask"] not in ("none", "causal") and params["S"] % 128 == 64,
        "%128=64",
    ),
    "short-keys": Expected("nan-gradient", ("dq",), lambda params: params["S"] < 16),
    "last-key-tile": Expected("inaccurate", ("dk",), lambda params: params["S"] % 32 == 1, "%32=1"),
    "lost-values": Expected("inaccurate", ("dv",), lambda params: params["S"] % 32 == 1),
    "later-rows": Expected("inaccurate", ("dq",)),
    "wide-heads": Expected("inaccurate", ("dv",), lambda params: params["D"] == 256),
    "contiguous-upstream": Expected(
        "inaccurate", ("dq", "dk", "dv"), lambda params: params["dout"] in ("hf", "strided")
    ),
    "float32-mask": Expected("inaccurate", ("o", "dq", "dk", "dv"), lambda params: params["mask"].startswith("f32_")),
    "mask-constant": Expected("inaccurate", ("o", "dq", "dk", "dv"), padded),
    "dead-rows": Expected("dead-row-nan", ("dk", "dv"), lambda params: "_" in params["mask"]),
    "dead-query-gradient": Expected("nan-gradient", ("dq",), lambda params: "_" in params["mask"]),
    "wrong-side": Expected("inaccurate", ("o", "dq", "dk", "dv"), padded),
    "rounded-logits": Expected("inaccurate", ("o", "dq", "dk", "dv")),
    "group-sum": Expected("inaccurate", ("dk", "dv"), lambda params: params["gqa"] == "flag"),
    "alignment": Expected("inaccurate", ("o", "dq", "dk", "dv"), lambda params: params["layout"] == "offset"),
    "tail": Expected("inaccurate", ("o",), lambda params: params["L"] == 261),
    "broadcast": Expected("inaccurate", ("o", "dq", "dk", "dv"), lambda params: params["layout"] == "expanded"),
    "unshifted-softmax": Expected("nan-output", ("o",), offset),
}


@pytest.fixture(scope="module")
def observed(torch_python: str) -> dict[str, list[Case]]:
    """The quick grid under every fault."""
    done = subprocess.run(
        [torch_python, "-B", str(INSIDE / "every_fault.py"), str(PAYLOAD)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    cases: dict[str, list[Case]] = {}
    for line in done.stdout.splitlines():
        found = json.loads(line)
        verdict = judge(found)
        assert verdict is not None
        cases.setdefault(found["fault"], []).append(Case(found, verdict))
    return cases


@pytest.mark.parametrize("fault", EXPECTED)
def test_an_emulated_kernel_bug_is_found_and_named(observed: dict[str, list[Case]], fault: str) -> None:
    expected = EXPECTED[fault]
    wrong = [case for case in observed[fault] if case.verdict.verdict == "fail"]
    right = [case for case in observed[fault] if case.verdict.verdict == "pass"]
    assert len(wrong) >= 4
    assert {case.verdict.verdict for case in observed[fault]} <= {"pass", "warn", "fail"}
    assert {case.verdict.signature for case in wrong} == {expected.signature}
    most = max((case.verdict.tensors for case in wrong), key=len)
    assert most == expected.tensors
    for case in wrong:
        assert expected.only(case.observation["params"]), case.observation["case"]
    group = Group(
        "attention", "cpu", "bf16", "default", None, "fail", expected.signature, tuple(wrong), 150, tuple(right)
    )
    if expected.tile:
        assert group.tile == expected.tile


def test_the_wrapper_alone_and_a_fault_of_another_probe_raise_no_alarm(observed: dict[str, list[Case]]) -> None:
    for name in ("none", "hidden-nan"):
        assert {case.verdict.verdict for case in observed[name]} == {"pass"}, name


def _probe(run: Any, torch_python: str, fault: str, *arguments: str) -> Any:
    env = {"PYTHONPATH": str(INSIDE), "ENVDOCTOR_TEST_FAULT": fault}
    return run(
        *("probe", "--python", torch_python, "--device", "cpu", "--no-config", "--format", "json", *arguments),
        env=env,
        timeout=300,
    )


def _records(report: Any) -> list[dict[str, Any]]:
    facts = report["facts"]
    found = facts["probe"] if "probe" in facts else facts["facts"]["probe"]
    return list(found["value"] if isinstance(found, dict) else found)


def test_a_broken_kernel_in_an_environment_is_found_from_the_command_line(
    run: Any, torch_python: str, tmp_path: Path
) -> None:
    script = tmp_path / "bug.py"
    done = _probe(run, torch_python, "tile-nan", "--only", "attention", "--reproducer", str(script))
    failed = [record for record in _records(done.json) if record["verdict"] == "fail"]
    assert [(record["signature"], record["tensors"], record["tile"]) for record in failed] == [
        ("nan-gradient", "dq", "%128=64")
    ]
    assert failed[0]["stresses"] == ["shift-"]
    assert not {"none", "causal"} & set(failed[0]["masks"])
    # Alone it shows the same with the broken kernel, and nothing with torch's own.
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 30
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    sick = {**env, "PYTHONPATH": str(INSIDE), "ENVDOCTOR_TEST_FAULT": "tile-nan"}
    counts = [
        subprocess.run([torch_python, script], env=e, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for e in (sick, env)
    ]
    lost = [json.loads(line.partition(": ")[2]) for line in counts]
    assert lost[0][1] > 0
    assert lost[0][0] == lost[0][2] == lost[0][3] == 0
    assert lost[1] == [0, 0, 0, 0]


def test_a_kernel_that_hides_nan_is_found_from_the_command_line(run: Any, torch_python: str) -> None:
    done = _probe(run, torch_python, "hidden-nan", "--only", "nan-honesty")
    failed = {(record["signature"], record["dtype"]) for record in _records(done.json) if record["verdict"] == "fail"}
    assert failed == {("nan-hidden", dtype) for dtype in ("bf16", "fp16", "fp32")}
