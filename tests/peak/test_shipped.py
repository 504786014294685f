"""Numbers without torch: shipped coefficients at the sizes of a config.json, and weights by the files' headers."""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import rows
from traced_jobs import GIB, JOB, LORA, config

from envdoctor.matrix import load_matrix
from envdoctor.peak import ClosedForm, OnCuda, Shipped, Trace, counted, model_of, packed_weights, stored_parameters


def answer(
    version: str | None = "5.23.0", model: str = "llama-3-8b", elsewhere: bool = False, **changes: Any
) -> Trace | str:
    table, terms = (load_matrix().table(name) for name in ("memory-forms", "memory-terms"))
    job = {**JOB, "tokens": [2048], "config": {**config(model), **changes.pop("config", {})}, **changes}
    (found,) = Shipped(table, terms, version, elsewhere).run([job])
    return found


def size(trace: Trace | str, changes: dict[str, Any]) -> float:
    """The peak of one job in GiB."""
    assert isinstance(trace, Trace), trace
    batch, (tokens,) = changes.get("batch", 1), changes.get("tokens", [2048])
    return ClosedForm(trace, batch).at(batch, tokens).size / GIB


@rows("changes gib")
def test_llama_3_8b_is_what_the_trace_says_with_torch(changes: dict[str, Any], gib: float) -> None:
    assert size(answer(**changes), changes) == pytest.approx(gib, abs=0.02)


PACKED = {"quantized": {"double": False, "upcast": True}}


@rows("targets changes gib")
def test_lora_on_some_linear_layers_is_what_the_trace_says(
    targets: list[str], changes: dict[str, Any], gib: float
) -> None:
    changes = dict(changes)
    lora = {**LORA, "target_modules": targets, "lora_dropout": changes.pop("dropout", 0.0)}
    found = answer(lora=lora, **changes)
    assert isinstance(found, Trace) and not found.near
    assert size(found, changes) == pytest.approx(gib, rel=5e-3)


@rows("config changes gib")
def test_types_without_a_gated_mlp_are_what_the_trace_says(
    config: dict[str, Any], changes: dict[str, Any], gib: float
) -> None:
    changes = {"tokens": [1044], "batch": 4, **changes}
    assert size(answer(config=config, **changes), changes) == pytest.approx(gib, rel=5e-3)


@pytest.mark.parametrize(
    ("own", "more", "halfway"),
    [
        ({"half_loss": True}, 0.0, 6 * 2048 * 128256 / GIB),
        ({"half_loss": True, "amp": "bfloat16"}, 0.0, 0.0),
        # The inputs of three linear layers as wide as the model, and of one as wide as its MLP.
        ({"keeps_inputs": True, "quantized": PACKED["quantized"]}, 2 * 32 * 2048 * (3 * 4096 + 14336) / GIB, 0.0),
        ({"keeps_inputs": True, "quantized": PACKED["quantized"], "checkpointing": True}, 0.0, 0.0),
        # Copies in single precision of each layer's input; three layers share what they keep, the others keep theirs.
        ({"plain_adapters": True}, 0.0, 32 * 2048 * (16 * 4096 + 2 * 14336) / GIB),
        ({"plain_adapters": True, "checkpointing": True}, 0.0, 0.0),
    ],
)
def test_what_a_code_of_its_own_and_an_old_bitsandbytes_do(own: dict[str, Any], more: float, halfway: float) -> None:
    table, terms = (load_matrix().table(name) for name in ("memory-forms", "memory-terms"))
    job = {**JOB, "tokens": [2048], "config": config("llama-3-8b"), "lora": LORA}
    own = {"amp": None, **own}
    plain = {key: value for key, value in own.items() if key not in ("half_loss", "keeps_inputs", "plain_adapters")}
    found, usual = OnCuda(Shipped(table, terms, "5.23.0", False).run).run([{**job, **own}, {**job, **plain}])
    assert isinstance(found, Trace) and size(found, {}) - size(usual, {}) == pytest.approx(more, abs=1e-3)
    assert found.halfway / GIB == pytest.approx(halfway, rel=0.02)


TINY_LLAMA = {
    **{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22},
    **{"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000},
}
PLAIN = {
    **{"load_dtype": "float16", "checkpointing": True, "keep_outputs": True, "config": TINY_LLAMA, "batch": 2},
    "lora": {**LORA, "r": 32, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
}


@rows("changes gib")
def test_live_tensors_of_plain_loops_on_a_t4_are_as_fitcheck_read_them(changes: dict[str, Any], gib: float) -> None:
    asked = {**PLAIN, **changes}
    table, terms = (load_matrix().table(name) for name in ("memory-forms", "memory-terms"))
    job = {**JOB, "tokens": [2048], **asked}
    (found,) = OnCuda(Shipped(table, terms, "5.17.0", False).run).run([job])
    assert size(found, asked) == pytest.approx(gib, rel=0.015)


def test_no_other_type_with_a_soft_cap_stands_for_a_job_that_one_word_keeps_from_its_own() -> None:
    near = answer(model="qwen2.5-7b-instruct", **{**PLAIN, "config": {}, "attention": "eager"})
    assert isinstance(near, Trace) and near.near.startswith("llama: lora all-linear bfloat16 eager")


@rows("kind sizes changes gib")
def test_phi_4_glm_4_0414_and_gemma_2(kind: str, sizes: tuple[int, ...], changes: dict[str, Any], gib: float) -> None:
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    shape = {"model_type": kind, "num_hidden_layers": 40, **dict(zip(names, sizes, strict=True))}
    assert size(answer(config=shape, **changes), changes) == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("version", "release"),
    [("5.23.0", "5.23"), ("5.0.0", "4.57"), ("9.9.0", "5.23"), ("none", "5.23"), (None, "5.23"), ("4.30.0", "4.48")],
)
def test_the_newest_release_up_to_the_installed_one_answers(version: str | None, release: str) -> None:
    found = answer(version)
    assert isinstance(found, Trace) and found.release == release


@rows("changes gib")
def test_glm_4_by_layers_of_queries_keys_and_values_and_beside_a_reference_model(
    changes: dict[str, Any], gib: float
) -> None:
    found = answer(model="glm-4-9b-chat-hf", **changes)
    assert isinstance(found, Trace) and not found.near
    assert size(found, changes) == pytest.approx(gib, rel=5e-3)  # sums are shared among jobs


@pytest.mark.parametrize(
    "config",
    [
        *({"hidden_size": size} for size in ("x", 10**400, float("inf"), [], -1)),
        *({"num_attention_heads": 0}, {"num_hidden_layers": 0}, {"head_dim": -2}, {"vocab_size": -5}),
        *({"num_experts": 8, "moe_intermediate_size": "x"}, {"num_experts": 10**400}, {"num_experts": -4}),
    ],
)
def test_sizes_that_are_none_are_refused(config: dict[str, Any]) -> None:
    found = answer(config=config)
    assert isinstance(found, str) and "config.json lacks sizes" in found


@rows("changes near")
def test_the_nearest_form_answers_where_none_is_about_the_job(changes: dict[str, Any], near: str) -> None:
    found = answer(**changes)
    assert isinstance(found, Trace) and found.near == near and found.residuals_of == "training"


def test_what_is_unlike_the_nearest_form_is_counted() -> None:
    """Pairs are two samples; float32 has twice the bytes; a head that is trained has a copy and states."""
    plain, pairs, wide = (size(answer(**more), {}) for more in ({}, {"stage": "dpo"}, {"load_dtype": "float32"}))
    assert pairs > plain and wide == pytest.approx(2 * plain, rel=0.01)
    adapted, saved = (size(answer(lora={**LORA, **more}), {}) for more in ({}, {"modules_to_save": ["lm_head"]}))
    assert saved - adapted == pytest.approx(3 * 128256 * 4096 * 2 / GIB, rel=0.02)


def test_what_comes_out_of_a_tower_for_images_is_not_its_width() -> None:
    """Qwen2-VL's embed_dim is the width of its layers, and hidden_size that of the language model."""
    vision = {"depth": 32, "embed_dim": 1280, "hidden_size": 4096}
    plain, sees = (answer(config=config) for config in ({}, {"vision_config": vision}))
    assert isinstance(plain, Trace) and isinstance(sees, Trace)
    assert sees.model["parameters"] - plain.model["parameters"] == 32 * 12 * 1280**2


def test_code_of_a_framework_of_its_own_has_residuals_of_its_own() -> None:
    wide, usual = answer(elsewhere=True), answer()
    assert isinstance(wide, Trace) and isinstance(usual, Trace)
    assert (wide.residuals_of, usual.residuals_of) == ("training elsewhere", "training")


def test_a_prompt_has_all_logits_before_transformers_4_45() -> None:
    """4.38 has them of every token, and once more as float32; 4.48 has the MLP's activations at its peak."""
    prompt = {"training": False, "optimizer": "elsewhere"}
    old, new = (size(answer(version, **prompt), {}) for version in ("4.38.2", "4.48.0"))
    assert old - new == pytest.approx(6 * 2048 * 128256 / GIB, rel=0.2)


@pytest.mark.parametrize(
    ("experts", "sent"), [("num_experts", "num_experts_per_tok"), ("moe_num_experts", "moe_k")], ids=["Qwen", "ERNIE"]
)
def test_experts_count_as_weights_and_those_of_a_token_as_activations(experts: str, sent: str) -> None:
    shape = {"model_type": "qwen3_moe", experts: 128, sent: 8, "moe_intermediate_size": 768}
    sizes = {"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4}
    found = answer(config={**shape, **sizes, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": False})
    assert isinstance(found, Trace) and found.model["parameters"] == pytest.approx(30.5e9, rel=0.01)


@rows("version more gib")
def test_four_bits_are_for_linear_layers_alone(version: str | None, more: dict[str, Any], gib: float) -> None:
    shape = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}
    found = answer(version, config=shape, **{"lora": LORA, **PACKED, **more})
    assert isinstance(found, Trace)
    (segment, *_) = found.points[0]["segments"].values()
    assert segment[2]["weights"] / GIB == pytest.approx(gib, abs=0.3)


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
    trace = Trace({"parameters": 50, "weight_bytes": 100.0}, ({"segments": segments, "held_bytes": 132.0},))

    def source(jobs: Any) -> list[Trace | str]:
        return [trace, "no"]

    (found, text) = counted(source, 51)([{}, {}])
    assert isinstance(found, Trace) and text == "no"
    assert found.points[0]["segments"]["step/before"][0] == pytest.approx(112.0)
    # What the allocator holds is the same share of the tensors as before.
    assert found.points[0]["held_bytes"] == pytest.approx(112.0 * 1.2)
    assert counted(source, 80)([{}, {}])[0] is trace
    # By name: the traced model lacks its experts, or only the head that T5's files have.
    sizes = {"config": {"hidden_size": 10, "vocab_size": 3}}
    assert counted(source, 250, "other")([sizes, sizes])[0] == "other"
    assert counted(source, 80, "other")([sizes, sizes])[0] is trace


def packed_by(trace: Any, tied: bool, **row: object) -> list[Trace | str]:
    job, row = {"quantized": None, "config": {"tie_word_embeddings": tied}}, {"bytes": 0.5, **row}
    source = packed_weights(lambda jobs: [trace, trace, "no"], row)
    return source([job, {**job, "quantized": {"double": False}}, job])


@pytest.mark.parametrize("tied", [True, False])
def test_linear_layers_that_are_quantised_have_their_bytes_a_weight(tied: bool) -> None:
    """Of 8 billion parameters the layers have 6.98 billion."""
    plain = answer()
    packed, left, text = packed_by(plain, tied)
    assert isinstance(plain, Trace) and isinstance(packed, Trace) and left is plain and text == "no"
    assert size(plain, {}) - size(packed, {}) == pytest.approx(1.5 * 6.98e9 / GIB, rel=0.001)
    assert packed.apart == pytest.approx(2 * 1.05e9 if tied else 0.0, rel=0.01)
    (headed, *_) = packed_by(plain, tied, head=True)
    assert isinstance(headed, Trace) and (headed.apart, headed.absent) == (0.0, packed.apart)
    assert size(headed, {}) - size(packed, {}) == pytest.approx(packed.apart / GIB)


@rows("name billions")
def test_every_shape_has_an_answer_and_sizes_by_other_names_make_as_many_parameters(name: str, billions: float) -> None:
    matrix = load_matrix()
    source = Shipped(matrix.table("memory-forms"), matrix.table("memory-terms"), "5.23.0", False)
    types, asked = matrix.rows("native-types"), {**JOB, "tokens": [512]}
    rows = matrix.rows("model-shapes")
    traces = source.run(
        [{**asked, "config": model_of(row["config"], types, repo=row["names"][0]).config} for row in rows]
    )
    assert [trace for trace in traces if isinstance(trace, str)] == []
    (found,) = (trace for row, trace in zip(rows, traces, strict=True) if name in row["names"])
    assert isinstance(found, Trace) and found.model["parameters"] == pytest.approx(billions * 1e9, rel=0.02)


@pytest.mark.parametrize(
    ("more", "share"),
    [
        ({"layer_types": ["full_attention"] + ["linear_attention"] * 3}, 1 / 4),
        ({"hybrid_override_pattern": "M-M*"}, 1 / 4),
        ({"attn_layer_period": 8}, 1 / 8),
        ({"layer_types": ["sliding_attention", "full_attention"]}, 1),
    ],
)
def test_only_layers_of_attention_keep_keys_and_values(more: dict[str, Any], share: float) -> None:
    prompt = {"training": False, "optimizer": "elsewhere"}
    whole, found = answer(**prompt), answer(**prompt, config=more)
    assert isinstance(whole, Trace) and isinstance(found, Trace)
    assert found.points[0]["cache_bytes"] == pytest.approx(share * whole.points[0]["cache_bytes"])


@pytest.mark.parametrize("named", [{"max_position_embeddings": -1}, {"model_type": "whisper", "num_mel_bins": 10**30}])
def test_sizes_of_an_encoder_that_are_none_have_a_sentence(named: dict[str, Any]) -> None:
    found = answer(config={"model_type": "bert", **named}, padded=True)
    assert isinstance(found, str) and "lacks sizes" in found
