"""Nothing that an environment, a model or a rule file says can control a terminal, in any format."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from poisoned_reports import BAD, compared, poisoned

from envdoctor.facts import FactSet, Records, Registry, Unknown
from envdoctor.observe import Target
from envdoctor.report import FORMATS, Page, Report, facts_text, load, render

hostile = st.text(max_size=30).map(lambda text: BAD + text) | st.text(max_size=60)


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
        for detail in ("stat", "usual", "all"):
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
    for name in FORMATS:
        for one in (poison, compared(poison, bad)):
            assert printable(load(name)(one, "zh"))
    assert all(text.isprintable() for text in strings(json.loads(load("json")(compared(poison, bad)))))


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
    assert printable(facts_text.render_issue(facts, registry))
    for public in (False, True):
        text = facts_text.render_json(facts, registry, public=public)
        assert text.isascii()
        assert all(string.isprintable() for string in strings(json.loads(text)))


def test_the_poisoned_report_still_fits_its_schema(report: Report, validate) -> None:  # type: ignore[no-untyped-def]
    poison = poisoned(report, BAD + "x", lang_text="y")
    for one in (poison, compared(poison, BAD + "x")):
        document = json.loads(load("json")(one))
        document["findings"] = document["rules"] = []  # their enums come from the loader of rules
        validate("report", document)
