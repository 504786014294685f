"""The schemas of tables and the code that reads tables name the same tables and parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from envdoctor.knowledge.table_schemas import PARTS

CODE = Path(__file__).resolve().parents[2] / "envdoctor"
OTHERS = {"families": {"family", "organisations", "copies"}, "retired": {"retired"}}


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    """All code but the schemas."""
    files = [path for path in CODE.rglob("*.py") if path.name != "table_schemas.py"]
    return [node for path in files for node in ast.walk(ast.parse(path.read_bytes()))]


def reads(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Every table and part that is named in a call of rows() or part()."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("rows", "part"):
            table, *part = node.args
            named = [arg.value for arg in part if isinstance(arg, ast.Constant)]
            if isinstance(table, ast.Constant) and isinstance(table.value, str) and len(named) == len(part):
                yield table.value, named[0] if named else "row"


def test_what_is_read_is_in_a_schema(nodes):
    read = set(reads(nodes))
    assert len(read) > 20
    assert {
        (table, part) for table, part in read if part not in {"table", *OTHERS.get(table, PARTS.get(table, ()))}
    } == set()


def test_every_table_and_part_has_a_reader(nodes):
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert {word for table, parts in PARTS.items() for word in (table, *parts)} - words == set()


def test_every_table_lies_in_its_folder():
    assert {path.stem for path in (CODE.parent / "matrices" / "tables").iterdir()} == set(PARTS)
