"""The report as JSON: versioned, always English, the same bytes for the same run (``schemas/report.schema.json``)."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from envdoctor import __version__
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Unknown
from envdoctor.judge.finding import SEVERITIES, Finding, Text
from envdoctor.report.closing import beyond_of
from envdoctor.report.facts_text import fact_data
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.revision_section import RevisionSection, verdict
from envdoctor.revision.comparer import AREAS

SCHEMA_NAME = "envdoctor.report"
#: Within a major version fields are only added.
SCHEMA_VERSION = "1.8"


def render(report: Report, lang: str = "en") -> str:
    """Return the report as ASCII-only JSON with a final newline, the same in every language."""
    return json.dumps(document(report), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def document(report: Report) -> dict[str, object]:
    """Return the report as JSON data, without times of the run. Lists are never null; what is absent is left out."""
    # The facts that findings rest on; `envdoctor facts` gives the others.
    keys = {fact.key for finding in report.findings for fact in finding.facts}
    keys |= {spec.key for spec in map(report.registry.records_of, keys) if spec is not None}
    used = FactSet(fact for fact in report.facts if fact.key in keys or isinstance(fact.value, Unknown))
    facts = fact_data(report.facts if report.all_facts else used)
    shown = Counter(finding.severity for finding in report.shown())
    plan, ids = report.plan, {finding.fingerprint: finding.id for finding in report.findings}
    prints_of = {"clears": plan.clears, "leaves": plan.leaves} if plan is not None else {}
    changes = {key: [{"id": ids[mark], "fingerprint": mark} for mark in prints] for key, prints in prints_of.items()}
    helps = sorted({name for entry in report.not_checked for name in entry.help})
    texts = report.registry.help_texts
    return {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "tool": {"name": "envdoctor", "version": __version__},
        "command": report.command,
        "matrix": {"version": report.matrix_version, "source": report.matrix_source},
        "target": report.target._asdict(),
        **({"targets": json_data(report.targets)} if report.targets else {}),
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
        "rules": _rules(report.findings),
        "not_checked": [
            {
                **_without(json_data(entry), *(() if entry.severity else ("severity",))),
                "missing": [{"key": key, "reason": reason} for key, reason in entry.missing.items()],
            }
            for entry in sorted(report.not_checked, key=lambda entry: entry.id)
        ],
        "help": {name: texts.get(name, {}).get("en", name) for name in helps},
        "notices": json_data(report.notices),
        "unjudged": list(report.unjudged),
        "beyond": [{name: cell for name, cell in item.items() if isinstance(cell, str)} for item in beyond_of(report)],
        "facts": {
            key: {
                "value": value,  # null is known to be absent
                **_known(origin=facts.origins.get(key), incomplete=facts.incomplete.get(key)),
            }
            for key, value in facts.known.items()
        },
        "complete": sorted(report.facts.complete_prefixes()),
        "unknown_facts": facts.unknown,
        **_known(plan=plan and json_data(plan) | changes),
        "sections": _known(
            revision=report.revision and _revision(report, report.revision),
            probe=report.probe
            and json_data({**report.probe, "groups": [group._asdict() for group in report.probe["groups"]]}),
            data=report.data and json_data(report.data),
            memory=report.memory and json_data(report.memory),
            probe_commands=report.probe_commands or None,
        ),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    assumptions = [guess for guess in finding.assumed if not guess.default]
    guesses = [f"{guess.key} was taken for {guess.value} ({guess.because.en})" for guess in assumptions]
    places = [{"path": place.path, "line": place.line, **_known(cell=place.cell)} for place in finding.locations]
    return {
        **_without(json_data(finding), "title", "title_zh", "origin", "settled"),
        "locations": places,
        "status": finding.status if finding.superseded_by is None else "superseded",
        "caveats": [*guesses, *finding.caveats],
        "fixes": [_without(json_data(fix), "pins") for fix in finding.fixes if fix.withheld is None],
        "withheld_fixes": [_without(json_data(fix), "pins") for fix in finding.fixes if fix.withheld is not None],
        **_known(rule_file=finding.origin or None),
    }


def _rules(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the rules of the findings, in the order of these; ``help_uri`` is the first source on the web."""
    rules: dict[str, dict[str, Any]] = {}
    for finding in findings:
        uri = next((source.url for source in finding.evidence if source.url.startswith("https://")), None)
        about = {"id": finding.id, "title": finding.title, "severity": finding.severity, "effect": finding.effect}
        rules.setdefault(finding.id, json_data(about) | _known(help_uri=uri))
    return list(rules.values())


def _revision(report: Report, section: RevisionSection) -> dict[str, Any]:
    areas = [{"area": area, "changes": sum(change.area == area for change in section.changes)} for area in AREAS]
    changes = [
        json_data(change) | {"state": state, **json_data(_known(effect=section.effect_of(change)))}
        for change, state in section.judged()
    ]
    return {
        "verdict": verdict(section, report.shown(), Page(report.registry)),
        "areas": areas,
        **_without(json_data(section), "weights_equal", "unjudged", "effects", "documents"),
        "changes": changes,
        "introduced": [{"fingerprint": mark, "commit": commit} for mark, commit in section.introduced.items()],
    }


def json_data(value: Any) -> Any:
    """Return the value as JSON data: a class by its fields that are not None, a text in both languages."""
    if hasattr(value, "_asdict"):
        value = _known(**value._asdict())
    elif isinstance(value, (list, tuple)):
        return [json_data(item) for item in value]
    elif isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has no NaN
    if not isinstance(value, Mapping):
        return value
    data: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Text):
            data.update(_known(**{name: item.en, f"{name}_zh": item.zh or None}))
        else:
            data[name] = json_data(item)
    return data


def _without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
