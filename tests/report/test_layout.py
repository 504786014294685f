"""Wrapping by display width."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.report import display_width
from envdoctor.report.layout import command_lines, pad, wrap, wrap_items

words = st.lists(st.text(alphabet="abc，模型（x）/.-", min_size=1, max_size=12), max_size=30).map(" ".join)


def test_chinese_characters_take_two_columns() -> None:
    assert display_width("模型 glm4") == 9
    assert display_width("e\u0301") == 1
    assert pad("模型", 6) == "模型  "


def test_lines_hang_under_the_first() -> None:
    assert wrap("one two three", 12, "  why  ", "       ") == ["  why  one", "       two", "       three"]


def test_without_a_width_nothing_is_wrapped() -> None:
    assert wrap("x " * 200, None) == ["x " * 200]
    assert len(command_lines("pip install " + "x " * 200, None)) == 1


def test_a_url_is_never_broken() -> None:
    url = "https://example.org/" + "a" * 100
    assert url in wrap(f"see {url} for more", 40)


def test_an_option_stays_with_its_value() -> None:
    for width in range(20, 60):
        assert not any(line.endswith("--model") for line in wrap("then give --model ORG/NAME or --model DIR", width))


@given(words, st.integers(20, 80))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str, width: int) -> None:
    lines = wrap(text, width, "  ", "  ")
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(display_width(line) <= width for line in lines if " " in line.strip() or display_width(line) < 12)


def test_chinese_text_breaks_between_characters_but_not_before_punctuation() -> None:
    lines = wrap("带有填充的行会返回，所以从第一步起损失就是。" * 3, 20, "", "")
    assert all(display_width(line) <= 20 for line in lines)
    assert not any(line[0] in "，。" for line in lines)


def test_items_break_between_items_and_keep_the_comma() -> None:
    items = ["batch size 2 (train.yaml:14)", "model family glm4", "torch 2.5.0"]
    assert wrap_items(items, 40, "  ", "  ") == [
        "  batch size 2 (train.yaml:14),",
        "  model family glm4, torch 2.5.0",
    ]


def test_a_command_continues_with_a_backslash_and_an_option_keeps_its_value() -> None:
    command = "pip install torch==2.4.1 --index-url https://download.pytorch.org/whl/cu118"
    assert command_lines(command, 60, "  fix    ", " " * 9) == [
        "  fix    pip install torch==2.4.1 \\",
        "           --index-url https://download.pytorch.org/whl/cu118",
    ]


arguments = st.lists(st.text(alphabet="ab -'\"\\$x/=", max_size=12), min_size=1, max_size=12)


@given(arguments, st.integers(10, 60))
def test_a_wrapped_command_is_the_same_command(argv: list[str], width: int) -> None:
    *lines, last = command_lines(shlex.join(argv), width, "", "")
    assert all(line.endswith(" \\") for line in lines)
    assert shlex.split(" ".join([*(line[:-2] for line in lines), last])) == argv


@pytest.mark.skipif(os.name != "posix", reason="continuation lines are for POSIX shells")
def test_a_shell_reads_a_wrapped_command_as_one() -> None:
    argv = ["printf", "%s|", "it's", "two words", "--index-url", "https://example.org/" + "a" * 60, "$HOME", "a\\b"]
    lines = command_lines(shlex.join(argv), 40, "", "")
    assert len(lines) > 2
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{argument}|" for argument in argv[2:])
