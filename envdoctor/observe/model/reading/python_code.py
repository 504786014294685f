"""Names that Python files define, import and read, by their syntax trees. Runs in a bounded child.

The child reads frames (``sandbox/frames.py``) and answers all of them with one JSON object:
``methods`` and ``names``, or the first ``problem`` (syntax, deep, large, text) with the number of its ``file`` and the
``line``. Imports that a ``try`` with ``except ImportError`` protects, and those under ``TYPE_CHECKING``, are left out:
they cannot fail when the file is loaded. So are relative imports, which name the repository's own files.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from envdoctor.sandbox.frames import frames

__all__ = ["answer", "main"]

_OPERATORS = b".([+-*/%@&|^<>"
_MAX_OPERATORS = 20_000
_FAILED_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def main() -> None:
    """Answer the frames on stdin."""
    warnings.simplefilter("ignore")  # invalid escapes and the like are the author's business
    sys.stdout.write(json.dumps(answer(frames(sys.stdin.buffer.read())), separators=(",", ":")))


def answer(files: Iterable[bytes]) -> dict[str, Any]:
    """What the parent is told of the files."""
    methods: set[str] = set()
    names: set[str] = set()
    for number, content in enumerate(files):
        problem = _read_code(content, methods, names)
        if problem is not None:
            return {"problem": problem[0], "line": problem[1], "file": number}
    return {"methods": sorted(methods), "names": sorted(names)}


def _read_code(content: bytes, methods: set[str], names: set[str]) -> tuple[str, int] | None:
    """Add one file's names; a problem, and its line, when it cannot be parsed by this Python."""
    # Before 3.11 the interpreter has no limit here: 100,000 operators in one expression overrun an 8 MiB stack. All
    # operators of a file bound those of its longest expression; the largest modeling file of transformers has 7,500.
    if sys.version_info < (3, 11) and len(content) - len(content.translate(None, _OPERATORS)) > _MAX_OPERATORS:
        return "large", 0
    try:
        tree = ast.parse(content)
        for scope, function in _functions(tree):
            methods.add(f"{scope}{function.name}({_parameters(function.args)})")
        _collect_names(tree, names)
    except SyntaxError as error:
        return "syntax", error.lineno or 1
    except (RecursionError, MemoryError):
        return "deep", 0
    except (ValueError, LookupError):
        return "text", 0
    return None


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions of the module and of its classes, also where a condition or a ``try`` holds them."""
    waiting: list[tuple[str, ast.stmt]] = [("", statement) for statement in tree.body]
    while waiting:
        scope, statement = waiting.pop()
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield scope, statement
        elif isinstance(statement, ast.ClassDef):
            waiting += [(f"{scope}{statement.name}.", inner) for inner in statement.body]
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            inner = [*statement.body, *getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())]
            for handler in getattr(statement, "handlers", ()):
                inner += handler.body
            waiting += [(scope, item) for item in inner]


def _parameters(arguments: ast.arguments) -> str:
    """The parameters' names as Python writes them, without defaults and annotations: ``self, x, *, padding_side``."""
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


def _collect_names(tree: ast.Module, names: set[str]) -> None:
    waiting: list[object] = [tree]
    protected: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.AST):
            continue
        # A node's attributes are its children, lists of them, names and positions; ast.walk takes twice the time.
        for child in vars(node).values():
            if isinstance(child, ast.AST):
                waiting.append(child)
            elif isinstance(child, list):
                waiting += child
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                names.add("." + node.attr)
        elif isinstance(node, ast.Import) and id(node) not in protected:
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and id(node) not in protected:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, (ast.Try, ast.If)) and _protects_imports(node):
            protected.update(id(inner) for statement in node.body for inner in ast.walk(statement))


def _protects_imports(node: ast.Try | ast.If) -> bool:
    """Whether an import in the node's body cannot stop the file from being loaded."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _FAILED_IMPORT for kind in kinds):
            return True
    return False
