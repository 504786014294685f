"""Wrapping by display width."""

import os
import shlex
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import Registry
from envdoctor.judge import OfferedFix, Text
from envdoctor.report import Page, Report, display_width, render

words = st.lists(st.text(alphabet="abc，模型（x）/.-", min_size=1, max_size=12), max_size=30).map(" ".join)


def page(width: int | None) -> Page:
    return Page(Registry({}, {}), width=width)


def command(report: Report, argv: list[str], width: int | None) -> list[str]:
    """The lines of a command in a finding."""
    fix = OfferedFix("command", "review", Text("do it"), commands=(shlex.join(argv),))
    finding = report.findings[0]._replace(fixes=(fix,), evidence=(), probe=None)
    text = render(report.changed(findings=(finding,)), width=width)
    lines = text.partition("  fix    do it\n")[2].partition("\n  found  ")[0].splitlines()
    assert all(line.startswith(" " * 9) for line in lines)
    return [line[9:] for line in lines]


def test_chinese_characters_take_two_columns() -> None:
    assert display_width("模型 glm4") == 9
    assert display_width("e\u0301") == 1


def test_lines_hang_under_the_first() -> None:
    assert page(12).lines("one two three", "  why  ", "       ") == ["  why  one", "       two", "       three"]
    items = ["batch size 2 (train.yaml:14)", "model family glm4", "torch 2.5.0"]
    lines = ["  batch size 2 (train.yaml:14),", "  model family glm4, torch 2.5.0"]
    assert page(40).items(items) == lines, "they break between items and keep the comma"
    assert page(None).lines("x " * 200, "", "") == ["x " * 200]


def test_a_url_is_never_broken_and_an_option_stays_with_its_value() -> None:
    url = "https://example.org/" + "a" * 100
    assert url in page(40).lines(f"see {url} for more", "", "")
    for width in range(20, 60):
        lines = page(width).lines("then give --model ORG/NAME or --model DIR", "", "")
        assert not any(line.endswith("--model") for line in lines)


@given(words, st.integers(20, 80))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str, width: int) -> None:
    lines = page(width).lines(text, "  ", "  ")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(display_width(line) <= width for line in lines if " " in line.strip() or display_width(line) < 12)


def test_chinese_text_breaks_between_characters_but_not_before_punctuation() -> None:
    lines = page(20).lines("带有填充的行会返回，所以从第一步起损失就是。" * 3, "", "")
    assert all(display_width(line) <= 20 for line in lines)
    assert not any(line[0] in "，。" for line in lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.text(alphabet="ab -'\"\\$x/=", max_size=12), min_size=1, max_size=12), st.integers(30, 70))
def test_a_wrapped_command_is_the_same_command(report: Report, argv: list[str], width: int) -> None:
    *lines, last = command(report, ["run", *argv], width)
    assert all(line.endswith(" \\") for line in lines)
    assert shlex.split(" ".join([*(line[:-2] for line in lines), last])) == ["run", *argv]


@pytest.mark.skipif(os.name != "posix", reason="continuation lines are for POSIX shells")
def test_a_shell_reads_a_wrapped_command_as_one(report: Report) -> None:
    argv = ["printf", "%s|", "it's", "two words", "--index-url", "https://example.org/" + "a" * 60, "$HOME", "a\\b"]
    assert len(command(report, argv, None)) == 1
    lines = command(report, argv, 50)
    assert len(lines) > 2
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{argument}|" for argument in argv[2:])
