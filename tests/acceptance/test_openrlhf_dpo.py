"""Story 3: GLM-4-9B DPO in OpenRLHF on 8 x A100-80G runs out of memory because flash attention was not switched on."""

from __future__ import annotations

import json
from pathlib import Path

STORY = Path(__file__).resolve().parents[2] / "fixtures" / "environments" / "openrlhf-dpo-glm4.json"
RULE = "openrlhf-glm4-dpo-out-of-memory-without-flash-attention"


def found(run, facts_file, **changes):
    facts = {**json.loads(STORY.read_text())["facts"], **changes}
    result = run("check", "--facts", facts_file(facts), "--format", "json")
    return result.code, {finding["id"]: finding for finding in result.json["findings"]}


def test_the_missing_flash_attention_is_named_with_the_flag_that_switches_it_on(run, facts_file):
    code, findings = found(run, facts_file)
    assert code == 1
    finding = findings[RULE]
    assert finding["effect"] == "oom" and "flash attention" in finding["message"]
    assert "--flash_attn" in finding["fixes"][0]["summary"]
    assert any("OpenRLHF" in entry["url"] for entry in finding["evidence"])


def test_with_flash_attention_on_nothing_is_said(run, facts_file):
    _, findings = found(run, facts_file, **{"recipe.attn": "flash_attention_2"})
    assert RULE not in findings


def test_without_the_length_and_the_method_it_speaks_but_does_not_gate(run, facts_file):
    facts = json.loads(STORY.read_text())["facts"]
    for key in ("recipe.max_length", "recipe.method", "recipe.packing"):
        del facts[key]
    result = run("check", "--facts", facts_file(facts), "--format", "json")
    finding = {entry["id"]: entry for entry in result.json["findings"]}[RULE]
    assert finding["gate"] is False and finding["caveats"]
