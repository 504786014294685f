"""How a method calls methods of its own object, those of its base classes through ``super()``, and plain names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.source.guards import asks_what_is_there, caught, leaves, suppressed
from envdoctor.source.signatures import way_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_PERHAPS = (*_FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.match_case)
#: ``TryStar`` is of Python 3.11.
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))


class Call(NamedTuple):
    """``self.name(…)``, ``super().name(…)`` or ``name(…)``: the ``owner`` is self, super or empty.

    ``way`` is how it is called (``2 num_items_in_batch=``), None where that cannot be told, or the method is handed to
    somebody else; ``keywords`` are those that it gives, ``rest`` the name behind ``**``. ``sure``: it stands in no
    condition.
    """

    owner: str
    name: str
    way: str | None
    keywords: tuple[str, ...]
    rest: str
    sure: bool
    line: int


def calls_in(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Call]:
    """The calls of one method; those left out whose failure it catches, or that it makes only where it first asks what
    is there: a version, a signature, an attribute."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    return _Reader(arguments[0].arg, method).read() if arguments else iter(())


class _Reader:
    """One walk over a method, without recursion."""

    def __init__(self, bound: str, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bound, self._method = bound, method
        self._waiting: list[tuple[ast.AST, bool]] = []
        #: Variables that hold what the method asked for.
        self._answers: set[str] = set()

    def read(self) -> Iterator[Call]:
        self._block(self._method.body, True)
        while self._waiting:
            node, sure = self._waiting.pop()
            found = self._call(node, sure)
            if found is not None:
                yield found
                continue
            self._visit(node, sure)

    def _block(self, body: Sequence[ast.stmt], sure: bool) -> None:
        """Statements in their order, up to those that run only where something is there, or is not."""
        parts: list[tuple[ast.AST, bool]] = []
        for statement in body:
            parts.append((statement, sure))
            if isinstance(statement, ast.If) and leaves(statement.body) and self._asks(statement.test):
                break
        self._waiting += reversed(parts)

    def _visit(self, node: ast.AST, sure: bool) -> None:
        if isinstance(node, (ast.If, ast.IfExp)):
            self._waiting.append((node.test, sure))
            if not self._asks(node.test):
                for part in (node.body, node.orelse):
                    self._block(part, False) if isinstance(part, list) else self._waiting.append((part, False))
        elif isinstance(node, ast.BoolOp):
            if not any(map(self._asks, node.values)):
                self._waiting += [(value, sure and not place) for place, value in enumerate(node.values)]
        elif isinstance(node, _TRIES):
            self._block([] if caught(node).keywords else node.body, sure)
            self._block(node.orelse + node.finalbody, sure)
            for handler in node.handlers:
                self._block(handler.body, False)
        elif not isinstance(node, (ast.With, ast.AsyncWith)) or not suppressed(node).keywords:
            inside = sure and not isinstance(node, _PERHAPS)
            body = getattr(node, "body", None)
            block = body if isinstance(body, list) else []
            if isinstance(node, ast.Assign) and self._asks(node.value):
                self._answers.update(target.id for target in node.targets if isinstance(target, ast.Name))
            self._block(block, inside)
            later = set(map(id, block))
            self._waiting += [(one, inside) for one in ast.iter_child_nodes(node) if id(one) not in later]

    def _call(self, node: ast.AST, sure: bool) -> Call | None:
        """A call, or a method that is handed on; what stands in its arguments is read next."""
        called = node.func if isinstance(node, ast.Call) else node
        owner = self._owner(called)
        if owner is None or not isinstance(called, (ast.Name, ast.Attribute)) or (not owner and called is node):
            return None
        name = called.attr if isinstance(called, ast.Attribute) else called.id
        if not isinstance(node, ast.Call):
            return Call(owner, name, None, (), "", sure, called.lineno)
        self._waiting += [(one, sure) for one in (*node.args, *(keyword.value for keyword in node.keywords))]
        given = tuple(keyword.arg for keyword in node.keywords if keyword.arg is not None)
        rest = [one.value.id for one in node.keywords if one.arg is None and isinstance(one.value, ast.Name)]
        return Call(owner, name, way_of(node), given, next(iter(rest), ""), sure, called.lineno)

    def _owner(self, called: ast.AST) -> str | None:
        if isinstance(called, ast.Name):
            return ""
        owner = called.value if isinstance(called, ast.Attribute) and isinstance(called.ctx, ast.Load) else None
        if isinstance(owner, ast.Name):
            return "self" if owner.id == self._bound else None
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
            return None if owner.args else "super"
        return None

    def _asks(self, test: ast.expr) -> bool:
        names = (node.id for node in ast.walk(test) if isinstance(node, ast.Name))
        return asks_what_is_there(test) or not self._answers.isdisjoint(names)
