"""One line of ``check --model``: what the model asks for, and whether it is there, as the README shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINUX = ("--target-python", "3.11", "--target-platform", "linux-x86_64", "--no-config")
ROW = re.compile(r"\| `(--\w+) (fixtures/[^`]+)` \| (\S+) \| (asks for .*) \|")
ROWS = ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_ten_models_of_ten_families_stand_in_the_readme():
    assert len({model for _, _, model, _ in ROWS}) == 10


@pytest.mark.parametrize(("option", "file", "model", "line"), ROWS, ids=[row[2] for row in ROWS])
def test_the_line_of_the_readme_is_what_check_says(run, option, file, model, line):
    result = run("check", option, ROOT / file, "--model", model, *LINUX, "--format", "json")
    assert f"{model} {line}" in [notice["text"] for notice in result.json["notices"]]
