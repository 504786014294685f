"""Version gates in a syntax tree: comparisons with a version, and those that look at its second number alone."""

from __future__ import annotations

import ast
import re

from envdoctor.revision.code.parts.records import MINOR_ONLY, VERSION_GATE
from envdoctor.revision.code.parts.syntax import all_nodes, children, dotted

_PARSERS = frozenset({"parse", "Version", "LooseVersion", "StrictVersion", "parse_version", "version"})
_QUESTION = re.compile(r"is_\w+_(?:version|or_higher|or_later|or_newer)\Z|is_\w+?_greater_or_equal")
_MAJOR, _MINOR, _WHOLE = 1, 2, 4
_FIELDS = {"major": _MAJOR, "minor": _MINOR}
_INDEXES = {0: _MAJOR, 1: _MINOR}


class VersionNames:
    """Which names of a file hold a version or a part of one."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.lists: set[str] = set()
        self.parts: dict[str, int] = {}
        assignments = [node for node in nodes if isinstance(node, ast.Assign)]
        for _ in range(2):  # once for `parts = v.split(".")`, once for `minor = int(parts[1])`
            for node in assignments:
                for target in node.targets:
                    self._learn(target, node.value)

    def _learn(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if self._is_list(value):
                self.lists.add(target.id)
            elif not isinstance(value, (ast.Compare, ast.BoolOp, ast.IfExp)) and not _is_question(value):
                part = self._part(value)
                if part:
                    self.parts[target.id] = part
        elif isinstance(target, (ast.Tuple, ast.List)) and self._mentions_list(value):
            for index, element in enumerate(target.elts):
                if isinstance(element, ast.Name) and index in _INDEXES:
                    self.parts[element.id] = _INDEXES[index]

    def gate(self, node: ast.AST, has_major: bool) -> str | None:
        """The kind of gate that the node is; ``has_major``: the first number was asked for around it."""
        if isinstance(node, ast.Call) and _is_question(node):
            return VERSION_GATE
        if not isinstance(node, ast.Compare):
            return None
        parts = 0
        for side in (node.left, *node.comparators):
            parts |= self._part(side)
        if parts == _MINOR and not has_major:
            return MINOR_ONLY
        return VERSION_GATE if parts else None

    def asks_major(self, node: ast.BoolOp | ast.If | ast.IfExp) -> bool:
        """Whether a condition compares the first number or the whole version."""
        tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
        for test in tests:
            for inner in all_nodes(test):
                if isinstance(inner, ast.Compare):
                    for side in (inner.left, *inner.comparators):
                        if self._part(side) & ~_MINOR:
                            return True
        return False

    def _part(self, node: ast.expr) -> int:
        """Which parts of a version an expression is made of."""
        found = 0
        waiting: list[ast.AST] = [node]
        while waiting:
            inner = waiting.pop()
            if isinstance(inner, ast.Subscript) and self._is_list(inner.value):
                index = inner.slice
                known = isinstance(index, ast.Constant) and index.value in _INDEXES
                found |= _INDEXES[index.value] if known else _WHOLE  # type: ignore[attr-defined]
            elif isinstance(inner, ast.Attribute) and inner.attr in _FIELDS and self._is_version(inner.value):
                found |= _FIELDS[inner.attr]
            elif isinstance(inner, ast.Name) and inner.id in self.parts:
                found |= self.parts[inner.id]
            elif isinstance(inner, (ast.Attribute, ast.Call, ast.Name)) and self._is_version(inner):
                found |= _WHOLE
            else:
                waiting += children(inner)
        return found

    def _is_version(self, node: ast.AST) -> bool:
        """``transformers.__version__``, ``version.parse(…)``, or a name that was assigned one of them."""
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rpartition(".")[2]
            return last in _PARSERS and ("ersion" in name or any(self._is_version(part) for part in node.args))
        if isinstance(node, ast.Attribute):
            return node.attr in ("__version__", "base_version") and not dotted(node).startswith("sys.")
        return isinstance(node, ast.Name) and (node.id == "__version__" or self.parts.get(node.id) == _WHOLE)

    def _is_list(self, node: ast.AST) -> bool:
        """``v.split(".")``, ``version.parse(v).release``, ``list(map(int, …))`` of one, or a name for one."""
        if isinstance(node, ast.Attribute):
            return node.attr == "release" and self._is_version(node.value)
        if isinstance(node, ast.Name):
            return node.id in self.lists
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Slice) and self._is_list(node.value)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            is_dot = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == "."
            return is_dot and self._mentions_version(node.func.value)
        if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "map"):
            return any(self._is_list(part) for part in node.args)
        return False

    def _mentions_list(self, node: ast.AST) -> bool:
        return any(self._is_list(inner) for inner in all_nodes(node))

    def _mentions_version(self, node: ast.AST) -> bool:
        return any(self._is_version(inner) or _says_version(inner) for inner in all_nodes(node))


def _says_version(node: ast.AST) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    name = dotted(node).lower()
    # No release of Python is waiting for a check that looks at its second number alone.
    return "version" in name.rpartition(".")[2] and "python" not in name and not name.startswith("sys.")


def _is_question(node: ast.AST) -> bool:
    """``is_transformers_version(">=", "4.42")`` and the like."""
    return isinstance(node, ast.Call) and bool(_QUESTION.match(dotted(node.func).rpartition(".")[2]))
