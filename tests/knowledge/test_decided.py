"""Everything that was collected from others is a rule, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.judge.judging import judge
from envdoctor.judge.policy import Policy
from envdoctor.judge.selftest import facts_of
from envdoctor.knowledge.matrix import Matrix, load_source
from envdoctor.knowledge.toml_files import load_toml

ROOT = Path(__file__).resolve().parents[2]
COLLECTED = {"recipe-claims": 104, "incidents": 235}


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_source(ROOT / "matrices", source="test")


@pytest.mark.parametrize("name", COLLECTED)
def test_each_is_decided(name: str, matrix: Matrix):
    decided = load_toml(ROOT / "matrices" / "decided" / f"{name}.toml")["decided"]
    assert len(decided) == COLLECTED[name]
    for one, decision in decided.items():
        assert decision.keys() in ({"rules"}, {"rules", "seen"}, {"nothing"}), one
        assert all(matrix.find(rule) is not None for rule in decision.get("rules", ["use-keyword-refused"])), one
        assert decision.get("rules") or len(decision["nothing"].split()) > 5, one


def test_what_general_rules_cover_they_find(matrix: Matrix):
    decided = load_toml(ROOT / "matrices" / "decided" / "incidents.toml")["decided"]
    rules = matrix.of_scopes("environment")
    for one, decision in decided.items():
        if "seen" in decision:
            found = judge(facts_of({"facts": decision["seen"], "complete": []}, matrix), rules, Policy()).findings
            assert set(decision["rules"]) <= {finding.id for finding in found}, one


def test_every_error_was_read_twice(matrix: Matrix):
    files = sorted((ROOT / "matrices" / "decided").glob("second-reading-*.toml"))
    read = [entry for file in files for entry in load_toml(file).get("rule", [])]
    for entry in read:
        assert {"id", "verdict", "opened", "tried"} <= entry.keys() <= {"id", "verdict", "opened", "tried", "note"}, (
            entry
        )
        known = matrix.retired(entry["id"]) if entry["verdict"] == "withdrawn" else matrix.find(entry["id"])
        assert known is not None and entry["verdict"] in ("holds", "corrected", "withdrawn"), entry["id"]
        assert entry["verdict"] == "holds" or entry.get("note"), entry["id"]
        assert entry["opened"] and all(url.startswith(("https://", "pkg:")) for url in entry["opened"]), entry["id"]
        assert len(entry["tried"].split()) > 3, entry["id"]
    ids = [entry["id"] for entry in read]
    assert sorted(set(ids)) == sorted(ids)
    assert {rule.id for rule in matrix.rules if rule.severity == "error"} <= set(ids)
