"""One rule as text for ``envdoctor explain``: its claim, conditions, fixes, evidence, history and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envdoctor.judge.messages import text_of
from envdoctor.knowledge.conditions import Condition
from envdoctor.knowledge.rules import Rule
from envdoctor.report.layout import wrap
from envdoctor.text.clean import clean

__all__ = ["render"]

_WIDTH = 80


def render(rule: Rule, texts: Mapping[str, Any], *, lang: str, renamed_from: str | None = None) -> str:
    """The text, at most 80 columns wide where words allow it. Placeholders stay as ``{pkg.torch}``."""
    lines = [f"{rule.severity}[{rule.id}]"]
    if renamed_from:
        lines.append(f"  (formerly {clean(renamed_from)})")
    lines += _paragraph(text_of(texts["message"]).in_language(lang))
    lines += ["", *_paragraph(text_of(texts["why"]).in_language(lang))]
    if texts["details"]:
        for paragraph in text_of(texts["details"]).in_language(lang).split("\n\n"):
            lines += ["", *_paragraph(" ".join(paragraph.split()))]
    lines += ["", f"severity    {rule.severity}", f"confidence  {rule.confidence}", f"effect      {rule.effect}"]
    if rule.status != "active":
        lines.append(f"status      {rule.status}: it never fails a run")
    if rule.probe:
        lines.append(f"probe       {rule.probe}")
    lines += ["", "applies when", *_clauses(rule.affects, rule.each)]
    if rule.unless:
        lines += ["unless", *_clauses(rule.unless, rule.each)]
    for key, value, because, default in rule.assume:
        kind = "default" if default else "guess: lowers the confidence"
        lines += wrap(f"{key} not given: {value} is assumed ({kind}). {because}", _WIDTH, "  ", "    ")
    lines += ["", "fixes", *_fixes(texts["fix"], lang)]
    lines += ["", "evidence", *_evidence(texts["evidence"])]
    lines += ["", "history", *_history(rule, texts)]
    tests = texts["test"]
    counts = {word: sum(1 for test in tests if test["expect"] == word) for word in ("match", "no", "unknown")}
    spelled = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    lines += ["", f"tests       {len(tests)} ({spelled}); run them: envdoctor matrix test {rule.id}"]
    lines += [f"rule file   matrices/{rule.origin}" if not rule.id.startswith("x-") else f"rule file   {rule.origin}"]
    return "\n".join(line[: len(line) - len(line.lstrip())] + clean(line.lstrip(), None) for line in lines)


def _paragraph(text: str) -> list[str]:
    return wrap(text, _WIDTH, "  ", "  ")


def _clauses(clauses: Sequence[Sequence[Condition]], each: str | None) -> Iterator[str]:
    for number, clause in enumerate(clauses):
        if number:
            yield "  or"
        for position, condition in enumerate(clause):
            lead = "    and " if position else "    "
            key = f"{condition.quantifier}({condition.key})" if condition.quantifier else condition.key
            own = each is not None and condition.key.startswith(each + ".")
            key = f"{key} (each {each})" if own else key
            yield from wrap(f"{key}  {_operand(condition)}", _WIDTH, lead, "        ")


def _operand(condition: Condition) -> str:
    return " or ".join(_alternative(alternative) for alternative in condition.alternatives)


def _alternative(alternative: Any) -> str:
    if isinstance(alternative, list):
        return ",".join(operator + operand for operator, operand in alternative)
    if isinstance(alternative, bool):
        return str(alternative).lower()
    return str(alternative)


def _fixes(fixes: Sequence[Mapping[str, Any]], lang: str) -> Iterator[str]:
    if not fixes:
        yield "  none is known"
    for fix in fixes:
        yield from wrap(f"{text_of(fix['summary']).in_language(lang)} ({fix['safety']})", _WIDTH, "  - ", "    ")
        parts = [*fix["constraints"], *(f"{key} = {value}" for key, value in {**fix["set"], **fix["env"]}.items())]
        if fix["command"]:
            parts.append(fix["command"])
        for part in parts:
            yield f"      {part}"


def _evidence(evidence: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for entry in evidence:
        yield f"  {entry['kind']}: {entry['url']}"
        yield from wrap(f"{entry['shows']} (checked {entry['checked']})", _WIDTH, "    ", "    ")


def _history(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    yield f"  added {texts['added']}, last change of its meaning {texts['modified']}"
    bound = texts["bound"]
    for key, version in (bound.get("fixed_in") or {}).items():
        yield f"  fixed in {key.removeprefix('pkg.')} {version}"
    for key, version in (bound.get("last_seen") or {}).items():
        yield f"  last seen in {key.removeprefix('pkg.')} {version}; later releases were not tried"
    if bound.get("open_ended"):
        yield "  no release without it is known"
    if rule.supersedes:
        yield f"  stands for {', '.join(rule.supersedes)} when both apply"
    if rule.folds_into:
        yield "  is folded into a finding that says what these packages do to each other"
