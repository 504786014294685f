"""Which import a name stands for, by Python's scopes; for a name that anything else binds, none."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPENS = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)
#: Never a distribution's.
_STANDARD = sys.stdlib_module_names | {"__main__", "distutils", "imp", "asynchat", "asyncore", "smtpd"}


class Target(NamedTuple):
    """What an import binds: a module, or below it ``name``, which may be a module too."""

    module: str
    name: str = ""

    @property
    def dotted(self) -> str:
        """``transformers.Trainer``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Scope:
    """The names that one function, class, comprehension or file binds, each to its imports; None is anything else."""

    __slots__ = ("_elsewhere", "bound", "kind", "parent")

    def __init__(self, kind: str, parent: Scope | None) -> None:
        self.kind, self.parent = kind, parent
        self.bound: dict[str, list[Target | None]] = {}
        self._elsewhere: dict[str, Scope] = {}

    def bind(self, name: str, target: Target | None = None) -> None:
        """One more meaning of a name; of many that are alike two are kept, of different ones the first two kinds."""
        meanings = self._elsewhere.get(name, self).bound.setdefault(name, [])
        if len(meanings) < 2 or (meanings[-1] == meanings[0] != target):
            meanings.append(target)

    def declare(self, statement: ast.Global | ast.Nonlocal) -> None:
        """Names that are bound further out."""
        holder = self.parent or self
        if isinstance(statement, ast.Global):
            while holder.parent is not None:
                holder = holder.parent
        self._elsewhere.update(dict.fromkeys(statement.names, holder))

    def holder(self) -> Scope:
        """The scope in which ``:=`` binds."""
        return self if self.kind != "comprehension" or self.parent is None else self.parent.holder()

    def is_one_definition(self, name: str) -> bool:
        """Whether the name has one meaning here, which is no import."""
        return self._meanings(name) == [None]

    def find(self, name: str) -> Target | None:
        """The one import that the name stands for here; None when it may stand for anything else."""
        targets = self._meanings(name)
        first = targets[0] if targets else None
        one = first is not None and all(other and other.dotted == first.dotted for other in targets)
        return first if one else None

    def _meanings(self, name: str) -> list[Target | None]:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or scope.kind != "class"):
                return scope.bound[name]
            scope = scope.parent
        return []


def scopes_of(tree: ast.Module, own: Collection[str]) -> Mapping[int, Scope]:
    """The scopes by the ``id`` of the node that opens each. Imports of modules ``own``, of the standard library and
    relative ones are bound to nothing."""
    scopes: dict[int, Scope] = {id(tree): Scope("module", None)}
    waiting: list[tuple[ast.AST, Scope]] = [(tree, scopes[id(tree)])]
    while waiting:
        node, scope = waiting.pop()
        inside = scope
        if isinstance(node, _OPENS):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            inside = Scope("comprehension" if isinstance(node, _COMPREHENSIONS) else kind, scope)
            scopes[id(node)] = inside
        _bind(node, scope, inside, own)
        waiting += [(child, inside if within else scope) for child, within in inner_parts(node)][::-1]
    return scopes


def inner_parts(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The children of a node, each with whether it lies in the scope that the node opens."""
    if isinstance(node, _FUNCTIONS):
        yield from ((child, False) for child in function_parts(node))
        body = node.body if isinstance(node.body, list) else [node.body]
        yield from ((child, True) for child in body)
    elif isinstance(node, ast.ClassDef):
        outside = (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords))
        yield from ((child, False) for child in outside)
        yield from ((child, True) for child in node.body)
    else:
        within = isinstance(node, _COMPREHENSIONS)
        yield from ((child, within) for child in ast.iter_child_nodes(node))


def function_parts(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, *, hints: bool = True) -> list[ast.AST]:
    """What of a function is evaluated where it is defined; ``hints``: its annotations too."""
    arguments = node.args
    parts: list[ast.AST] = [*getattr(node, "decorator_list", ()), *arguments.defaults]
    parts += [default for default in arguments.kw_defaults if default is not None]
    if hints and not isinstance(node, ast.Lambda):
        named = [*_named(arguments), arguments.vararg, arguments.kwarg]
        parts += [one.annotation for one in named if one is not None and one.annotation is not None]
        parts += [node.returns] if node.returns is not None else []
    return parts


def _named(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _bind(node: ast.AST, scope: Scope, inside: Scope, own: Collection[str]) -> None:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for name, target in _imported(node, own):
            scope.bind(name, target)
    elif isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            scope.bind(node.id)
    elif isinstance(node, ast.NamedExpr):
        scope.holder().bind(node.target.id)
    elif isinstance(node, _FUNCTIONS):
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name)
        for one in (*_named(node.args), node.args.vararg, node.args.kwarg):
            if one is not None:
                inside.bind(one.arg)
    elif isinstance(node, ast.ClassDef):
        scope.bind(node.name)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name is not None:
            scope.bind(node.name)
    elif isinstance(node, ast.MatchMapping):
        if node.rest is not None:
            scope.bind(node.rest)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.declare(node)


def _imported(node: ast.Import | ast.ImportFrom, own: Collection[str]) -> Iterator[tuple[str, Target | None]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            foreign = is_foreign(top, own)
            name, module = (alias.asname, alias.name) if alias.asname else (top, top)
            yield name, Target(module) if foreign else None
        return
    foreign = not node.level and node.module is not None and is_foreign(node.module, own)
    for alias in node.names:
        if alias.name != "*":
            yield alias.asname or alias.name, Target(str(node.module), alias.name) if foreign else None


def is_foreign(module: str, own: Collection[str]) -> bool:
    """Whether a module belongs to a distribution: neither to the project nor to the standard library."""
    top = module.partition(".")[0]
    return top not in own and top not in _STANDARD
