"""Writing reports: to standard output, and to files that appear only when they are complete."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.system.files import because_of

_WIDTH = 78


@contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done, and wipes it at the end."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from envdoctor.system.clean import clean

    def show(text: str) -> None:
        sys.stderr.write(f"\r{clean(text)[:_WIDTH]:<{_WIDTH}}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r" + " " * _WIDTH + "\r")
        sys.stderr.flush()


def parse_outputs(values: tuple[str, ...], formats: tuple[str, ...]) -> list[tuple[str, Path]]:
    """Return ``json=report.json`` texts as pairs. Raises :class:`UsageProblem`."""
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
