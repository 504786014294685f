"""What would be compiled, and whether nvcc and gcc can."""

from __future__ import annotations

from typing import Any

import pytest
from known import keyed
from observing import shipped
from rooms import derivation

from envdoctor.facts import ABSENT, Unknown, Value

build_fits = derivation("build_fits")
build_needed = derivation("build_needed")

MATRIX = shipped()


def needed(**facts: Value) -> Any:
    known = keyed(**facts)
    derived = build_needed.compute(lambda key: known.get(key, Unknown("not given")), MATRIX)
    return derived["build.needed"].value


DEEPSPEED: dict[str, Value] = {"pkg__deepspeed": "0.17.6", "recipe__zero_stage": 2}


@pytest.mark.parametrize(
    ("facts", "ops"),
    [
        ({"recipe__offload_optimizer": "cpu"}, ("cpu_adam",)),
        ({"recipe__offload_optimizer": "nvme", "recipe__optimizer": "adamw_torch"}, ("cpu_adam",)),
        ({"recipe__offload_optimizer": "cpu", "recipe__optimizer": "Lion"}, ("cpu_lion",)),
        ({"recipe__offload_optimizer": "cpu", "recipe__optimizer": "Adagrad"}, ("cpu_adagrad",)),
        ({"recipe__offload_optimizer": ABSENT, "recipe__optimizer": "AdamW"}, ("fused_adam",)),
        ({"recipe__offload_optimizer": "none", "recipe__optimizer": "AdamW"}, ("fused_adam",)),
        ({"recipe__offload_optimizer": ABSENT, "recipe__optimizer": "adamw_torch"}, ()),
        ({"recipe__offload_optimizer": ABSENT, "recipe__framework": "openrlhf"}, ("fused_adam",)),
        ({"recipe__offload_optimizer": "cpu", "build__compiled": ("cpu_adam",)}, ()),
        ({"recipe__offload_optimizer": "cpu", "build__compiled": ("fused_adam",)}, ("cpu_adam",)),
    ],
)
def test_the_optimizer_decides_which_op_is_compiled(facts: dict[str, Value], ops: tuple[str, ...]) -> None:
    assert needed(**DEEPSPEED, **facts) == ops


def test_without_deepspeed_nothing_is_compiled() -> None:
    assert needed(pkg__deepspeed=ABSENT, recipe__zero_stage=2) == ()
    assert needed(pkg__deepspeed="0.17.6", recipe__zero_stage=ABSENT) == ()


@pytest.mark.parametrize(
    "facts",
    [{}, {"pkg__deepspeed": "0.17.6"}, DEEPSPEED, {**DEEPSPEED, "recipe__offload_optimizer": ABSENT}],
)
def test_what_is_not_given_leaves_it_unknown(facts: dict[str, Value]) -> None:
    assert isinstance(needed(**facts), Unknown)


def fits(**facts: Value) -> dict[str, Any]:
    known = keyed(**facts)
    derived = build_fits.compute(lambda key: known.get(key, Unknown("not given")), MATRIX)
    return {key: one.value for key, one in derived.items()}


@pytest.mark.parametrize(
    ("toolkit", "cuda", "fit"),
    [("12.4", "12.4", "same"), ("12.4.1", "12.4", "same"), ("12.8", "12.4", "minor"), ("11.8", "12.4", "major")],
)
def test_the_toolkit_is_compared_with_the_cuda_of_torch(toolkit: str, cuda: str, fit: str) -> None:
    assert fits(cuda__toolkit=toolkit, torch__cuda=cuda)["cuda.toolkit_fits"] == fit


def test_a_cpu_build_has_no_cuda_to_compare() -> None:
    assert isinstance(fits(cuda__toolkit="12.4", torch__cuda=ABSENT)["cuda.toolkit_fits"], Unknown)
    assert "cuda.toolkit_fits" not in fits(cuda__toolkit=ABSENT, torch__cuda="12.4")


@pytest.mark.parametrize(
    ("torch", "standard", "gcc"),
    [
        ("2.0.1+cu118", 14, "5"),
        ("2.1.0", 17, "7"),
        ("2.2.1", 17, "7"),
        ("2.2.2", 17, "9"),
        ("2.13.0+cu130", 17, "9"),
        ("2.14.0+cu130", 20, "11"),
        ("2.15.0", 20, "11"),
    ],
)
def test_the_headers_ask_for_a_standard_and_a_gcc(torch: str, standard: int, gcc: str) -> None:
    found = fits(pkg__torch=torch)
    assert (found["torch.cxx_standard"], found["build.gcc_min"]) == (standard, gcc)


@pytest.mark.parametrize("torch", ["2.14.0a0+872d972e41.nv26.08", "2.16.0", "1.12.1", "2.14.0.dev20260601+cu130"])
def test_pre_releases_and_releases_outside_the_table_are_unknown(torch: str) -> None:
    assert isinstance(fits(pkg__torch=torch)["torch.cxx_standard"], Unknown)


@pytest.mark.parametrize(
    ("gcc", "toolkit", "torch", "fit"),
    [
        ("12", "12.4", "2.6.0", "yes"),
        ("13.2", "12.4", "2.6.0", "yes"),
        ("14", "12.4", "2.6.0", "too-new"),
        ("8", "12.4", "2.6.0", "too-old"),
        ("10.5", "13.0", "2.14.0", "too-old"),
        ("11", "13.0", "2.14.0", "yes"),
        ("15", "13.0", "2.14.0", "yes"),
        ("16", "13.0", "2.14.0", "too-new"),
        ("16", ABSENT, "2.14.0", "yes"),
    ],
)
def test_gcc_lies_between_torchs_headers_and_nvcc(gcc: str, toolkit: Value, torch: str, fit: str) -> None:
    assert fits(build__gcc=gcc, cuda__toolkit=toolkit, pkg__torch=torch)["build.gcc_fits"] == fit


def test_one_bound_is_enough_to_refuse_and_not_to_accept() -> None:
    assert fits(build__gcc="14", cuda__toolkit="12.4")["build.gcc_fits"] == "too-new"
    assert isinstance(fits(build__gcc="12", cuda__toolkit="12.4")["build.gcc_fits"], Unknown)
    assert fits(build__gcc="8", pkg__torch="2.6.0")["build.gcc_fits"] == "too-old"
    assert isinstance(fits(build__gcc="12", pkg__torch="2.6.0")["build.gcc_fits"], Unknown)
    assert isinstance(fits(build__gcc="12", pkg__torch="2.6.0", cuda__toolkit="99.0")["build.gcc_fits"], Unknown)


def test_a_given_bound_is_used() -> None:
    assert fits(build__gcc="14", build__gcc_max="15", build__gcc_min="9")["build.gcc_fits"] == "yes"
