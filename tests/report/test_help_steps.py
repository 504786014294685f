"""What would make how many more rules decidable."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.judge import NotChecked
from envdoctor.report import Report, render

HELP = {
    **{"give --model ORG/NAME": "model", "give --recipe FILE": "recipe", "give --model DIR with": "files"},
    **{"give --code PATH": "code", "run it on the GPU": "machine"},
}
NEEDS = ("model", "recipe", "model_files", "code", "machine")


def steps(report: Report, *rules: NotChecked) -> list[str]:
    """The advices of a report on rules that could not be checked: ``model+recipe 2``."""
    open_ = report.changed(findings=(), facts=FactSet(), not_checked=rules)
    lines = re.findall(r"^ +(?:then )?(\d+) more[^:]*: (.*)$", render(open_, verbosity=1), re.MULTILINE)
    return ["+".join(name for text, name in HELP.items() if text in line) + f" {count}" for count, line in lines]


def rules(needs: list[tuple[str, ...]]) -> list[NotChecked]:
    return [NotChecked(f"r{number}", "error", {"k": "x"}, need) for number, need in enumerate(needs)]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([("recipe",), ("model",), ("model",)], ["model 2", "recipe 1"]),  # what decides most comes first
        # a rule that needs two kinds of help is counted with the second
        ([("model",), ("model", "recipe"), ("recipe", "model")], ["model 1", "recipe 2"]),
        ([("recipe", "model")], ["model+recipe 1"]),
        ([()], []),
    ],
)
def test_the_help_that_decides_most_comes_first(report: Report, needs: list, expected: list[str]) -> None:
    assert steps(report, *rules(needs)) == expected
    assert steps(report, NotChecked("x", "error", {}, ("model",), reason="unreadable")) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.sets(st.sampled_from(NEEDS), min_size=1).map(tuple), max_size=40))
def test_every_rule_is_counted_once(report: Report, needs: list[tuple[str, ...]]) -> None:
    told = [step.partition(" ") for step in steps(report, *rules(needs))]
    assert sum(int(count) for *_, count in told) == len(needs)
    named = [name for names, *_ in told for name in names.split("+")]
    assert len(named) == len(set(named))


def test_advice_names_facts_that_nobody_has_given(report: Report) -> None:
    rule = NotChecked("r", "error", {"recipe.attn": "not given"}, ("recipe", "machine"))
    given = {"gpu": Records(({"cc": "9.0"},)), "recipe.batch_size": 2, "recipe.dtype": "bf16"}
    known = FactSet(Fact(key, value, "--set", "given") for key, value in given.items())
    text = render(report.changed(not_checked=(rule,), facts=known), "en", verbosity=1)
    assert "--target-driver VERSION" in text and "--set recipe.attn=sdpa" in text
    assert "gpu.cc=" not in text and "recipe.batch_size=" not in text and "recipe.dtype=" not in text
