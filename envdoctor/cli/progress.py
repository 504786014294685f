"""A progress line on standard error while it is a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_WIDTH = 78


@contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done, and wipes it at the end."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from envdoctor.text.clean import clean

    def show(text: str) -> None:
        sys.stderr.write(f"\r{clean(text)[:_WIDTH]:<{_WIDTH}}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r" + " " * _WIDTH + "\r")
        sys.stderr.flush()
