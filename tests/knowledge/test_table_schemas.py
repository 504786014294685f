"""The schemas of tables and the code that reads tables name the same tables and parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from envdoctor.knowledge.table_schemas import PARTS

CODE = Path(__file__).resolve().parents[2] / "envdoctor"
TREES = [ast.parse(path.read_text(encoding="utf-8")) for path in CODE.rglob("*.py") if path.name != "table_schemas.py"]
WORDS = {node.value for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.Constant)}
OTHERS = {"families": {"family", "organisations"}, "retired": {"retired"}}


def reads() -> Iterator[tuple[str, str]]:
    """Every table and part that is named in a call of rows() or part()."""
    for tree in TREES:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("rows", "part")
            ):
                table, *part = node.args
                named = [arg.value for arg in part if isinstance(arg, ast.Constant)]
                if isinstance(table, ast.Constant) and isinstance(table.value, str) and len(named) == len(part):
                    yield table.value, named[0] if named else "row"


@pytest.mark.parametrize("read", sorted(set(reads())), ids="/".join)
def test_what_is_read_is_in_a_schema(read):
    table, part = read
    assert part == "table" or part in OTHERS.get(table, PARTS.get(table, ()))


@pytest.mark.parametrize("table", sorted(PARTS))
def test_every_table_and_part_has_a_reader(table):
    assert {table, *PARTS[table]} <= WORDS


def test_every_table_lies_in_its_folder():
    assert {path.stem for path in (CODE.parent / "matrices" / "tables").iterdir()} == set(PARTS)
