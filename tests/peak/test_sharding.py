"""What one process of several holds, by the terms of DeepSpeed's and torch's sources."""

from collections.abc import Callable
from typing import Any

import pytest

from envdoctor.peak import MemoryProblem

FULL = {"weights": 16.0, "gradients": 16.0, "optimizer states": 32.0, "attention": 5.0}
#: 10^9 bytes in GiB: what DeepSpeed counts in elements is a round number.
B = 1e9 / (1 << 30)
ZERO3 = {"optimizer states": 12, "gradients": 2, "weights": 2 + 2 * B + 0.8, "communication buffers": B}
OFFLOAD = {"zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "cpu"}


@pytest.fixture
def shared(predicted: Any, trace_of: Any) -> Callable[..., dict[str, float]]:
    """The terms of one process, in GiB, of a model of 8 Gi parameters, all of them trained, on eight."""

    def do(more: Any = (), **given: Any) -> dict[str, float]:
        found = predicted(trace_of({**FULL, **dict(more)}), **{"world_size": 8, **given})
        return {term["name"]: term["gib"] for term in found["terms"]}

    return do


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"world_size": "unknown"}, {}),
        # DDP holds the gradients twice.
        ({}, {"communication buffers": 16}),
        # ZeRO divides more with each stage. Stage 3 has 10^9 live parameters, and the largest layer in float32.
        ({"zero_stage": 0}, {"optimizer states": 96, "communication buffers": 2 * B}),
        ({"zero_stage": 1}, {"optimizer states": 12, "communication buffers": 2 * B}),
        ({"zero_stage": 2}, {"optimizer states": 12, "gradients": 2, "communication buffers": 2 * B}),
        ({"zero_stage": 3}, ZERO3),
        # A process that generates has all weights beside its part.
        (
            {"zero_stage": 3, "stage": "grpo", "framework": "trl"},
            {**ZERO3, "gradients": 0, "attention": 0, "gathered layers": 16},
        ),
        (OFFLOAD, {"optimizer states": 0, "gradients": 2, "weights": 2 * B + 0.8, "communication buffers": B}),
        # FSDP divides all but activations; what is in no layer is whole until the way back.
        ({"fsdp": True}, {"weights": 2, "gradients": 2, "optimizer states": 4, "gathered layers": 0.8 + 15.6 * 7 / 8}),
        # Two GPUs of one process: the first has a layer and a quarter more than its half.
        (
            {"world_size": 1, "layers_over": 2},
            {"weights": 8 + 1.25 * 0.4, "gradients": 8, "optimizer states": 16},
        ),
    ],
)
def test_each_way_to_share_divides_other_terms(shared: Any, given: dict[str, Any], changed: dict[str, float]) -> None:
    expected = {name: size for name, size in {**FULL, **changed}.items() if size}
    assert shared(**given) == pytest.approx(expected, abs=1e-3)


def test_the_last_gpu_of_a_process_has_the_logits_and_what_is_left_of_the_weights(shared: Any) -> None:
    terms = shared({"logits and loss": 3.0}, world_size=1, layers_over=2)
    assert (terms["weights"], terms["logits and loss"]) == pytest.approx((8 - 0.4 / 4, 3), abs=1e-3)


def test_fsdp_offloads_all_that_is_of_the_model(shared: Any) -> None:
    held = shared(fsdp=True, offload_param="cpu")
    assert held.keys() == {"attention", "gathered layers"}
    assert held["gathered layers"] == pytest.approx(0.8 + 15.6, abs=1e-3)  # the root is whole


def test_fsdp_gathers_packed_layers_packed(shared: Any) -> None:
    # 15.6 GiB are in no layer, and the only layer is 0.4 of 16 GiB; packed it is a quarter of that.
    assert shared({"weights": 15.7}, fsdp=True)["gathered layers"] == pytest.approx(2 * 0.1 + 15.6 * 7 / 8, abs=1e-3)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"zero_stage": 2, "overlap_comm": True}, 9 * B),
        ({"zero_stage": 2, "overlap_comm": True, "world_size": 1}, 2 * B),
        ({"zero_stage": 2, "world_size": 1}, B),
        ({"zero_stage": 2, "overlap_comm": True, "allgather_bucket": 5e7, "reduce_bucket": 5e7}, 0.9 * B),
        ({"zero_stage": 3, "reduce_bucket": 4096**2}, 1 / 32),
    ],
)
def test_buckets_of_zero(shared: Any, given: dict[str, Any], size: float) -> None:
    assert shared(**given)["communication buffers"] == pytest.approx(size, abs=1e-3)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, 16),
        ({"zero_stage": 2}, 16),
        ({"zero_stage": 3}, 2),
        ({"zero_stage": 3, "offload_param": "cpu"}, 0),
        ({"fsdp": True}, 2),
        ({"fsdp": True, "offload_param": "cpu"}, 0),
    ],
)
def test_a_reference_model_is_divided_and_offloaded_as_the_trained_one(shared: Any, given: Any, size: float) -> None:
    assert shared({"reference model": 16.0}, **given).get("reference model", 0) == size


@pytest.mark.parametrize("given", [{"zero_stage": 3}, {"fsdp": True}])
def test_without_the_number_of_processes_there_is_no_number(shared: Any, given: dict[str, Any]) -> None:
    with pytest.raises(MemoryProblem, match="number of processes"):
        shared(world_size="unknown", **given)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"zero_stage": 2}, 4),
        ({"zero_stage": 0}, 32),
        ({"zero_stage": 2, "offload_optimizer": "cpu"}, 0),
        ({"zero_stage": 3}, 0),
    ],
)
def test_the_step_of_zero_has_gradients_in_single_precision(shared: Any, given: Any, size: float) -> None:
    more = {"temporary values of the optimizer": 16.0}
    assert shared(more, **given).get("temporary values of the optimizer", 0) == size
