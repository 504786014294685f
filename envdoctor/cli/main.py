"""The ``envdoctor`` command: every failure is one sentence. A ``check`` that is written right is read without click."""

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from envdoctor.cli.output import failed, lang_of, sentence_of


def run() -> NoReturn:
    """Run the command: end the process with what :func:`main` returns.

    Skip the teardown of modules and objects, which takes a tenth of a short run.
    """
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader went away, or somebody closed it
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    from envdoctor.report.page import harden_stdout

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-): the exit code still answers
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    harden_stdout()
    words = sys.argv[1:] if arguments is None else list(arguments)
    # A run is short: collecting cycles costs it a tenth of its time and frees nothing.
    gc_enabled = gc.isenabled()
    gc.disable()
    try:
        with _interrupt_on_signals():
            result = _result(words)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # The reader went away (| head). Point stdout elsewhere so that the interpreter does not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return failed("interrupted", 3)
    except Exception as error:
        text, code = sentence_of(error)
        return failed(text, code, lang=lang_of(words, sys.stderr.encoding))
    finally:
        if gc_enabled:
            gc.enable()


def _result(words: Sequence[str]) -> Any:
    if words[:1] == ["check"]:
        from envdoctor.cli import check

        options = check.OPTIONS.read(words[1:], os.environ)
        if options is not None:
            return check.run(**options)
    from envdoctor.cli import group

    return group.run(words)


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Make SIGTERM, and SIGHUP of a closed terminal, raise KeyboardInterrupt as Ctrl-C does. An ignored signal stays
    ignored: under nohup a closed terminal ends nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        numbers = []
    signals = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
