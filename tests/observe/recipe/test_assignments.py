"""``--set key=value``: one fact at a time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, FactSet, Records
from envdoctor.matrix import load_toml
from envdoctor.observe import AssignmentError, parse_assignments

TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "recipes" / "assignments.toml")


@pytest.fixture
def parse(matrix):
    """Facts from texts; the last one wins."""
    return lambda *texts: FactSet(parse_assignments(texts, matrix.registry))


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("recipe.batch_size=2", "recipe.batch_size", 2),
        ("recipe.gpu_memory_utilization=0.92", "recipe.gpu_memory_utilization", 0.92),
        ("recipe.packing=true", "recipe.packing", True),
        ("recipe.packing=no", "recipe.packing", False),
        (" recipe.attn = eager ", "recipe.attn", "eager"),
        ("recipe.kernels=liger, unsloth", "recipe.kernels", ("liger", "unsloth")),
        ("recipe.kernels=", "recipe.kernels", ()),
        ("pkg.torch=2.5.0+cu118", "pkg.torch", "2.5.0+cu118"),
        ("pkg.Flash_Attn=absent", "pkg.flash-attn", ABSENT),
        ("driver.version=550.54", "driver.version", "550.54"),
        ("env.NCCL_ALGO=a=b", "env.NCCL_ALGO", "a=b"),
        ("gpu.count=2", "gpu.count", 2),
        ("gpu=absent", "gpu", ABSENT),
        ("model.repo=THUDM/glm-4-9b-chat-hf", "model.repo", "THUDM/glm-4-9b-chat-hf"),
        # usual spellings
        ("recipe.dtype=float16", "recipe.dtype", "fp16"),
        ("recipe.dtype=half", "recipe.dtype", "fp16"),
        ("recipe.dtype=bfloat16", "recipe.dtype", "bf16"),
        ("recipe.dtype=torch.bfloat16", "recipe.dtype", "bf16"),
        ("recipe.dtype=FP16", "recipe.dtype", "fp16"),
        ("recipe.attn=fa2", "recipe.attn", "flash_attention_2"),
        ("recipe.attn=flash-attn", "recipe.attn", "flash_attention_2"),
        ("recipe.attn=Flash_Attention_2", "recipe.attn", "flash_attention_2"),
        ("recipe.attn=sdpa", "recipe.attn", "sdpa"),
        ("recipe.attn=kernels-community/flash-attn3", "recipe.attn", "kernels-community/flash-attn3"),
        ("recipe.method=LoRA", "recipe.method", "lora"),
        ("recipe.method=QLORA", "recipe.method", "qlora"),
        ("recipe.method=full", "recipe.method", "full"),
        ("recipe.quantization=4bit", "recipe.quantization", "bnb-4bit"),
        ("recipe.framework=LLaMA-Factory", "recipe.framework", "llamafactory"),
    ],
)
def test_a_value_is_read_as_its_key_says(parse, text, key, value):
    fact = parse(text).get(key)
    assert fact.value == value and fact.origin == "--set"


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        (("recipe.packing", True), "recipe.packing", True),
        (("pkg.torch", 2.5), "pkg.torch", "2.5"),
        (("recipe.kernels", ["liger", "unsloth"]), "recipe.kernels", ("liger", "unsloth")),
        (("gpu.name", ["a, b"]), "gpu", Records(({"name": "a, b"},))),
        (("gpu.name", "a, b"), "gpu", Records(({"name": "a"}, {"name": "b"}))),
    ],
)
def test_a_value_that_is_at_hand_is_no_text_to_be_taken_apart(parse, given, key, value):
    assert parse(given).value(key) == value


def test_the_last_one_of_a_key_wins(parse):
    assert parse("recipe.batch_size=2", "recipe.batch_size=4").value("recipe.batch_size") == 4
    assert parse("gpu.cc=9.0", "gpu=absent").value("gpu") is ABSENT


@pytest.mark.parametrize(
    ("texts", "items"),
    [
        (["gpu.cc=9.0"], [{"cc": "9.0"}]),
        (["gpu.cc=9.0,9.0"], [{"cc": "9.0"}, {"cc": "9.0"}]),
        (["gpu.cc=9.0,8.0", "gpu.name=H100,A100"], [{"cc": "9.0", "name": "H100"}, {"cc": "8.0", "name": "A100"}]),
        (["gpu.cc=9.0,9.0", "gpu.cc=8.0"], [{"cc": "8.0"}]),  # the last one wins, also over the number of items
        (['gpu.name="NVIDIA A100, 80GB", B'], [{"name": "NVIDIA A100, 80GB"}, {"name": "B"}]),
        (["gpu.name=A,B", "gpu.cc=9.0"], [{"name": "A", "cc": "9.0"}, {"name": "B"}]),
        (["gpu=absent", "gpu.cc=9.0"], [{"cc": "9.0"}]),
        (["gpu.memory_gib=80"], [{"memory_gib": 80}]),
    ],
)
def test_columns_describe_items_one_after_the_other(parse, texts, items):
    assert parse(*texts).value("gpu") == Records(tuple(items))


@pytest.mark.parametrize(("text", "sentence"), TABLE["refused"])
def test_a_wrong_assignment_is_one_sentence(parse, text, sentence):
    with pytest.raises(AssignmentError) as caught:
        parse(text)
    assert sentence in str(caught.value)


def test_the_origin_is_named_in_facts_and_faults(matrix):
    (fact,) = parse_assignments(["recipe.batch_size=2"], matrix.registry, "pyproject.toml")
    assert fact.origin == "pyproject.toml"
    with pytest.raises(AssignmentError, match=r"^pyproject\.toml x=1: "):
        parse_assignments(["x=1"], matrix.registry, "pyproject.toml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=12) | st.from_regex(r"(gpu\.(cc|name)|gpu|recipe\.packing|pkg\.x)=.{0,6}")))
def test_any_text_is_read_or_refused(matrix, texts):
    try:
        parse_assignments(texts, matrix.registry)
    except AssignmentError as error:
        assert str(error)
