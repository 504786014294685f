"""What a rule file must have beyond being readable: bounds, evidence, wording, translations, ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from envdoctor.knowledge.conditions import bounds
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule, digest, placeholders

__all__ = ["lint_matrix", "lint_rule"]

_LONGEST_MESSAGE = 120
_PROOF = ("issue", "release-notes", "source", "artefact", "reproduced")
_SHELL = re.compile(r"[;&|`<>]|\$\(|\bsudo\b|\brm\b")
_URL = re.compile(r"https://[^\s]+\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


def lint_rule(rule: Rule, matrix: Matrix, *, today: date) -> Iterator[str]:
    """Complaints about one rule, each a clause that names the key."""
    texts = matrix.texts(rule)
    yield from _dates(texts, today)
    yield from _bound(rule, texts)
    yield from _evidence(rule, texts, today)
    yield from _wording(rule, texts, matrix)
    yield from _fixes(texts, matrix)
    for other in rule.supersedes:
        if matrix.find(other) is None:
            yield f"supersedes: there is no rule {other}"


def lint_matrix(matrix: Matrix) -> Iterator[tuple[str, str]]:
    """Complaints about the matrix as a whole, as (file, complaint)."""
    for retired in matrix.retired():
        if matrix.find(retired) is not None:
            yield "retired.toml", f"{retired} is retired and is also a rule: an id is never used again"
    seen: dict[str, str] = {}
    for family in matrix.table("families").get("family", []):
        for kind in family.get("types", []):
            if kind in seen:
                yield "families.toml", f"model type {kind} belongs to {seen[kind]} and to {family['id']}"
            seen[kind] = family["id"]
        for known in family.get("known", []):
            for key in known.get("facts", {}):
                if matrix.registry.find(key) is None:
                    yield "families.toml", f"{family['id']}: {key} is not a registered fact"


def _dates(texts: Mapping[str, Any], today: date) -> Iterator[str]:
    for key in ("added", "modified"):
        day = _day(texts[key])
        if day is None:
            yield f"rule: {key}: a date such as 2026-11-20 is expected"
        elif day > today:
            yield f"rule: {key}: {texts[key]} lies in the future"
    if texts["modified"] < texts["added"]:
        yield "rule: modified lies before added"


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.match(text) else None
    except ValueError:
        return None


def _bound(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    bound = texts["bound"]
    if len(bound) != 1:
        yield "rule: exactly one of fixed_in, last_seen, open_ended is needed"
        return
    compared: dict[str, set[tuple[str, str]]] = {}
    for clause in rule.affects:
        for condition in clause:
            compared.setdefault(condition.key, set()).update(bounds(condition))
    for key, version in (bound.get("fixed_in") or {}).items():
        operators = compared.get(key, set())
        if not operators:
            yield f"rule: fixed_in: {key} is no condition of the rule"
        elif ("<", version) not in operators and not any(operator == "==" for operator, _ in operators):
            yield f"rule: fixed_in: no condition ends below {key} {version}"
    for key, version in (bound.get("last_seen") or {}).items():
        operators = compared.get(key, set())
        if not operators:
            yield f"rule: last_seen: {key} is no condition of the rule"
        elif ("<=", version) not in operators and ("==", version) not in operators:
            yield f"rule: last_seen: no condition ends with {key} {version}"


def _evidence(rule: Rule, texts: Mapping[str, Any], today: date) -> Iterator[str]:
    evidence = texts["evidence"]
    if not evidence:
        yield "evidence: at least one source is needed"
    if rule.severity == "error" and not any(entry["kind"] in _PROOF for entry in evidence):
        yield f"evidence: an error needs one of {', '.join(_PROOF)}"
    for number, entry in enumerate(evidence, 1):
        if not _URL.match(entry["url"]):
            yield f"evidence {number}: url: an https address is expected"
        day = _day(entry["checked"])
        if day is None:
            yield f"evidence {number}: checked: a date such as 2026-11-20 is expected"
        elif day > today:
            yield f"evidence {number}: checked: {entry['checked']} lies in the future"


def _wording(rule: Rule, texts: Mapping[str, Any], matrix: Matrix) -> Iterator[str]:
    known = set(rule.keys()) | {entry[0] for entry in rule.assume}
    for name in ("message", "why"):
        table = texts[name]
        used = placeholders(table["en"])
        for key in sorted(used):
            if matrix.registry.find(key) is None:
                yield f"{name}: {{{key}}} is not a registered fact"
            elif key not in known and not _follows(key, known):
                yield f"{name}: {{{key}}} is not known when the rule applies: no condition uses it"
        chinese = table.get("zh")
        if chinese is not None and placeholders(chinese) != used:
            yield f"{name}: the placeholders of zh and en differ"
        if chinese is not None and table.get("zh_of", digest(table["en"])) != digest(table["en"]):
            yield f'{name}: zh translates an older wording; review it, then set zh_of = "{digest(table["en"])}"'
    message = texts["message"]
    for language in ("en", "zh"):
        text = message.get(language, "")
        if len(text) > _LONGEST_MESSAGE:
            yield f"message: {language} has {len(text)} characters, at most {_LONGEST_MESSAGE} are allowed"
        if text.rstrip().endswith((".", "。")):
            yield f"message: {language}: no full stop at the end"


def _follows(key: str, known: set[str]) -> bool:
    """``model.name`` is known whenever anything of the model is."""
    return key == "model.name" and any(other.startswith("model.") for other in known)


def _fixes(texts: Mapping[str, Any], matrix: Matrix) -> Iterator[str]:
    for number, fix in enumerate(texts["fix"], 1):
        if fix["kind"] == "command" and _SHELL.search(fix["command"] or ""):
            yield f"fix {number}: command: no shell operators, sudo or rm"
        if fix["kind"] == "advice" and fix["safety"] != "manual":
            yield f'fix {number}: advice without anything to apply has safety = "manual"'
        for key in fix["set"]:
            if matrix.registry.find(key) is None:
                yield f"fix {number}: set: {key} is not a registered fact"
        for requirement in fix["constraints"]:
            if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(~=|==|!=|<=|>=|<|>)\s*[0-9]", requirement):
                yield f"fix {number}: constraints: {requirement!r} is not a name with a version specifier"
