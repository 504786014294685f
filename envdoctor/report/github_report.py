"""The report as annotations of a GitHub workflow: commands that a step prints.

The runner keeps 10 of a type in a step and 4,096 characters of each (actions/runner: ExecutionContext.cs); values are
escaped as its own toolkit does (actions/toolkit: command.ts).
"""

from envdoctor.judge.finding import SEVERITIES
from envdoctor.report.closing import counts_line, left_open
from envdoctor.report.findings import finding_text, is_known, project_place
from envdoctor.report.page import Page, shortened
from envdoctor.report.report import Report

_MOST, _LONGEST = 10, 4_096
_TYPES = {"error": "error", "warning": "warning", "note": "notice"}


def render(report: Report, lang: str = "en") -> str:
    """Return an annotation for what was not judged or not read, then one for each finding, the worst first; if a kind
    has more than ten, its last one counts the others."""
    page = Page(report.registry, lang)
    shown = report.shown()
    errors = [f"::error::{_data(page.sentence(text))}" for level, text in report.notices if level == "error"]
    errors, open_ = errors[: _MOST // 2], list(left_open(report, page))[: _MOST // 2]
    lines = errors + [f"::warning title={_property(label)}::{_data(text)}" for label, text in open_]
    room = {"error": _MOST - len(errors), "warning": _MOST - len(open_)}
    for severity in reversed(SEVERITIES):
        findings = [finding for finding in shown if ("note" if is_known(finding) else finding.severity) == severity]
        most = room.get(severity, _MOST)
        listed = findings if len(findings) <= most else findings[: most - 1]
        for finding in listed:
            place = project_place(finding)
            properties = {"file": place.path, "line": str(place.line)} if place is not None else {}
            attributes = [f"{key}={_property(value)}" for key, value in {**properties, "title": finding.id}.items()]
            lines.append(f"::{_TYPES[severity]} {','.join(attributes)}::{_data(finding_text(finding, page))}")
        if len(listed) < len(findings):
            lines.append(f"::{_TYPES[severity]}::" + page.say("{n} more finding(s)", len(findings) - len(listed)))
    return "\n".join([*lines, counts_line(report, page)]) + "\n"


def _data(text: str) -> str:
    text = shortened(text, _LONGEST)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
