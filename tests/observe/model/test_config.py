"""config.json: what it says under its many names, and what becomes of files that are none."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rooms import observer
from tables import cases

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import ObservationError

CASES = cases("config.toml")

config = observer("config")

GLM4_9B_CHAT = {
    "_name_or_path": "THUDM/glm4-9b-chat",
    "architectures": ["ChatGLMModel"],
    "auto_map": {"AutoConfig": "configuration_chatglm.ChatGLMConfig"},
    "hidden_size": 4096,
    "kv_channels": 128,
    "model_type": "chatglm",
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_layers": 40,
    "padded_vocab_size": 151552,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.30.2",
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "model_type": "deepseek_v3",
    "n_routed_experts": 256,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3"},
    "torch_dtype": "bfloat16",
    "vocab_size": 129280,
}


def test_the_names_of_glm4_are_understood(config_facts):
    facts = config_facts(GLM4_9B_CHAT)
    assert {key: facts[key] for key in config.keys} == {
        "model.type": "chatglm",
        "model.architectures": ("ChatGLMModel",),
        "model.dtype": "bfloat16",
        "model.quantization": ABSENT,
        "model.remote_code": True,
        "model.transformers_version": "4.30.2",
        "model.config_keys": tuple(sorted(GLM4_9B_CHAT)),
        "model.hidden_size": 4096,
        "model.num_layers": 40,
        "model.num_attention_heads": 32,
        "model.num_key_value_heads": 2,
        "model.head_dim": 128,
        "model.num_experts": ABSENT,
        "model.vocab_size": 151552,
    }


def test_the_names_of_deepseek_v3_are_understood(config_facts):
    facts = config_facts(DEEPSEEK_V3)
    assert facts["model.num_experts"] == 256
    assert facts["model.quantization"] == "fp8"
    assert facts["model.remote_code"] is False
    assert "several sizes" in facts["model.head_dim"].reason


def test_the_language_part_of_a_multimodal_model_counts(config_facts):
    facts = config_facts(
        {
            "model_type": "qwen2_5_omni",
            "hidden_size": 1,
            "thinker_config": {"text_config": {"hidden_size": 3584, "num_hidden_layers": 28, "dtype": "bfloat16"}},
        }
    )
    assert (facts["model.hidden_size"], facts["model.num_layers"], facts["model.dtype"]) == (3584, 28, "bfloat16")
    assert facts["model.type"] == "qwen2_5_omni"


@pytest.mark.parametrize(("key", "content", "value"), CASES["setting_understood_under"])
def test_a_setting_is_understood_under_its_many_names(config_facts, key, content, value):
    assert config_facts(content)[f"model.{key}"] == value


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("quantization", {"quantization_bit": 4}),
        ("quantization", {"quantization_config": {}}),
        ("quantization", {"quantization_config": "gptq"}),
        ("num_experts", {"ffn_config": {"moe_num_experts": 16}}),  # not taken for a dense model
        ("num_experts", {"num_experts_per_tok": 2}),
        ("type", {"model_type": 3}),
        ("type", {"model_type": "x" * 5000}),
        ("architectures", {"architectures": "LlamaForCausalLM"}),
        ("architectures", {"architectures": [1]}),
        ("dtype", {"dtype": {"text_config": "bfloat16"}}),
        ("remote_code", {"auto_map": ["x"]}),
        ("transformers_version", {"transformers_version": "latest; rm -rf"}),
        ("hidden_size", {"hidden_size": "4096"}),
        ("hidden_size", {"hidden_size": True}),
        ("hidden_size", {"hidden_size": -1}),
        ("hidden_size", {"hidden_size": 10**30}),
        ("num_layers", {"num_hidden_layers": 1.5}),
        ("head_dim", {"hidden_size": 100, "num_attention_heads": 3}),
        ("head_dim", {"hidden_size": 100, "num_attention_heads": 0}),
        ("config_keys", {f"key{number}": 0 for number in range(2001)}),
    ],
)
def test_what_is_not_said_plainly_is_not_guessed(config_facts, key, content):
    assert isinstance(config_facts(content)[f"model.{key}"], Unknown)


def test_key_value_heads_that_are_not_given_are_left_to_the_class(config_facts):
    heads = config_facts({"num_attention_heads": 32})["model.num_key_value_heads"]
    assert "default of the model's class" in heads.reason


def test_half_a_surrogate_pair_becomes_a_question_mark(config_facts):
    facts = config_facts('{"model_type": "a\\ud800", "\\udfff": 1}')
    assert facts["model.type"] == "a?"
    assert "?" in facts["model.config_keys"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{\n "model_type": "glm",\n oops\n}', "is not JSON: line 3, column 2: "),
        ("", "is not JSON: line 1"),
        ("<html>", "is not JSON: line 1"),
        ("version https://git-lfs.github.com/spec/v1", "is not JSON: line 1"),
        ('{"a": 1', "is not JSON: line 1"),
        ("{'a': 1}", "is not JSON: line 1"),
        ("[]", "is not a JSON object but a list"),
        ('"x"', "is not a JSON object but text"),
        ("null", "is not a JSON object but null"),
        ("true", "is not a JSON object but true or false"),
        ("1", "is not a JSON object but a number"),
        ('{"a":' * 200_000, "is nested too deeply"),
        (b'{"a": "\xff"}', "is not UTF-8 text: byte 7"),
    ],
)
def test_a_file_that_is_no_json_object_is_refused(config_facts, content, sentence):
    with pytest.raises(ObservationError) as caught:
        config_facts(content)
    assert str(caught.value).startswith(f"config.json of ./model {sentence}")


def test_a_number_of_a_million_digits_does_not_stop_the_program(config_facts):
    content = '{"hidden_size": ' + "9" * 1_000_000 + "}"
    try:
        facts = config_facts(content)
    except ObservationError as error:
        assert "too long" in str(error)
    else:  # Python before 3.10.7 reads it
        assert isinstance(facts["model.hidden_size"], Unknown)


def test_a_huge_file_is_one_sentence_and_is_not_read(disk):
    with open(disk.folder(files={}) / "config.json", "wb") as stream:
        stream.truncate(200 * 1000 * 1000)
    with pytest.raises(ObservationError, match=r"config.json cannot be read: it is larger than 16 MiB"):
        disk.facts("./model")


def test_a_folder_without_a_configuration_is_a_reason(disk):
    disk.folder(files={})
    assert disk.facts("./model")["model.type"] == Unknown("the model's folder holds no config.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_the_configuration_does_not_block(disk):
    os.mkfifo(disk.folder(files={}) / "config.json")
    with pytest.raises(ObservationError, match=r"config.json cannot be read: it is not a regular file"):
        disk.facts("./model")


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege on Windows")
def test_a_configuration_that_links_to_itself_is_a_reason(disk):
    (disk.folder(files={}) / "config.json").symlink_to("config.json")
    assert "cannot be read" in disk.facts("./model")["model.type"].reason


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege on Windows")
def test_a_blob_that_is_gone_is_a_reason(disk):
    snapshot = disk.cached()
    (snapshot / "config.json").resolve().unlink()
    assert disk.facts("Qwen/Qwen2.5-7B-Instruct")["model.type"] == Unknown("the model's folder holds no config.json")


NAMES = (
    "model_type architectures dtype torch_dtype quantization_config auto_map head_dim transformers_version hidden_size "
    "num_layers n_head num_key_value_heads multi_query_attention text_config num_experts vocab_size thinker_config "
    "quant_method num_attention_heads"
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("bfloat16"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES.split()) | st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(NAMES.split()), values, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_object_gives_every_fact_and_can_be_written(config_facts, content):
    facts = config_facts(content)
    assert set(config.keys) <= set(facts)
    for value in facts.values():
        if isinstance(value, (str, tuple)):
            json.dumps(value, ensure_ascii=False).encode("utf-8")


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_configuration_or_one_sentence(config_facts, content):
    try:
        config_facts(content)
    except ObservationError as error:
        assert str(error).isprintable()
