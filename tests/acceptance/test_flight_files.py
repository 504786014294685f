"""The record of a watched run is judged anywhere, like any facts file."""

import json


def flight(tmp_path, facts, **more):
    path = tmp_path / "envdoctor-flight-3-nan-loss.json"
    details = {"details": {"last_finite": {"loss": 2.1}}, "arguments": {"bf16": True}, "findings": []}
    document = {"schema": "envdoctor.flight/1", "facts": facts, **details, **more}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_check_judges_a_flight_file(run, tmp_path):
    facts = {
        "watch.event": "nan-eval-loss",
        "watch.step": 3,
        "watch.batch": 2,
        "watch.where": "forward",
        "watch.module": "model.layers.1.mlp",
        "watch.module_class": "LlamaMLP",
        "pkg.torch": "2.13.0+cpu",
    }
    result = run("check", "--facts", flight(tmp_path, facts))
    assert result.code == 1
    assert "evaluation batch 2, step 3: model.layers.1.mlp (LlamaMLP) is first to give NaN or inf" in result.out


def test_what_no_watch_writes_is_refused(run, tmp_path):
    result = run("check", "--facts", flight(tmp_path, {"watch.step": 3}, origins={}))
    assert result.code == 2 and "unknown key 'origins'" in result.err
