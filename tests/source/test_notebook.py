"""Notebooks as Python: code cells alone, magics left out, every line with its cell."""

import ast
import json
import sys
from contextlib import nullcontext
from functools import partial

import pytest
from tables import cases

from envdoctor.source import NotANotebook, parse_code

CASES = cases("notebook.toml")


def notebook(*cells: str, **more: object) -> bytes:
    code = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": code, "nbformat": 4, **more}).encode()


parse_notebook = partial(parse_code, notebook=True)


def read(*cells: str) -> str:
    return ast.unparse(parse_notebook(notebook(*cells)).tree)


def test_a_line_knows_its_cell():
    document = {"cells": [{"cell_type": "markdown", "source": "# x"}, {"cell_type": "code", "source": ["a\n", "b"]}]}
    document["cells"].append({"cell_type": "code", "source": "\nc"})
    book = parse_notebook(json.dumps(document).encode())
    assert [book.place(statement.lineno) for statement in book.tree.body] == [(1, 2), (2, 2), (2, 3)]
    book = parse_notebook(notebook("\n%%time\n\nimport a"))
    assert book.place(book.tree.body[0].lineno) == (4, 1), "below a magic of the cell, too"


@pytest.mark.parametrize(("cell", "code"), CASES["only_ipython_understands"])
def test_what_only_ipython_understands_is_left_out(cell: str, code: str):
    assert read(cell) == code


def test_a_cell_that_is_no_python_costs_that_cell():
    book = parse_notebook(notebook("import a", "print 'x'", "import b"))
    assert ast.unparse(book.tree) == "import a\nimport b" and book.unread == [(1, 2)]
    assert parse_notebook(notebook("word " * 1_000_000 + "\nprint x")).unread, "a line of a million names ends"


def test_notebooks_of_format_3():
    document = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["import a"]}]}], "nbformat": 3}
    assert ast.unparse(parse_notebook(json.dumps(document).encode()).tree) == "import a"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"cells": 1}', b"\xff\xfe", b'{"cells": [{"cell_type": "code", "source": 1}]}', b"import a"],
)
def test_what_is_no_notebook_is_said(content: bytes):
    with pytest.raises(NotANotebook):
        parse_notebook(content)


@pytest.mark.parametrize(
    ("source", "is_long"),
    [
        ("x = a" + ".b" * 20_001, True),
        ("x = f" + "()" * 20_001, True),
        ("x = a" + ".b" * 11_000 + "[a" + ".b" * 11_000 + "]", True),
        ("x = f'{a" + ".b" * 20_001 + "}'", True),
        ("# coding: raw_unicode_escape\nx = a" + r"\u002eb" * 20_001, True),
        ("'\\" * 1_000_000 + "." * 20_001, True),
        ("x = '" + "a.b" * 20_001 + "'  # " + "a.b" * 20_001, False),
        ("x = [" + "f(1)," * 20_001 + "]\nx = {" + "a.b: 1 + 1," * 20_001 + "}", False),
        ("x = a.b\n" * 20_001 + "f(x, a=a.b); g(x)\n" * 20_001, False),
    ],
)
def test_a_long_file_is_no_long_expression(source: str, is_long: bool, monkeypatch: pytest.MonkeyPatch):
    """Python 3.10 is ended by the one, and parses the other: `_torch_docs.py` and `hf_api.py` were refused there."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 10, 13))
        with pytest.raises(RecursionError) if is_long else nullcontext():
            parse_code(source.encode())
