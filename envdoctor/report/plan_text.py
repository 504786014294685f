"""The plan as text: one set of changes for all errors, told once at the end of the findings."""

from __future__ import annotations

from envdoctor.judge.finding import Finding, Plan
from envdoctor.report.layout import command_lines
from envdoctor.report.page import Page
from envdoctor.report.report import Report


def adds_to_fixes(report: Report) -> bool:
    """Whether the plan says more than the fixes of the findings do: one error with a fix of its own needs none."""
    plan = report.plan
    if plan is None:
        return False
    cleared = _named(report, plan.clears)
    alone = any(fix.withheld is None and (fix.commands or fix.set) for finding in cleared for fix in finding.fixes)
    return plan.note is not None or len(cleared) > 1 or not alone


def plan_lines(report: Report, plan: Plan, page: Page, *, windows: bool = False) -> list[str]:
    """What is changed, what it ends, and the commands. ``windows``: commands stay on one line."""
    left = _named(report, plan.leaves)
    lines = page.lines(plan_ends(report, plan, page), "", "  ")
    for key, value in plan.set.items():
        lines += page.lines(page.say("{name}: {value}", name=page.name(key), value=page.value(key, value)), "  ")
    for command in plan.commands:
        lines += command_lines(command, None if windows else page.width, "  ", "  ")
    if plan.note is not None:
        lines += page.lines(page.sentence(plan.note), "  ")
    elif left:
        lines += page.lines(page.say("It leaves: {findings}", findings=page.separated(_ids(left))), "  ")
    return lines


def plan_ends(report: Report, plan: Plan, page: Page) -> str:
    """What the plan ends, in one line."""
    cleared = _named(report, plan.clears)
    ends = page.say("Plan: these changes together end {n} finding(s) and bring no error", len(cleared))
    return page.say("{name}: {value}", name=ends, value=page.separated(_ids(cleared)))


def _named(report: Report, fingerprints: tuple[str, ...]) -> list[Finding]:
    return [finding for finding in report.findings if finding.fingerprint in fingerprints]


def _ids(findings: list[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.id for finding in findings))
