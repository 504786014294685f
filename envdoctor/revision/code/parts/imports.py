"""Which names a Python file imports, and whether it can be loaded without them."""

from __future__ import annotations

import ast

from envdoctor.revision.code.parts.records import Import
from envdoctor.source.definitions import all_nodes, elements, names_in

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_PERHAPS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, *_LOOPS, ast.Match, ast.ExceptHandler, ast.match_case)
_FAILED_IMPORT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def imports_of_tree(tree: ast.Module) -> list[Import]:
    """All imports by their dotted names.

    Required are those that run whenever the file is loaded: not in a function, under a condition, or in a ``try`` that
    a failed import does not leave. Demanded are those whose package transformers looks for before it loads the file
    (get_imports in its dynamic_module_utils.py): anywhere but in a ``try`` or under ``if is_…_available()``.
    """
    found: dict[str, tuple[bool, bool]] = {}
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, True, True)]
    while waiting:
        node, required, demanded = waiting.pop()
        names: list[str] = []
        match node:
            case ast.Import(names=taken):
                names = [alias.name for alias in taken]
            case ast.ImportFrom(module=None, names=taken, level=level):  # `from . import modeling` names a file
                names = ["." * level + alias.name for alias in taken]
            case ast.ImportFrom(module=module, names=taken, level=level):
                names = [f"{'.' * level}{module}.{alias.name}" for alias in taken]
            case _:
                demanded = demanded and not _asks_for_package(node)
                waiting += [(statement, runs, demanded) for statement, runs in _statements(node, required)]
        for name in names:
            before = found.get(name, (False, False))
            found[name] = (before[0] or required, before[1] or (demanded and not name.startswith(".")))
    return [Import(name, *found[name]) for name in sorted(found)]


def _asks_for_package(node: ast.AST) -> bool:
    """``try``, or ``if is_flash_attn_2_available():``, also as a part of the condition."""
    match node:
        case ast.Try():
            return True
        case ast.If(test=test):
            called = names_in(inner.func for inner in all_nodes(test) if isinstance(inner, ast.Call))
            return any(name.endswith("available") for name in called)
    return False


def _statements(node: ast.AST, required: bool) -> list[tuple[ast.AST, bool]]:
    """Statements inside the node, and whether they run whenever the node is reached."""
    parts = {field: getattr(node, field, ()) for field in ("body", "orelse", "finalbody", "handlers", "cases")}
    always = set() if isinstance(node, _PERHAPS) else {*parts}
    match node:
        case ast.Try(handlers=handlers):
            always = {"finalbody"} if _survives_import_error(handlers) else {"body", "finalbody"}
    return [(inner, required and field in always) for field, statements in parts.items() for inner in statements]


def _survives_import_error(handlers: list[ast.ExceptHandler]) -> bool:
    kinds = [kind for handler in handlers for kind in elements(handler.type)]
    return None in kinds or not _FAILED_IMPORT.isdisjoint(names_in(kinds))
