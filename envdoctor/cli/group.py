"""The command line through click: completion, messages about wrong arguments, and the help in the reader's language: a
command's options in groups, the common ones first."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from envdoctor import __version__
from envdoctor.cli.options import GROUPS, SECONDS, Option, Options
from envdoctor.cli.output import failed, lang_of
from envdoctor.facts.registry import Registry
from envdoctor.matrix.matrix import load_matrix
from envdoctor.report.page import Page, choose_width, pad
from envdoctor.system.message import Message, alike

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

#: A command shows all options if they are at most so many, else the common ones.
_MOST = 12
#: Columns of the flags; the widest list of choices that stands among them; columns on a stream that has no width.
_FLAGS, _CHOICES, _WIDTH = 34, 24, 80


class _HelpCommand(click.Command):
    """A command whose options are rows. If they are many, ``--help`` shows the common ones, ``--help-all`` all."""

    def __init__(self, *args: Any, rows: Sequence[Option] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.rows = [row for row in rows if row.kind != "words"]
        if len(self.rows) > _MOST:
            self.params.append(click.Option(["--help-all"], is_flag=True, is_eager=True, callback=_show_all))
            self.params[-1].expose_value = False

    def make_parser(self, ctx: click.Context) -> Any:
        """Return click's parser, which refuses an option of one value that is given twice: click takes the last one."""
        parser = super().make_parser(ctx)
        parse, single = parser.parse_args, {row.keyword: row.flag for row in self.rows if row.takes_one}

        def once(args: list[str]) -> Any:
            try:
                *parsed, order = parse(args)
            except click.NoSuchOption as error:  # --driver and --python-version mean the target's
                targets = {f"--target-{word}" for word in error.option_name.strip("-").split("-")}
                near = sorted(targets.intersection(row.flag for row in self.rows))
                if not near:
                    raise
                text = f"No such option {error.option_name!r}. Did you mean {near[0]!r}?"
                raise click.NoSuchOption(error.option_name, text, ctx=ctx) from None
            names = [option.name for option in order]
            twice = next((single[name] for name in names if name in single and names.count(name) > 1), None)
            if twice is not None:
                joined = "; lists of one install: a file with a line `-r FILE` for each" * (twice == "--lock")
                raise click.UsageError(f"{twice} is given twice, and takes one value{joined}", ctx)
            return *parsed, order

        parser.parse_args = once  # type: ignore[method-assign]
        return parser

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\n".join(_lines(self, ctx, everything=False)))


class _HelpGroup(click.Group):
    """A command of commands."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, with the first sentence of each command."""
        page = _page(ctx)
        pairs = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        commands = {name: _paragraphs(subcommand)[0] for name, subcommand in pairs if subcommand is not None}
        lines = [*_lines(self, ctx, everything=True), "", page.say("Commands:")]
        column = max(map(len, commands)) + 4
        for name, text in commands.items():
            lines += page.lines(page.sentence(Message(text)), pad(f"  {name}", column), " " * column)
        formatter.write("\n".join(lines))


group = partial(click.group, cls=_HelpGroup)


def command(
    name: str, *parts: Option | Options, group: str = "", of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command with these options, which belongs to the command ``of``."""
    rows = Options(*parts, group=group).all

    def decorated(function: Callable[..., Any]) -> click.Command:
        for row in reversed(rows):
            function = _shown(row)(function)
        click_command = click.command(name, cls=_HelpCommand, rows=rows)(function)
        if of is not None:
            of.add_command(click_command)
        return click_command

    return decorated


class _Choice(click.Choice):  # type: ignore[type-arg,unused-ignore]
    """The choices of an option, and their other spellings."""

    def __init__(self, row: Option) -> None:
        super().__init__(row.choices)
        self._spellings = row.spellings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(self._spellings.get(str(value).lower(), value), param, ctx)


def _shown(row: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if row.kind == "words":
        return click.argument(row.flag, metavar=row.metavar, nargs=-1)
    flags = [*row.flag.split(", "), *([row.name] if row.name else [])]
    kinds: Any = {"text": None, "path": click.Path(path_type=Path), "seconds": click.FloatRange(*SECONDS)}
    more: dict[str, Any] = {"is_flag": True} if row.kind == "flag" else {"count": True}
    if row.kind not in ("flag", "count"):
        more = {"type": _Choice(row) if row.choices else kinds.get(row.kind, row.kind)}
        more |= {"multiple": row.multiple, "required": row.required}
        more |= {"default": row.default} if row.default is not None else {}
    return click.option(*flags, metavar=row.metavar, envvar=row.variable, help=row.help or None, **more)


def _show_all(ctx: click.Context, _: click.Parameter, flag: bool) -> None:
    if flag:
        click.echo("\n".join(_lines(ctx.command, ctx, everything=True)))
        ctx.exit()


def _lines(shown: click.Command, ctx: click.Context, *, everything: bool) -> Iterator[str]:
    page = _page(ctx)
    yield page.say("Usage: {command}", command=" ".join([ctx.command_path, *shown.collect_usage_pieces(ctx)]))
    for paragraph in _paragraphs(shown):
        yield ""
        if paragraph.startswith("\b"):
            for line in paragraph.split("\n")[1:]:
                code, mark, comment = line.partition("  # ")
                yield f"  {code}{mark}{page.sentence(Message(comment))}"
        else:
            yield from page.lines(page.sentence(Message(paragraph)), "  ", "  ")
    rows = getattr(shown, "rows", [])
    listed = rows if everything or len(rows) <= _MOST else [row for row in rows if row.common]
    for title in GROUPS if len(rows) > _MOST else ("",):
        of_group = [row for row in listed if title in (row.group, "")]
        if of_group:
            yield from ["", page.say(title or "Options:")]
        for row in of_group:
            yield from _option(row, page)
    if len(listed) < len(rows):
        more = page.say(
            "{n} more option(s): {command}", len(rows) - len(listed), command=f"{ctx.command_path} --help-all"
        )
        yield from ["", *page.lines(more, "", "")]


def _option(row: Option, page: Page) -> list[str]:
    """Return the lines of an option: its flags, what it is for, its choices, its default."""
    choices = "|".join(row.choices)
    among = len(choices) <= _CHOICES
    value = row.metavar or (f"[{choices}]" if among else "NAME") if row.kind not in ("flag", "count") else ""
    text = page.sentence(Message(row.help))
    text = text if among else page.labelled(text.rstrip(".。"), page.separated([*row.choices]))
    usual = row.usual or row.default
    text += f" [{usual:g}]" if isinstance(usual, float) else f" [{usual}]" if usual is not None and value else ""
    first = pad(f"  {row.flag} {value}".rstrip(), _FLAGS)
    if len(first) > _FLAGS:
        return [first, *page.lines(text, " " * _FLAGS, " " * _FLAGS)]
    return page.lines(text, first, " " * _FLAGS)


def _paragraphs(shown: click.Command) -> list[str]:
    """Return the paragraphs, each on a line; examples, which begin with a backspace, keep theirs."""
    parts = inspect.cleandoc(shown.help or "").split("\n\n")
    return [part if part.startswith("\b") else " ".join(part.split()) for part in parts]


def _page(ctx: click.Context) -> Page:
    width = choose_width(os.environ, sys.stdout.isatty()) or _WIDTH
    return Page(Registry({}, {}), lang_of(ctx.find_root().obj or (), sys.stdout.encoding), width)


#: Sub-commands in the order of the help text, and the modules of those that are not in ``commands``.
_NAMES = ["check", "probe", "memory", "plan", "fix", "diff-revision", "pin", "facts", "compare", "explain", "ignore"]
_NAMES += ["matrix", "mcp"]
_HOMES = {"check": "check", **dict.fromkeys(("explain", "ignore", "matrix"), "rules")}
#: Options of former releases or of another command, and what does their work here.
_RETIRED = {
    "--image": "--image was removed: docker export $(docker create IMAGE) | tar -x -C DIR, then --root DIR",
    "--ray": "--ray was removed: examples/ray_nodes.py asks every node with `envdoctor facts` and `envdoctor compare`",
    "--statistics": "--statistics was removed: --format concise prints a line a finding, to be counted by its rule",
}


class _Commands(_HelpGroup):
    """Import the module of the one command that runs: ``check`` must not pay for the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NAMES:
            return None
        module = import_module(f"envdoctor.cli.{_HOMES.get(cmd_name, 'commands')}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["version"]:
            print(f"envdoctor, version {__version__}")
            ctx.exit()
        if args and not args[0].startswith("-") and args[0] not in _NAMES:
            from envdoctor.observe.sources import SOURCES

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
    from envdoctor.observe.documents.facts_file import fact_called

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
