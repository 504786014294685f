"""A word that no source can give fails the lint, wherever a rule writes it."""

from typing import Any

import pytest
from small_matrix import rule_document

from envdoctor.facts import Registry
from envdoctor.matrix import Matrix, parse_rule, strange_words

FACT, COLUMN = {"meaning": "m", "help": "h"}, {"type": "text", "meaning": "m"}
REGISTRY = Registry.from_mapping(
    {
        "fact": {
            "recipe.attn": {**FACT, "type": "text", "values": {"eager": {"en": "eager"}, "sdpa": {"en": "SDPA"}}},
            "recipe.kernels": {**FACT, "type": "texts", "values": ["liger", "unsloth"]},
            "recipe.optimizer": {**FACT, "type": "text"},
            "model.family": {**FACT, "type": "text"},
            "model.type": {**FACT, "type": "text"},
            "gpu": {**FACT, "type": "records", "columns": {"name": COLUMN}},
            "change": {**FACT, "type": "records", "columns": {"area": {**COLUMN, "values": ["code", "weights"]}}},
            "env.*": {**FACT, "type": "text", "names": {"public": ["NCCL_DEBUG"]}},
        }
    }
)
FAMILIES = """
[[family]]
id = "glm4"
types = ["glm"]
shared_types = ["chatglm"]
[[family.known]]
repos = []
facts = { "model.type" = "glm4v" }
"""


@pytest.fixture
def complaints(tmp_path):
    """What is said of a rule, given by parts of its document."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "families.toml").write_text(FAMILIES)
    (tmp_path / "tables" / "gpus.toml").write_text('[[row]]\nnames = ["*Tesla T4*", "*RTX 40?0*"]\n')
    matrix = Matrix(REGISTRY, source="test", home=tmp_path)

    def of(**parts: Any) -> list[str]:
        rule = parse_rule("r", "r", rule_document(message={"en": "x"}, **parts), REGISTRY)
        return list(strange_words(rule, matrix))

    return of


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ({"recipe.attn": "sdpa"}, None),
        ({"recipe.attn": ["SDPA", "absent"]}, None),
        ({"recipe.attn": "s*"}, None),
        ({"recipe.attn": ["sdpa", "spda"]}, "recipe.attn: no source gives 'spda'; known are eager, sdpa"),
        ({"recipe.attn": "flash*"}, "recipe.attn: no source gives 'flash*'; known are eager, sdpa"),
        ({"recipe.kernels": "ligar"}, "recipe.kernels: no source gives 'ligar'; known are liger, unsloth"),
        ({"recipe.optimizer": "anything"}, None),
        ({"any(change.area)": "cod"}, "change.area: no source gives 'cod'; known are code, weights"),
        ({"model.family": "glm5"}, "model.family: no source gives 'glm5'; known are glm4"),
        ({"model.type": ["glm", "chatglm", "glm4v"]}, None),
        ({"model.type": "glm9"}, "model.type: no source gives 'glm9'; known are chatglm, glm, glm4v"),
        ({"any(gpu.name)": ["*t4*", "*rtx 40*"]}, None),
        ({"any(gpu.name)": "*rtx 41*"}, "gpu.name: no source gives '*rtx 41*'; known are RTX 4000, Tesla T4"),
        ({"env.NCCL_DEBUG": "info"}, None),
        ({"env.NCCL_DEBUGS": "info"}, "env.NCCL_DEBUGS: no source reads this variable"),
    ],
)
def test_conditions(complaints, condition, complaint):
    sound = {"recipe.optimizer": "adam"}
    assert complaints(affects=[condition]) == ([f"affects 1: {complaint}"] if complaint else [])
    found = complaints(affects=[sound], unless=[sound, condition])
    assert found == ([f"unless 2: {complaint}"] if complaint else [])


def test_assumptions_fixes_and_tests(complaints):
    found = complaints(
        affects=[{"recipe.attn": "sdpa"}],
        assume=[{"key": "recipe.attn", "value": "flash", "because": "x"}],
        fix=[{"safety": "review", "set": {"recipe.attn": "eagre", "recipe.color": 1}, "summary": {"en": "x"}}],
        tests=[
            {"no": {"recipe.attn": "sdap", "model.type": "of a model that no table has"}},
            {"no": {"change": [{"area": "weihgts"}], "recipe.kernels": ["liger", "ligar"]}},
        ],
    )
    attention, kernels = "known are eager, sdpa", "known are liger, unsloth"
    assert found == [
        f"assume 1: recipe.attn: no source gives 'flash'; {attention}",
        f"fix 1: set: recipe.attn: no source gives 'eagre'; {attention}",
        "fix 1: set: recipe.color is not a registered fact",
        f"test 1: recipe.attn: no source gives 'sdap'; {attention}",
        "test 2: change.area: no source gives 'weihgts'; known are code, weights",
        f"test 2: recipe.kernels: no source gives 'ligar'; {kernels}",
    ]
