"""What follows from facts that are as last time is not computed again, and is the same."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from observing import shipped
from rooms import derivation

from envdoctor.facts import Fact, FactSet, Kept, Records
from envdoctor.judge.derivations import derivations, derive

conflict = derivation("conflict")
python_minor = derivation("python_minor")

DISTS: tuple[dict[str, Any], ...] = tuple(
    {"name": name, "version": version, "active": True, "kind": "dist-info", "requires": requires}
    for name, version, requires in (("peft", "0.17.0", ("torch>=9",)), ("torch", "2.5.0", ()))
)


class Compiled:
    """The shipped matrix, as an installed envdoctor has it."""

    compiled = True

    def __getattr__(self, name: str) -> Any:
        return getattr(shipped(), name)


def counted(computed: list[str], name: str, compute: Callable[..., Any], *given: Any) -> Any:
    computed.append(name)
    return compute(*given)


@pytest.fixture
def derived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, str], list[str]]]:
    """Derive with a cache: the facts by key, and the derivations that were computed."""

    def run(
        *more: Fact, name: str = "12345678-env.json", home: Path | None = tmp_path
    ) -> tuple[dict[str, str], list[str]]:
        kept = [
            Fact("dist", Records(DISTS), "metadata", "environment"),
            Fact("python.version", "3.11.7", "", "environment"),
        ]
        facts = FactSet([*kept, Fact("pkg.torch", "2.5.0", "", "environment")])
        facts.kept = Kept(name, {fact.key: fact for fact in kept}) if name else None
        facts.update(more)
        computed: list[str] = []
        with monkeypatch.context() as patch:
            for one in derivations():
                patch.setattr(one, "compute", partial(counted, computed, one.name, one.compute))
            derive(facts, Compiled(), str(home) if home else None)  # type: ignore[arg-type]
        return {fact.key: repr(fact) for fact in facts}, computed

    return run


def test_the_second_run_computes_nothing(derived: Callable[..., Any]) -> None:
    first, computed = derived()
    assert conflict.name in computed
    assert "peft" in first["conflict"]
    assert derived() == (first, [])


def test_another_fact_is_computed_with_and_what_follows_from_it(derived: Callable[..., Any]) -> None:
    derived()
    facts, computed = derived(Fact("python.version", "3.9.1", "--set", "given"))
    assert python_minor.name in computed
    assert "'3.9'" in facts["python.minor"]
    assert conflict.name in computed  # markers ask for python.minor
    assert derived(Fact("python.version", "3.9.1", "--set", "given"))[1] == []


def test_a_given_fact_stands_before_what_is_remembered(derived: Callable[..., Any]) -> None:
    first, _ = derived()
    given = Fact("python.minor", "3.8", "--set", "given")
    facts, computed = derived(given)
    assert facts["python.minor"] == repr(given) != first["python.minor"]
    assert conflict.name in computed


def test_a_range_is_remembered_as_one(derived: Callable[..., Any]) -> None:
    asked = Fact("gpu", Records(({"name": "A100"},)), "--target-gpu", "given")
    first, _ = derived(asked)
    assert "Range('only known to be 40 or 80')" in first["gpu"]
    assert derived(asked) == (first, [])


def test_a_fact_that_is_no_more_is_noticed(derived: Callable[..., Any]) -> None:
    with_driver, _ = derived(Fact("driver.version", "550.54", "", "machine"))
    without, computed = derived()
    assert computed
    assert "driver.version" not in without
    assert derived(Fact("driver.version", "550.54", "", "machine")) == (with_driver, [])


def test_another_environment_or_none_remembers_nothing(derived: Callable[..., Any], tmp_path: Path) -> None:
    first, computed = derived()
    assert derived(name="87654321-env.json")[1] == computed
    assert derived(name="")[1] == computed
    assert derived(home=None)[1] == computed
    for entry in (tmp_path / "derived").iterdir():
        entry.write_bytes(entry.read_bytes()[:-1])
    assert derived() == (first, computed)
