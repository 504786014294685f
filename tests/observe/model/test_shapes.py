"""What a name tells of a model without files: the table model-shapes, and the ways people write names."""

from pathlib import Path
from typing import Any

import pytest
import refresh_shapes
from hypothesis import given
from hypothesis import strategies as st
from observing import shipped, values

from envdoctor.facts import ABSENT, Fact, FactSet, Unknown
from envdoctor.judge.derivations import derive
from envdoctor.matrix import load_toml
from envdoctor.observe import Request, Shape, shape_of
from envdoctor.observe.gather import gather

TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "models" / "names.toml")

MATRIX = shipped()
ROWS, SUFFIXES = MATRIX.rows("model-shapes"), MATRIX.rows("model-shapes", "suffix")
#: Where the parameters that a row has are not those that the name rounds to: more by what, and why.
BESIDE = {
    "stabilityai/stablelm-base-alpha-3b": 3.64,  # as its makers count it
    "Qwen/Qwen2-VL-7B-Instruct": 8.29,
    "stabilityai/stablelm-base-alpha-7b": 7.87,
    "openlm-research/open_llama_3b": 3.43,
    "google/gemma-2b": 2.51,  # the name leaves the embeddings out
    "google/gemma-7b": 8.54,
    "google/gemma-2-2b": 2.61,
    "mistralai/Mixtral-8x7B-v0.1": 46.7,  # only the MLP is there eight times
    "mistralai/Mixtral-8x22B-v0.1": 140.6,
    "mistralai/Mixtral-8x22B-Instruct-v0.1": 140.6,
    "tiiuae/Falcon3-1B-Base": 1.67,
    "meta-llama/Llama-3.2-1B": 1.24,
    "allenai/OLMo-1B-hf": 1.18,
    "BSC-LT/salamandra-2b": 2.25,
    "BSC-LT/salamandra-7b": 7.77,
    "internlm/internlm3-8b-instruct": 8.80,
    "Qwen/Qwen1.5-7B": 7.72,
    "Qwen/Qwen-7B": 7.72,
    "baichuan-inc/Baichuan2-7B-Base": 7.51,
    "THUDM/chatglm-6b": 6.71,  # without the head 6.17
    "XiaomiMiMo/MiMo-7B-Base": 7.62,
    "baidu/ERNIE-4.5-0.3B-PT": 0.36,
    "LiquidAI/LFM2-8B-A1B": 8.34,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.58,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 400.7,  # the name tells those of a token
    "allenai/OLMoE-1B-7B-0924": 6.92,  # of which a token takes 1.3
    "meta-llama/Llama-4-Scout-17B-16E": 107.8,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8.29,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3.75,  # with its tower for images
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1.78,  # its head is not the embedding
    "meta-llama/Llama-3.2-11B-Vision": 10.64,
    "zai-org/GLM-4.1V-9B-Thinking": 10.29,
    "mistralai/Voxtral-Mini-3B-2507": 4.68,  # the name leaves the tower for sound out
    "Qwen/Qwen3.5-9B": 9.41,
    "Qwen/Qwen3.5-4B": 4.54,
    "facebook/m2m100_418M": 0.484,  # with its positions
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": 35.26,  # with what speaks
    "Qwen/Qwen2.5-Omni-7B": 10.73,
    "OpenGVLab/InternVL3_5-4B": 4.73,  # its head is not the embedding
    "mistralai/Ministral-3-3B-Base-2512": 3.8,  # with its tower
}


def shape(name: str) -> Shape | None:
    return shape_of(name, ROWS, SUFFIXES)


def test_the_table_is_large_and_no_name_is_in_two_rows() -> None:
    names = [name for row in ROWS for name in row["names"]]
    sizes = {
        tuple(sorted((key, str(row["config"][key])) for key in row["config"] if key not in refresh_shapes.OWN))
        for row in ROWS
    }
    assert len(names) == len(set(names)) >= 400 and len(sizes) >= 120
    rows = {
        refresh_shapes.words_of(name): {
            place
            for place, row in enumerate(ROWS)
            if refresh_shapes.words_of(name) in map(refresh_shapes.words_of, row["names"])
        }
        for name in names
    }
    assert {words for words, places in rows.items() if len(places) > 1} == set()


def test_the_parameters_of_a_row_are_those_of_the_name() -> None:
    for row in ROWS:
        named, counted = refresh_shapes.named_size(row["names"][0]), refresh_shapes.parameters(row["config"]) / 1e9
        told = BESIDE.get(row["names"][0], (named or 0) / 1e9)
        # A name is rounded: 7B is 6.74 billion of one model and 7.62 of another.
        near = counted == pytest.approx(told, rel=0.03) or round(counted) == told or told < counted < told * 1.1
        assert named is None or near, row["names"][0]


@pytest.mark.parametrize(("name", "like", "quantized", "unknown"), TABLE["names"])
def test_a_name_is_read(name: str, like: str, quantized: str, unknown: list[str]) -> None:
    found = shape(name)
    assert found is not None
    assert (found.like, found.quantized) == (like, None if quantized == "none" else quantized)
    assert (list(found.unknown), found.bare) == (unknown, False)


OTHERS = """
Qwen/Qwen2.5-7B-MoE somebody/odd-30B-A3B Qwen/Qwen3-VL-31B-A4B Qwen/Qwen2.5-Omni-31B
somebody/odd-8x7B somebody/odd-1B-7B somebody/odd-1b-a400m google/t5gemma-2-270m-270m
deepseek-ai/DeepSeek-V3.9 nvidia/Llama-3.1-Minitron-4B-Width-Base
THUDM/glm-4v-9b THUDM/glm-4-9b-chat-1m zai-org/GLM-4.9V
microsoft/Phi-3-vision-128k-instruct yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
meta-llama/Meta-Llama-3-8B-Instruct-EAGLE Llama-3.1-8B-Qwen-7B
somebody/odd-4x7B-Mistral-7B nobody/nothing 999B 0B ..B 1e9B
"""


def test_a_name_never_hits_another_architecture() -> None:
    assert [name for name in OTHERS.split() if shape(name) is not None] == []


@pytest.mark.parametrize(("name", "size"), TABLE["sizes"])
def test_of_another_shape_the_number_of_parameters_counts_alone(name: str, size: float) -> None:
    found = shape(name)
    assert found is not None and found.bare and found.unlike
    assert refresh_shapes.parameters(found.config) / 1e9 == pytest.approx(size, rel=0.2)


@pytest.mark.parametrize(("name", "like"), TABLE["numbers"])
def test_a_number_of_parameters_alone_is_a_plain_model_of_that_size(name: str, like: str) -> None:
    found = shape(name)
    assert found is not None and found.bare and found.like == like


@given(
    st.sampled_from([name for row in ROWS for name in row["names"]]), st.sampled_from(["", "somebody/"]), st.booleans()
)
def test_a_listed_name_has_its_shape_however_it_is_written(name: str, organisation: str, low: bool) -> None:
    written = organisation + name.rpartition("/")[2] if organisation else name
    found, own = shape(written.lower() if low else written), shape(name)
    assert found is not None and own is not None and found.config == own.config and own.vendor


@given(st.text(max_size=400), st.sampled_from(["", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-", "7B"]))
def test_no_name_is_too_odd(text: str, beginning: str) -> None:
    found = shape(beginning + text)
    assert found is None or found.config["model_type"]
    assert shape("-".join(["a1"] * 50_000)) is None


def observed(disk: Any, model: str) -> dict[str, Fact]:
    request = Request(environ={}, model=disk.resolve(model), rows=MATRIX.rows)
    return {fact.key: fact for fact in gather(request, ["model"])}


def test_the_facts_of_a_model_without_files_are_those_of_its_name(disk: Any) -> None:
    facts = observed(disk, "Qwen/Qwen2.5-7B-Instruct")
    told = values(list(facts.values()))
    assert (told["model.type"], told["model.hidden_size"], told["model.num_layers"]) == ("qwen2", 3584, 28)
    assert (told["model.num_key_value_heads"], told["model.head_dim"], told["model.vocab_size"]) == (4, 128, 152064)
    assert (told["model.dtype"], told["model.quantization"], told["model.num_experts"]) == ("bfloat16", ABSENT, ABSENT)
    assert facts["model.type"].origin.startswith("by name, as Qwen/Qwen2.5-7B-Instruct: https://")
    for key in ("model.config_keys", "model.architectures", "model.remote_code", "model.path"):
        assert not isinstance(told[key], (str, tuple, bool))


def test_a_copy_tells_less_and_a_quantised_name_how(disk: Any) -> None:
    def told(model: str) -> list[Any]:
        facts = observed(disk, model)
        return [facts[key].value for key in ("model.quantization", "model.dtype", "model.num_layers")]

    for model in ("somebody/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-odd"):
        quantization, dtype, layers = told(model)
        assert isinstance(quantization, Unknown) and isinstance(dtype, Unknown) and layers == 28
    quantization, dtype, layers = told("Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert (quantization, layers) == ("awq", 28) and isinstance(dtype, Unknown)
    assert told("deepseek-ai/DeepSeek-V3")[0] == "fp8"
    assert "and not how" in told("Qwen/Qwen2.5-7B-Instruct-GGUF")[0].reason
    assert isinstance(told("7B")[2], Unknown)


def test_files_are_read_instead_of_the_table(disk: Any) -> None:
    other = {"model_type": "llama", "num_hidden_layers": 3}
    disk.folder("Qwen2.5-7B-Instruct", {"config.json": other})
    assert observed(disk, "Qwen2.5-7B-Instruct")["model.num_layers"].value == 3
    snapshot = disk.cached("Qwen/Qwen2.5-14B-Instruct")
    assert observed(disk, "Qwen/Qwen2.5-14B-Instruct")["model.num_layers"].value == 28
    (snapshot / "config.json").unlink()
    assert isinstance(observed(disk, "Qwen/Qwen2.5-14B-Instruct")["model.num_layers"].value, Unknown)


def test_the_family_of_a_name_admits_its_type() -> None:
    for name, row in ((name, one) for one in ROWS for name in one["names"]):
        repo = Fact("model.repo", name, "--model", "model")
        kind = Fact("model.type", row["config"]["model_type"], "by name", "model")

        def family(*told: Fact) -> object:
            facts = FactSet(told)
            derive(facts, MATRIX)
            return facts.value("model.family")

        by_name = family(repo)
        assert isinstance(by_name, Unknown) or by_name == family(repo, kind), name
