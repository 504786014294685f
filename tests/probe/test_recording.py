"""A recording gives back what was written, and says which line of a broken one is wrong."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.probe import Job, Outcome, RecordingError, read_recording, write_head, write_outcome
from envdoctor.probe.recording import SCHEMA

JOB = Job(
    "attention", "cpu", "quick", "bf16", "default", {"grid": "full"}, None, {"dtype": "bf16"}, ("torch",), 90.0, 1500
)
OUTCOME = Outcome(JOB, ({"judge": "exact", "equal": True},), "crash", "SIGSEGV", 1.5, 220.0, {"torch": "2.13.0"})


def line(whole: dict[str, Any] | None = None, **job: object) -> str:
    """A line of one child, with these things of it or of its job replaced."""
    usual = {"probe": "a", "device": "cpu", "suite": "quick", **job}
    return json.dumps({"job": usual, "observations": [], "ending": "ok", **(whole or {})})


HEAD = json.dumps({"schema": SCHEMA, "facts": {}})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    text = io.StringIO()
    write_head(text, {"schema": "envdoctor.facts/1", "facts": {}}, suite="quick", only=["attention"])
    write_outcome(text, OUTCOME)
    path = tmp_path / "run.jsonl"
    path.write_text(text.getvalue())
    recording = read_recording(path)
    assert recording.head["suite"] == "quick"
    assert recording.facts["schema"] == "envdoctor.facts/1"
    assert list(recording.outcomes) == [OUTCOME]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: not a recording"),
        ("[]", ":1: an object"),
        ("{", ":1: not JSON"),
        ('{"schema": "other/1"}', ":1: not a recording"),
        (json.dumps({"schema": SCHEMA}), ":1: facts"),
        (HEAD + "\n5", ":2: an object"),
        (HEAD + "\n{}", ":2: not what a child"),
        (HEAD + '\n{"job": {"probe": "a"}, "observations": [], "ending": "ok"}', ":2: not what a child"),
        (
            HEAD + '\n{"job": {"probe": "a", "device": "cpu", "suite": "q"}, "observations": [], "ending": "fine"}',
            "no ending is called 'fine'",
        ),
        (
            HEAD + '\n{"job": {"probe": "a", "device": "cpu", "suite": "q"}, "observations": [1], "ending": "ok"}',
            "observations are objects",
        ),
        (HEAD + "\n" + "[" * 100_000, ":2:"),
        (json.dumps({"schema": SCHEMA, "facts": {}, "only": 5}), ":1: only"),
        (json.dumps({"schema": SCHEMA, "facts": {}, "only": [5]}), ":1: only"),
        (json.dumps({"schema": SCHEMA, "facts": {}, "suite": {"a": 1}}), ":1: suite"),
        (HEAD + "\n" + line(dtype=["x"]), ":2: not what a child of a probe gave: dtype"),
        (HEAD + "\n" + line(options=5), "options of a job cannot be 5"),
        (HEAD + "\n" + line(recipe=[]), "recipe of a job cannot be []"),
        (HEAD + "\n" + line(probe=5), "probe of a job cannot be 5"),
        (HEAD + "\n" + line(suite=5), "suite of a job cannot be 5"),
        (HEAD + "\n" + line(device="cuda\x1b[31m"), "no device is called"),
        (HEAD + "\n" + line(seconds="9"), "seconds is not an amount"),
        (HEAD + "\n" + line(memory_mib=-1), "memory_mib is not an amount"),
        (HEAD + "\n" + line({"seconds": math.nan}), "seconds is not an amount"),
        (HEAD + "\n" + line({"peak_mib": 10**400}), "not what a child"),
        (HEAD + "\n" + line({"earlier": "fine"}), "no ending is called 'fine'"),
        (HEAD + "\n" + line({"observations": {"a": 1}}), "observations are objects"),
    ],
)
def test_a_file_that_is_no_recording_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    assert says in str(error.value)


def test_numbers_that_json_lacks_become_the_words_for_them(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(HEAD + "\n" + line({"observations": [{"a": [math.nan, math.inf, -math.inf]}]}))
    assert read_recording(path).outcomes[0].observations == ({"a": ["nan", "inf", "-inf"]},)


def test_folders_of_the_machine_are_not_written() -> None:
    text = io.StringIO()
    job = replace(JOB, model="/data/me/glm-4/", options={"where": "/home/me/x"})
    seen = {"error": "/home/me/lib/a.py and /home/meg and /tmp/s/x", "list": ["/home/me", "/data/me/glm-4/config.json"]}
    outcome = OUTCOME._replace(job=job, observations=(seen,), detail="at /home/me/work/a")
    write_outcome(text, outcome, {"/home/me": "~", "/home/me/work": "<cwd>", "/tmp/s": "<scratch>", "/": "no"})
    data = json.loads(text.getvalue())
    assert data["job"]["model"] == "glm-4"
    assert data["job"]["options"] == {"where": "~/x"}
    assert data["detail"] == "at <cwd>/a"
    assert data["observations"] == [
        {"error": "~/lib/a.py and /home/meg and <scratch>/x", "list": ["~", "glm-4/config.json"]}
    ]


@given(st.binary(max_size=300))
def test_no_bytes_make_it_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("r") / "run.jsonl"
    path.write_bytes(HEAD.encode() + b"\n" + data)
    try:
        read_recording(path)
    except RecordingError as error:
        assert str(path) in str(error)
