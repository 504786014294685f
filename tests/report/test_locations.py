"""Where the user would edit: a file and its line, when a fact was read there."""

from __future__ import annotations

import pytest
from known import given, judged

from envdoctor.facts import place_of
from envdoctor.judge import Location
from envdoctor.knowledge import load_matrix

GLM4 = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf"}


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        ("train.yaml:14", ("train.yaml", 14)),
        ("configs/sft:2/train.yaml:3", ("configs/sft:2/train.yaml", 3)),
        ("--set", None),
        ("facts.json", None),
        ("cxx-standards: 2", None),
        (":14", None),
        ("NVML", None),
    ],
)
def test_a_place_is_a_file_with_a_line(origin: str, place: tuple[str, int] | None) -> None:
    assert place_of(origin) == place


def test_a_finding_names_each_place_that_its_facts_come_from_once() -> None:
    matrix = load_matrix()
    facts = given(GLM4, matrix.registry)
    facts.update(given({"recipe.batch_size": 2, "recipe.attn": "sdpa"}, matrix.registry, origin="train.yaml:14"))
    (finding,) = [found for found in judged(facts, matrix).findings if found.id == "torch-2-5-0-glm4-batch-nan"]
    assert finding.locations == (Location("train.yaml", 14),)
