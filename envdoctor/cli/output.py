"""Writing reports: to standard output, and to files that appear only when they are complete."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.text.files import because_of


def parse_outputs(values: tuple[str, ...], formats: tuple[str, ...]) -> list[tuple[str, Path]]:
    """``json=report.json`` texts as pairs. Raises :class:`UsageProblem`."""
    outputs = []
    for value in values:
        name, equals, file = value.partition("=")
        if not equals or not file or name not in formats:
            raise UsageProblem("--output {}: FORMAT=FILE is expected, with FORMAT one of {}", value, ", ".join(formats))
        outputs.append((name, Path(file)))
    return outputs


def write_stdout(text: str) -> None:
    """Write a report to standard output, with exactly one line end. Raises :class:`JobError`.

    A reader that went away (``| head``) is no fault, and does not change the exit code.
    """
    try:
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            raise JobError("standard output cannot be written: {}", because_of(error)) from None
