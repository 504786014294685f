"""Nothing that an environment, a model or a rule file says can control a terminal, in any format."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Fact, Records, Unknown
from envdoctor.judge.finding import (
    Assumption,
    Evidence,
    Finding,
    FoundFact,
    Location,
    NotChecked,
    OfferedFix,
    Text,
)
from envdoctor.report import facts_json, facts_text, formats, issue_block
from envdoctor.report.report import Notice, Report, Target
from envdoctor.report.terminal import render

BAD = "\x1b[2J\x1b]0;x\x07\r\n::error::\u202e\u200b\ud800\x00\x85{}%`"
hostile = st.text(max_size=30).map(lambda text: BAD + text) | st.text(max_size=60)


def poisoned(report: Report, bad: str, *, lang_text: str) -> Report:
    """The report with the text in every place that can come from outside."""
    finding = Finding(
        id=bad,
        status="active",
        severity="error",
        confidence="reported",
        effect="crash",
        message=Text(bad, lang_text),
        why=Text(bad, lang_text),
        subjects=(bad,),
        facts=(FoundFact(bad, bad, bad), FoundFact("pkg." + bad, "absent", bad)),
        fingerprint=bad,
        assumed=(Assumption(bad, bad, bad),),
        caveats=(bad,),
        item={bad: bad, "name": bad},
        locations=(Location(bad, 1),),
        fixes=(
            OfferedFix("constraint", "safe", Text(bad, bad), (bad,), {bad: bad}, {bad: bad}, (bad,)),
            OfferedFix("set", "safe", Text(bad), (bad,), {bad: bad}, {bad: bad}),
            OfferedFix("advice", "manual", Text(bad), withheld=bad),
        ),
        evidence=(Evidence(bad, bad, bad, bad),),
        probe=bad,
        origin=bad,
    )
    facts = FactSet(
        [
            Fact("pkg.torch", bad, bad, "environment"),
            Fact("pkg." + bad, bad, bad, "environment"),
            Fact("python.version", bad, bad, "environment"),
            Fact("python.implementation", bad, bad, "environment"),
            Fact("os.platform", bad, bad, "machine"),
            Fact("gpu", Records(({"name": bad, "cc": bad, "uuid": bad},), bad), bad, "machine"),
            Fact("driver.version", Unknown(bad), bad, "machine"),
            Fact("model.repo", bad, bad, "model"),
            Fact("model.revision", bad, bad, "model"),
            Fact("model.family", bad, bad, "derived"),
            Fact("model.code_names", (bad, bad), bad, "model"),
            Fact("recipe.method", bad, bad, "recipe"),
            Fact("recipe.attn", bad, bad, "recipe"),
            Fact("env.NCCL_DEBUG", bad, bad, "machine"),
        ]
    )
    return replace(
        report,
        target=Target(bad, bad, bad),
        facts=facts,
        matrix_version=bad,
        matrix_source=bad,
        findings=(finding, replace(finding, ignored=bad), replace(finding, superseded_by=bad)),
        not_checked=(NotChecked(bad, "error", {bad: bad}, (bad,)), NotChecked(bad, "", {}, reason=bad)),
        status="incomplete",
        notices=(Notice("warning", bad),),
        sections={"probe_commands": {bad: bad}, bad: [bad, {bad: bad}]},
    )


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, cell in value.items() for text in [key, *strings(cell)]]
    if isinstance(value, list):
        return [text for cell in value for text in strings(cell)]
    return [value] if isinstance(value, str) else []


fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


@fixtures
@given(hostile, hostile)
def test_the_terminal_gets_printable_text_only(report: Report, bad: str, other: str) -> None:
    poison = poisoned(report, bad, lang_text=other)
    for lang in ("en", "zh"):
        for verbosity in (-1, 0, 1):
            for width in (None, 80):
                assert printable(render(poison, width=width, verbosity=verbosity, lang=lang))


@fixtures
@given(hostile)
def test_no_text_can_begin_a_line_of_its_own(report: Report, bad: str) -> None:
    text = render(poisoned(report, f"a\n::error::{bad}\r::error::", lang_text="x"), width=None, verbosity=1)
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]


@fixtures
@given(hostile, hostile)
def test_every_other_format_holds_printable_strings_only(report: Report, bad: str, other: str) -> None:
    poison = poisoned(report, bad, lang_text=other)
    for name in formats.names():
        assert printable(formats.load(name)(poison))
    assert all(text.isprintable() for text in strings(json.loads(formats.load("json")(poison))))


@fixtures
@given(hostile)
def test_facts_hold_printable_strings_only(report: Report, registry: Registry, bad: str) -> None:
    facts = poisoned(report, bad, lang_text="").facts
    assert printable(facts_text.render(facts, registry, Target(bad, bad, bad), width=80, lang="zh", verbosity=1))
    assert printable(issue_block.render(facts, registry))
    for public in (False, True):
        text = facts_json.render(facts, registry, public=public)
        assert text.isascii()
        assert all(string.isprintable() for string in strings(json.loads(text)))


def test_the_poisoned_report_still_fits_its_schema(report: Report, validate) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(formats.load("json")(poisoned(report, BAD + "x", lang_text="y")))
    document["findings"] = document["findings"][:0]  # their enums come from the loader of rules
    validate("report", document)
