"""The report as JSON: versioned, always English, the same bytes for the same run (``schemas/report.schema.json``)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES, Finding, NotChecked, OfferedFix, Text
from envdoctor.report.fact_data import fact_data
from envdoctor.report.page import Page
from envdoctor.report.report import Report, RuleInfo
from envdoctor.report.revision_section import RevisionSection

__all__ = ["SCHEMA_NAME", "SCHEMA_VERSION", "document", "render"]

SCHEMA_NAME = "envdoctor.report"
#: Within a major version fields are only added.
SCHEMA_VERSION = "1.1"


def render(report: Report, lang: str = "en") -> str:
    """The report as ASCII-only JSON with a final newline, the same in every language."""
    return json.dumps(document(report), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def document(report: Report) -> dict[str, object]:
    """The report as JSON data. Lists are never null; what is absent is left out; times of the run are not in it."""
    facts = fact_data(report.facts)
    shown = Counter(finding.severity for finding in report.shown())
    helps = sorted({name for entry in report.not_checked for name in entry.help})
    texts = report.registry.help_texts
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "tool": {"name": "envdoctor", "version": __version__},
        "command": report.command,
        "matrix": {"version": report.matrix_version, "source": report.matrix_source},
        "target": report.target._asdict(),
        "status": report.status,
        "exit_code": report.exit_code,
        "summary": {
            **{severity: shown[severity] for severity in reversed(SEVERITIES)},
            "gate": sum(finding.gate for finding in report.findings),
            "ignored": sum(finding.ignored is not None for finding in report.findings),
            "superseded": sum(finding.superseded_by is not None for finding in report.findings),
            "checked": report.rules_checked,
            "not_checked": len(report.not_checked),
        },
        "findings": [_finding(finding) for finding in report.findings],
        "rules": [_rule(rule) for rule in report.rules()],
        "not_checked": [_not_checked(entry) for entry in sorted(report.not_checked, key=lambda entry: entry.id)],
        "help": {name: texts.get(name, {}).get("en", name) for name in helps},
        "notices": [notice._asdict() for notice in report.notices],
        "facts": {
            key: {
                "value": value,  # null is known to be absent
                **_optional(origin=facts.origins.get(key), incomplete=facts.incomplete.get(key)),
            }
            for key, value in facts.known.items()
        },
        "complete": sorted(report.facts.complete_prefixes()),
        "unknown_facts": facts.unknown,
        "sections": _optional(
            revision=report.revision and _revision(report, report.revision),
            probe=report.probe and _finite(report.probe),
            probe_commands=report.probe_commands or None,
        ),
    }


def _finding(finding: Finding) -> dict[str, object]:
    guesses = [
        f"{taken.key} was taken for {taken.value} ({taken.because.en})"
        for taken in finding.assumed
        if not taken.default
    ]
    return {
        "id": finding.id,
        "status": finding.status,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "effect": finding.effect,
        **_texts("message", finding.message),
        **_texts("why", finding.why),
        "subjects": list(finding.subjects),
        "facts": [fact._asdict() for fact in finding.facts],
        "assumed": [
            {"key": key, "value": value, **_texts("because", because), "default": default}
            for key, value, because, default in finding.assumed
        ],
        "caveats": [*guesses, *finding.caveats],
        "item": dict(finding.item),
        "locations": [_optional(**place._asdict()) for place in finding.locations],
        "fixes": [_fix(fix) for fix in finding.fixes if fix.withheld is None],
        "withheld_fixes": [_fix(fix) for fix in finding.fixes if fix.withheld is not None],
        "evidence": [source._asdict() for source in finding.evidence],
        "fingerprint": finding.fingerprint,
        "gate": finding.gate,
        **_optional(
            probe=finding.probe,
            rule_file=finding.origin or None,
            ignored=finding.ignored,
            superseded_by=finding.superseded_by,
        ),
    }


def _fix(fix: OfferedFix) -> dict[str, object]:
    return {
        "kind": fix.kind,
        "safety": fix.safety,
        **_texts("summary", fix.summary),
        "constraints": list(fix.constraints),
        "set": dict(fix.set),
        "env": dict(fix.env),
        "commands": list(fix.commands),
        **_optional(withheld=fix.withheld),
    }


def _rule(rule: RuleInfo) -> dict[str, object]:
    return {
        "id": rule.id,
        **_texts("title", rule.title),
        "severity": rule.severity,
        "effect": rule.effect,
        **_optional(help_uri=rule.help_uri),
    }


def _not_checked(entry: NotChecked) -> dict[str, object]:
    return {
        "id": entry.id,
        **_optional(severity=entry.severity or None),
        "missing": [{"key": key, "reason": reason} for key, reason in entry.missing.items()],
        "help": list(entry.help),
        **_optional(reason=entry.reason),
    }


def _revision(report: Report, section: RevisionSection) -> dict[str, object]:
    from envdoctor.report.revision_text import verdict
    from envdoctor.revision.change import AREAS

    changes = [_optional(**change._asdict()) for change in section.changes]
    return {
        "verdict": verdict(report, section, Page(report.registry)),
        "weights": section.weights,
        "old": _optional(**section.old._asdict()),
        "new": _optional(**section.new._asdict()),
        "areas": [{"area": area, "changes": sum(change["area"] == area for change in changes)} for area in AREAS],
        "changes": changes,
        "amounts": section.amounts,
        "unread": [part._asdict() for part in section.unread],
        "equal": list(section.equal),
        "introduced": [entry._asdict() for entry in section.introduced],
        "cost": section.cost._asdict(),
        **_optional(
            tensors=section.tensors and [_optional(**change._asdict()) for change in section.tensors],
            moved=section.moved and section.moved._asdict(),
            pin=section.pin,
        ),
    }


def _finite(value: Any) -> Any:
    """JSON data in which the numbers that JSON lacks (NaN) are text."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _texts(name: str, text: Text) -> dict[str, object]:
    return _optional(**{name: text.en, f"{name}_zh": text.zh or None})


def _optional(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
