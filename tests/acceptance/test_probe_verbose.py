"""``probe -v``: what each child gave comes before the facts that it rests on."""

from __future__ import annotations

import json


def test_the_results_of_each_child_come_before_the_facts(run, tmp_path):
    job = {"probe": "attention", "device": "cpu", "suite": "quick", "dtype": "bf16", "backend": "default"}
    seen = {"probe": "attention", "device": "cpu", "dtype": "bf16", "backend": "default", "judge": "attention"}
    seen |= {"case": "L64", "params": {"S": 64}, "ratio": dict.fromkeys(("o", "dq", "dk", "dv"), 1.5)}
    facts = {"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.13.0+cpu", "gpu": []}}
    outcome = {"job": job, "observations": [seen], "ending": "ok", "seconds": 1.0}
    lines = [{"schema": "envdoctor.probe-recording/1", "suite": "quick", "facts": facts}, outcome]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    told = run("probe", "--replay", path, "-v").out
    assert told.index("attention bf16 default") < told.index("\nFacts\n") and "1 pass" in told
    (point,) = run("probe", "--replay", path, "--format", "json").json["sections"]["probe"]["errors"]
    assert (point["length"], point["ratio"], point["dtype"], point["backend"]) == (64, 1.5, "bf16", "default")
