"""A recording gives back what was written, and says which line of a broken one is wrong."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.experiments import Job, Outcome, RecordingError, read_recording, write_head, write_outcome

JOB = Job(
    "attention",
    "cpu",
    "quick",
    "bf16",
    "default",
    {"grid": "full"},
    None,
    {"dtype": "bf16"},
    ("torch",),
    90.0,
    1500,
    seed=7,
)
OUTCOME = Outcome(JOB, ({"judge": "exact", "equal": True},), "crash", "SIGSEGV", 1.5, 220.0, {"torch": "2.13.0"})


def line(whole: dict[str, Any] | None = None, **job: object) -> str:
    """A line of one child, with these things of it or of its job replaced."""
    usual = {"probe": "a", "device": "cpu", "suite": "quick", **job}
    return json.dumps({"job": usual, "observations": [], "ending": "ok", **(whole or {})})


SCHEMA = "envdoctor.experiments-recording/1"
HEAD = json.dumps({"schema": SCHEMA, "facts": {}})


def read(text: str, folder: Path) -> Any:
    path = folder / "run.jsonl"
    path.write_text(text)
    return read_recording(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    text = io.StringIO()
    write_head(text, {"schema": "envdoctor.facts/1", "facts": {}}, suite="quick", only=["attention"])
    write_outcome(text, OUTCOME)
    recording = read(text.getvalue(), tmp_path)
    assert recording.head["suite"] == "quick"
    assert recording.facts["schema"] == "envdoctor.facts/1"
    assert list(recording.outcomes) == [OUTCOME]


CHILD = "\n" + '{"job": {"probe": "a", "device": "cpu", "suite": "q"}, "observations": '


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: not a recording"),
        ("[]", ":1: an object"),
        ("{", ":1: not JSON"),
        ('{"schema": "other/1"}', ":1: not a recording"),
        (json.dumps({"schema": SCHEMA}), ":1: facts"),
        *[
            (json.dumps({"schema": SCHEMA, "facts": {}, **more}), f":1: {next(iter(more))}")
            for more in (
                {"only": 5},
                {"only": [5]},
                {"suite": {"a": 1}},
                {"released": 5},
                {"released": [{"a": -1}, "", None]},
            )
        ],
        (HEAD + "\n5", ":2: an object"),
        (HEAD + "\n{}", ":2: not what a child"),
        (HEAD + '\n{"job": {"probe": "a"}, "observations": [], "ending": "ok"}', ":2: not what a child"),
        (HEAD + CHILD + '[], "ending": "fine"}', "no ending is called 'fine'"),
        (HEAD + CHILD + '[1], "ending": "ok"}', "observations are objects"),
        (HEAD + "\n" + "[" * 100_000, ":2:"),
        *[
            (HEAD + "\n" + line(whole, **job), says)
            for whole, job, says in (
                ({}, {"dtype": ["x"]}, ":2: not what a child of a probe gave: dtype"),
                ({}, {"options": 5}, "options of a job cannot be 5"),
                ({}, {"recipe": []}, "recipe of a job cannot be []"),
                ({}, {"probe": 5}, "probe of a job cannot be 5"),
                ({}, {"suite": 5}, "suite of a job cannot be 5"),
                ({}, {"device": "cuda\x1b[31m"}, "no device is called"),
                ({}, {"seconds": "9"}, "seconds is not an amount"),
                ({}, {"memory_mib": -1}, "memory_mib is not an amount"),
                ({}, {"seed": 1.5}, "seed of a job cannot be 1.5"),
                ({}, {"seed": -1}, "seed is not an amount"),
                ({"seconds": math.nan}, {}, "seconds is not an amount"),
                ({"peak_mib": 10**400}, {}, "not what a child"),
                ({"earlier": "fine"}, {}, "no ending is called 'fine'"),
                ({"observations": {"a": 1}}, {}, "observations are objects"),
            )
        ],
    ],
)
def test_a_file_that_is_no_recording_names_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RecordingError) as error:
        read(text, tmp_path)
    assert says in str(error.value)


def test_numbers_that_json_lacks_become_the_words_for_them(tmp_path: Path) -> None:
    recording = read(HEAD + "\n" + line({"observations": [{"a": [math.nan, math.inf, -math.inf]}]}), tmp_path)
    assert recording.outcomes[0].observations == ({"a": ["nan", "inf", "-inf"]},)


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
