"""Recordings of probe runs: everything that verdicts and rules need, as JSON lines that can be judged again anywhere.

The first line is the head (schema, suite, the facts of the environment without what identifies the machine), then one
line a child with its job, observations and ending, in the order in which they ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any, NamedTuple

from envdoctor.probe.catalogue import Job
from envdoctor.probe.running import ENDINGS, Outcome

__all__ = ["SCHEMA", "Recording", "RecordingError", "read_recording", "write_head", "write_outcome"]

SCHEMA = "envdoctor.probe-recording/1"
#: A full run on every backend is 20 MB; nobody records more.
_LARGEST = 256 << 20


class RecordingError(ValueError):
    """The file is no recording; the message names the line."""


class Recording(NamedTuple):
    """A run that was recorded. ``facts`` is a document of the facts format; ``head`` the rest of the first line."""

    head: Mapping[str, Any]
    facts: Mapping[str, Any]
    outcomes: Sequence[Outcome]


def write_head(file: IO[str], facts: Mapping[str, Any], **head: object) -> None:
    """Begin a recording."""
    file.write(_line({"schema": SCHEMA, **head, "facts": facts}))
    file.flush()


def write_outcome(file: IO[str], outcome: Outcome) -> None:
    """Add what one child gave, at once: a run that is cut short keeps what it has."""
    data = {**outcome._asdict(), "job": asdict(outcome.job)}
    file.write(_line(data))
    file.flush()


def read_recording(path: Path) -> Recording:
    """A recording from its file. Raises :class:`RecordingError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise RecordingError(f"{path}: larger than {_LARGEST >> 20} MiB, not read")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RecordingError(f"{path}: not UTF-8 text") from None
    head = _object(path, 1, lines[0]) if lines else {}
    if head.get("schema") != SCHEMA:
        raise RecordingError(f'{path}:1: not a recording of probes: "schema": "{SCHEMA}" is missing')
    facts = head.pop("facts", None)
    if not isinstance(facts, dict):
        raise RecordingError(f"{path}:1: facts: an object is expected")
    outcomes = [_outcome(path, number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    return Recording(head, facts, outcomes)


def _outcome(path: Path, number: int, line: str) -> Outcome:
    data = _object(path, number, line)
    try:
        known = {field.name for field in fields(Job)}
        job = Job(**{key: value for key, value in data["job"].items() if key in known})
        observations = tuple(data["observations"])
        if not all(isinstance(entry, dict) for entry in observations) or not isinstance(job.probe, str):
            raise TypeError("observations are objects")
        if data["ending"] not in ENDINGS:
            raise ValueError(f"no ending is called {data['ending']!r}")
        peak, begin, computed = (data.get(key) for key in ("peak_mib", "begin", "cpu_seconds"))
        return Outcome(
            job,
            observations,
            data["ending"],
            str(data.get("detail", "")),
            float(data.get("seconds", 0.0)),
            float(peak) if peak is not None else None,
            begin if isinstance(begin, dict) else {},
            float(computed) if computed is not None else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(f"{path}:{number}: not what a child of a probe gave: {error}") from None


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}:{number}: not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RecordingError(f"{path}:{number}: an object is expected")
    return data


def _line(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True) + "\n"
