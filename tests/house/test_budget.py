"""The house keeps its budget, and every name in a door is used."""

import ast
from importlib import import_module

import budget
import pytest

from envdoctor.matrix import load_toml


def test_no_number_is_above_its_budget():
    limits = budget.budget()
    for row, numbers in budget.measured().items():
        above = {column: number for column, number in numbers.items() if number > limits[row].get(column, 0)}
        assert above == {}, f"{row}: make it smaller, or `python tools/budget.py --raise WHY`"


def test_what_was_raised_says_why():
    for key, why in budget.raised().items():
        assert ":" in key and len(why.split()) > 3, f'{key}: write "report: lines" = "why, in four words or more"'


def test_a_file_of_more_than_500_lines_says_why():
    package = budget.ROOT / "envdoctor"
    long = {path.relative_to(package).as_posix(): path.read_bytes().count(b"\n") for path in package.rglob("*.py")}
    assert {name for name, lines in long.items() if lines > 500} == load_toml(budget.BUDGET)["long"].keys()


def test_no_two_public_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for path in (budget.ROOT / "envdoctor").rglob("*.py"):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("room", budget.doors())
def test_no_name_is_in_a_door_for_one_test_alone(room):
    used = budget.users()
    for name, module in budget.doors()[room].items():
        thing = getattr(import_module(module), name)
        told = isinstance(thing, type)  # what a door's function raises or returns
        users = used.get(f"{room}.{name}", set())
        assert told or len(users) > 1 or any(user.startswith(("envdoctor.", "tests/support/")) for user in users), name
