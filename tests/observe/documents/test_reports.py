"""Pasted reports: each fixture holds the facts that a person would read in it, `=====`, and the text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from envdoctor.facts.values import Absent, Records, Unknown
from envdoctor.observe.documents.reports.report_file import report_facts

FOLDER = Path(__file__).resolve().parents[3] / "fixtures/reports"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
#: Those drawn from issues that the reader was not written with; each says where its facts stand.
HELD_OUT = tuple(name for name in NAMES if name.startswith("issue-"))


@cache
def expected(name):
    said = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[0]
    return dict(line.split(" = ", 1) for line in said.splitlines() if not line.startswith("#"))


@pytest.fixture(scope="module")
def found(matrix):
    """Every fact of a fixture, spelled as the fixtures spell them: GPUs as NAME*COUNT:GiB, ? where more may be."""

    @cache
    def go(name):
        text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("=====\n")[2]
        return {fact.key: spelled(fact.value) for fact in report_facts(text, matrix, "report").facts}

    return go


def spelled(value):
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Absent):
        return "absent"
    if isinstance(value, Records):
        first = value.items[0]
        memory = f":{first['memory_gib']}" if "memory_gib" in first else ""
        return f"{first.get('name', '')}*{len(value)}{memory}{'?' if value.incomplete else ''}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_is_read_is_wrong(found, name):
    assert {key: value for key, value in found(name).items() if expected(name).get(key) != value} == {}


@pytest.mark.parametrize("names", [NAMES, HELD_OUT], ids=["all", "held-out"])
def test_nearly_everything_is_read(found, names):
    wanted = [(name, key) for name in names for key in expected(name)]
    missed = [(name, key) for name, key in wanted if key not in found(name)]
    print(f"{len(wanted) - len(missed)} of {len(wanted)} facts of {len(names)} reports; missed: {missed}")
    assert len(wanted) > 100 and len(missed) <= 0.05 * len(wanted), missed
