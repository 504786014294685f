"""What stops a class, with the releases of the other package that fit all that the class asks of it."""

from __future__ import annotations

from typing import Any

import pytest
from observing import shipped
from rooms import derivation

from envdoctor.facts import ABSENT, Records, Value

compute = derivation("broken_link").compute


def broken(*links: dict[str, Any], conflicts: tuple[dict[str, Value], ...] = ()) -> list[dict[str, Value]]:
    """``broken_link`` of sentence-transformers 3.0.1 beside transformers 5.23.0."""
    both = {"consumer": "sentence-transformers", "consumer_version": "3.0.1", "provider_version": "5.23.0"}
    rest = {"provider": "transformers", "module": "transformers", "wanted": ABSENT, "place": "x:1", "stops": "x.Tuner"}
    known: dict[str, Value] = {
        "link": Records(tuple({**both, **rest, "reach": "always", **link} for link in links)),
        "link_read": Records(({"package": "sentence-transformers"}, {"package": "transformers"})),
        "conflict": Records(conflicts),
        "pkg.transformers": "5.23.0",
        "pkg.sentence-transformers": "3.0.1",
    }
    found = compute(lambda key: known.get(key, ABSENT), shipped())["broken_link"].value
    assert isinstance(found, Records)
    return [dict(item) for item in found]


KEYWORD = {"kind": "keyword", "name": "transformers.Trainer", "keyword": "tokenizer", "text": ABSENT}


def override(method: str, call: str, *parameters: str) -> dict[str, Any]:
    name = f"transformers.Trainer.{method}"
    return {"kind": "override", "name": name, "keyword": ABSENT, "text": call, "parameters": parameters}


def test_the_releases_that_fit() -> None:
    (item,) = broken(KEYWORD)
    assert (item["constraint"], item["consumer_constraint"]) == ("transformers<5.0", ABSENT)


def test_all_that_a_package_asks_counts_as_far_as_any_release_fits() -> None:
    loss = override("compute_loss", "2 num_items_in_batch=", "model", "inputs", "return_outputs=")
    never = override("_load_from_checkpoint", "2", "checkpoint_path")
    first, second, third = broken(KEYWORD, loss, never)
    assert first["constraint"] == second["constraint"] == "transformers<4.46"
    assert second["text"] == "compute_loss(_, _, num_items_in_batch=_)"
    assert third["constraint"] is ABSENT


@pytest.mark.parametrize(
    "change", [{"provider": "unheard-of"}, {"provider_version": ABSENT}, {"name": "transformers.X"}]
)
def test_releases_that_nobody_knows(change: dict[str, Any]) -> None:
    (item,) = broken({**KEYWORD, **change})
    assert item["constraint"] is ABSENT


def test_what_the_consumer_requires_counts_where_no_ledger_knows_the_provider() -> None:
    taken = {"kind": "name", "name": "starlette.middleware.body_limit", "provider": "starlette", "keyword": ABSENT}
    conflict = {"package": "starlette", "required_by": ("gradio (<2.0)", "fastapi (>=1.6)"), "wanted": "starlette>=1.6"}
    askers = broken({**taken, "consumer": "fastapi"}, {**taken, "consumer": "trl"}, conflicts=(conflict,))
    assert [item["constraint"] for item in askers] == ["starlette>=1.6", ABSENT]


def test_the_releases_that_have_a_name_are_known_where_what_the_consumer_takes_is_not() -> None:
    both = {"consumer": "unheard-of", "consumer_version": "0.42.1", "provider": "peft", "provider_version": "0.9.0"}
    name = {"kind": "name", "module": "peft.helpers", "name": "peft.helpers.disable_input_dtype_casting"}
    (item,) = broken({**both, **name, "keyword": ABSENT})
    assert (item["constraint"], item["consumer_constraint"]) == ("peft>=0.15", ABSENT)


def by_versions(**packages: Value) -> list[dict[str, Value]]:
    """``broken_link`` where nothing is known but versions; packages by their names with underscores."""
    known = {f"pkg.{name.replace('_', '-')}": version for name, version in packages.items()}
    found = compute(lambda key: known.get(key, ABSENT), shipped())["broken_link"].value
    assert isinstance(found, Records)
    return [dict(item) for item in found]


STACK: dict[str, Value] = {
    **{
        "huggingface_hub": "0.36.2",
        "tokenizers": "0.22.2",
        "safetensors": "0.6.2",
        "torch": "2.13.0",
        "numpy": "2.2.6",
    },
    **{
        "packaging": "25.0",
        "tqdm": "4.67.1",
        "filelock": "3.20.0",
        "pyyaml": "6.0.3",
        "regex": "2025.11.3",
        "requests": "2.32.5",
    },
}


def test_versions_alone_tell_what_a_release_demands_with_the_releases_that_have_it() -> None:
    (item,) = by_versions(**{**STACK, "transformers": "4.53.3"})
    assert (item["kind"], item["name"], item["stops"]) == ("demand", "tokenizers>=0.21,<0.22", "import transformers")
    assert item["constraint"] == "tokenizers>=0.21,<0.22"
    assert str(item["consumer_constraint"]).startswith("transformers>=")
    assert by_versions(**{**STACK, "transformers": "4.57.6"}) == []


def test_versions_alone_tell_what_depends_on_the_version_of_the_other() -> None:
    """diffusers demands a peft from 0.17 on, where the one beside it is not so old that it does without."""
    stack = {**STACK, "transformers": "4.57.6", "diffusers": "0.35.2", "accelerate": "1.10.1", "pillow": "12.0.0"}
    demanded = [item["name"] for item in by_versions(**stack, peft="0.12.0") if item["provider"] == "peft"]
    assert demanded == ["peft>=0.17.0"]
    assert not [item for item in by_versions(**stack, peft="0.17.1") if item["provider"] == "peft"]


def test_versions_alone_tell_what_is_not_installed() -> None:
    without = {name: version for name, version in STACK.items() if name != "tokenizers"}
    (item,) = by_versions(**without, transformers="4.57.6")
    assert (item["provider"], item["provider_version"], item["constraint"]) == ("tokenizers", ABSENT, "tokenizers")


def test_what_stops_no_further_statement_is_not_told() -> None:
    stack = {**STACK, "transformers": "4.57.6", "accelerate": "0.22.0", "peft": "0.17.1"}
    told = [item["stops"] for item in by_versions(**stack) if item["consumer"] == "peft"]
    assert told == ["import peft"]
