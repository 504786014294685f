"""The JSON Schemas of the matrix: what they say, what reads the tables, and that editors get the keys of conditions."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import refresh_schema

from envdoctor.matrix import Schemas, load_matrix

ROOT = Path(__file__).resolve().parents[2]
MATRICES = ROOT / "matrices"
SCHEMA = MATRICES / "schema"
TABLES = {path.stem for path in MATRICES.glob("tables/*.toml")}
#: What ``Matrix.part`` reads beside them.
OTHERS = ("families", "retired")


@pytest.fixture(scope="module")
def nodes() -> list[ast.AST]:
    """All code."""
    files = (ROOT / "envdoctor").rglob("*.py")
    return [node for path in files for node in ast.walk(ast.parse(path.read_bytes()))]


def parts(table: str) -> set[str]:
    """The parts of a table beside its head."""
    return set(json.loads((SCHEMA / f"{table}.json").read_bytes())["properties"]) - {"schema", "table"}


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
    assert {(table, part) for table, part in read if part not in {"table", *parts(table)}} == set()


def test_every_table_and_part_has_a_reader(nodes):
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    # A framework's own part of framework-models is read by its name, which is that of a row.
    words |= {row["name"] for row in load_matrix().rows("framework-models", "framework")}
    assert {word for table in TABLES for word in (table, *parts(table))} - words == set()


def test_every_schema_is_of_a_file():
    others = {"rule", "conditions", "common", "facts", *OTHERS}
    assert {path.stem for path in SCHEMA.glob("*.json")} == TABLES | others


def test_the_conditions_are_those_of_the_registry():
    kept = refresh_schema.TARGET.read_text(encoding="utf-8")
    assert kept == refresh_schema.conditions(), "run: python tools/refresh_schema.py"


@pytest.mark.parametrize(
    ("name", "document", "place"),
    [
        ("transformers-model-types", {"since": {"4.26": ["bert", 2]}}, "since: 4.26 2: "),
        ("import-needs", {"row": [{"versions": ">=2,<3"}, {"versions": "two"}]}, "row 2: versions: "),
        ("cxx-standards", {"row": [{"key": ">=4.34,<4.48 | >=5.0"}, {"key": "two"}]}, "row 2: key: "),
        *(
            ("entry-statements", {"row": [{"statements": ["import trl", statement]}]}, "row 1: statements 2: ")
            for statement in (
                *("trl.boom()", "import a as b", "from a import b, c", "from a import *", "from .a import b"),
                *("import a import b", "a"),
            )
        ),
        (
            "report-forms",
            {"line": [{"pattern": f"(?P<value>{one})"} for one in (r"\d{1,9}", r"\d+")]},
            "line 2: pattern: ",
        ),
    ],
)
def test_what_json_schema_does_not_know_is_checked_too(name, document, place):
    found = list(Schemas(SCHEMA).faults(name, document))
    assert any(fault.startswith(place) for fault in found)
    assert not any(fault.startswith(place.replace(" 2: ", " 1: ")) for fault in found if " 2: " in place)
