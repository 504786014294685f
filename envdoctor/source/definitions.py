"""What a Python file defines and reads, by its syntax tree: functions, attributes, modules beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements that stand in a statement, branch by branch."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def last_name(node: ast.AST | None) -> str:
    """``cuda`` of ``torch.cuda``; nothing for what is no dotted name."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def is_generator(function: ast.FunctionDef) -> bool:
    """Whether a function, or one inside it, yields."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def methods_of(tree: ast.Module) -> Iterator[str]:
    """``Class.method(self, a, /, *args, b, **kwargs)`` and ``name(a)``: functions of the module and of its classes,
    also where a condition or a ``try`` holds them; parameters without defaults and annotations."""
    waiting: list[tuple[str, ast.stmt]] = [("", statement) for statement in tree.body]
    while waiting:
        scope, statement = waiting.pop()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{scope}{statement.name}({_parameters(statement.args)})"
        elif isinstance(statement, ast.ClassDef):
            waiting += [(f"{scope}{statement.name}.", inner) for inner in statement.body]
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            waiting += [(scope, item) for block in blocks(statement) for item in block]


def attributes_of(tree: ast.Module) -> Iterator[str]:
    """Every attribute that is read, without what it is read from."""
    waiting: list[object] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        # A node's attributes are its children, lists of them, names and positions; ast.walk takes twice the time.
        for child in vars(node).values() if isinstance(node, ast.AST) else ():
            waiting += child if isinstance(child, list) else [child]


def siblings_of(tree: ast.Module) -> Iterator[str]:
    """Modules beside the file that it imports relatively, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]


def _parameters(arguments: ast.arguments) -> str:
    parts = [argument.arg for argument in arguments.posonlyargs]
    if parts:
        parts.append("/")
    parts += [argument.arg for argument in arguments.args]
    if arguments.vararg:
        parts.append("*" + arguments.vararg.arg)
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [argument.arg for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append("**" + arguments.kwarg.arg)
    return ", ".join(parts)
