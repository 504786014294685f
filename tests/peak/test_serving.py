"""What a serving engine takes of a GPU, and what it leaves for keys and values, by a trace that is made up."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from observing import shipped
from tables import rows
from traced_jobs import GIB, MadeUp

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.peak import MemoryProblem, model_of, predict_serving

#: No logits worth a byte: steps and keys and values are those of the trace.
KNOWN = shipped().table("memory-frameworks")
CONFIG = {"model_type": "llama", "max_position_embeddings": 32768, "vocab_size": 1}
Engine = Callable[..., dict[str, Any]]


@pytest.fixture
def engine(trace_of: Callable[..., Any]) -> Engine:
    """The section for an engine whose weights take 16 GiB, a step 2, and the keys and values of 2,048 tokens 1 GiB."""

    def do(
        framework: str,
        gib: float,
        name: str = "GPU",
        release: str | None = None,
        vocabulary: Any = 1,
        config: Mapping[str, Any] | None = None,
        cache: float = 1.0,
        dtype: str = "bfloat16",
        **recipe: Any,
    ) -> dict[str, Any]:
        trace = trace_of({"weights": 16.0, "KV cache": 1.0, "hidden states": 2.0}, cache_bytes=cache * GIB)
        source, model = MadeUp(trace), model_of({**CONFIG, "vocab_size": vocabulary, **(config or {})}, [])
        values = {"framework": framework, "load_dtype": "auto", "max_batched_tokens": 2048, **recipe}
        facts = FactSet(
            Fact(f"recipe.{key}", value, "", "recipe") for key, value in values.items() if value is not None
        )
        gpu = Records(({"name": name, "memory_gib": gib},))
        facts.update([Fact("gpu", gpu, "", "given"), Fact("model.dtype", dtype, "", "given")])
        facts.update([Fact(f"pkg.{framework}", release, "", "given")] if release else [])
        return {**predict_serving(facts, model, source, KNOWN), "job": source.jobs[0]}

    return do


@pytest.mark.parametrize(
    ("framework", "release", "share", "verdict", "cache"),
    [
        # Of an unknown release CUDA graphs may come beside the share; from 0.20 on they are inside.
        ("vllm", None, 0.95, "tight", 45.6 - 16 - 2 - 0.6),
        ("vllm", None, 0.8, "fits", 38.4 - 16 - 2 - 0.6),
        ("vllm", "0.25.0", 0.95, "fits", 45.6 - 16 - 2 - 0.6),
        # SGLang's share is of what is free, for weights, keys and values alone.
        ("sglang", None, None, "fits", 0.923 * 47.4 - 16),
        ("sglang", None, 0.95, "tight", 0.95 * 47.4 - 16),
        ("sglang", "0.4.6.post5", 0.9, "tight", 0.9 * 47.4 - 16),
        # LMDeploy's is of what the weights leave.
        ("lmdeploy", None, None, "fits", 0.8 * 31.4),
        ("lmdeploy", None, 0.95, "does-not-fit", 0.95 * 31.4),
        ("weclone", None, 0.95, "tight", 45.6 - 16 - 2 - 0.6),
    ],
)
def test_what_is_left_for_keys_and_values(
    engine: Engine, framework: str, release: str | None, share: float | None, verdict: str, cache: float
) -> None:
    found = engine(framework, 48.0, release=release, gpu_memory_utilization=share)
    assert found["verdict"] == verdict
    assert found["serving"]["cache_gib"] == pytest.approx(cache, abs=0.03)
    assert found["serving"]["cache_tokens"] == pytest.approx(cache * 2048, abs=64)
    assert any("was not given" in text for text in found["assumed"]) is (share is None)
    graphs = any("and <0.20 needs up to 3.0 GiB for CUDA graphs" in text for text in found["assumed"])
    assert graphs is (framework in ("vllm", "weclone") and verdict == "tight")


@pytest.mark.parametrize(("framework", "share"), [("vllm", 0.95), ("sglang", 0.95), ("lmdeploy", 0.95)])
def test_the_share_that_is_offered_fits(engine: Engine, framework: str, share: float) -> None:
    (change,) = engine(framework, 48.0, gpu_memory_utilization=share)["changes"]
    fits = engine(framework, 48.0, gpu_memory_utilization=change["set"]["recipe.gpu_memory_utilization"])
    assert (change["verdict"], fits["verdict"]) == ("fits", "fits")
    assert fits["allocated_gib"] == pytest.approx(change["gib"])


def test_the_share_that_vllm_takes_by_itself_leaves_enough_for_cuda_graphs_on_a_small_gpu(engine: Engine) -> None:
    card = ("vllm", 24.0, "RTX 3090", "0.8.5")
    sections = [engine(*card, gpu_memory_utilization=share, max_model_len=2048) for share in (0.9, 0.92)]
    assert [section["verdict"] for section in sections] == ["fits", "tight"]


def test_a_share_that_leaves_too_little_for_a_step_says_how_much(engine: Engine) -> None:
    told = engine("sglang", 48.0, gpu_memory_utilization=0.95)["assumed"][-1]
    assert told == (
        "a step and CUDA graphs may need up to 4.2 GiB beside mem_fraction_static 0.95, and 3.0 GiB are left"
    )


def test_sglang_captures_no_more_sequences_than_run_and_leaves_more_for_longer_steps(engine: Engine) -> None:
    few, usual, many, longer = (
        engine("sglang", 48.0, release="0.5.23", **recipe)["allocated_gib"]
        for recipe in ({"max_sequences": 8}, {}, {"max_sequences": 512}, {"max_batched_tokens": 16384})
    )
    assert few > usual == many > longer


def test_keys_and_values_of_a_byte_take_half_the_place(engine: Engine) -> None:
    two, one = (engine("vllm", 48.0, kv_cache_dtype=name)["serving"]["cache_tokens"] for name in ("auto", "fp8_e5m2"))
    assert one == pytest.approx(2 * two, abs=2)


def test_each_gpu_keeps_all_of_what_latent_keys_and_values_are_made_of(engine: Engine) -> None:
    latent = {"num_hidden_layers": 27, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "vocab_size": 1}
    for config in ({"model_type": "deepseek_v2", **latent}, {"text_config": {"model_type": "kimi_k2", **latent}}):
        for ranks in (1, 2):
            found = engine("vllm", 48.0, config=config, tensor_parallel=ranks)["serving"]
            each = 2 * 27 * (512 + 64)
            assert found["cache_tokens"] == pytest.approx(found["cache_gib"] * GIB / each, rel=1e-4)
    with pytest.raises(MemoryProblem, match="latent attention"):
        engine("vllm", 48.0, config={"model_type": "minicpm3", **latent})


@pytest.mark.parametrize("name", ["num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim"])
@pytest.mark.parametrize("size", [-512, "512", 10**305, 10**400, math.inf, math.nan])
def test_what_is_no_size_of_latent_attention_has_no_answer(engine: Engine, name: str, size: Any) -> None:
    config = {"model_type": "deepseek_v2", "num_hidden_layers": 27, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    with pytest.raises(MemoryProblem, match="lacks sizes"):
        engine("vllm", 48.0, config={**config, name: size})


@pytest.mark.parametrize("length", [-1, "auto", 10**400, math.inf])
@pytest.mark.parametrize("place", ["config", "recipe"])
def test_what_is_no_length_has_no_verdict(engine: Engine, length: Any, place: str) -> None:
    told = {"config": {"max_position_embeddings": length}} if place == "config" else {"max_model_len": length}
    found = engine("vllm", 48.0, release="0.25.0", **told)
    assert (found["serving"]["length"], found["verdict"]) == (8192, None)


def test_a_model_that_keeps_no_keys_and_values_has_no_answer(engine: Engine) -> None:
    with pytest.raises(MemoryProblem, match="keeps no keys and values"):
        engine("vllm", 48.0, cache=0.0)


def test_what_is_said_of_the_dtype_is_what_was_counted(engine: Engine) -> None:
    for asked, dtype, said in ((None, "float16", True), ("auto", "float16", True), ("fp32", "float32", False)):
        found = engine("vllm", 48.0, dtype="float32", load_dtype=asked)
        assert found["job"]["load_dtype"] == dtype
        assert [text.endswith("none or float32") for text in found["assumed"] if "dtype" in text] == [True] * said


@pytest.mark.parametrize("vocabulary", [None, "many", 0, 1 << 40])
def test_a_vocabulary_that_is_missing_or_no_number_is_taken_as_large(engine: Engine, vocabulary: Any) -> None:
    sampled = 256 * 2**19 / GIB
    for release, size in ((None, 2 + 4 * sampled), ("0.11.0", 30 * sampled)):  # which profiles the sorting
        found = engine("vllm", 48.0, release=release, vocabulary=vocabulary)
        assert found["serving"]["activations_gib"] == pytest.approx(size, abs=0.001)


@pytest.mark.parametrize("framework", ["vllm", "sglang", "lmdeploy"])
def test_weights_that_do_not_fit_have_no_change(engine: Engine, framework: str) -> None:
    found = engine(framework, 14.6)
    assert (found["verdict"], found["changes"], found["serving"]["cache_tokens"]) == ("does-not-fit", [], 0)
    assert found["process_gib"][0] > 14.6


def test_vllm_refuses_a_sequence_that_its_cache_cannot_hold_and_sglang_starts(engine: Engine) -> None:
    verdicts = [
        engine(name, 30.0, release=release)["verdict"] for name, release in (("vllm", "0.25.0"), ("sglang", "0.5.9"))
    ]
    assert verdicts == ["does-not-fit", "tight"]
    # Of the CUDA context 0.3 GiB may not be there: the place of 614 tokens.
    held = engine("vllm", 30.0, release="0.25.0")["serving"]["cache_tokens"]
    for more, verdict in ((0, "fits"), (600, "tight"), (630, "does-not-fit")):
        assert engine("vllm", 30.0, release="0.25.0", max_model_len=held + more)["verdict"] == verdict
    change = engine("vllm", 30.0, release="0.25.0")["changes"][0]["set"]
    changed = {name.removeprefix("recipe."): value for name, value in change.items()}
    assert set(changed) == {"gpu_memory_utilization", "max_model_len"}
    assert engine("vllm", 30.0, release="0.25.0", **changed)["verdict"] == "fits"


@rows("framework name gib release method tokens")
def test_a_step_has_as_many_tokens_as_the_engine_takes_on_that_card(
    engine: Engine, framework: str, name: str, gib: float, release: str | None, method: str | None, tokens: int
) -> None:
    found = engine(framework, gib, name, release, method=method, max_batched_tokens=None)
    assert (found["tokens"], found["job"]["tokens"]) == (tokens, [tokens])


@pytest.mark.parametrize(
    ("release", "verdict", "images"),
    [
        # The largest picture, whatever the tokens of a step: 65,536 patches of 36 times 1,280 bytes.
        ("0.25.0", "fits", 2.8125),
        ("0.8.0", "fits", 2.8125),
        # A prompt of 32,768 tokens of pictures at once, 16 steps of 2 GiB.
        ("0.7.0", "tight", 2 * 2.8125 + 15 * 2),
        (None, "tight", 2 * 2.8125 + 15 * 2),
    ],
)
def test_images_may_take_the_place_of_keys_and_values(
    engine: Engine, release: str | None, verdict: str, images: float
) -> None:
    tower = {"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "depth": 32, "patch_size": 14}}
    section = engine("vllm", 48.0, release=release, config=tower, gpu_memory_utilization=0.8)
    assert section["verdict"] == verdict
    assert section["serving"]["images_gib"] == pytest.approx(images, abs=0.01)
    assert any("images are not in what a step takes" in said for said in section["assumed"])
    assert engine("vllm", 48.0, release=release, gpu_memory_utilization=0.8)["verdict"] == "fits"
