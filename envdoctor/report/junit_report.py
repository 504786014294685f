"""The report as JUnit XML, for Jenkins' strict schema and GitLab's reader.

A case for each rule that was checked, so that a dashboard shows trends: a finding at the gate is a failure, another
finding passes with its text, an ignored one is skipped. ``not-checked`` is one skipped case for all rules that could
not be checked. The case ``run`` is the run itself: there is always one case, and GitLab tells cases apart by their
names alone.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from envdoctor.judge.finding import Finding
from envdoctor.report.closing import beyond, first_line, unjudged
from envdoctor.report.findings import finding_text
from envdoctor.report.page import Page
from envdoctor.report.report import Report

#: Jenkins keeps 100,000 characters of a failing case.
_LONGEST = 100_000


def render(report: Report, lang: str = "en") -> str:
    """Return one test suite; texts are in the language, names are not."""
    page = Page(report.registry, lang)
    name = f"envdoctor.{report.command}"
    suite = Element("testsuite", name=name)
    lines = first_line(report, page)
    lines += [f"{label}: {text}" for label, text in (*unjudged(report, page), *beyond(report, page))]
    lines += [f"{notice.level}: {page.sentence(notice.text)}" for notice in report.notices]
    case = _case(suite, name, "run")
    if report.status != "complete":
        cause = page.say("the check could not be finished")
        SubElement(case, "error", type="incomplete", message=cause).text = "\n".join(lines)
    elif lines:
        SubElement(case, "system-out").text = "\n".join(lines)
    by_rule: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_rule.setdefault(finding.id, []).append(finding)
    for rule, findings in by_rule.items():
        _fill_case(_case(suite, name, rule), findings, page)
    open_ = []
    for entry in report.not_checked:
        if entry.id not in by_rule:
            reason = "; ".join(f"{key}: {page.sentence(cause)}" for key, cause in entry.missing.items())
            open_.append(f"{entry.id}: {page.sentence(entry.reason) if entry.reason else reason}")
    if open_:
        message = page.say("{n} rule(s) could not be checked", len(open_))
        SubElement(_case(suite, name, "not-checked"), "skipped", message=message).text = "\n".join(open_)[:_LONGEST]
    for rule in report.passed:
        _case(suite, name, rule)
    for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(sum(1 for _ in suite.iter(tag))))
    indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(suite, encoding="unicode") + "\n"


def _case(suite: Element, classname: str, name: str) -> Element:
    return SubElement(suite, "testcase", classname=classname, name=name)


def _fill_case(case: Element, findings: Sequence[Finding], page: Page) -> None:
    failing = [finding for finding in findings if finding.gate]
    shown = [finding for finding in findings if finding.ignored is None and finding.superseded_by is None]
    text = "\n\n".join(finding_text(finding, page) for finding in failing or shown)[:_LONGEST]
    if failing:
        SubElement(case, "failure", type=failing[0].severity, message=page.message(failing[0])).text = text
    elif shown:
        SubElement(case, "system-out").text = text
    else:
        ignored, twin = findings[0].ignored, findings[0].superseded_by
        reason = (
            page.say("ignored: {reason}", reason=ignored) if ignored else page.say("same cause as {rule}", rule=twin)
        )
        SubElement(case, "skipped", message=reason)
