"""Numbers without torch: shipped coefficients at the sizes of a config.json, and weights by the files' headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traced_jobs import GIB, JOB, LORA, config

from envdoctor.knowledge import load_matrix
from envdoctor.memory import ClosedForm, Counted, Shipped, Trace, stored_parameters


def answer(version: str | None = "5.23.0", model: str = "llama-3-8b", **changes: Any) -> Trace | str:
    job = {**JOB, "tokens": [2048], "config": {**config(model), **changes.pop("config", {})}, **changes}
    (found,) = Shipped(load_matrix().table("memory-forms"), version).run([job])
    return found


def size(trace: Trace | str, changes: dict[str, Any]) -> float:
    """The peak of one job in GiB."""
    assert isinstance(trace, Trace), trace
    batch, (tokens,) = changes.get("batch", 1), changes.get("tokens", [2048])
    return ClosedForm(trace, batch).at(batch, tokens).size / GIB


@pytest.mark.parametrize(
    ("changes", "gib"),
    [
        ({}, 74.79),
        ({"checkpointing": True, "optimizer": "adamw_fused"}, 59.85),
        ({"lora": LORA, "amp": "bfloat16"}, 31.43),
        ({"load_dtype": "float32", "amp": "bfloat16", "batch": 8, "padded": True, "tokens": [512]}, 149.58),
        ({"training": False, "optimizer": "elsewhere", "tokens": [8192]}, 16.87),
    ],
)
def test_llama_3_8b_is_what_the_trace_says_with_torch(changes: dict[str, Any], gib: float) -> None:
    assert size(answer(**changes), changes) == pytest.approx(gib, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "sizes", "changes", "gib"),
    [
        ("phi3", (5120, 17920, 40, 10, 128, 100352), {"lora": LORA, "amp": "bfloat16", "checkpointing": True}, 30.735),
        ("phi3", (5120, 17920, 40, 10, 128, 100352), {}, 136.527),
        ("glm4", (4096, 13696, 32, 2, 128, 151552), {"training": False, "tokens": [8192]}, 18.910),
        ("glm4", (4096, 13696, 32, 2, 128, 151552), {"lora": LORA, "amp": "bfloat16", "checkpointing": True}, 21.901),
        # Its own attention, in transformers 5.23, is eager.
        ("gemma2", (3584, 14336, 16, 8, 256, 256000), {"attention": None}, 102.558),
    ],
)
def test_phi_4_glm_4_0414_and_gemma_2(kind: str, sizes: tuple[int, ...], changes: dict[str, Any], gib: float) -> None:
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    shape = {"model_type": kind, "num_hidden_layers": 40, **dict(zip(names, sizes, strict=True))}
    assert size(answer(config=shape, **changes), changes) == pytest.approx(gib, abs=0.01)


def test_the_interval_is_wider_for_a_release_that_the_table_does_not_have() -> None:
    same, between, newer = (answer(version) for version in ("5.23.0", "5.0.0", "9.9.0"))
    assert answer("none") == answer(None) == newer
    assert isinstance(same, Trace) and isinstance(between, Trace) and isinstance(newer, Trace)
    assert (same.release, newer.release) == ("5.23", "5.23")
    assert same.more < newer.more and between.release == "4.57" and between.less >= 0


def test_targets_between_the_least_and_all_have_an_interval_down_to_the_least() -> None:
    some = answer(lora={**LORA, "target_modules": ["q_proj", "k_proj", "v_proj"]})
    every = answer(lora=LORA)
    assert isinstance(some, Trace) and isinstance(every, Trace)
    assert some.less > 0.2 > every.less and size(some, {}) == pytest.approx(size(every, {}), rel=0.01)


QKV = {**LORA, "lora_dropout": 0.1, "target_modules": ["q_proj", "k_proj", "v_proj"]}
DPO = {"stage": "dpo", "reference": "copy"}


@pytest.mark.parametrize(
    ("changes", "gib"),
    [
        ({"lora": QKV, "tokens": [6001]}, 79.132),
        ({"lora": QKV, "tokens": [6001], "attention": "eager"}, 338.31),
        ({"lora": QKV, "amp": "bfloat16", "batch": 4, "padded": True}, 99.983),
        ({"lora": QKV, "tokens": [385]}, 21.519),
        (DPO, 107.760),
        ({**DPO, "attention": "eager", "padded": True}, 168.834),
        # Here the most is in the optimizer's step, which no coefficients are about.
        ({**DPO, "attention": "eager", "padded": True, "checkpointing": True}, 105.053),
    ],
)
def test_glm_4_by_layers_of_queries_keys_and_values_and_beside_a_reference_model(
    changes: dict[str, Any], gib: float
) -> None:
    found = answer(model="glm-4-9b-chat-hf", **changes)
    assert isinstance(found, Trace) and found.less < 0.05 and found.more < 0.05
    assert size(found, changes) == pytest.approx(gib, rel=1e-4)


def test_what_no_trace_replayed_is_held_in_reason() -> None:
    """Weights lie close in the allocator's segments; what comes and goes does not."""
    mostly_weights, little_weights = answer(lora=QKV, tokens=[64]), answer(tokens=[64], batch=64, checkpointing=True)
    assert isinstance(mostly_weights, Trace) and isinstance(little_weights, Trace)
    assert 1.0 < ClosedForm(mostly_weights, 1).held < 1.1 < ClosedForm(little_weights, 64).held <= 1.2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {"model_type": "bloom"}}, "about the type bloom"),
        ({"config": {"hidden_size": "x"}}, "config.json lacks sizes"),
        ({"config": {"num_attention_heads": 0}}, "config.json lacks sizes"),
        ({"config": {"sliding_window": 512}}, "longer than the sliding window"),
        ({"stage": "dpo"}, "are about: full dpo none bfloat16 sdpa"),
        ({"optimizer": "adafactor"}, "optimizer adafactor"),
        ({"lora": {**LORA, "use_dora": True}}, "about DoRA"),
        ({"lora": {**LORA, "modules_to_save": ["lm_head"]}}, "trains as a whole"),
        ({"load_dtype": "float32"}, "are about: full float32 sdpa"),
        ({"version": "4.30.0"}, "begin with transformers"),
    ],
)
def test_what_is_not_in_the_table_is_said(changes: dict[str, Any], words: str) -> None:
    found = answer(**changes)
    assert isinstance(found, str) and words in found


def header(tensors: dict[str, list[int]]) -> bytes:
    offset, told = 0, {}
    for name, shape in tensors.items():
        length = 2 * shape[0] * shape[1]
        told[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + length]}
        offset += length
    text = json.dumps(told).encode()
    return len(text).to_bytes(8, "little") + text + bytes(offset)


def test_the_files_say_how_many_parameters_there_are(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(header({"a": [4, 8]}))
    (tmp_path / "adapter_model.safetensors").write_bytes(header({"b": [64, 64]}))
    assert stored_parameters(str(tmp_path)) is None  # a shard is missing
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(header({"c": [2, 3]}))
    assert stored_parameters(str(tmp_path)) == 38


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 64, (1 << 40).to_bytes(8, "little") + b"{}", b"version https://git-lfs"]
)
def test_a_file_that_is_no_safetensors_says_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    assert stored_parameters(str(tmp_path)) is None
    assert stored_parameters(str(tmp_path / "nowhere")) is None


def test_weights_are_those_of_the_files_unless_these_hold_another_model() -> None:
    segments = {"step/before": [110.0, "step", {"weights": 100.0, "gradients": 10.0}]}
    trace = Trace({"parameters": 50, "weight_bytes": 100.0}, ({"segments": segments},))

    class Source:
        def run(self, jobs: Any) -> list[Trace | str]:
            return [trace, "no"]

    (counted, text) = Counted(Source(), 51).run([{}, {}])
    assert isinstance(counted, Trace) and text == "no"
    assert counted.points[0]["segments"]["step/before"][0] == pytest.approx(112.0)
    assert Counted(Source(), 80).run([{}])[0] is trace
