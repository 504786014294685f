"""What stops a class, with the releases of the other package that fit all that the class asks of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from observing import shipped
from rooms import computing

from envdoctor.facts import ABSENT, Records, Value

compute = computing("broken_link")


def derived(known: Mapping[str, Value]) -> list[dict[str, Value]]:
    found = compute(lambda key: known.get(key, ABSENT), shipped())["broken_link"].value
    assert isinstance(found, Records)
    return [dict(item) for item in found]


def broken(*links: dict[str, Any], conflicts: tuple[dict[str, Value], ...] = ()) -> list[dict[str, Value]]:
    """``broken_link`` of sentence-transformers 3.0.1 beside transformers 5.23.0."""
    both = {"consumer": "sentence-transformers", "consumer_version": "3.0.1", "provider_version": "5.23.0"}
    rest = {"provider": "transformers", "module": "transformers", "wanted": ABSENT, "place": "x:1", "stops": "x.Tuner"}
    return derived(
        {
            "link": Records(tuple({**both, **rest, "reach": "always", **link} for link in links)),
            "link_read": Records(({"package": "sentence-transformers"}, {"package": "transformers"})),
            "conflict": Records(conflicts),
            "pkg.transformers": "5.23.0",
            "pkg.sentence-transformers": "3.0.1",
        }
    )


KEYWORD = {"kind": "keyword", "name": "transformers.Trainer", "keyword": "tokenizer", "text": ABSENT}


def override(method: str, call: str, *parameters: str) -> dict[str, Any]:
    name = f"transformers.Trainer.{method}"
    return {"kind": "override", "name": name, "keyword": ABSENT, "text": call, "parameters": parameters}


def test_all_that_a_package_asks_counts_as_far_as_any_release_fits() -> None:
    loss = override("compute_loss", "2 num_items_in_batch=", "model", "inputs", "return_outputs=")
    never = override("_load_from_checkpoint", "2", "checkpoint_path")
    first, second, third = broken(KEYWORD, loss, never)
    assert first["constraint"] == second["constraint"] == "transformers<4.46"
    assert second["text"] == "compute_loss(_, _, num_items_in_batch=_)"
    assert third["constraint"] is ABSENT


#: Between packages of which no ledger knows what the consumer takes.
HELPER = {"kind": "name", "module": "peft.helpers", "name": "peft.helpers.disable_input_dtype_casting"}
HELPER |= {"consumer": "unheard-of", "consumer_version": "0.42.1", "provider": "peft", "provider_version": "0.9.0"}


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({}, "transformers<5.0"),
        ({"provider": "unheard-of"}, ABSENT),
        ({"provider_version": ABSENT}, ABSENT),
        ({"name": "transformers.X"}, ABSENT),
        ({**HELPER, "keyword": ABSENT}, "peft>=0.15"),
    ],
)
def test_the_releases_that_fit(change: dict[str, Any], constraint: Value) -> None:
    (item,) = broken({**KEYWORD, **change})
    assert (item["constraint"], item["consumer_constraint"]) == (constraint, ABSENT)


@pytest.mark.parametrize(("version", "constraint"), [("0.16.0", "peft<0.15"), ("0.13.0", ABSENT)])
def test_other_releases_of_the_consumer_are_told_only_where_its_own_takes_too_much(version: str, constraint: Value):
    link = {"kind": "name", "module": "accelerate", "name": "accelerate.x", "provider": "accelerate", "keyword": ABSENT}
    beside = {"consumer": "peft", "consumer_version": version, "provider_version": "0.22.0"}
    (item,) = broken({**link, **beside})
    assert item["consumer_constraint"] == constraint


def test_what_the_consumer_requires_counts_where_no_ledger_knows_the_provider() -> None:
    taken = {"kind": "name", "name": "starlette.middleware.body_limit", "provider": "starlette", "keyword": ABSENT}
    conflict = {"package": "starlette", "required_by": ("gradio (<2.0)", "fastapi (>=1.6)"), "wanted": "starlette>=1.6"}
    askers = broken({**taken, "consumer": "fastapi"}, {**taken, "consumer": "trl"}, conflicts=(conflict,))
    assert [item["constraint"] for item in askers] == ["starlette>=1.6", ABSENT]


#: What transformers, and what is beside it here, cannot be imported without.
STACK = {
    **{"huggingface-hub": "0.36.2", "tokenizers": "0.22.2", "safetensors": "0.6.2", "torch": "2.13.0"},
    **{"numpy": "2.2.6", "packaging": "25.0", "tqdm": "4.67.1", "filelock": "3.20.0", "pyyaml": "6.0.3"},
    **{"regex": "2025.11.3", "requests": "2.32.5", "transformers": "4.57.6"},
}
DIFFUSERS = {"diffusers": "0.35.2", "accelerate": "1.10.1", "pillow": "12.0.0"}


@pytest.mark.parametrize(
    ("packages", "about", "wanted"),
    [
        (
            {"transformers": "4.53.3"},
            "tokenizers",
            {"kind": "demand", "name": "tokenizers>=0.21,<0.22", "stops": "import transformers"}
            | {"constraint": "tokenizers>=0.21,<0.22"},
        ),
        ({}, "tokenizers", None),
        # diffusers demands a peft from 0.17 on, where the one beside it is not so old that it does without
        ({**DIFFUSERS, "peft": "0.12.0"}, "peft", {"name": "peft>=0.17.0"}),
        ({**DIFFUSERS, "peft": "0.17.1"}, "peft", None),
        ({"tokenizers": ABSENT}, "tokenizers", {"provider_version": ABSENT, "constraint": "tokenizers"}),
        # what stops no further statement is not told
        ({"accelerate": "0.22.0", "peft": "0.17.1"}, "accelerate", {"stops": "import peft", "consumer": "peft"}),
    ],
)
def test_versions_alone_tell_what_a_release_demands(
    packages: dict[str, Value], about: str, wanted: dict[str, Value] | None
) -> None:
    found = derived({f"pkg.{name}": version for name, version in {**STACK, **packages}.items()})
    told = [item for item in found if item["provider"] == about]
    assert [{name: item[name] for name in wanted or ()} for item in told] == ([wanted] if wanted else [])
    assert len(told) == len(found) or about == "peft"
    if "transformers" in packages:
        assert str(told[0]["consumer_constraint"]).startswith("transformers>=")


TRAINERS = "trl.DPOTrainer, trl.RewardTrainer"
LOSS, LOG = "transformers.Trainer.compute_loss", "transformers.Trainer.log"


@pytest.mark.parametrize(
    ("package", "version", "transformers", "wanted"),
    [
        ("trl", "0.11.4", "4.51.2", {LOSS: ("sometimes", TRAINERS), LOG: ("sometimes", "trl.DPOTrainer")}),
        ("trl", "0.11.4", "4.45.2", {}),
        ("trl", "0.12.1", "4.47.1", {LOG: ("sometimes", "trl.DPOTrainer")}),
        ("trl", "0.12.1", "4.46.3", {}),
        ("trl", "0.13.0", "4.47.1", {}),
        # between two releases that were read and do not agree
        ("trl", "0.11.4", "4.46.0", {}),
        (
            "sentence-transformers",
            "3.2.1",
            "4.46.3",
            {LOSS: ("sometimes", "sentence_transformers.SentenceTransformerTrainer")},
        ),
    ],
)
def test_versions_alone_tell_which_methods_no_longer_take_the_calls_of_a_base_class(
    package: str, version: str, transformers: str, wanted: dict[str, tuple[str, str]]
) -> None:
    found = derived({f"pkg.{package}": version, "pkg.transformers": transformers})
    overrides = [item for item in found if item["kind"] == "override"]
    told = {item["name"]: (item["reach"], item["stops"]) for item in overrides if item["name"] in (LOSS, LOG)}
    assert told == wanted
    bounds = {LOSS: "<4.46", LOG: "<4.46" if version == "0.11.4" else "<4.47"}
    assert all(str(item["constraint"]).endswith(bounds.get(str(item["name"]), "")) for item in overrides)


@pytest.mark.parametrize(
    ("stage", "trainer", "told"),
    [
        ("sft", {}, set()),
        ("dpo", {}, {LOSS, LOG}),
        ("dpo", {"recipe.trainer": "trl"}, {LOSS, LOG}),
        ("rm", {}, {LOSS}),
        # llamafactory 0.9.3: CustomDPOTrainer(DPOTrainer) takes them as **kwargs, and stage rm makes no trainer of trl
        ("dpo", {"recipe.trainer": "transformers"}, set()),
        ("rm", {"recipe.trainer": "transformers"}, set()),
    ],
)
def test_a_recipe_makes_no_trainer_of_another_stage_or_framework(
    stage: str, trainer: dict[str, Any], told: set[str]
) -> None:
    found = derived({"pkg.trl": "0.11.4", "pkg.transformers": "4.51.2", "recipe.stage": stage, **trainer})
    assert {item["name"] for item in found if item["kind"] == "override"} & {LOSS, LOG} == told
