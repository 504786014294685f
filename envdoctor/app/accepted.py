"""Read and write what a project accepts: a finding with a reason (``envdoctor ignore ID --reason``), and a baseline:
the findings that it has today and means to live with, so that only new ones fail its runs."""

import json
from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Any

from envdoctor.app.configuration import find_configuration, load_configuration
from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.whole_file import write_whole
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.facts.values import spell
from envdoctor.judge.finding import SEVERITIES, Ignore, Known, baseline_state, stale
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.matrix.toml_files import LARGEST, TomlError, parse_toml
from envdoctor.report.report import Report
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import NOTHING, Message, did_you_mean


def write_ignore(entry: Ignore, *, start: Path, config: Path | None) -> Path:
    """Append the entry to the project's configuration and return its path; a new envdoctor.toml when there is none.
    The rest of the file stays as it is. Raises :class:`UsageProblem` and :class:`JobError`."""
    project = start / "pyproject.toml"  # although it says nothing of envdoctor yet
    path = config or find_configuration(start) or (project if project.is_file() else start / "envdoctor.toml")
    before = ""
    table = "tool.envdoctor.ignore" if path.name == "pyproject.toml" else "ignore"
    if path.exists():
        present = load_configuration(path)  # a file that is already wrong is not made worse
        about = (entry.id, dict(entry.where), entry.path)
        holding = (old for old in present.ignores if old.until is None or old.until >= date.today())
        if any((ignore.id, dict(ignore.where), ignore.path) == about for ignore in holding):
            raise UsageProblem("{}: {} is accepted there already; edit the entry to change it", path, entry.id)
        data = Files().whole(str(path), LARGEST)
        before = data.decode()
        if set(parse_toml(data, str(path))) == {"tool"}:
            table = "tool.envdoctor.ignore"
    line_end = "\r\n" if "\r\n" in before else "\n"
    text = _text(table, entry).replace("\n", line_end)
    after = before.rstrip("\r\n") + (line_end * 2 if before.strip() else "") + text
    try:
        parse_toml(after.encode(), str(path))
    except TomlError as error:
        raise UsageProblem("{}: `{}` is written inline there; add the entry by hand", error, table) from None
    write_whole(path, after)
    return path


def demand_match(rule: Rule, key: str, value: str, matrix: Matrix) -> str:
    """Return the value as findings of the rule spell it. Raises :class:`UsageProblem` if no finding can have it."""
    spec = matrix.registry.find(rule.each) if rule.each else None
    keys = {condition.key for clause in rule.affects for condition in clause}
    keys |= {f"{rule.each}.{column}" for column in spec.identity} if spec is not None else set()
    if key not in keys:
        hint = did_you_mean(key, keys, Message("they have {}", ", ".join(sorted(keys))))
        raise UsageProblem("--where {}: findings of {} do not have it; {}", key, rule.id, hint)
    column = matrix.registry.find(key)
    try:
        spelled = spell(parse_value(column, value)) if column is not None else value
    except FactTypeError as error:
        raise UsageProblem("--where {}={}: {}", key, value, error) from None
    if column is not None and column.values and spelled not in column.values:
        hint = did_you_mean(value, column.values, Message("known are {}", ", ".join(column.values)))
        raise UsageProblem("--where {}={}: no finding has that; {}", key, value, hint)
    return spelled


def _text(table: str, entry: Ignore) -> str:
    pairs = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in entry.where.items())
    values = {
        "id": _quoted(entry.id),
        "reason": _quoted(entry.reason),
        "until": entry.until.isoformat() if entry.until is not None else "",
        "until-fixed": "true" if entry.until_fixed else "",
        "where": f"{{ {pairs} }}" if pairs else "",
        "path": _quoted(entry.path) if entry.path is not None else "",
    }
    return "\n".join([f"[[{table}]]", *(f"{key} = {value}" for key, value in values.items() if value), ""])


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, except that TOML wants DEL escaped too.
    # An argument that is not UTF-8 reaches us with lone surrogates, which no file can hold.
    text = text.encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- the baseline -----------------------------------------------------------------------------------------------------

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
    match {"item": {}, "superseded_by": None, **entry} if isinstance(entry, dict) else None:
        case {"id": str(name), "item": dict(item), "severity": str(severity), "superseded_by": str() | None as by}:
            if severity in SEVERITIES and all(isinstance(value, str) for value in item.values()):
                return Known(name, item, severity, by)
    raise UsageProblem("{}: findings[{}]: id, item (a table of texts) and severity are expected", path, number)


def write_baseline(path: Path, report: Report, before: tuple[Known, ...] | None) -> list[Known]:
    """Write the findings that the project accepts from now on, and return them. Without a baseline so far, these are
    all findings that are not ignored; with one, its findings that still stand: an update never accepts a new finding.
    Raises :class:`JobError`, also for an incomplete run."""
    if report.status != "complete":
        raise JobError("{} was not written because an incomplete run may lack findings", path)
    if before is None:
        shown = [case for case in report.findings if case.ignored is None]
        kept = [Known(case.id, case.item, case.severity, case.superseded_by) for case in shown]
    else:
        ended = stale(before, report.findings, report.passed)
        kept = [case for case in before if case not in ended]
    entries = [{key: value for key, value in case._asdict().items() if value is not None} for case in kept]
    entries.sort(key=lambda entry: (entry["id"], sorted(entry["item"].items())))
    write_whole(path, json.dumps({"schema": SCHEMA, "findings": entries}, indent=1) + "\n")
    return kept


def accepted(report: Report, baseline: Collection[Known]) -> Report:
    """Return the report as the next run with the baseline just written gives it: nothing in it fails the run."""
    return report.changed(
        findings=tuple(case._replace(baseline=baseline_state(case, baseline), gate=False) for case in report.findings),
        exit_code=0,
        targets=tuple(target._replace(exit_code=0) for target in report.targets),
    )
