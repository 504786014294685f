"""The report for forges and their pipelines: annotations of GitHub, GitLab's Code Quality, JUnit XML and SARIF 2.1.0.

GitHub's runner keeps 10 annotations of a type in a step and 4,096 characters of each (actions/runner:
ExecutionContext.cs); values are escaped as its own toolkit does (actions/toolkit: command.ts).
GitLab: https://docs.gitlab.com/ci/testing/code_quality/.

JUnit, for Jenkins' strict schema and GitLab's reader: a case for each rule that was checked, so that a dashboard shows
trends: a finding at the gate is a failure, another finding passes with its text, an ignored one is skipped.
``not-checked`` is one skipped case for all rules that could not be checked. The case ``run`` is the run itself: there
is always one case, and GitLab tells cases apart by their names alone.

SARIF 2.1.0 (errata 01), within what GitHub's code scanning takes:
https://docs.github.com/en/code-security/code-scanning/troubleshooting-sarif-uploads/results-exceed-limit.
A result without a physical location makes it refuse the whole file; a ``security-severity`` would make every finding a
security alert.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES, Finding
from envdoctor.report.closing import beyond, counts_line, first_line, left_open, unjudged
from envdoctor.report.findings import PROJECT, finding_text, is_known, project_place, unique_fingerprints
from envdoctor.report.page import Page, shortened
from envdoctor.report.report import Report

_MOST_OF_TYPE, _LONGEST_ANNOTATION = 10, 4_096
#: Jenkins keeps 100,000 characters of a failing case.
_LONGEST_CASE = 100_000
#: Results that GitHub shows of one upload, the worst first; characters of a text in a rule.
_MOST_RESULTS, _LONGEST_TEXT = 5_000, 1_024
_TYPES = {"error": "error", "warning": "warning", "note": "notice"}
_SEVERITIES = {"error": "critical", "warning": "major", "note": "info"}
_PRECISION = {"reproduced": "very-high", "upstream": "high", "reported": "medium", "inferred": "low"}
_PROBLEM = {"error": "error", "warning": "warning", "note": "recommendation"}
_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def github(report: Report, lang: str = "en") -> str:
    """Return an annotation for what was not judged or not read, then one for each finding, the worst first; if a kind
    has more than ten, its last one counts the others."""
    page = Page(report.registry, lang)
    shown = report.shown()
    errors = [f"::error::{_data(page.sentence(text))}" for level, text in report.notices if level == "error"]
    errors, open_ = errors[: _MOST_OF_TYPE // 2], list(left_open(report, page))[: _MOST_OF_TYPE // 2]
    lines = errors + [f"::warning title={_property(label)}::{_data(text)}" for label, text in open_]
    room = {"error": _MOST_OF_TYPE - len(errors), "warning": _MOST_OF_TYPE - len(open_)}
    for severity in reversed(SEVERITIES):
        findings = [finding for finding in shown if ("note" if is_known(finding) else finding.severity) == severity]
        most = room.get(severity, _MOST_OF_TYPE)
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
    text = shortened(text, _LONGEST_ANNOTATION)
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def gitlab(report: Report, lang: str = "en") -> str:
    """Return a list of the shown findings. A description begins with ``check_name``, which GitLab does not show."""
    page = Page(report.registry, lang)
    shown = report.shown()
    issues = []
    for finding, fingerprint in zip(shown, unique_fingerprints(shown), strict=True):
        where = project_place(finding) or PROJECT
        mark = f" ({page.say('in the baseline')})" if is_known(finding) else ""
        about = {"description": f"{finding.id}: {page.message(finding)}{mark}", "check_name": finding.id}
        place = {"path": where.path, "lines": {"begin": where.line}}
        severity = _SEVERITIES["note" if mark else finding.severity]
        standing = {"fingerprint": fingerprint, "severity": severity, "location": place}
        issues.append({**about, **standing})
    return json.dumps(issues, ensure_ascii=True, indent=1) + "\n"


def junit(report: Report, lang: str = "en") -> str:
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
        SubElement(_case(suite, name, "not-checked"), "skipped", message=message).text = "\n".join(open_)[
            :_LONGEST_CASE
        ]
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
    text = "\n\n".join(finding_text(finding, page) for finding in failing or shown)[:_LONGEST_CASE]
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


def sarif(report: Report, lang: str = "en") -> str:
    """Return one run with a result for each finding; the ignored ones are suppressed, a rule that could not be checked
    is a notification. Superseded findings are left out."""
    page = Page(report.registry, lang)
    findings = [finding for finding in report.findings if finding.superseded_by is None]
    rules = list(dict.fromkeys(finding.id for finding in findings))
    first = {finding.id: finding for finding in reversed(findings)}
    descriptions = [_rule(first[name], page) for name in rules]
    left_out = len(findings) - _MOST_RESULTS
    notifications = [_notification(level, page.sentence(text)) for level, text in report.notices]
    notifications += [_notification("warning", page.labelled(*part)) for part in left_open(report, page)]
    if left_out > 0:
        notifications.append(_notification("warning", page.say("{n} more finding(s), left out of this file", left_out)))
    for entry in report.not_checked:
        reason = page.sentence(entry.reason or "") or page.say("not checked")
        if entry.missing:
            reason = page.say("not checked: {facts} not known", facts=page.separated(list(entry.missing)))
        notifications.append({**_notification("note", reason), "associatedRule": {"id": entry.id}})
    outcome = {"executionSuccessful": report.status == "complete", "exitCode": report.exit_code}
    run = {
        "tool": {"driver": {"name": "envdoctor", "version": __version__, "rules": descriptions}},
        # GitHub: one upload a tool and category; what stands before the last slash is the category
        "automationDetails": {"id": f"envdoctor/{quote(report.command)}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{**outcome, "toolExecutionNotifications": notifications}],
        "results": _results(findings[:_MOST_RESULTS], rules, page),
    }
    document = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}


def _rule(finding: Finding, page: Page) -> dict[str, Any]:
    title = finding.title.in_language(page.lang) or page.message(finding)
    why = finding.why.in_language(page.lang)
    links = "\n".join(f"- [{source.kind}]({source.url}): {source.shows}" for source in finding.evidence)
    address = next((source.url for source in finding.evidence if source.url.startswith("https://")), None)
    return {
        "id": finding.id,
        "shortDescription": {"text": shortened(title, _LONGEST_TEXT)},
        "fullDescription": {"text": shortened(why or title, _LONGEST_TEXT)},
        "help": {"text": why or title, "markdown": "\n\n".join(filter(None, (why, links))) or title},
        **({"helpUri": quote(address, safe=":/?#[]@!$&'()*+,;=%~")} if address else {}),
        "defaultConfiguration": {"level": finding.severity},
        "properties": {
            "tags": [finding.effect],
            "precision": _PRECISION[finding.confidence],
            "problem.severity": _PROBLEM[finding.severity],
        },
    }


def _results(findings: Sequence[Finding], rules: Sequence[str], page: Page) -> list[dict[str, Any]]:
    index = {name: number for number, name in enumerate(rules)}
    results = []
    for finding, fingerprint in zip(findings, unique_fingerprints(findings), strict=True):
        place = project_place(finding) or PROJECT
        about = [{"fullyQualifiedName": f"{name}:{value}"} for name, value in finding.item.items()]
        file = {"artifactLocation": {"uri": quote(place.path, errors="replace")}, "region": {"startLine": place.line}}
        location = {"physicalLocation": file, **({"logicalLocations": about} if about else {})}
        result: dict[str, Any] = {
            "ruleId": finding.id,
            "ruleIndex": index[finding.id],
            "level": finding.severity,
            "message": {"text": finding_text(finding, page)},
            "locations": [location],
            # GitHub reads the first one only; without it the line of the place would be hashed
            "partialFingerprints": {"primaryLocationLineHash": f"{fingerprint}:1", "envdoctor/v1": fingerprint},
            "properties": {"confidence": finding.confidence, "gate": finding.gate},
        }
        if finding.baseline is not None:
            result["baselineState"] = finding.baseline
        if finding.ignored is not None:
            result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": finding.ignored}]
        results.append(result)
    return results
