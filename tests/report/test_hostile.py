"""Nothing that an environment, a model or a rule file says can control a terminal, in any format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Fact, Records, Unknown
from envdoctor.hub.snapshot import Unread
from envdoctor.judge.finding import (
    Assumption,
    Evidence,
    Finding,
    FoundFact,
    Location,
    NotChecked,
    OfferedFix,
    Plan,
    Text,
)
from envdoctor.observe.target import Target
from envdoctor.probe.section import ProbeChild, ProbeGroup, ProbeSection
from envdoctor.report import facts_json, facts_text, formats, issue_block
from envdoctor.report.page import Page
from envdoctor.report.report import Notice, Report
from envdoctor.report.revision_section import Cost, Introduced, Moved, RevisionSection, Side
from envdoctor.report.revision_text import DETAILS
from envdoctor.report.terminal_report import render
from envdoctor.revision.comparer import Change
from envdoctor.text.clean import clean

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
        title=Text(bad, lang_text),
        assumed=(Assumption(bad, bad, Text(bad, lang_text)),),
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
        findings=(finding, finding._replace(ignored=bad), finding._replace(superseded_by=bad)),
        not_checked=(NotChecked(bad, "error", {bad: bad}, (bad,)), NotChecked(bad, "", {}, reason=bad)),
        exit_code=3,
        notices=(Notice("warning", bad),),
        plan=Plan((bad,), (bad,), {bad: bad}, {bad: bad}, (bad,), (bad,), (bad,), bad),
        probe=section_of_experiments(bad),
        probe_commands={bad: bad},
    )


def section_of_experiments(bad: str) -> ProbeSection:
    child: ProbeChild = {
        **{"name": bad, "title": bad, "device": bad, "dtype": bad, "backend": bad, "options": {bad: [bad]}},
        **{"counts": {bad: 1, "fail": 2}, "ending": bad, "detail": bad, "seconds": 1.0, "cpu_seconds": None},
        **{"peak_mib": 2.0, "import_s": bad},
    }
    group: ProbeGroup = {
        **{"name": bad, "device": bad, "dtype": bad, "backend": bad, "model": bad, "verdict": bad, "signature": bad},
        **{"wrong": 2, "cases": 3, "tensors": [bad], "ratio": float("nan"), "nodes": [bad], "masks": [bad]},
        **{"stresses": [bad], "lengths": [bad], "tile": bad, "lse": [0.0, 1.0], "example": bad, "why": bad},
    }
    return {
        **{"suite": bad, "device": bad, "in_use": None, "in_use_unknown": bad, "unusable": None, "jobs": 1, "cases": 3},
        **{"environment": {"build": {"torch": bad}, "device": {"name": bad, "cudnn": bad, bad: {bad: [bad]}}}},
        **{"seconds": 1.0, "peak_mib": 2.0, "probes": [child], "groups": [group], "wrong": 2},
        **{"skipped": [{"name": bad, "why": bad, "cases": 1}], "wrong_cases": [{bad: bad}], "info": [{bad: [bad]}]},
        "reproducer": [bad, f"    {bad}"],
    }


def compared(report: Report, bad: str) -> Report:
    """The poisoned report as one of a comparison of two revisions."""
    change = Change("code", bad, bad, bad, bad, bad, 2, bad)
    amounts = {side: {"dtype": {bad: (1, 2, 3)}, "module": {bad: (1, 2, 3)}} for side in ("old", "new")}
    section = RevisionSection(
        weights="identical",
        weights_equal=bad,
        old=Side(bad, bad, bad),
        new=Side(bad, bad, bad),
        changes=(change,),
        unread=(Unread(bad, bad),),
        equal=(bad, bad),
        amounts=amounts,
        introduced=(Introduced(clean(bad), bad),),
        cost=Cost(3, 1000),
        tensors=(change,),
        moved=Moved(bad, bad),
        pin=bad,
    )
    return replace(report, revision=section)


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for key, cell in value.items() for text in [key, *strings(cell)]]
    if isinstance(value, list):
        return [text for cell in value for text in strings(cell)]
    return [value] if isinstance(value, str) else []


def contents(value: object) -> object:
    """Everything that the fields of a report hold, as lists and dictionaries."""
    if isinstance(value, FactSet):
        return [contents(tuple(fact)) for fact in value]
    if isinstance(value, (Registry, Unknown)):
        return value.reason if isinstance(value, Unknown) else None
    if is_dataclass(value):
        return [contents(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return {str(key): contents(cell) for key, cell in value.items()}
    if isinstance(value, (list, tuple, Records)):
        return [contents(cell) for cell in value]
    return value


fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


@fixtures
@given(hostile, hostile)
def test_the_terminal_gets_printable_text_only(report: Report, bad: str, other: str) -> None:
    poison = poisoned(report, bad, lang_text=other)
    for lang in ("en", "zh"):
        for verbosity in (-1, 0, 1):
            for width in (None, 80):
                assert printable(render(poison, lang, width=width, verbosity=verbosity))
        for detail in DETAILS:
            assert printable(render(compared(poison, bad), lang, width=80, detail=detail))


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
        for one in (poison, compared(poison, bad)):
            assert printable(formats.load(name)(one, "zh"))
    assert all(text.isprintable() for text in strings(json.loads(formats.load("json")(compared(poison, bad)))))


@fixtures
@given(hostile)
def test_a_report_is_clean_however_it_was_made(report: Report, bad: str) -> None:
    """So that no format has to think of it."""
    poison = compared(poisoned(report, bad, lang_text=bad), bad)
    assert all(text.isprintable() for text in strings(contents(poison)))


@fixtures
@given(hostile)
def test_facts_hold_printable_strings_only(report: Report, registry: Registry, bad: str) -> None:
    facts = poisoned(report, bad, lang_text="").facts
    assert printable(facts_text.render(facts, Page(registry, "zh", 80, 1), Target(bad, bad, bad)))
    assert printable(issue_block.render(facts, registry))
    for public in (False, True):
        text = facts_json.render(facts, registry, public=public)
        assert text.isascii()
        assert all(string.isprintable() for string in strings(json.loads(text)))


def test_the_poisoned_report_still_fits_its_schema(report: Report, validate) -> None:  # type: ignore[no-untyped-def]
    poison = poisoned(report, BAD + "x", lang_text="y")
    for one in (poison, compared(poison, BAD + "x")):
        document = json.loads(formats.load("json")(one))
        document["findings"] = document["rules"] = []  # their enums come from the loader of rules
        validate("report", document)
