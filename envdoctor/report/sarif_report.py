"""The report as SARIF 2.1.0 (errata 01), within what GitHub's code scanning takes.

Limits: https://docs.github.com/en/code-security/code-scanning/troubleshooting-sarif-uploads/results-exceed-limit.
A result without a physical location makes it refuse the whole file; a ``security-severity`` would make every finding a
security alert.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from envdoctor import __version__
from envdoctor.judge.finding import Finding
from envdoctor.report.closing import left_open
from envdoctor.report.findings import PROJECT, finding_text, project_place, unique_fingerprints
from envdoctor.report.page import Page, shortened
from envdoctor.report.report import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: Results that GitHub shows of one upload; the worst come first.
_MOST = 5_000
_LONGEST = 1_024
_PRECISION = {"reproduced": "very-high", "upstream": "high", "reported": "medium", "inferred": "low"}
_PROBLEM = {"error": "error", "warning": "warning", "note": "recommendation"}


def render(report: Report, lang: str = "en") -> str:
    """Return one run with a result for each finding; the ignored ones are suppressed, a rule that could not be checked
    is a notification. Superseded findings are left out."""
    page = Page(report.registry, lang)
    findings = [finding for finding in report.findings if finding.superseded_by is None]
    rules = list(dict.fromkeys(finding.id for finding in findings))
    first = {finding.id: finding for finding in reversed(findings)}
    descriptions = [_rule(first[name], page) for name in rules]
    left_out = len(findings) - _MOST
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
        "results": _results(findings[:_MOST], rules, page),
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
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
        "shortDescription": {"text": shortened(title, _LONGEST)},
        "fullDescription": {"text": shortened(why or title, _LONGEST)},
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
