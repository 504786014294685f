"""The ``envdoctor`` command: finds its sub-commands by their files and turns every failure into one sentence."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any, NoReturn

from envdoctor import __version__

try:
    import click
except ModuleNotFoundError as missing:
    try:
        print(
            f"envdoctor: {missing.name} is not installed for {sys.executable}. Install envdoctor together with what it "
            "needs; PYTHONPATH and the working directory are not used, because they may belong to what is judged.",
            file=sys.stderr,
        )
    finally:
        raise SystemExit(3) from None
#: Sub-commands and their modules, in the order of the help text.
_COMMANDS = {
    "check": "check",
    "probe": "probe",
    "memory": "memory",
    "plan": "plan",
    "diff-revision": "diff_revision",
    "pin": "pin",
    "facts": "facts",
    "compare": "compare",
    "explain": "explain",
    "ignore": "ignore",
    "matrix": "matrix",
}
#: Options of former releases, and what does their work now.
_RETIRED = {
    "--image": "--image was removed: docker export $(docker create IMAGE) | tar -x -C DIR, then --root DIR",
    "--ray": "--ray was removed: examples/ray_nodes.py asks every node with `envdoctor facts` and `envdoctor compare`",
    "--statistics": "--statistics was removed: --format concise prints a line a finding, to be counted by its rule",
}


class _Commands(click.Group):
    """Imports the module of the one command that runs: ``check`` must not pay for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(f"envdoctor.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            from envdoctor.text.nearest import alike

            near = alike(args[0], _COMMANDS)
            hint = f"did you mean {near}?" if near else "envdoctor --help names them"
            ctx.fail(f"No such command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="envdoctor")
def cli() -> None:
    """The environment compatibility doctor for LLM fine-tuning.

    Says before the first step whether your torch, CUDA, transformers and flash-attn are known to crash, give NaN, run
    out of memory or train wrong with your model, and what to change.

    \b
    envdoctor check --model THUDM/glm-4-9b-chat-hf --set recipe.batch_size=2

    Exit codes: 0 nothing at the gate, 1 findings at the gate, 2 wrong use or configuration, 3 the job could not be
    done.
    """


def run() -> NoReturn:
    """The command itself: ends the process with what :func:`main` returns.

    It ends at once: to take all modules and objects down one by one is a tenth of a short run.
    """
    code = main()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader went away, or somebody closed it
            pass
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    from envdoctor.report.color import harden_stdout

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-): the exit code still answers
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    harden_stdout()
    # A run is short: collecting cycles costs it a tenth of its time and frees nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _ended_in_order():
            result: Any = cli.main(
                args=list(arguments) if arguments is not None else None, prog_name="envdoctor", standalone_mode=False
            )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # The reader went away (| head). Point stdout elsewhere so that the interpreter does not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2; before, click prints the help itself
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        retired = _RETIRED.get(getattr(error, "option_name", ""))
        return _fail(retired or error.format_message(), error.exit_code, usage="" if retired else _usage(error))
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 3)
    except Exception as error:
        return _named(error, sys.argv[1:] if arguments is None else arguments)
    finally:
        if collecting:
            gc.enable()


def _named(error: Exception, arguments: Sequence[str]) -> int:
    from envdoctor.report.color import choose_lang

    given = [two for one, two in pairwise(arguments) if one == "--lang"]
    given += [one.partition("=")[2] for one in arguments if one.startswith("--lang=")]
    lang = choose_lang(
        given[-1] if given else os.environ.get("ENVDOCTOR_LANG", "auto"), os.environ, sys.stderr.encoding
    )
    from envdoctor.app.errors import JobError, UsageProblem
    from envdoctor.knowledge.matrix import MatrixError

    if isinstance(error, (UsageProblem, MatrixError)):
        return _fail(error.message, 2, lang=lang)
    if isinstance(error, JobError):
        return _fail(error.message, 3, lang=lang)
    if os.environ.get("ENVDOCTOR_DEBUG"):
        raise error
    kind = type(error).__name__
    return _fail(
        f"envdoctor itself failed ({kind}: {error}). Please report it; ENVDOCTOR_DEBUG=1 shows where it happened.", 3
    )


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"Try `{context.command_path} --help`." if context is not None else ""


def _fail(message: str, code: int, *, usage: str = "", lang: str = "en") -> int:
    from envdoctor.text.clean import clean
    from envdoctor.text.language import sentence

    lines = [f"envdoctor: {clean(sentence(lang, message))}"]
    if usage:
        lines.append(clean(usage))
    try:
        print("\n".join(lines), file=sys.stderr)
    except (OSError, ValueError):  # a full disk, or closed: the exit code still answers
        pass
    return code


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closed terminal, raise KeyboardInterrupt as Ctrl-C does.

    What is ignored stays so: nohup means that a closed terminal ends nothing.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():  # nobody else may listen
        numbers = []
    before = {
        number: signal.signal(number, interrupt) for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
