"""Sources without the bodies of functions have the same statements outside of them, at the same lines."""

import ast
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from envdoctor.source.library import definition, trimmed

#: What an import can fail at, in the default of a parameter.
EVALUATED = (ast.Attribute, ast.Call, ast.Subscript)
STANDARD = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def functions(source: str | bytes) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]


def outline(source: bytes) -> list[object]:
    """The statements of a module, those of its functions left out, with their lines; texts of several lines as one."""

    class Outside(ast.NodeTransformer):
        def visit_FunctionDef(self, node: Any) -> ast.AST:
            asked = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            kept = [one for one in asked if any(isinstance(inner, EVALUATED) for inner in ast.walk(one))]
            node.args, node.returns, node.body = ast.parse("lambda: 0").body[0].value.args, None, [ast.Pass()]
            node.type_params = []  # of Python 3.12 and newer: an import asks nothing of them
            return ast.List([node, *kept])

        visit_AsyncFunctionDef = visit_FunctionDef

        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            return ast.Constant("") if isinstance(node.value, str) and "\n" in node.value else node

    return [(one.lineno, ast.dump(Outside().visit(one))) for one in ast.parse(source).body]


@pytest.mark.parametrize("path", STANDARD[::6], ids=lambda path: path.name)
def test_the_standard_library_keeps_its_outline(path: Path) -> None:
    source = path.read_bytes()
    try:
        short = outline(trimmed(source))
    except SyntaxError:
        pytest.skip("what indentation deceives is parsed whole")
    assert short == outline(source)


@pytest.mark.parametrize(
    "source",
    [
        b'def f():\n    """\ntext at the margin\n    """\n    return 1\nx = 1\n',
        b"def f(a: dict = {'a': 1},\n      b=2) -> int:\n    return 1\n\n\n# comment\nx = 1\n",
        b"class A:\n    def f(self): return 1\n    def g(self):\n        return 2\n    y = 3\n",
        b"class A:\n    def f(\n        self,\n    ) -> int: ...\n\n    def g(self):\n        return 2\n\n    y = 3\n",
        b"def f(a=1, b: int = x.y, *, c=[z()]):\n    return a\nx = 1\n",
        b"def f():\n    '''it\"\"\"s'''\n    return 1\nx = 1\n",
        b"def f(a=1,  # :(\n      b=')'): # (\n    return a\nx = 1\n",
        b'def f(a=g("""(\n"""), b: \'x:[\' = h[z({})]) -> \'y:\':\n    return a\nx = 1\n',
        b"def f():\n    a = 'one \\\ntwo'\n    b = 1\nx = 1\n",
        b"def f():\n    a = 1  # a path: C:\\\nx = 1\n",
        b"if 1:\n        def f():\n                a = 1\n\tx = 1\n".replace(b"        def", b"\tdef"),
    ],
)
def test_texts_and_one_line_bodies(source: bytes) -> None:
    assert outline(trimmed(source)) == outline(source)
    assert trimmed(source).count(b"\n") == source.count(b"\n")


@pytest.mark.parametrize("line", [b"def ", b"def f(", b"x def f():\n", b"def f(): def ", b"\n def", b"def f(a='"])
def test_words_that_begin_nothing_are_passed_in_one_go(line: bytes) -> None:
    source = line * 500_000  # a square of it would take hours
    assert len(trimmed(source)) <= len(source)


@pytest.mark.parametrize("path", STANDARD[1::12], ids=lambda path: path.name)
def test_a_function_is_cut_out_whole(path: Path) -> None:
    source = path.read_bytes()
    for function in functions(source):
        text = definition(source, function.lineno)
        cut = functions(text)[0] if text is not None else function
        cut.decorator_list = function.decorator_list
        assert ast.dump(cut, include_attributes=True) == ast.dump(function, include_attributes=True)
