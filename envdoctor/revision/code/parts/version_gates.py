"""Version gates in a syntax tree: comparisons with a version, and those that look at its second number alone."""

import ast
import re
from functools import reduce
from operator import or_

from envdoctor.revision.code.parts.records import MINOR_ONLY, VERSION_GATE
from envdoctor.source.definitions import all_nodes, children, dotted

_PARSERS = frozenset({"parse", "Version", "LooseVersion", "StrictVersion", "parse_version", "version"})
_QUESTION = re.compile(r"is_\w+_(?:version|or_higher|or_later|or_newer)\Z|is_\w+?_greater_or_equal")
_TESTS = (ast.Compare, ast.BoolOp, ast.IfExp)
_MAJOR, _MINOR, _WHOLE = 1, 2, 4
_FIELDS = {"major": _MAJOR, "minor": _MINOR}
_INDEXES: dict[object, int] = {0: _MAJOR, 1: _MINOR}


class VersionNames:
    """Which names of a file hold a version or a part of one."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self.lists: set[str] = set()
        self.parts: dict[str, int] = {}
        assignments = [(node.targets, node.value) for node in nodes if isinstance(node, ast.Assign)]
        for _ in range(2):  # once for `parts = v.split(".")`, once for `minor = int(parts[1])`
            for target, value in ((target, value) for targets, value in assignments for target in targets):
                self._learn(target, value)

    def _learn(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _ if self._is_list(value):
                self.lists.add(name)
            case ast.Name(id=name), _ if not (isinstance(value, _TESTS) or _is_question(value)):
                part = self._part(value)
                self.parts |= {name: part} if part else {}
            case ((ast.Tuple(elts=items) | ast.List(elts=items)), _) if any(map(self._is_list, all_nodes(value))):
                named = zip(items, _INDEXES.values(), strict=False)
                self.parts |= {element.id: part for element, part in named if isinstance(element, ast.Name)}

    def gate(self, node: ast.AST, has_major: bool) -> str | None:
        """The kind of gate that the node is; ``has_major``: the first number was asked for around it."""
        parts = self._compared(node)
        if parts == _MINOR and not has_major:
            return MINOR_ONLY
        return VERSION_GATE if parts or _is_question(node) else None

    def _compared(self, node: ast.AST) -> int:
        """Which parts of a version a comparison looks at."""
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        return reduce(or_, map(self._part, sides), 0)

    def asks_major(self, node: ast.BoolOp | ast.If | ast.IfExp) -> bool:
        """Whether a condition compares the first number or the whole version."""
        tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
        return any(self._compared(inner) & ~_MINOR for test in tests for inner in all_nodes(test))

    def _part(self, node: ast.expr) -> int:
        """Which parts of a version an expression is made of."""
        found = 0
        waiting: list[ast.AST] = [node]
        while waiting:
            inner = waiting.pop()
            match inner:
                case ast.Subscript(value=base, slice=index) if self._is_list(base):
                    found |= _INDEXES.get(getattr(index, "value", None), _WHOLE)
                case ast.Attribute(value=base, attr=name) if name in _FIELDS and self._is_version(base):
                    found |= _FIELDS[name]
                case ast.Name(id=name) if name in self.parts:
                    found |= self.parts[name]
                case _ if self._is_version(inner):
                    found |= _WHOLE
                case _:
                    waiting += children(inner)
        return found

    def _is_version(self, node: ast.AST) -> bool:
        """``transformers.__version__``, ``version.parse(…)``, or a name that was assigned one of them."""
        match node:
            case ast.Call(func=func, args=args):
                name = dotted(func)
                return name.rpartition(".")[2] in _PARSERS and ("ersion" in name or any(map(self._is_version, args)))
            case ast.Attribute(attr="__version__" | "base_version"):
                return not dotted(node).startswith("sys.")
            case ast.Name(id=name):
                return name == "__version__" or self.parts.get(name) == _WHOLE
        return False

    def _is_list(self, node: ast.AST) -> bool:
        """``v.split(".")``, ``version.parse(v).release``, ``list(map(int, …))`` of one, or a name for one."""
        match node:
            case ast.Attribute(value=base, attr="release"):
                return self._is_version(base)
            case ast.Name(id=name):
                return name in self.lists
            case ast.Subscript(value=base, slice=ast.Slice()):
                return self._is_list(base)
            case ast.Call(func=ast.Attribute(value=base, attr="split"), args=[ast.Constant(value="."), *_]):
                return any(self._is_version(inner) or _says_version(inner) for inner in all_nodes(base))
            case ast.Call(func=ast.Name(id="list" | "tuple" | "map"), args=args):
                return any(map(self._is_list, args))
        return False


def _says_version(node: ast.AST) -> bool:
    name = dotted(node).lower()
    # No release of Python is waiting for a check that looks at its second number alone.
    return "version" in name.rpartition(".")[2] and "python" not in name and not name.startswith("sys.")


def _is_question(node: ast.AST) -> bool:
    """``is_transformers_version(">=", "4.42")`` and the like."""
    return isinstance(node, ast.Call) and _QUESTION.match(dotted(node.func).rpartition(".")[2]) is not None
