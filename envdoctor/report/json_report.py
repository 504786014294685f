"""The report as JSON: versioned, always English, the same bytes for the same run (``schemas/report.schema.json``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES, Finding, NotChecked, OfferedFix, Text
from envdoctor.report.fact_data import fact_data
from envdoctor.report.report import Report
from envdoctor.text.clean import clean, clean_data

__all__ = ["SCHEMA_NAME", "SCHEMA_VERSION", "document", "render"]

SCHEMA_NAME = "envdoctor.report"
#: Within a major version fields are only added.
SCHEMA_VERSION = "1.0"


def render(report: Report) -> str:
    """The report as ASCII-only JSON with a final newline."""
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
        "command": clean(report.command),
        "matrix": {"version": clean(report.matrix_version), "source": clean(report.matrix_source)},
        "target": {
            "kind": clean(report.target.kind),
            "path": clean(report.target.path, None),
            "because": clean(report.target.because),
        },
        "status": clean(report.status),
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
        "not_checked": [_not_checked(entry) for entry in sorted(report.not_checked, key=lambda entry: entry.id)],
        "help": {clean(name): clean(texts.get(name, {}).get("en", name)) for name in helps},
        "notices": [{"level": clean(notice.level), "text": clean(notice.text, 1000)} for notice in report.notices],
        "facts": {
            key: _given(value=value, origin=facts.origins.get(key), incomplete=facts.incomplete.get(key))
            for key, value in facts.known.items()
        },
        "complete": sorted(clean(prefix) for prefix in report.facts.complete_prefixes()),
        "unknown_facts": facts.unknown,
        "sections": clean_data(report.sections),
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": clean(finding.id),
        "status": clean(finding.status),
        "severity": clean(finding.severity),
        "confidence": clean(finding.confidence),
        "effect": clean(finding.effect),
        **_texts("message", finding.message),
        **_texts("why", finding.why),
        "subjects": [clean(subject) for subject in finding.subjects],
        "facts": [
            {"key": clean(fact.key), "value": clean(fact.value, None), "origin": clean(fact.origin)}
            for fact in finding.facts
        ],
        "assumed": [
            {"key": clean(taken.key), "value": clean(taken.value, None), "because": clean(taken.because)}
            for taken in finding.assumed
        ],
        "caveats": [clean(caveat) for caveat in finding.caveats],
        "item": _strings(finding.item),
        "locations": [_optional(path=clean(place.path, None), line=place.line) for place in finding.locations],
        "fixes": [_fix(fix) for fix in finding.fixes if fix.withheld is None],
        "withheld_fixes": [_fix(fix) for fix in finding.fixes if fix.withheld is not None],
        "evidence": [
            {
                "kind": clean(source.kind),
                "url": clean(source.url, None),
                "shows": clean(source.shows),
                "checked": clean(source.checked),
            }
            for source in finding.evidence
        ],
        "fingerprint": clean(finding.fingerprint),
        "gate": finding.gate,
        **_optional(
            probe=_text(finding.probe),
            rule_file=_text(finding.origin or None),
            ignored=_text(finding.ignored),
            superseded_by=_text(finding.superseded_by),
        ),
    }


def _fix(fix: OfferedFix) -> dict[str, object]:
    return {
        "kind": clean(fix.kind),
        "safety": clean(fix.safety),
        **_texts("summary", fix.summary),
        "constraints": [clean(constraint) for constraint in fix.constraints],
        "set": _strings(fix.set),
        "env": _strings(fix.env),
        "commands": [clean(command, None) for command in fix.commands],
        **_optional(withheld=_text(fix.withheld)),
    }


def _not_checked(entry: NotChecked) -> dict[str, object]:
    return {
        "id": clean(entry.id),
        **_optional(severity=_text(entry.severity or None)),
        "missing": [{"key": clean(key), "reason": clean(reason)} for key, reason in entry.missing.items()],
        "help": [clean(name) for name in entry.help],
        **_optional(reason=_text(entry.reason)),
    }


def _texts(name: str, text: Text) -> dict[str, object]:
    return _optional(**{name: clean(text.en, 2000), f"{name}_zh": clean(text.zh, 2000) if text.zh else None})


def _text(text: str | None) -> str | None:
    return None if text is None else clean(text, 1000)


def _strings(values: Mapping[str, str]) -> dict[str, object]:
    return {clean(key): clean(value, None) for key, value in values.items()}


def _optional(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _given(value: object, origin: str | None, incomplete: str | None) -> dict[str, object]:
    """A fact; its ``value`` may be null, which is known to be absent."""
    return {"value": value, **_optional(origin=origin, incomplete=incomplete)}
