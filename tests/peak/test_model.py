"""Models with code of their own, by the nearest type of transformers."""

from typing import Any

import pytest
from traced_jobs import config

from envdoctor.matrix import load_matrix
from envdoctor.peak import MemoryProblem, Trace, model_of

#: Settings that no shape, and so no memory, depends on.
WITHOUT_SHAPE = {"rope_theta", "hidden_act", "initializer_range", "architectures", "torch_dtype", "model_type"}

#: By the installed code.
TRACED = Trace({}, ())


def model(data: dict[str, Any]) -> Any:
    return model_of(data, load_matrix().rows("native-types"))


def job(**lora: Any) -> dict[str, Any]:
    return {"lora": {"r": 8, "target_modules": None, "modules_to_save": None, **lora}, "checkpointing": True}


def test_glm_4_is_what_its_native_version_is() -> None:
    found, native = dict(model(config("glm-4-9b-chat")).config), config("glm-4-9b-chat-hf")
    shapes = {key: value for key, value in native.items() if key not in WITHOUT_SHAPE and key in found}
    assert {key: found[key] for key in shapes} == shapes
    assert {"hidden_size", "intermediate_size", "num_key_value_heads", "head_dim", "vocab_size"} <= set(shapes)


def test_modules_are_called_as_in_the_nearest_type() -> None:
    glm = model(config("chatglm3-6b"))
    assert glm.job(job(target_modules=["query_key_value", "dense"]))["lora"]["target_modules"] == [
        *("q_proj", "k_proj", "v_proj"),
        "o_proj",
    ]
    assert glm.job(job())["lora"]["target_modules"] == ["q_proj", "k_proj", "v_proj"]
    assert glm.job(job(target_modules="all-linear"))["lora"]["target_modules"] == "all-linear"
    assert glm.job(job(modules_to_save=["output_layer"]))["lora"]["modules_to_save"] == ["lm_head"]
    assert glm.job({"lora": None}) == {"lora": None}


def test_code_that_ignores_checkpointing_is_taken_at_its_word() -> None:
    january = ["ChatGLMPreTrainedModel._set_gradient_checkpointing(self, module, value)", "ChatGLMModel.forward(self)"]
    february = [
        *january[1:],
        "ChatGLMPreTrainedModel.gradient_checkpointing_enable(self, gradient_checkpointing_kwargs)",
    ]
    rows, data = load_matrix().rows("native-types"), config("chatglm3-6b")
    heeds = [model_of(data, rows, *told) for told in ((january,), (february,), (february, "llamafactory"), ())]
    assert [found.heeds for found in heeds] == [True, False, True, None]
    assert [found.job({"checkpointing": True, "lora": None})["checkpointing"] for found in heeds] == [
        *(True, False),
        *(True, True),
    ]
    assert [len(found.said_of(TRACED, job())) for found in heeds] == [1, 2, 1, 1]
    # Files of the tokenizer alone say nothing of it.
    assert model_of(data, rows, ["ChatGLMTokenizer._pad(self)"]).heeds is None


def test_it_says_so_and_leaves_native_types_alone() -> None:
    glm = model(config("glm-4-9b-chat"))
    assert (glm.level_of(TRACED), glm.margin, glm.named) == ("nearest", 0.3, "chatglm")
    assert "nearest type of transformers, glm" in glm.said_of(TRACED, job())[0]
    native = model(config("glm-4-9b-chat-hf"))
    assert (native.level_of(TRACED), native.margin, native.said_of(TRACED, job())) == ("trace", 0.0, [])
    assert native.job(job()) == job()


@pytest.mark.parametrize("changed", [{"multi_query_attention": False}, {"rmsnorm": False}, {"ffn_hidden_size": None}])
def test_what_is_otherwise_is_not_taken_for_the_same(changed: dict[str, Any]) -> None:
    data = {**config("chatglm3-6b"), **changed}
    with pytest.raises(MemoryProblem, match=next(iter(changed))):
        model({key: value for key, value in data.items() if value is not None})


def test_a_trainers_own_code_may_take_less_and_more() -> None:
    found = model_of({"model_type": "llama"}, [], framework="litgpt", trainer=True)
    assert (found.trainer, found.margin) == ("litgpt", 0.3)
    assert "litgpt runs code of its own" in found.said_of(TRACED, job())[0]


def test_a_name_whose_code_is_known_to_ignore_checkpointing_is_taken_without_it() -> None:
    rows, data = load_matrix().rows("native-types"), config("chatglm3-6b")
    repos = ("THUDM/ChatGLM3-6B", "THUDM/chatglm3-6b-base", "")
    assert [model_of(data, rows, repo=repo).heeds for repo in repos] == [False, None, None]
