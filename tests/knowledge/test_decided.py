"""Every claim about recipes that was collected is a rule, or it is said why not."""

from __future__ import annotations

from pathlib import Path

from envdoctor.knowledge.matrix import load_source
from envdoctor.knowledge.toml_files import load_toml

ROOT = Path(__file__).resolve().parents[2]


def test_each_claim_is_decided():
    decided = load_toml(ROOT / "matrices" / "decided" / "recipe-claims.toml")["decided"]
    matrix = load_source(ROOT / "matrices", source="test")
    assert len(decided) == 104
    for claim, decision in decided.items():
        assert decision.keys() in ({"rules"}, {"nothing"}), claim
        assert all(matrix.find(rule) is not None for rule in decision.get("rules", ["use-keyword-refused"])), claim
        assert decision.get("rules") or len(decision["nothing"].split()) > 5, claim
