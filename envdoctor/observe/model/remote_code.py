"""The repository's own Python files: signatures of their methods, names they import, attributes they read.

The code is parsed, never imported. Imports that a ``try`` with ``except ImportError`` protects, and those under
``TYPE_CHECKING``, are left out: they cannot fail when the file is loaded. Relative imports name the repository's own
files and are left out as well.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.models.names import printable
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.observe.request import Request
from envdoctor.text.files import Files, because_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

__all__ = ["KEYS", "observe"]

KEYS = ("model.code_methods", "model.code_names")

_MAX_FILES = 64
_MAX_FILE = 1 << 20
_MAX_TOTAL = 4 << 20
_OPERATORS = b".([+-*/%@&|^<>"
_MAX_OPERATORS = 20_000
_FAILED_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def observe(request: Request) -> list[Fact]:
    """``model.code_methods`` as ``Class.method(self, a, *args, b, **kwargs)`` and ``name(a)`` for functions;
    ``model.code_names`` as ``package.module.name`` and ``.attribute``. Sorted, without repetition, empty without
    Python files; unknown when any of the files could not be read, for a missing name would then prove nothing.
    """
    source = request.source
    if source.folder is None:
        return source.unread(KEYS)
    methods: set[str] = set()
    names: set[str] = set()
    problem = _read_folder(source.folder, methods, names)
    values: tuple[Value, Value] = (problem, problem) if problem else (tuple(sorted(methods)), tuple(sorted(names)))
    return [Fact(key, value, "*.py", "model") for key, value in zip(KEYS, values, strict=True)]


def _read_folder(folder: str, methods: set[str], names: set[str]) -> Unknown | None:
    """Add what all Python files of the folder hold; the first reason why one of them could not be read."""
    files = _python_files(folder)
    if isinstance(files, Unknown):
        return files
    total = 0
    for name in files:
        content = read_bytes(folder, name, _MAX_FILE)
        if isinstance(content, Unknown):
            return content
        total += len(content)
        if total > _MAX_TOTAL:
            return Unknown(f"the Python files of the model are larger than {_MAX_TOTAL >> 20} MiB together")
        problem = _read_code(name, content, methods, names)
        if problem is not None:
            return problem
    return None


def _python_files(folder: str) -> list[str] | Unknown:
    files = Files()
    try:
        names = [name for name in files.names(folder) if name.endswith(".py")]
    except OSError as error:
        return Unknown(f"the model's folder cannot be listed: {because_of(error)}")
    found = [name for name in names if not files.is_folder(os.path.join(folder, name))]
    return found if len(found) <= _MAX_FILES else Unknown(f"the model has more than {_MAX_FILES} Python files")


def _read_code(name: str, content: bytes, methods: set[str], names: set[str]) -> Unknown | None:
    """Add one file's names; the reason when it cannot be parsed by this Python."""
    import ast
    import warnings

    # Before 3.11 the interpreter has no limit here: 100,000 operators in one expression overrun an 8 MiB stack. All
    # operators of a file bound those of its longest expression; the largest modeling file of transformers has 7,500.
    if sys.version_info < (3, 11) and len(content) - len(content.translate(None, _OPERATORS)) > _MAX_OPERATORS:
        return Unknown(f"{printable(name)} is too large to be parsed safely by Python before 3.11")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are the author's business
            tree = ast.parse(content)
        for scope, function in _functions(tree):
            methods.add(f"{scope}{function.name}({_parameters(function.args)})")
        _collect_names(tree, names)
    except SyntaxError as error:
        return Unknown(f"{printable(name)} is not Python that this interpreter can parse (line {error.lineno or 1})")
    except (RecursionError, MemoryError):
        return Unknown(f"{printable(name)} is nested too deeply to be parsed")
    except ValueError:
        return Unknown(f"{printable(name)} is not Python source text")
    return None


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions of the module and of its classes, also where a condition or a ``try`` holds them."""
    import ast

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
    import ast

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
    import ast

    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", "") in _FAILED_IMPORT for kind in kinds):
            return True
    return False
