"""What is written: reports, notices, and what is being done; a run without a report ends with one sentence on standard
error and an exit code."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

_WIDTH = 78
#: Seconds after which a reader wants to know that something is being done.
_PATIENCE = 2


@contextmanager
def progress_line(quiet: bool, lang: str, doing: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows on a terminal what is being done, nothing for an empty text, and wipe it at the end.
    What takes longer than two seconds is shown with its seconds; ``doing`` is what is done until it is called."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from envdoctor.report.page import display_width, pad
    from envdoctor.system.clean import clean
    from envdoctor.system.language import sentence

    begun, told, ended = time.monotonic(), [doing], threading.Event()

    def paint(text: str, seconds: str = "") -> None:
        text = clean(sentence(lang, text) + seconds)
        while display_width(text) > _WIDTH:
            text = text[:-1]
        sys.stderr.write(f"\r{pad(text, _WIDTH)}\r")
        sys.stderr.flush()

    def show(text: str) -> None:
        told[0] = text
        paint(text)

    def count() -> None:
        while not ended.wait(1):
            seconds = time.monotonic() - begun
            if told[0] and seconds >= _PATIENCE:
                paint(told[0], f" ({seconds:.0f} s)")

    counting = threading.Thread(target=count, daemon=True)
    counting.start()
    try:
        yield show
    finally:
        ended.set()
        counting.join()
        paint("")


def write_stdout(text: str) -> None:
    """Write a report to standard output, with exactly one line end. Raises :class:`~envdoctor.app.errors.JobError`. A
    reader that went away (``| head``) is no fault, and does not change the exit code."""
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
    from envdoctor.system.language import say, sentence

    for level, text in notices:
        print(say(lang, "{name}: {value}", name=say(lang, level), value=sentence(lang, text)), file=sys.stderr)


def lang_of(arguments: Sequence[str], encoding: str | None) -> str:
    """Return the language of a command line that nobody has read yet, for a stream of this encoding."""
    from envdoctor.report.color import choose_lang

    given = [two for one, two in pairwise(arguments) if one == "--lang"]
    given += [argument.partition("=")[2] for argument in arguments if argument.startswith("--lang=")]
    return choose_lang(given[-1] if given else os.environ.get("ENVDOCTOR_LANG", "auto"), os.environ, encoding)


def sentence_of(error: Exception) -> tuple[str, int]:
    """Return what an exception means, and the exit code. A fault of envdoctor itself is raised on ENVDOCTOR_DEBUG=1."""
    from envdoctor.app.errors import JobError, UsageProblem
    from envdoctor.matrix.matrix import MatrixError

    if isinstance(error, (UsageProblem, MatrixError, JobError)):
        return error.message, 3 if isinstance(error, JobError) else 2
    if os.environ.get("ENVDOCTOR_DEBUG"):
        raise error
    hint = "Please report it; ENVDOCTOR_DEBUG=1 shows where it happened."
    return f"envdoctor itself failed ({type(error).__name__}: {error}). {hint}", 3


def failed(message: str, code: int, *, usage: str = "", lang: str = "en") -> int:
    """Say why, and return the exit code."""
    from envdoctor.system.clean import clean
    from envdoctor.system.language import sentence

    lines = [f"envdoctor: {clean(sentence(lang, message))}", *([clean(usage)] if usage else [])]
    with suppress(OSError, ValueError):  # a full disk, or closed: the exit code still answers
        print("\n".join(lines), file=sys.stderr)
    return code
