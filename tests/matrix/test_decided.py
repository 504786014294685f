"""Everything that was collected from others is a rule, or it is said why not."""

from pathlib import Path

import pytest

from envdoctor.judge import Policy, facts_of, judge
from envdoctor.matrix import Matrix, load_toml

ROOT = Path(__file__).resolve().parents[2]
COLLECTED = ("recipe-claims", "incidents")


@pytest.mark.parametrize("name", COLLECTED)
def test_each_is_decided(name: str, matrix: Matrix):
    decided = load_toml(ROOT / "matrices" / "decided" / f"{name}.toml")["decided"]
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


def test_a_second_reading_says_what_was_opened_and_tried(matrix: Matrix):
    read = load_toml(ROOT / "matrices" / "decided" / "second-reading.toml")["read"]
    for rule_id, entry in read.items():
        assert matrix.find(rule_id) or matrix.retired(rule_id), rule_id
        assert {"opened", "tried"} <= entry.keys() <= {"opened", "tried", "corrected", "open"}, rule_id
        assert entry["opened"] and all(url.startswith(("https://", "pkg:")) for url in entry["opened"]), rule_id
        assert len(entry["tried"].split()) > 3, rule_id
