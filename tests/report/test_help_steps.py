"""What would make how many more rules decidable."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.judge import NotChecked
from envdoctor.report import Report, render
from envdoctor.report.closing import help_steps


def open_rules(*needs: tuple[str, ...]) -> tuple[NotChecked, ...]:
    return tuple(NotChecked(f"r{number}", "error", {"k": "x"}, need) for number, need in enumerate(needs))


def test_the_help_that_decides_most_comes_first() -> None:
    assert help_steps(open_rules(("recipe",), ("model",), ("model",))) == [(("model",), 2), (("recipe",), 1)]


def test_a_rule_that_needs_two_kinds_of_help_is_counted_with_the_second() -> None:
    assert help_steps(open_rules(("model",), ("model", "recipe"), ("recipe", "model"))) == [
        (("model",), 1),
        (("recipe",), 2),
    ]


def test_help_that_is_only_good_together_is_named_together() -> None:
    assert help_steps(open_rules(("recipe", "model"))) == [(("model", "recipe"), 1)]


def test_rules_that_no_help_decides_are_not_counted() -> None:
    broken = NotChecked("x", "error", {}, ("model",), reason="unreadable")
    assert help_steps((broken, NotChecked("y", "error", {"k": "x"}))) == []


@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1).map(tuple), max_size=40))
def test_every_rule_is_counted_once(needs: list[tuple[str, ...]]) -> None:
    steps = help_steps(open_rules(*needs))
    assert sum(count for _, count in steps) == len(needs)
    named = [name for names, _ in steps for name in names]
    assert len(named) == len(set(named))


def test_advice_names_facts_that_nobody_has_given(report: Report) -> None:
    open_rules_ = (NotChecked("r", "error", {"recipe.attn": "not given"}, ("recipe", "machine")),)
    known = FactSet(
        [
            Fact("gpu", Records(({"cc": "9.0"},)), "--set", "given"),
            Fact("recipe.batch_size", 2, "--set", "given"),
            Fact("recipe.dtype", "bf16", "--set", "given"),
        ]
    )
    text = render(replace(report, not_checked=open_rules_, facts=known), "en")
    assert "--set driver.version=550.54" in text and "--set recipe.attn=sdpa" in text
    assert "gpu.cc=" not in text and "recipe.batch_size=" not in text and "recipe.dtype=" not in text
