"""Write reports, notices and progress; a run without a report ends with one sentence on standard error and an exit
code."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from envdoctor.system.clean import clean
from envdoctor.system.message import say, sentence

_WIDTH = 78
#: Seconds after which a reader wants to know that something is being done.
_PATIENCE = 2


@contextmanager
def progress_line(quiet: bool, lang: str, doing: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows an activity on a terminal (nothing for an empty text), and wipe it at the end. After
    two seconds its seconds are shown too. ``doing`` is the activity until the function is called."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from envdoctor.report.page import display_width, pad

    start, latest, end = time.monotonic(), [doing], threading.Event()

    def paint(text: str, seconds: str = "") -> None:
        text = clean(sentence(lang, text) + seconds)
        while display_width(text) > _WIDTH:
            text = text[:-1]
        sys.stderr.write(f"\r{pad(text, _WIDTH)}\r")
        sys.stderr.flush()

    def show(text: str) -> None:
        latest[0] = text
        paint(text)

    def count() -> None:
        while not end.wait(1):
            seconds = time.monotonic() - start
            if latest[0] and seconds >= _PATIENCE:
                paint(latest[0], f" ({seconds:.0f} s)")

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield show
    finally:
        end.set()
        counter.join()
        paint("")


def write_stdout(text: str) -> None:
    """Write a report to standard output, with exactly one line end. Raises :class:`~envdoctor.app.errors.JobError`. If
    the reader went away (``| head``), the exit code stays the same."""
    try:
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            from envdoctor.app.errors import JobError
            from envdoctor.system.files import because_of

            raise JobError("standard output cannot be written: {}", because_of(error)) from None


def say_notices(notices: Iterable[tuple[str, str]], lang: str) -> None:
    """Write notices, as level and text, to standard error."""

    for level, text in notices:
        print(say(lang, "{name}: {value}", name=say(lang, level), value=sentence(lang, text)), file=sys.stderr)


def lang_of(arguments: Sequence[str], encoding: str | None) -> str:
    """Return the language of a command line before it is parsed, for a stream of this encoding."""
    from envdoctor.report.page import choose_lang

    languages = [value for option, value in pairwise(arguments) if option == "--lang"]
    languages += [argument.partition("=")[2] for argument in arguments if argument.startswith("--lang=")]
    return choose_lang(languages[-1] if languages else os.environ.get("ENVDOCTOR_LANG", "auto"), os.environ, encoding)


def sentence_of(error: Exception) -> tuple[str, int]:
    """Return an exception as a sentence, and the exit code. With ENVDOCTOR_DEBUG=1, raise a fault of envdoctor's."""
    from envdoctor.app.errors import JobError, UsageProblem
    from envdoctor.matrix.matrix import MatrixError

    if isinstance(error, (UsageProblem, MatrixError, JobError)):
        return error.message, 3 if isinstance(error, JobError) else 2
    if os.environ.get("ENVDOCTOR_DEBUG"):
        raise error
    hint = "Please report it; ENVDOCTOR_DEBUG=1 shows where it happened."
    return f"envdoctor itself failed ({type(error).__name__}: {error}). {hint}", 3


def failed(message: str, code: int, *, usage: str = "", lang: str = "en") -> int:
    """Print the message to standard error, and return the exit code."""
    lines = [f"envdoctor: {clean(sentence(lang, message))}", *([clean(usage)] if usage else [])]
    with suppress(OSError, ValueError):  # a full disk, or closed: the exit code still answers
        print("\n".join(lines), file=sys.stderr)
    return code
