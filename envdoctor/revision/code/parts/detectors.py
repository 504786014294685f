"""Detectors on one syntax tree: places that reach beyond computing, version gates, attention choices, idle functions.

They read what is written, so they can be misled on purpose: that nothing was found is no proof of harmlessness.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from envdoctor.revision.code.parts import reaching_names
from envdoctor.revision.code.parts.records import MODULE_LEVEL, Site
from envdoctor.revision.code.parts.syntax import all_nodes, children, dotted, exact, short, target_names
from envdoctor.revision.code.parts.version_gates import VersionNames

_ATTENTION_KEY = re.compile(r"^_?attn_implementation$")
_ATTENTION_CLASS = re.compile(r"[A-Z]\w*?(?:attention|attn|sdpa)", re.IGNORECASE)
_NO_ATTENTION_CLASS = re.compile(r"mask|config|dropout|norm|bias|residual", re.IGNORECASE)
_ATTENTION_KERNEL = re.compile(r"^_?(flash_attn|flash_attention|scaled_dot_product|memory_efficient_attention)")
_QUESTIONS = "isinstance issubclass hasattr getattr callable len str repr type format print bool int id dir vars"
_QUIET_CALLS = frozenset(_QUESTIONS.split())
_LOGGERS = frozenset({"logger", "logging", "warnings", "log", "_logger", "LOGGER"})
_TELLING = (ast.Call, ast.Attribute, ast.Name, ast.ImportFrom)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Aliases:
    """What the names of a file stand for: ``np`` for ``numpy``, ``run`` for ``subprocess.run``, ``o`` after ``o = os``.

    A name that is bound twice stands for both.
    """

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.targets: dict[str, set[str]] = {}
        assigned: list[tuple[str, str]] = []
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    root = alias.name.partition(".")[0]
                    self._bind(alias.asname or root, alias.name if alias.asname else root)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    self._bind(alias.asname or alias.name, f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
                value = dotted(node.value)
                if value and not value.startswith("."):
                    assigned += [(name, value) for name in target_names(node)]
        for name, value in assigned:
            if value.partition(".")[0] in self.targets:
                for resolved in self.resolve(value):
                    self._bind(name, resolved)

    def _bind(self, name: str, target: str) -> None:
        known = self.targets.setdefault(name, set())
        if len(known) < 8:
            known.add(target)

    def resolve(self, name: str) -> list[str]:
        """Everything the dotted name can stand for; itself when it was not imported."""
        root, dot, rest = name.partition(".")
        return [target + dot + rest for target in sorted(self.targets.get(root, ()))] or [name]


def sites_of(tree: ast.Module, nodes: list[ast.AST]) -> list[Site]:
    """Calls and references that reach beyond computing, and version gates, in the order of the file; ``nodes`` are all
    nodes of the tree."""
    found: list[Site] = []
    aliases, versions = Aliases(nodes), VersionNames(nodes)
    # Of what is still to be visited: node, scope, whether it runs at load, whether the major version was looked at.
    waiting: list[tuple[ast.AST, str, bool, bool]] = [(tree, "", True, False)]
    while waiting:
        node, scope, at_load, has_major = waiting.pop()
        inner, later = scope, not at_load
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner = f"{scope}.{node.name}" if scope else node.name
            body_later = later or not isinstance(node, ast.ClassDef)
            waiting += [(child, inner, not body_later, has_major) for child in reversed(node.body)]
            waiting += [(child, inner, at_load, has_major) for child in _around_body(node)]
            continue
        if isinstance(node, ast.Lambda):
            waiting.append((node.body, scope, False, has_major))
            waiting.append((node.args, scope, at_load, has_major))
            continue
        if isinstance(node, ast.stmt) and not later:
            inner = ".".join(part for part in (scope, next(target_names(node), "")) if part)
        if isinstance(node, (ast.BoolOp, ast.If, ast.IfExp)):
            has_major = has_major or versions.asks_major(node)
        gate = versions.gate(node, has_major)
        if gate:
            found.append(Site(gate, inner or MODULE_LEVEL, short(node), short(node), at_load))
        kind, goes_on = _kind_of(node, aliases) if isinstance(node, _TELLING) else (None, children(node))
        if kind:
            found.append(Site(kind, inner or MODULE_LEVEL, _key(kind, node), short(node), at_load))
        waiting += [(child, inner, at_load, has_major) for child in reversed(goes_on)]
    return found


def _around_body(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.AST]:
    """Decorators, bases, defaults and annotations: they run where the definition stands."""
    around: list[ast.AST] = list(node.decorator_list)
    if isinstance(node, ast.ClassDef):
        return [*around, *node.bases, *node.keywords]
    around += [node.args] if node.returns is None else [node.args, node.returns]
    return around


def _kind_of(node: ast.AST, aliases: Aliases) -> tuple[str | None, list[ast.AST]]:
    """What the node can do, and which of its children are still to be looked at."""
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        arguments: list[ast.AST] = [*node.args, *node.keywords]
        kind = _first(reaching_names.call_kind(resolved, node) for resolved in aliases.resolve(name))
        kind = kind or _getattr(node, aliases)
        if name and not name.startswith("."):
            return kind, arguments
        return kind, [node.func.value if isinstance(node.func, ast.Attribute) else node.func, *arguments]
    if isinstance(node, (ast.Attribute, ast.Name)):
        name = dotted(node)
        if name.startswith("."):
            return reaching_names.name_kind(name), children(node)
        # Without a call, `compile` and `code` are ordinary names for variables, `eval` and imported ones are not.
        known = name.partition(".")[0] in aliases.targets or name in ("eval", "exec", "__import__", "__builtins__")
        stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        return (_first(map(reaching_names.name_kind, aliases.resolve(name))) if known and not stored else None), []
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return reaching_names.name_kind(f"{node.module}.*") if not node.level else None, []
    return None, children(node)


def _getattr(node: ast.Call, aliases: Aliases) -> str | None:
    """``getattr(os, "system")`` is ``os.system``; with a computed name it can be anything of a dangerous module."""
    if not (isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars") and node.args):
        return None
    module = dotted(node.args[0])
    if module.partition(".")[0] not in aliases.targets and module != "__builtins__":
        return None
    key = node.args[1] if len(node.args) > 1 else None
    for resolved in aliases.resolve(module):
        if isinstance(key, ast.Constant):
            kind = reaching_names.name_kind(f"{resolved}.{key.value!s}")
        else:
            kind = reaching_names.EXEC if resolved in ("os", "builtins", "subprocess", "ctypes", "sys") else None
        if kind:
            return kind
    return None


def _first(kinds: Iterable[str | None]) -> str | None:
    return next((kind for kind in kinds if kind), None)


def _key(kind: str, node: ast.AST) -> str:
    """What makes two places the same: their text; for files the function and its constants, for names of variables
    that hold a path change in every refactoring."""
    if kind == reaching_names.FILE_WRITE and isinstance(node, ast.Call):
        arguments = [*node.args, *(word.value for word in node.keywords)]
        parts = [part for argument in arguments for part in all_nodes(argument)]
        constants = [ascii(part.value) for part in parts if isinstance(part, ast.Constant)]
        return " ".join([dotted(node.func), *constants])[:4096]
    return exact(node)


def attention_choices(nodes: list[ast.AST]) -> list[str]:
    """How a function picks its attention: lookups of ``attn_implementation``, and attention classes and kernels that
    it calls."""
    found: set[str] = set()
    for node in nodes:
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rpartition(".")[2]
            if _ATTENTION_KERNEL.match(last):
                found.add(last)
            elif last[:1].isupper() and _ATTENTION_CLASS.match(last) and not _NO_ATTENTION_CLASS.search(last):
                found.add(name)
            asked = node.args[1:2] if name == "getattr" else []
        elif isinstance(node, ast.Subscript):
            asked = [node.slice] if isinstance(node.ctx, ast.Load) else []
        elif isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Assign):
            asked = node.targets
        if any(map(_is_attention_key, asked)):
            found.add(short(node))
    return sorted(found)


def _is_attention_key(node: ast.expr) -> bool:
    """``config._attn_implementation``, the name alone, or the word in quotes."""
    name = node.value if isinstance(node, ast.Constant) else dotted(node).rpartition(".")[2]
    return isinstance(name, str) and bool(_ATTENTION_KEY.match(name))


def is_idle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether calling the function can change nothing and says nothing: no assignment but to local names, and no call
    but of questions, loggers and what is raised. One that always raises is not idle: it fails loudly.
    """
    if any(isinstance(statement, ast.Raise) for statement in function.body):
        return False
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise):
            continue
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)):
            return False
        if isinstance(node, ast.Call) and not _is_quiet(node):
            return False
        waiting += children(node)
    return True


def _is_quiet(call: ast.Call) -> bool:
    name = dotted(call.func)
    root = name.partition(".")[0]
    return name in _QUIET_CALLS or root in _LOGGERS or name.endswith(("Error", "Exception", "Warning"))
