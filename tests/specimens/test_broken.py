"""Broken environments: the true cause is named, and nothing else is called an error."""

import pytest
from environments import Store
from judging import judge, told
from specimens import SPECIMENS, Specimen, build_specimen

from envdoctor.report import render


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.id)
def test_the_cause_is_named_and_nothing_else_is_an_error(specimen: Specimen, tmp_path, store: Store, matrix):
    built = build_specimen(specimen, tmp_path, store)
    report = judge(built, matrix, specimen.assignments())
    assert told(report, "error") == specimen.expected("error")
    assert told(report, "warning") == specimen.expected("warning")
    assert report.exit_code == bool(specimen.expected("error"))
    if not specimen.pending:
        assert told(report, "error", "warning", "note")


def test_what_was_found_is_told_in_words_and_once(tmp_path, store: Store, matrix):
    (specimen,) = [one for one in SPECIMENS if one.id == "compiled-part-for-another-python"]
    report = judge(build_specimen(specimen, tmp_path, store), matrix, specimen.assignments())
    lines = render(report).splitlines()
    at = lines.index("  regex 2026.9.29 is built for CPython 3.10 and cannot be imported here")
    assert lines[at + 1].startswith("  fix    install it again")
    assert any(line.startswith("  why    Its WHEEL file says cp310-cp310-manylinux2014_x86_64:") for line in lines[at:])
    assert "not what runs here" not in "".join(lines)  # the same, told with less certainty
    assert "package regex" in render(report, verbosity=1)
