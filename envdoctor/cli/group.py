"""The command line through click: help, completion, and messages about wrong arguments."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from envdoctor import __version__
from envdoctor.cli.output import failed
from envdoctor.system.message import Message

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
from envdoctor.cli import usage

#: Sub-commands in the order of the help text, and those that have a module of their own.
_NAMES = ["check", "probe", "memory", "plan", "fix", "diff-revision", "pin", "facts", "compare", "explain", "ignore"]
_NAMES += ["matrix", "mcp"]
_APART = ("check", "probe", "explain", "matrix")
#: Options of former releases or of another command, and what does their work here.
_RETIRED = {
    "--image": "--image was removed: docker export $(docker create IMAGE) | tar -x -C DIR, then --root DIR",
    "--ray": "--ray was removed: examples/ray_nodes.py asks every node with `envdoctor facts` and `envdoctor compare`",
    "--statistics": "--statistics was removed: --format concise prints a line a finding, to be counted by its rule",
}


class _Commands(usage.HelpGroup):
    """Import the module of the one command that runs: ``check`` must not pay for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NAMES:
            return None
        module = import_module(f"envdoctor.cli.{cmd_name if cmd_name in _APART else 'commands'}")
        command: click.Command = getattr(module, "command" if cmd_name in _APART else cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["version"]:
            print(f"envdoctor, version {__version__}")
            ctx.exit()
        if args and not args[0].startswith("-") and args[0] not in _NAMES:
            from envdoctor.observe.sources import SOURCES
            from envdoctor.system.message import alike

            near = f"check --{args[0]}" if args[0] in SOURCES else alike(args[0], _NAMES)
            hint = f"did you mean {near}?" if near else "envdoctor --help names them"
            ctx.fail(f"No such command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="envdoctor")
def cli() -> None:
    """The environment compatibility doctor for LLM fine-tuning.

    Says before the first step whether your torch, CUDA, transformers and flash-attn are known to crash, give NaN, run
    out of memory or train wrong with your model, and what to change.

    \b
    envdoctor check --model THUDM/glm-4-9b-chat-hf --set recipe.batch_size=2

    Exit codes: 0 nothing at the gate, 1 findings at the gate, 2 wrong use or configuration, 3 the job could not be
    done.

    envdoctor COMMAND --help shows the options of a command, envdoctor --version the version.
    """


def _fact_of(option: str, arguments: Sequence[str]) -> Message | None:
    """Return the ``--set`` for an option that is a fact's name, a trainer's or ours: ``--max-length 2048``."""
    from envdoctor.matrix.matrix import load_matrix
    from envdoctor.observe.recipe.assignments import fact_called

    matrix = load_matrix()
    word = option.strip("-").replace("-", "_")
    begun = [spec.key for spec in matrix.registry if spec.key.startswith(f"recipe.{word}_")]
    fact = fact_called(word, matrix.registry, matrix.rows("recipe-formats", "format"))
    if fact is None and len(begun) != 1:
        return None
    fact = fact or begun[0]
    words = " ".join(arguments).replace("=", " ").split()
    value = words[at + 1] if option in words and (at := words.index(option)) + 1 < len(words) else "VALUE"
    return Message("{} is a fact here: --set {}={}", option, fact, value)


def run(arguments: Sequence[str]) -> Any:
    """Run a command line and return what its command does, or the exit code."""
    try:
        return cli.main(args=list(arguments), prog_name="envdoctor", standalone_mode=False, obj=arguments)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2; before, click prints the help itself
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        option = getattr(error, "option_name", "")
        retired = _RETIRED.get(option) or (option and _fact_of(option, arguments))
        context = None if retired else getattr(error, "ctx", None)
        usage = f"Try `{context.command_path} --help`." if context is not None else ""
        behind = next((word for word in arguments if word in _NAMES), "")
        if behind and context is not None and context.command is cli:
            usage = f"Options follow the command: envdoctor {behind} {error.option_name} ..."  # type: ignore[attr-defined]
        return failed(retired or error.format_message(), error.exit_code, usage=usage)
    except click.Abort:
        raise KeyboardInterrupt from None
