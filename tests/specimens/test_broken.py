"""Broken environments: the true cause is named, and nothing else is called an error."""

from __future__ import annotations

import pytest
from environments import Store
from judging import judge, told
from specimens import SPECIMENS, Specimen, build_specimen

from envdoctor.judge import Ignore, Policy
from envdoctor.report import Page
from envdoctor.report.finding_text import finding_lines


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.id)
def test_the_cause_is_named_and_nothing_else_is_an_error(specimen: Specimen, tmp_path, store: Store, matrix):
    built = build_specimen(specimen, tmp_path, store)
    report = judge(built, matrix, specimen.assignments())
    assert told(report, "error") == specimen.expected("error")
    assert told(report, "warning") == specimen.expected("warning")
    assert report.exit_code == bool(specimen.expected("error"))
    if not specimen.pending:
        assert told(report, "error", "warning", "note")


def test_a_deliberate_override_is_ignored_by_its_identity_one_conflict_at_a_time(tmp_path, store, matrix):
    """uv pip check has one switch for all of them; here the other conflict stays."""
    (specimen,) = [one for one in SPECIMENS if one.id == "protobuf-too-old"]
    built = build_specimen(specimen, tmp_path, store)
    metadata = built.site / "sympy-1.14.0.dist-info" / "METADATA"
    text = metadata.read_text().replace("Version: 1.14.0", "Version: 1.12")
    metadata.unlink()
    metadata.write_text(text)
    both = ["requirement-conflict protobuf", "requirement-conflict sympy"]
    assert set(both) <= set(told(judge(built, matrix), "warning"))
    ignore = Ignore("requirement-conflict", "an old tool needs it", where={"conflict.package": "protobuf"})
    report = judge(built, matrix, policy=Policy(fail_on="warning", ignores=(ignore,)))
    assert both[0] not in told(report, "warning")
    assert both[1] in told(report, "warning")
    assert report.exit_code == 1
    accepted = [finding for finding in report.findings if finding.ignored]
    assert [finding.item["package"] for finding in accepted] == ["protobuf"]


def test_what_was_found_is_told_in_words_and_once(tmp_path, store: Store, matrix):
    (specimen,) = [one for one in SPECIMENS if one.id == "compiled-part-for-another-python"]
    report = judge(build_specimen(specimen, tmp_path, store), matrix, specimen.assignments())
    (finding,) = [one for one in report.findings if one.severity == "warning"]
    lines = finding_lines([finding], Page(matrix.registry))
    assert lines[1] == "  regex 2026.9.29 is built for CPython 3.10, which is not what runs here"
    assert lines[2].startswith("  why    Its WHEEL file says cp310-cp310-manylinux2014_x86_64,")
    everything = "\n".join(finding_lines([finding], Page(matrix.registry, verbosity=1)))
    assert "package regex" in everything and "built for CPython 3.10" in everything
