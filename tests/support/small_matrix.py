"""A matrix written by hand for one test, so that no test here depends on the shipped rules."""

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from known import given

from envdoctor.facts import FactSet, Registry
from envdoctor.judge.evaluate import RuleOutcome, evaluate
from envdoctor.matrix import Matrix, Rule, load_source, load_toml, parse_rule

MATRICES = Path(__file__).resolve().parents[2] / "matrices"


def rule_document(**parts: Any) -> dict[str, Any]:
    """A whole rule as its TOML document; ``parts`` replace the defaults, those of ``rule`` one by one (None: none)."""
    head = {
        "status": "active",
        "severity": "error",
        "confidence": "upstream",
        "effect": "crash",
        "added": date(2026, 11, 1),
        "modified": date(2026, 11, 1),
        "open_ended": True,
    }
    return {
        "schema": 1,
        "affects": [{"pkg.torch": "==2.5.0"}],
        "message": {"en": "torch {pkg.torch} fails"},
        "why": {"en": "it was built so"},
        **parts,
        "rule": {key: value for key, value in {**head, **parts.get("rule", {})}.items() if value is not None},
    }


def toml(document: Mapping[str, Any]) -> str:
    """The document as TOML."""

    def value(item: Any) -> str:
        if isinstance(item, Mapping):
            return "{ " + ", ".join(f"{json.dumps(key)} = {value(cell)}" for key, cell in item.items()) + " }"
        if isinstance(item, (list, tuple)):
            return "[" + ", ".join(value(cell) for cell in item) + "]"
        if isinstance(item, date):
            return item.isoformat()
        return json.dumps(item)

    return "".join(f"{key} = {value(item)}\n" for key, item in document.items())


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The shipped registry of fact keys."""
    return Registry.from_mapping(load_toml(MATRICES / "facts.toml"))


@pytest.fixture
def rule(registry: Registry) -> Callable[..., Rule]:
    """A rule from parts of its document."""
    return lambda rule_id="some-rule", **parts: parse_rule(rule_id, "rules/x", rule_document(**parts), registry)


@pytest.fixture
def matrix_of(tmp_path: Path) -> Callable[..., Matrix]:
    """A matrix of rules (id → parts of its document), tables and families, and a ledger (name → text of the file)."""

    def build(
        rules: Mapping[str, Mapping[str, Any]] | None = None,
        ledger: Mapping[str, str] | None = None,
        **tables: Mapping[str, Any],
    ) -> Matrix:
        home = Path(mkdtemp(dir=tmp_path))
        (home / "rules").mkdir()
        (home / "tables").mkdir()
        shutil.copy(MATRICES / "facts.toml", home)
        for rule_id, parts in (rules or {}).items():
            (home / "rules" / f"{rule_id}.toml").write_text(toml(rule_document(**parts)), encoding="utf-8")
        (home / "ledger").mkdir()
        for name, text in (ledger or {}).items():
            (home / "ledger" / f"{name}.txt").write_text(text, encoding="utf-8")
        for name, table in tables.items():
            folder = home if name in ("families", "retired") else home / "tables"
            (folder / f"{name.replace('_', '-')}.toml").write_text(toml(table), encoding="utf-8")
        return load_source(home, source="test")

    return build


@pytest.fixture
def facts(registry: Registry) -> Callable[..., FactSet]:
    """Facts from plain values; ``complete`` names prefixes whose unlisted keys are absent."""

    return lambda values, complete=(): given(values, registry, complete)


@pytest.fixture
def outcome(
    rule: Callable[..., Rule], facts: Callable[..., FactSet], registry: Registry
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], RuleOutcome]:
    """What a rule, given by parts of its document, answers for facts."""
    return lambda parts, values: evaluate(rule(**parts), facts(values), registry)
