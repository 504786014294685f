"""The report as JUnit XML, for Jenkins' strict schema and GitLab's reader.

A case for each rule that was checked, so that a dashboard shows trends: what fails the run failed, another finding
passed with its text, what was ignored was skipped. ``not-checked`` is one skipped case for all rules that could not be
checked. The case ``run`` is the run itself: there is always one case, and GitLab tells cases apart by their names
alone.
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
    said = first_line(report, page)
    said += [f"{label}: {text}" for label, text in (*unjudged(report, page), *beyond(report, page))]
    said += [f"{notice.level}: {page.sentence(notice.text)}" for notice in report.notices]
    case = _case(suite, name, "run")
    if report.status != "complete":
        why = page.say("the check could not be finished")
        SubElement(case, "error", type="incomplete", message=why).text = "\n".join(said)
    elif said:
        SubElement(case, "system-out").text = "\n".join(said)
    by_rule: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_rule.setdefault(finding.id, []).append(finding)
    for rule, findings in by_rule.items():
        _judged(_case(suite, name, rule), findings, page)
    open_ = []
    for entry in report.not_checked:
        if entry.id not in by_rule:
            reason = "; ".join(f"{key}: {page.sentence(why)}" for key, why in entry.missing.items())
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


def _judged(case: Element, findings: Sequence[Finding], page: Page) -> None:
    failing = [finding for finding in findings if finding.gate]
    told = [finding for finding in findings if finding.ignored is None and finding.superseded_by is None]
    text = "\n\n".join(finding_text(finding, page) for finding in failing or told)[:_LONGEST]
    if failing:
        SubElement(case, "failure", type=failing[0].severity, message=page.message(failing[0])).text = text
    elif told:
        SubElement(case, "system-out").text = text
    else:
        ignored, twin = findings[0].ignored, findings[0].superseded_by
        reason = (
            page.say("ignored: {reason}", reason=ignored) if ignored else page.say("same cause as {rule}", rule=twin)
        )
        SubElement(case, "skipped", message=reason)
