"""What stops a class, with the releases of the other package that fit all that the class asks of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from observing import shipped
from rooms import computing
from tables import rows

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


@rows("change constraint")
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


@rows("packages about wanted")
def test_versions_alone_tell_what_a_release_demands(
    packages: dict[str, Value], about: str, wanted: dict[str, Value] | None
) -> None:
    found = derived({f"pkg.{name}": version for name, version in {**STACK, **packages}.items()})
    told = [item for item in found if item["provider"] == about]
    assert [{name: item[name] for name in wanted or ()} for item in told] == ([wanted] if wanted else [])
    assert len(told) == len(found) or about == "peft"
    if "transformers" in packages:
        assert str(told[0]["consumer_constraint"]).startswith("transformers>=")


LOSS, LOG = "transformers.Trainer.compute_loss", "transformers.Trainer.log"


@rows("package version transformers wanted", tuples=True)
def test_versions_alone_tell_which_methods_no_longer_take_the_calls_of_a_base_class(
    package: str, version: str, transformers: str, wanted: dict[str, tuple[str, str]]
) -> None:
    found = derived({f"pkg.{package}": version, "pkg.transformers": transformers})
    overrides = [item for item in found if item["kind"] == "override"]
    told = {item["name"]: (item["reach"], item["stops"]) for item in overrides if item["name"] in (LOSS, LOG)}
    assert told == wanted
    bounds = {LOSS: "<4.46", LOG: "<4.46" if version == "0.11.4" else "<4.47"}
    assert all(str(item["constraint"]).endswith(bounds.get(str(item["name"]), "")) for item in overrides)


@rows("stage trainer told")
def test_a_recipe_makes_no_trainer_of_another_stage_or_framework(
    stage: str, trainer: dict[str, Any], told: list[str]
) -> None:
    found = derived({"pkg.trl": "0.11.4", "pkg.transformers": "4.51.2", "recipe.stage": stage, **trainer})
    assert {item["name"] for item in found if item["kind"] == "override"} & {LOSS, LOG} == set(told)
