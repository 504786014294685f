"""Baselines: written once, kept in step, and never wider by themselves."""

import json
import re

import pytest

from envdoctor.app import UsageProblem, read_baseline
from envdoctor.report import FORMATS

BROKEN = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
NAN = "torch-2-5-0-glm4-batch-nan"


def baseline(path, rule):
    """A baseline that has accepted one finding."""
    known = {"id": rule, "item": {}, "severity": "error"}
    path.write_text(json.dumps({"schema": "envdoctor.baseline/1", "findings": [known]}))


def ids(path):
    return [entry["id"] for entry in json.loads(path.read_text())["findings"]]


def test_what_is_accepted_fails_no_more_and_what_is_new_does(run, facts_file, tmp_path):
    facts, kept = facts_file(BROKEN), tmp_path / "base.json"
    first = run("check", "--facts", facts, "--write-baseline", kept, "--no-config")
    assert first.code == 0 and ids(kept) == [NAN]
    assert first.err == f"{kept}: 1 finding(s) accepted\n"
    again = run("check", "--facts", facts, "--baseline", kept, "--format", "json", "--no-config")
    assert again.code == 0 and [one["baseline"] for one in again.json["findings"]] == ["unchanged"]
    quiet = run("check", "--facts", facts, "--baseline", kept, "--only-new", "--format", "concise", "--no-config")
    assert quiet.code == 0 and quiet.out.startswith("No findings.")
    worse = facts_file({**BROKEN, "recipe.framework": "vllm", "pkg.numpy": "2.1.0", "pkg.vllm": "0.6.3"})
    new = run("check", "--facts", worse, "--baseline", kept, "--fail-on", "note", "--format", "concise", "--no-config")
    assert new.code == 1, new.out


def test_a_run_that_accepts_says_in_every_format_what_the_next_one_says(run, facts_file, tmp_path):
    facts, kept = facts_file(BROKEN), tmp_path / "base.json"

    def said(option):
        outputs = [f"--output={name}={tmp_path / name}" for name in FORMATS]
        done = run("check", "--facts", facts, "--no-config", option, kept, *outputs)
        texts = {name: re.sub(r" in \d[\d.]* s", "", (tmp_path / name).read_text()) for name in FORMATS}
        return done.code, texts

    code, texts = said("--write-baseline")
    assert code == 0 and "at the gate" not in texts["html"] and "<failure" not in texts["junit"]
    assert said("--baseline") == (code, texts)
    words = ("--target-gpu", "A100,H100", "--write-baseline", kept, "--format", "json")
    told = run("check", "--facts", facts, "--no-config", *words).json
    assert told["summary"]["gate"] == 0 and [one["exit_code"] for one in told["targets"]] == [0, 0]


def test_what_is_known_is_shown_where_it_stands_for_something_new(run, small, facts_file, tmp_path):
    small(x_special='"pkg.torch" = "==2.5.0"', x_general='"pkg.torch" = "<2.6"')
    rule, kept = tmp_path / "matrices" / "rules" / "x-special.toml", tmp_path / "base.json"
    rule.write_text(rule.read_text().replace("open_ended = true", 'open_ended = true, supersedes = ["x-general"]'))
    baseline(kept, "x-special")
    words = ("check", "--matrix", rule.parents[1], "--facts", facts_file(BROKEN), "--no-config", "--baseline", kept)
    done = run(*words, "--only-new")
    assert done.code == 1 and "error[x-special]" in done.out and "does not fail the run" not in done.out


def test_an_update_drops_what_is_gone_and_accepts_nothing(run, facts_file, tmp_path):
    kept = tmp_path / "base.json"
    baseline(kept, NAN)
    healthy = facts_file({**BROKEN, "pkg.torch": "2.5.1+cu118"})
    told = run("check", "--facts", healthy, "--baseline", kept, "--format", "json", "--no-config")
    assert any("findings of the baseline that are gone: 1" in one["text"] for one in told.json["notices"])
    assert run("check", "--facts", healthy, "--baseline", kept, "--write-baseline", kept, "--no-config").code == 0
    assert ids(kept) == []
    done = run("check", "--facts", facts_file(BROKEN), "--baseline", kept, "--write-baseline", kept, "--no-config")
    assert done.code == 1 and ids(kept) == []


def test_an_update_drops_what_a_finding_that_is_gone_stood_for(run, tmp_path):
    """A package whose requirements are not known leaves the rules of conflicts open."""
    lines, kept = tmp_path / "r.txt", tmp_path / "base.json"
    words = ("check", "--lock", "r.txt", "--target-python", "3.11", "--target-platform", "linux-x86_64", "--no-config")
    lines.write_text("torch==2.6.0\ntransformers==4.57.3\ntokenizers==0.21.0\nnot-known-to-anyone\n")
    run(*words, "--write-baseline", "base.json")
    assert {"list-contradicts-itself", "requirement-conflict-stops-import"} <= set(ids(kept))
    assert run(*words, "--baseline", "base.json").code == 0
    lines.write_text("torch==2.6.0\ntransformers==4.57.3\ntokenizers==0.22.1\nnot-known-to-anyone\n")
    run(*words, "--baseline", "base.json", "--write-baseline", "base.json")
    assert ids(kept) == []


def test_an_entry_whose_rule_could_not_be_checked_is_kept(run, facts_file, tmp_path):
    kept = tmp_path / "base.json"
    baseline(kept, NAN)
    facts = facts_file({"pkg.torch": "2.5.0+cu118"})
    assert run("check", "--facts", facts, "--baseline", kept, "--write-baseline", kept, "--no-config").code == 0
    assert ids(kept) == [NAN]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "--write-baseline writes one"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "is expected"),
        ('{"schema": "envdoctor.baseline/1"}', "findings: a list"),
        ('{"schema": "envdoctor.baseline/1", "findings": [7]}', r"findings\[0\]"),
        (
            '{"schema": "envdoctor.baseline/1", "findings": [{"id": "a", "item": {"x": 1}, "severity": "error"}]}',
            "item",
        ),
        ('{"schema": "envdoctor.baseline/1", "findings": [{"id": "a", "severity": "fatal"}]}', "severity"),
        (
            '{"schema": "envdoctor.baseline/1", "findings": [{"id": "a", "severity": "note", "superseded_by": []}]}',
            "severity",
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path, text, complaint):
    path = tmp_path / "base.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageProblem, match=complaint):
        read_baseline(path)


def test_only_new_asks_for_what_is_old(run, facts_file):
    done = run("check", "--facts", facts_file(BROKEN), "--only-new")
    assert done.code == 2 and "--only-new needs --baseline FILE" in done.err
