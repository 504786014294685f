"""Which interpreter experiments, traces and the processes of a job may run in."""

from __future__ import annotations

import pytest

from envdoctor.app import Gathered
from envdoctor.facts import Fact, FactSet
from envdoctor.observe import Target


@pytest.mark.parametrize(
    ("kind", "started"),
    [("venv", True), ("conda", True), *((one, False) for one in ("path", "root", "facts", "report"))],
)
def test_nothing_of_what_is_only_read_is_started(kind: str, started: bool) -> None:
    facts = FactSet()
    facts.add(Fact("python.executable", "/there/bin/python", "", "environment"))
    assert Gathered(facts, Target(kind, "there", "")).interpreter == ("/there/bin/python" if started else None)


def test_an_interpreter_that_is_not_known_is_none() -> None:
    assert Gathered(FactSet(), Target("venv", "there", "")).interpreter is None
