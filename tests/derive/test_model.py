"""Whether the installed transformers has a class for the model's type, and whose code runs the model."""

import pytest
from known import answer, following

from envdoctor.facts import ABSENT, Unknown


@pytest.mark.parametrize(
    ("kind", "transformers", "since", "registered"),
    [
        ("qwen3", "4.50.3", "4.51.0", False),
        ("qwen3", "4.51.0", "4.51.0", True),
        ("qwen3", "4.51.0.dev0", "4.51.0", True),
        ("qwen3", "5.23.0", "4.51.0", True),
        ("qwen3", "5.99.0", "4.51.0", True),
        ("qwen3", "4.20.0", "4.51.0", False),
        ("qwen3", None, "4.51.0", Unknown),
        ("nezha", "4.57.6", ..., True),
        ("nezha", "5.0.0", ..., False),  # it was taken out
        ("bert", "4.20.0", ..., Unknown),  # before the first release of the table nothing is known
        ("bert", "4.26.0", ..., True),
        ("chatglm", "4.57.6", ABSENT, Unknown),
        ("of-tomorrow", None, Unknown, Unknown),  # no table lists it
    ],
)
def test_a_type_is_known_from_its_first_release_on(kind, transformers, since, registered):
    packages = {"pkg__transformers": transformers} if transformers else {}
    found = following(model__type=kind, **packages)
    assert answer(found.value("model.registered")) is registered
    assert since is ... or answer(found.value("model.registered_since")) == since


@pytest.mark.parametrize(
    ("key", "framework", "by"),
    [
        *(("model.run_by", name, "trainer") for name in ("torchtune", "mlx-lm", "nemo")),
        ("model.run_by", "vllm", "engine"),
        ("model.run_by", "trl", "transformers"),
        ("recipe.trainer", "unsloth", "trl"),
        *(("recipe.trainer", name, "own") for name in ("openrlhf", "torchtune", "verl")),
        ("recipe.trainer", "llamafactory", "transformers"),
    ],
)
def test_whose_code_runs_and_trains_the_model(key, framework, by):
    assert following(recipe__framework=framework).value(key) == by
    assert answer(following().value(key)) is Unknown
