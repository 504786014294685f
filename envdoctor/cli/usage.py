"""The help of a command in the reader's language: its options in groups, the common ones first."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from envdoctor.cli.options import GROUPS, SECONDS, Option, Options
from envdoctor.cli.output import lang_of
from envdoctor.facts.registry import Registry
from envdoctor.report.page import Page, choose_width, pad
from envdoctor.system.message import Message

#: A command shows all options if they are at most so many, else the common ones.
_MOST = 12
#: Columns of the flags; the widest list of choices that stands among them; columns on a stream that has no width.
_FLAGS, _CHOICES, _WIDTH = 34, 24, 80


class HelpCommand(click.Command):
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


class HelpGroup(click.Group):
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


group = partial(click.group, cls=HelpGroup)


def command(
    name: str, *parts: Option | Options, group: str = "", of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command with these options, which belongs to the command ``of``."""
    rows = Options(*parts, group=group).all

    def decorated(function: Callable[..., Any]) -> click.Command:
        for row in reversed(rows):
            function = _shown(row)(function)
        click_command = click.command(name, cls=HelpCommand, rows=rows)(function)
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
