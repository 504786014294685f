"""What a rule file must hold to be evaluated. How well it is written is for the lint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.registry import FactTypeError, Registry, canonical_key, parse_value
from envdoctor.knowledge.conditions import ConditionError, parse_condition
from envdoctor.knowledge.schema import (
    ANY,
    DATE,
    FLAG,
    SYMPTOM,
    TEXT,
    TEXTS,
    Check,
    both,
    either,
    mapping,
    one_of,
    table,
    tables,
    text,
    value,
)
from envdoctor.knowledge.vocabulary import CONFIDENCES, EFFECTS, FIX_KINDS, SEVERITIES, STATUSES

__all__ = ["rule_schema"]

#: ``zh_of`` names the English wording that was translated.
_TRANSLATED = table({"en": TEXT}, {"zh": TEXT, "zh_of": TEXT})
_VERSIONS = value(
    'a table such as { "pkg.torch" = "2.5.1" }',
    lambda given: isinstance(given, Mapping) and given and all(isinstance(item, str) for item in given.values()),
)
_SETTINGS = mapping(TEXT, value("a value", lambda given: not isinstance(given, Mapping)))
_EVIDENCE = table(
    {
        "kind": one_of("issue", "release-notes", "source", "artefact", "docs", "reproduced", "article"),
        "url": TEXT,
        "shows": TEXT,
        "checked": DATE,
    }
)
_TEST = table(
    {"expect": one_of("match", "no", "unknown"), "facts": mapping(TEXT, ANY)}, {"name": TEXT, "complete": TEXTS}
)


def _of_one_kind(fix: Mapping[str, Any]) -> Iterator[str]:
    kinds = [key for key in FIX_KINDS if key in fix]
    if len(kinds) > 1:
        yield f"one of {', '.join(FIX_KINDS)} is expected, not {', '.join(kinds)}"
    constraints = fix.get("constraints", [])
    if fix.get("cuda") and not (len(constraints) == 1 and constraints[0].startswith("torch")):
        yield "cuda: builds are chosen for one constraint on torch"


_FIX = both(
    table(
        {"safety": one_of("safe", "review", "manual"), "summary": _TRANSLATED},
        {"constraints": TEXTS, "cuda": TEXTS, "uninstall": TEXTS, "set": _SETTINGS, "env": _SETTINGS, "command": TEXT},
    ),
    _of_one_kind,
)


def rule_schema(registry: Registry, each: str | None) -> Check:
    """The check of a rule's document. ``each`` is the record list that it names, so that columns may be used."""

    def is_records(name: str) -> bool:
        spec = registry.find(name)
        return spec is not None and spec.type == "records"

    def is_column(name: str) -> bool:
        head, _, column = name.partition(".")
        spec = registry.find(head)  # `probe.device` is a column and a fact of its own
        return head == each and spec is not None and column in spec.columns

    def is_fact(key: str) -> bool:
        return registry.find(key) is not None and key == canonical_key(key) and not key.endswith("*")

    def clause(given: Mapping[str, Any]) -> Iterator[str]:
        if not given:
            yield "an empty clause would always match"
        for key, operand in given.items():
            try:
                parse_condition(registry, key, operand, each)
            except ConditionError as error:
                yield f"{key}: {error}"

    def assumed(entry: Mapping[str, Any]) -> Iterator[str]:
        spec = registry.find(entry["key"])
        try:
            if spec is not None:
                parse_value(spec, entry["value"])
        except FactTypeError as error:
            yield f"value: {error}"

    assume = table(
        {"key": text("a registered fact", is_fact), "value": ANY, "because": either(TEXT, _TRANSLATED)},
        {"default": FLAG},
    )
    spec = registry.find(each) if each is not None else None
    column_names = spec.columns if spec is not None else {}
    columns = both(
        TEXTS,
        value("columns that must agree", bool),
        lambda given: (f"{name!r} is no column of each" for name in given if name not in column_names),
    )
    head = table(
        {
            "status": one_of(*STATUSES),
            "severity": one_of(*SEVERITIES),
            "confidence": one_of(*CONFIDENCES),
            "effect": one_of(*EFFECTS),
            "added": DATE,
            "modified": DATE,
        },
        {
            "fixed_in": _VERSIONS,
            "last_seen": _VERSIONS,
            "open_ended": value("true", lambda given: given is True),
            "title": TEXT,
            "probe": TEXT,
            "engines": value("true", lambda given: given is True),
            "each": text("a registered record list", is_records),
            "supersedes": TEXTS,
            "folds_into": both(
                TEXTS, lambda given: (f"{key!r} is no column of each" for key in given if not is_column(key))
            ),
            "explained_by": mapping(TEXT, columns),
        },
    )
    clauses = tables(clause)
    return table(
        {
            "schema": ANY,
            "rule": head,
            "affects": both(clauses, value("at least one clause", bool)),
            "message": _TRANSLATED,
            "why": _TRANSLATED,
        },
        {
            "unless": clauses,
            "assume": tables(both(assume, assumed)),
            "details": _TRANSLATED,
            "fix": tables(_FIX),
            "evidence": tables(_EVIDENCE),
            "symptom": tables(SYMPTOM),
            "test": tables(_TEST),
        },
    )
