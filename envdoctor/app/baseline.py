"""A baseline: the findings that a project has today and means to live with, so that only new ones fail its runs."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.whole_file import write_whole
from envdoctor.judge.finding import SEVERITIES, Known, baseline_state, stale
from envdoctor.report.report import Report
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import NOTHING, Message

SCHEMA = "envdoctor.baseline/1"
_LARGEST = 16 << 20


def read_baseline(path: Path) -> tuple[Known, ...]:
    """Return the findings of the file. Raises :class:`UsageProblem`: an unreadable gate does not stand open."""
    try:
        document = json.loads(Files().whole(str(path), _LARGEST))
    except OSError as error:
        hint = NOTHING if path.exists() else Message("; --write-baseline writes one")
        raise UsageProblem("{}: cannot be read: {}{}", path, because_of(error), hint) from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem("{}: not JSON: {}", path, error) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageProblem('{}: "schema": "{}" is expected; --write-baseline writes it', path, SCHEMA)
    entries = document.get("findings")
    if not isinstance(entries, list):
        raise UsageProblem("{}: findings: a list is expected", path)
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries))


def _entry(path: Path, number: int, entry: Any) -> Known:
    match {"item": {}, **entry} if isinstance(entry, dict) else None:
        case {"id": str(name), "item": dict(item), "severity": str(severity)} if severity in SEVERITIES:
            if all(isinstance(value, str) for value in item.values()):
                return Known(name, item, severity)
    raise UsageProblem("{}: findings[{}]: id, item (a table of texts) and severity are expected", path, number)


def write_baseline(path: Path, report: Report, before: tuple[Known, ...] | None) -> list[Known]:
    """Write the findings that the project accepts from now on, and return them. Without a baseline so far, these are
    all findings that are not ignored; with one, its findings that still stand: an update never accepts a new finding.
    Raises :class:`JobError`, also for an incomplete run."""
    if report.status != "complete":
        raise JobError("{} was not written because an incomplete run may lack findings", path)
    if before is None:
        kept = [Known(case.id, case.item, case.severity) for case in report.findings if case.ignored is None]
    else:
        ended = stale(before, report.findings, report.passed)
        kept = [case for case in before if case not in ended]
    entries = [{"id": case.id, "item": dict(case.item), "severity": case.severity} for case in kept]
    entries.sort(key=lambda entry: (entry["id"], sorted(entry["item"].items())))  # type: ignore[attr-defined]
    write_whole(path, json.dumps({"schema": SCHEMA, "findings": entries}, indent=1) + "\n")
    return kept


def accepted(report: Report, baseline: Collection[Known]) -> Report:
    """Return the report as the next run with the baseline just written gives it: nothing in it fails the run."""
    return report.changed(
        findings=tuple(case._replace(baseline=baseline_state(case, baseline), gate=False) for case in report.findings),
        exit_code=0,
        targets=tuple(target._replace(exit_code=0) for target in report.targets),
    )
