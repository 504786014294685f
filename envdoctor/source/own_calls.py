"""How a method calls methods of its own object, those of its base classes through ``super()``, and plain names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.source.definitions import FunctionNode, TryStar, all_nodes, children, last_name, names_in
from envdoctor.source.guards import asks_what_is_there, caught, leaves, suppressed
from envdoctor.source.signatures import way_of

_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_PERHAPS = (*_LATER, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.match_case)


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


def calls_in(method: FunctionNode) -> Iterator[Call]:
    """The calls of one method; those left out whose failure it catches, or that it makes only where it first asks what
    is there: a version, a signature, an attribute."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    return _Reader(arguments[0].arg, method).read() if arguments else iter(())


class _Reader:
    """One walk over a method, without recursion."""

    def __init__(self, bound: str, method: FunctionNode) -> None:
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

    def _block(self, body: Sequence[ast.AST], sure: bool) -> None:
        """Statements in their order, up to those that run only where something is there, or is not."""
        parts: list[tuple[ast.AST, bool]] = []
        for statement in body:
            parts.append((statement, sure))
            if isinstance(statement, ast.If) and leaves(statement.body) and self._asks(statement.test):
                break
        self._waiting += reversed(parts)

    def _visit(self, node: ast.AST, sure: bool) -> None:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                self._waiting.append((test, sure))
                for part in () if self._asks(test) else (node.body, node.orelse):
                    self._block(part if isinstance(part, list) else [part], False)
            case ast.BoolOp(values=values):
                if not any(map(self._asks, values)):
                    self._waiting += [(value, sure and not place) for place, value in enumerate(values)]
            case ast.Try() | TryStar():
                self._block([] if caught(node).keywords else node.body, sure)
                self._block(node.orelse + node.finalbody, sure)
                for handler in node.handlers:
                    self._block(handler.body, False)
            case ast.With() | ast.AsyncWith() if suppressed(node).keywords:
                pass
            case ast.Lambda(args=arguments, body=value):
                self._waiting += [(arguments, False), (value, False)]
            case _:
                if isinstance(node, ast.Assign) and self._asks(node.value):
                    self._answers.update(names_in(node.targets))
                inside = sure and not isinstance(node, _PERHAPS)
                block = getattr(node, "body", [])
                self._block(block, inside)
                later = set(map(id, block))
                self._waiting += [(one, inside) for one in children(node) if id(one) not in later]

    def _call(self, node: ast.AST, sure: bool) -> Call | None:
        """A call, or a method that is handed on; what stands in its arguments is read next."""
        match node:
            case ast.Call(func=called, args=args, keywords=keywords):
                owner = self._owner(called)
                if owner is None:
                    return None
                self._waiting += [(one, sure) for one in (*args, *(keyword.value for keyword in keywords))]
                given = tuple(keyword.arg for keyword in keywords if keyword.arg is not None)
                rest = next(names_in(keyword.value for keyword in keywords if keyword.arg is None), "")
                return Call(owner, last_name(called), way_of(node), given, rest, sure, called.lineno)
            case ast.Attribute(attr=name, lineno=line) if owner := self._owner(node):
                return Call(owner, name, None, (), "", sure, line)
        return None

    def _owner(self, called: ast.AST) -> str | None:
        match called:
            case ast.Name():
                return ""
            case ast.Attribute(value=ast.Name(id=self._bound), ctx=ast.Load()):
                return "self"
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), ctx=ast.Load()):
                return "super"
        return None

    def _asks(self, test: ast.expr) -> bool:
        return asks_what_is_there(test) or not self._answers.isdisjoint(names_in(all_nodes(test)))
