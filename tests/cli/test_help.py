"""``--help`` shows what is common, ``--help-all`` everything, each in the reader's language."""

import re
from collections.abc import Iterator

import click
import pytest

from envdoctor.cli.group import cli
from envdoctor.cli.options import GROUPS
from envdoctor.system import say


def commands(parent: click.Group = cli, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, parent
    for name in parent.list_commands(click.Context(parent)):
        child = parent.get_command(click.Context(parent), name)
        if isinstance(child, click.Group):
            yield from commands(child, *path, name)
        elif child is not None:
            yield (*path, name), child


COMMANDS = dict(commands())
MANY = [path for path, command in COMMANDS.items() if "--help-all" in {flag for p in command.params for flag in p.opts}]


def flags_in(text: str) -> list[str]:
    lines = re.findall(r"^  (?:-\w, )?(--[\w-]+(?:, --[\w-]+)*)", text, re.M)
    return [flag for line in lines for flag in line.split(", ")]


def test_a_command_with_many_options_shows_at_most_twelve(run) -> None:
    assert {("check",), ("memory",), ("plan",), ("probe",), ("diff-revision",), ("compare",)} <= set(MANY)
    for path in MANY:
        options = re.findall(r"^  (?:-\w, )?--", run(*path, "--help").out, re.M)
        assert 4 <= len(options) <= 12, path


@pytest.mark.parametrize("path", MANY, ids=" ".join)
def test_the_others_stand_in_the_same_groups(run, path: tuple[str, ...]) -> None:
    few, everything = run(*path, "--help"), run(*path, "--help-all")
    assert (few.code, everything.code, everything.err) == (0, 0, "")
    parts = re.split(f"^({'|'.join(GROUPS)})$", everything.out, flags=re.M)
    groups = dict(zip(parts[1::2], map(flags_in, parts[2::2]), strict=True))
    shown = {flag for flags in groups.values() for flag in flags}
    taken = {flag for p in COMMANDS[path].params if isinstance(p, click.Option) for flag in p.opts}
    assert shown == {flag for flag in taken if flag.startswith("--")} - {"--help-all"}
    missing = len(shown) - len(flags_in(few.out))
    assert f"{missing} more options: envdoctor {' '.join(path)} --help-all" in few.out
    inside = [line for line in few.out.splitlines() if line in GROUPS]
    assert inside == [title for title in GROUPS if title in inside]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_is_chinese_throughout(run, path: tuple[str, ...]) -> None:
    chinese = run(*path, "--help", env={"ENVDOCTOR_LANG": "zh"}).out
    usage, *parts = re.split(r"\n\n|\n(?=  -)|\n(?=  \S+ {2,})", chinese)
    assert usage.startswith("用法：")
    for part in parts:
        for words in re.findall("  # (.*)", part) if part.startswith("  envdoctor ") else [part]:
            assert re.search("[\u4e00-\u9fff]", words) or part.startswith("  pip install"), part


def test_the_language_of_the_line_counts(run) -> None:
    assert say("zh", "The gate:") in run("check", "--help", "--lang", "zh").out
    assert say("zh", "The gate:") in run("check", "--lang=zh", "--help-all").out
    assert "The gate:" in run("check", "--help", "--lang", "en", env={"ENVDOCTOR_LANG": "zh"}).out


def test_a_default_and_the_choices_are_shown(run) -> None:
    text = " ".join(run("check", "--help-all").out.split())
    assert "--fail-on [error|warning|note] Lowest severity that fails the run. [error]" in text
    assert "--wait SECONDS How long other ranks are waited for. [120]" in text
    assert "that fails the run: reproduced, upstream, reported, inferred [reported]" in text
