"""What a module offers to others."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from envdoctor.source.offers import read_offers


@pytest.mark.parametrize(
    ("given", "offered"), [("", False), (', extra_objects={"helper": helper}', True), (", extra_objects=more", True)]
)
def test_a_module_that_puts_a_lazy_one_in_its_place_leaves_its_functions_behind(given: str, offered: bool) -> None:
    source = dedent(f"""
        import sys
        from .tools import _LazyModule
        def helper(): ...
        _import_structure = {{"good": ["Fine"]}}
        sys.modules[__name__] = _LazyModule(__name__, globals()["__file__"], _import_structure{given})
    """)
    offers = read_offers(ast.parse(source), "lazy", True, source.encode())
    assert ("helper" in offers.names) is offered
    assert offers.lazy["Fine"] == "lazy.good"
    assert offers.open is None


@pytest.mark.parametrize(
    ("source", "closed"),
    [
        ("def f(ctx):\n    exec('x = 1', ctx)\n", True),
        ("for name in 'ab':\n    exec(name + ' = 1')\n", False),
        ("def f():\n    exec('x = 1', globals())\nf()\n", False),
    ],
)
def test_code_that_a_function_executes_makes_no_names_of_the_module(source: str, closed: bool) -> None:
    assert (read_offers(ast.parse(source), "app", False, source.encode()).open is None) is closed
