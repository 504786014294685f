"""Which names a Python file imports, and whether it can be loaded without them."""

from __future__ import annotations

import ast

from envdoctor.revision.code.parts.records import Import
from envdoctor.revision.code.parts.syntax import all_nodes

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
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
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from . import modeling` names a file, `from .modeling import Model` a name in one.
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" if node.module else base + alias.name for alias in node.names]
        else:
            demanded = demanded and not isinstance(node, ast.Try) and not _asks_for_package(node)
            waiting += [(statement, runs, demanded) for statement, runs in _statements(node, required)]
            continue
        for name in names:
            before = found.get(name, (False, False))
            found[name] = (before[0] or required, before[1] or (demanded and not name.startswith(".")))
    return [Import(name, *found[name]) for name in sorted(found)]


def _asks_for_package(node: ast.AST) -> bool:
    """``if is_flash_attn_2_available():``, also as a part of the condition."""
    if not isinstance(node, ast.If):
        return False
    calls = (inner for inner in all_nodes(node.test) if isinstance(inner, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id.endswith("available") for call in calls)


def _statements(node: ast.AST, required: bool) -> list[tuple[ast.AST, bool]]:
    """Statements inside the node, and whether they run whenever the node is reached."""
    parts = {field: getattr(node, field, ()) for field in ("body", "orelse", "finalbody", "handlers", "cases")}
    always = required and not isinstance(node, (*_FUNCTIONS, ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match))
    inner: list[tuple[ast.AST, bool]] = []
    for field, statements in parts.items():
        if not isinstance(statements, list):
            continue  # of a lambda or a conditional expression
        runs = always
        if isinstance(node, ast.Try):
            runs = always and (field == "finalbody" or (field == "body" and not _survives_import_error(node)))
        elif isinstance(node, (ast.ExceptHandler, ast.match_case)):
            runs = False
        inner += [(statement, runs) for statement in statements]
    return inner


def _survives_import_error(node: ast.Try) -> bool:
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _FAILED_IMPORT for kind in kinds):
            return True
    return False
