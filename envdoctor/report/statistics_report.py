"""The report as counts: how many findings of which rule, and how many of them fail the run."""

from __future__ import annotations

from envdoctor.report.closing import counts_line
from envdoctor.report.layout import pad
from envdoctor.report.page import Page
from envdoctor.report.report import Report

__all__ = ["render"]


def render(report: Report, lang: str = "en") -> str:
    """A line a rule, in the order of its findings: number, severity, effect, id, and how many are at the gate."""
    page = Page(report.registry, lang)
    lines, shown = [], report.shown()
    for rule in report.rules():
        found = [finding for finding in shown if finding.id == rule.id]
        if found:
            line = f"{len(found):>6}  {pad(rule.severity, 8)} {pad(rule.effect, 14)} {rule.id}"
            at_gate = sum(finding.gate for finding in found)
            lines.append(page.bracket(line, page.say("{n} at the gate", n=at_gate) if at_gate else ""))
    return "\n".join([*lines, counts_line(report, page)]) + "\n"
