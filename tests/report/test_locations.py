"""Where the user would edit: a file and its line, when a fact was read there."""

import json
from copy import copy

import pytest
from known import given, judged

from envdoctor.facts import Origin, restored, written
from envdoctor.matrix import load_matrix

GLM4 = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf"}


def vars_of(place: Origin) -> tuple[str, int, int | None]:
    return place.path, place.line, place.cell


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.yaml:14", Origin("train.yaml", 14)),
        ("configs/sft:2/train.yaml:3", Origin("configs/sft:2/train.yaml", 3)),
        ("eval.ipynb:cell 3:2", Origin("eval.ipynb", 2, 3)),
        ("--set", None),
        ("facts.json", None),
        ("cxx-standards: 2", None),
        (":14", None),
        ("NVML", None),
    ],
)
def test_a_place_is_a_file_with_a_line(text: str, place: Origin | None) -> None:
    read = Origin.read(text)
    assert read == text and (vars_of(read) == vars_of(place) if place else not isinstance(read, Origin))


@pytest.mark.parametrize("place", [Origin("train.yaml", 14), Origin("eval.ipynb", 2, 3)])
def test_a_place_stays_one_in_the_cache_and_in_a_copy(place: Origin) -> None:
    (kept,) = restored(json.loads(json.dumps(written((place,)))))
    assert vars_of(kept) == vars_of(copy(place)) == vars_of(place)


def test_a_finding_names_each_place_that_its_facts_come_from_once() -> None:
    matrix = load_matrix()
    facts = given(GLM4, matrix.registry)
    facts.update(
        given({"recipe.batch_size": 2, "recipe.attn": "sdpa"}, matrix.registry, origin=Origin("train.yaml", 14))
    )
    (finding,) = [found for found in judged(facts, matrix).findings if found.id == "torch-2-5-0-glm4-batch-nan"]
    assert finding.locations == (Origin("train.yaml", 14),)
