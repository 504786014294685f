"""What is read without click is read as click reads it, and everything else is left to click."""

import os
import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envdoctor.cli import check

TEXTS = st.sampled_from(
    ["a", "torch==2", "-", "", "x y", "--path", "-v", "en", "zh", "json", "terminal", "3", "5000", "é"]
)
FLAGS = st.sampled_from(sorted({flag for option in check.OPTIONS.all for flag in option.flag.split(", ")}))
WORDS = st.lists(
    st.one_of(
        FLAGS.map(lambda flag: (flag,)),
        st.tuples(FLAGS, TEXTS),
        st.tuples(FLAGS, TEXTS).map(lambda pair: (f"{pair[0]}={pair[1]}",)),
        st.sampled_from([("-vq",), ("-vvv",), ("--no",), ("--",), ("extra",), ("-vx",), ("--help",)]),
    ),
    max_size=4,
).map(lambda groups: [word for group in groups for word in group])
VARIABLES = st.dictionaries(
    st.sampled_from(["ENVDOCTOR_PYTHON", "ENVDOCTOR_LANG", "ENVDOCTOR_MODEL", "ENVDOCTOR_FAIL_ON"]), TEXTS, max_size=2
)


def by_click(words: list[str], environ: dict[str, str]) -> dict[str, Any] | None:
    """The keyword arguments that click gives, None where it refuses the line."""
    found: list[dict[str, Any]] = []
    command = check.check
    command.callback = lambda **options: found.append(options)
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        command.main(args=list(words), standalone_mode=False)
    except (click.ClickException, click.exceptions.Exit):
        return None
    finally:
        os.environ.clear()
        os.environ.update(before)
    return found[0] if found else None


@settings(max_examples=400, deadline=None)
@given(words=WORDS, environ=VARIABLES)
def test_a_line_is_read_as_click_reads_it(words: list[str], environ: dict[str, str]) -> None:
    read = check.OPTIONS.read(words, environ)
    if read is not None:
        told = read.pop("from_environment")
        assert read == by_click(words, environ)
        assert told <= {"python", "lang", "model", "fail_on", "fail_confidence", "config"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--python", "x", "--no-gpu", "-vv", "--set", "a=b", "--set=c=d", "--format", "json", "--wait", "3.5"],
        ["--facts", "-", "--lang", "zh", "-q", "--exit-zero", "--output", "json=x", "--config", "c.toml"],
    ],
)
def test_what_is_usual_needs_no_click(words: list[str]) -> None:
    assert check.OPTIONS.read(words, {}) is not None
    code = f"import sys; from envdoctor.cli import check; check.OPTIONS.read({words!r}, {{}})"
    code += "; assert 'click' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
