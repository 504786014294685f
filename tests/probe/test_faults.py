"""Emulated kernel bugs, one at a time: the quick suite finds each, by its right name, and tells one cause once."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from planted import INSIDE, Seen, batch, few, jobs, seen

from envdoctor.experiments import Job, Outcome

pytestmark = pytest.mark.torch


class Expected(NamedTuple):
    """What the quick attention grid must say of a fault.

    ``only`` holds for the parameters of every failing case, so that the report points at the cause; ``tile`` is what
    their key lengths have in common.
    """

    signature: str
    tensors: str
    only: Callable[[Mapping[str, Any]], bool] = lambda params: True
    tile: str | None = None


ALL = "o dq dk dv"


def padded(params: Mapping[str, Any]) -> bool:
    return bool(params["mask"].startswith("bool_"))


EXPECTED = {
    "tile-nan": Expected(
        "nan-gradient",
        "dq",
        lambda params: (
            params["stress"] == "shift-" and params["mask"] not in ("none", "causal") and params["S"] % 128 == 64
        ),
        "%128=64",
    ),
    "short-keys": Expected("nan-gradient", "dq", lambda params: params["S"] < 16),
    "last-key-tile": Expected("inaccurate", "dk", lambda params: params["S"] % 32 == 1, "%32=1"),
    "lost-values": Expected("inaccurate", "dv", lambda params: params["S"] % 32 == 1),
    "later-rows": Expected("inaccurate", "dq"),
    "wide-heads": Expected("inaccurate", "dv", lambda params: params["D"] == 256),
    "contiguous-upstream": Expected("inaccurate", "dq dk dv", lambda params: params["dout"] in ("hf", "strided")),
    "float32-mask": Expected("inaccurate", ALL, lambda params: params["mask"].startswith("f32_")),
    "mask-constant": Expected("inaccurate", ALL, padded),
    "dead-rows": Expected("dead-row-nan", "dk dv", lambda params: "_" in params["mask"]),
    "dead-query-gradient": Expected("nan-gradient", "dq", lambda params: "_" in params["mask"]),
    "wrong-side": Expected("inaccurate", ALL, padded),
    "rounded-logits": Expected("inaccurate", ALL),
    "group-sum": Expected("inaccurate", "dk dv", lambda params: params["gqa"] == "flag"),
    "alignment": Expected("inaccurate", ALL, lambda params: params["layout"] == "offset" or params["D"] % 8 > 0),
    "tail": Expected("inaccurate", "o", lambda params: params["L"] > 128 and params["L"] % 8 > 0),
    "broadcast": Expected("inaccurate", ALL, lambda params: params["layout"] == "expanded"),
    "unshifted-softmax": Expected("nan-output", "o", lambda params: params["stress"] == "shift-"),
}
#: Those that show in the small experiments and in tiny models as well.
WIDE = ("later-rows", "mask-constant", "dead-rows", "dead-query-gradient", "rounded-logits", "unshifted-softmax")


#: Run by default: one of each kind (a tile, a tensor, heads that share keys, a layout, masks). The others are slow.
FAST = ("tile-nan", "last-key-tile", "group-sum", "alignment", "mask-constant", "dead-rows")


def some(faults: Iterable[str]) -> list[Any]:
    """Parameters of a test, the ones that are not FAST marked slow."""
    return [fault if fault in FAST else pytest.param(fault, marks=pytest.mark.slow) for fault in faults]


def small(model: str, **options: Any) -> list[Job]:
    """The small experiments and the padded batch of one tiny model."""
    return [*jobs("half-accuracy"), *jobs("dead-rows"), *jobs("nan-honesty"), batch(model, **options)]


def elsewhere(fault: str) -> str:
    """The name of what the small experiments say under a fault."""
    return f"{fault}, elsewhere"


def grids(faults: Iterable[str]) -> dict[str, tuple[str | None, list[Job]]]:
    """The quick grid under each fault, and the small experiments under those that show there as well."""
    attention = {fault: (fault, few("attention")) for fault in faults}
    return {**attention, **{elsewhere(fault): (fault, small("qwen3", gains=[1])) for fault in faults if fault in WIDE}}


#: The FAST faults, none, and faults of other experiments.
WANTED = {
    **grids((*FAST, "none")),
    "hidden-nan": ("hidden-nan", [*jobs("nan-honesty"), *jobs("half-accuracy")]),
    "model's mask": ("model-mask", small("chatglm-like")),
}


def wanted_by_slow(_: Path) -> dict[str, tuple[str | None, list[Job]]]:
    """The same under the faults that are not FAST."""
    return grids([fault for fault in EXPECTED if fault not in FAST])


@pytest.mark.parametrize("fault", some(EXPECTED))
def test_an_emulated_kernel_bug_is_found_and_named(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    expected = EXPECTED[fault]
    result = seen(outcomes[fault])
    wrong = [case for case in result.cases if case.verdict.verdict == "fail"]
    assert len(wrong) >= 4
    assert {case.verdict.verdict for case in result.cases} <= {"pass", "warn", "fail"}
    assert {case.verdict.signature for case in wrong} == {expected.signature}
    most = max((case.verdict.tensors for case in wrong), key=len)
    assert most == tuple(expected.tensors.split())
    for case in wrong:
        assert expected.only(case.observation["params"]), case.title
    (group, *_) = result.groups
    assert (group.verdict, group.signature) == ("fail", expected.signature)
    assert expected.tile is None or group.tile == expected.tile


def test_the_wrapper_alone_raises_no_alarm(outcomes: dict[str, list[Outcome]]) -> None:
    assert {case.verdict.verdict for case in seen(outcomes["none"]).cases} == {"pass"}
    # A fault of another probe shows there alone.
    assert {group.name for group in seen(outcomes["hidden-nan"]).wrong} == {"nan-honesty"}


# --- one cause, said once ---------------------------------------------------------------------------------------------


def whole(outcomes: dict[str, list[Outcome]], fault: str) -> Seen:
    return seen([*outcomes[fault], *outcomes[elsewhere(fault)]])


@pytest.mark.parametrize("fault", some(WIDE))
def test_a_broken_kernel_is_one_finding_that_says_where_else_it_showed(
    outcomes: dict[str, list[Outcome]], fault: str
) -> None:
    result = whole(outcomes, fault)
    (finding,) = result.told
    assert finding.item["name"] == "attention"
    shown = {fact.value for fact in finding.facts if fact.key == "probe"}
    elsewhere = [group for group in result.wrong if group.name != "attention"]
    assert elsewhere
    for group in elsewhere:
        words = (group.name, group.device, group.dtype, group.backend, group.signature, group.model)
        assert " ".join(word for word in words if word) in shown
    # All of them stay, marked with what stands for them.
    folded = [one for one in result.findings if one is not finding]
    assert {one.superseded_by for one in folded} == {finding.id}
    assert {one.item["name"] for one in folded} >= {group.name for group in elsewhere}
    assert finding.gate


def test_a_fault_of_the_models_own_code_is_told_by_its_own(outcomes: dict[str, list[Outcome]]) -> None:
    result = seen([*outcomes["none"], *outcomes["model's mask"]])
    assert {(group.signature, group.model) for group in result.wrong} == {("mask-differs", "chatglm-like")}
    assert result.roots == {"probe-padded-batch-differs"}


def test_a_broken_kernel_does_not_stand_for_a_fault_that_it_cannot_make(outcomes: dict[str, list[Outcome]]) -> None:
    """Lost gradients of a kernel are no reason for a model whose gradients are finite and wrong."""
    result = seen([*outcomes["tile-nan"], *outcomes["model's mask"]])
    assert result.roots == {"probe-attention-gradient-nan", "probe-padded-batch-differs"}


# --- in an environment ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broken_kernel_in_an_environment_is_found_from_the_command_line(
    run: Any, torch_python: str, tmp_path: Path
) -> None:
    script = tmp_path / "bug.py"
    sick = {"PYTHONPATH": str(INSIDE), "ENVDOCTOR_TEST_FAULT": "dead-rows"}
    about = ("--python", torch_python, "--device", "cpu", "--only", "dead-rows")
    done = run("probe", *about, "--no-config", "--format", "json", "--reproducer", str(script), env=sick, timeout=300)
    groups = done.json["sections"]["probe"]["groups"]
    assert {(group["name"], group["dtype"], group["signature"]) for group in groups} == {
        ("dead-rows", "bf16", "dead-row-nan"),
        ("dead-rows", "fp16", "dead-row-nan"),
    }
    # Alone it shows the same with the broken kernel, and nothing with torch's own.
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 30
    counts = [
        subprocess.run([torch_python, script], env=e, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for e in ({**os.environ, **sick}, None)
    ]
    lost = [json.loads(line.partition(": ")[2]) for line in counts]
    assert lost[0][2] > 0
    assert lost[0][3] > 0
    assert lost[1] == [0, 0, 0, 0]
