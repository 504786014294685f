"""Beside ``uv pip check`` and ``pip check``: nothing that they report is missed, and the README says what each said."""

import os
from pathlib import Path

import pytest
from judging import judge
from peers import Complaint, base_interpreter, told_by_pip, told_by_uv
from specimens import SPECIMENS, build_specimen
from table import HEAD, envdoctor_says, missing_rows, row, rows_of

from envdoctor.facts import Records
from envdoctor.report import Report

README = Path(__file__).with_name("README.md")


def test_the_readme_has_every_specimen_with_what_envdoctor_says():
    text = README.read_text(encoding="utf-8")
    rows = rows_of(text)
    assert text.startswith(HEAD)
    assert missing_rows(rows) == set()
    for specimen in SPECIMENS:
        assert rows[specimen.id][1:3] == [specimen.cause, envdoctor_says(specimen)], specimen.id


def is_told(complaint: Complaint, report: Report) -> bool:
    """Whether a finding is about the package of the complaint, and for requirements, whether its asker is known too."""
    package = complaint.package
    conflict = report.facts.value("conflict")
    assert isinstance(conflict, Records)
    if complaint.kind in ("missing", "conflict"):
        wanted = [item for item in conflict if (item["package"], item["kind"]) == (package, complaint.kind)]
        askers = {str(asker).partition(" ")[0] for item in wanted for asker in item["required_by"]}  # type: ignore[union-attr]
        if complaint.asker not in askers and f"pkg.{package}" not in _unreadable(report):
            return False
    return any(package in finding.item.values() or f"pkg.{package}" in finding.subjects for finding in report.findings)


_TELLS_NOTHING = ("no-metadata", "no-version", "invalid-name", "unreadable")


def _unreadable(report: Report) -> set[str]:
    """Packages whose metadata is gone or tells nothing: what asks for them is no second cause."""
    problems = report.facts.value("metadata_problem")
    assert isinstance(problems, Records)
    return {f"pkg.{item['name']}" for item in problems if item["kind"] in _TELLS_NOTHING}


@pytest.mark.slow
def test_nothing_that_uv_or_pip_report_is_missed_and_the_readme_is_current(tmp_path, store, matrix):
    interpreter = base_interpreter()
    if interpreter is None:
        pytest.skip("the environments are of Python 3.11")
    lines, missed = [], []
    for specimen in SPECIMENS:
        home = tmp_path / specimen.id
        if not specimen.is_virtual:
            lines.append(row(specimen, None, None))
            continue
        built = build_specimen(specimen, home, store, interpreter)
        report = judge(built, matrix, specimen.assignments())
        uv, pip = told_by_uv(built), told_by_pip(built)
        if pip is None:
            pytest.skip("pip is not installed")
        # pip check follows PYTHONPATH with its own packages on it; uv looks at the environment alone.
        if not specimen.pending:
            missed += [(specimen.id, complaint) for complaint in {*uv, *pip} if not is_told(complaint, report)]
        lines.append(row(specimen, uv, pip))
    assert missed == []
    text = HEAD + "\n".join(lines) + "\n"
    if os.environ.get("WRITE_README"):
        README.write_text(text, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == text
