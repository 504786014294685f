"""What one process of several holds, by the terms of DeepSpeed's and torch's sources."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.memory import MemoryProblem
from envdoctor.memory.sharding import sharing

MODEL = {"parameters": 8e9, "weight_bytes": 16e9, "layer_parameters": 2e8}
FULL = {"weights": 16e9, "gradients": 16e9, "optimizer states": 32e9, "attention": 5e9}
TRAINED = 8e9


def shared(**given: Any) -> dict[str, float]:
    return dict(sharing({"world_size": 8, **given}, MODEL, TRAINED)(FULL))


def test_alone_nothing_changes() -> None:
    assert sharing({}, MODEL, TRAINED)(FULL) == FULL


def test_ddp_holds_the_gradients_twice() -> None:
    assert shared() == {**FULL, "communication buffers": 16e9}


def test_zero_divides_more_with_each_stage() -> None:
    stages = [shared(zero_stage=stage) for stage in (0, 1, 2, 3)]
    assert [terms["optimizer states"] for terms in stages] == [96e9, 12e9, 12e9, 12e9]
    assert [terms["gradients"] for terms in stages] == [16e9, 16e9, 2e9, 2e9]
    # 1e9 live parameters, and the largest layer in float32.
    assert [terms["weights"] for terms in stages] == [16e9, 16e9, 16e9, 2e9 + 2e9 + 0.8e9]
    assert {terms["attention"] for terms in stages} == {5e9}


def test_buckets_of_zero() -> None:
    assert shared(zero_stage=2)["communication buffers"] == 2e9
    assert shared(zero_stage=2, overlap_comm=True)["communication buffers"] == 9e9
    small = shared(zero_stage=2, overlap_comm=True, allgather_bucket=5e7, reduce_bucket=5e7)
    assert small["communication buffers"] == pytest.approx(9e8)


def test_offload_takes_states_and_weights_away() -> None:
    terms = shared(zero_stage=3, offload_optimizer="cpu", offload_param="cpu")
    assert (terms["optimizer states"], terms["weights"]) == (0.0, 2.8e9)


def test_fsdp_divides_all_but_activations() -> None:
    terms = shared(fsdp=True)
    assert terms == {
        "weights": 2e9,
        "gradients": 2e9,
        "optimizer states": 4e9,
        "attention": 5e9,
        "gathered layers": 8e8,
    }


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, 16e9),
        ({"zero_stage": 2}, 16e9),
        ({"zero_stage": 3}, 2e9),
        ({"zero_stage": 3, "offload_param": "cpu"}, 0.0),
        ({"fsdp": True}, 2e9),
        ({"fsdp": True, "offload_param": "cpu"}, 0.0),
    ],
)
def test_a_reference_model_is_divided_and_offloaded_as_the_trained_one(given: dict[str, Any], size: float) -> None:
    terms = sharing({"world_size": 8, **given}, MODEL, TRAINED)({**FULL, "reference model": 16e9})
    assert terms["reference model"] == size


@pytest.mark.parametrize("given", [{"zero_stage": 3}, {"fsdp": True}])
def test_without_the_number_of_processes_there_is_no_number(given: dict[str, Any]) -> None:
    with pytest.raises(MemoryProblem, match="number of processes"):
        sharing(given, MODEL, TRAINED)


def test_stage_3_has_one_bucket() -> None:
    assert shared(zero_stage=3)["communication buffers"] == 1e9
    assert shared(zero_stage=3, reduce_bucket=4096**2)["communication buffers"] == 2 * 4096**2
