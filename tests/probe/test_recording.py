"""A recording gives back what was written, and says which line of a broken one is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.probe.catalogue import Job
from envdoctor.probe.recording import SCHEMA, RecordingError, read_recording, write_head, write_outcome
from envdoctor.probe.running import Outcome

JOB = Job(
    "attention", "cpu", "quick", "bf16", "default", {"grid": "full"}, None, {"dtype": "bf16"}, 90.0, 1500, "torch"
)
OUTCOME = Outcome(JOB, ({"judge": "exact", "equal": True},), "crash", "SIGSEGV", 1.5, 220.0, {"torch": "2.13.0"})
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
    ],
)
def test_a_file_that_is_no_recording_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    assert says in str(error.value)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("r") / "run.jsonl"
    path.write_bytes(HEAD.encode() + b"\n" + data)
    try:
        read_recording(path)
    except RecordingError as error:
        assert str(path) in str(error)
