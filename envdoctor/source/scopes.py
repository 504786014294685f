"""Find the import that a name stands for, by Python's scopes; none for a name that anything else binds."""

import ast
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.source.definitions import FunctionNode, children, parameters_of

#: The kind of scope that a node opens.
_OPENS: Mapping[type, str] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), "function"),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "comprehension"),
    ast.ClassDef: "class",
}
#: Never a distribution's.
_STANDARD = sys.stdlib_module_names | {"__main__", "distutils", "imp", "asynchat", "asyncore", "smtpd"}


class AssignmentTarget(NamedTuple):
    """The target of an import: a module, or below it ``name``, which may be a module too."""

    module: str
    name: str = ""

    @property
    def dotted(self) -> str:
        """Return ``transformers.Trainer``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Scope:
    """The names that one function, class, comprehension or file binds, each to its imports; None is anything else."""

    __slots__ = ("_elsewhere", "bound", "kind", "parent")

    def __init__(self, kind: str, parent: "Scope | None") -> None:
        self.kind, self.parent = kind, parent
        self.bound: dict[str, list[AssignmentTarget | None]] = {}
        self._elsewhere: dict[str, Scope] = {}

    def bind(self, name: str, target: AssignmentTarget | None = None) -> None:
        """Add a meaning of a name; two equal ones are kept, or the first two different ones."""
        meanings = self._elsewhere.get(name, self).bound.setdefault(name, [])
        if len(meanings) < 2 or (meanings[-1] == meanings[0] != target):
            meanings.append(target)

    def declare(self, names: Collection[str], holder: "Scope | None") -> None:
        """Declare names that are bound further out: in ``holder``, or in the file."""
        outermost = self
        while outermost.parent is not None:
            outermost = outermost.parent
        self._elsewhere.update(dict.fromkeys(names, holder or outermost))

    def holder(self) -> "Scope":
        """Return the scope in which ``:=`` binds."""
        return self if self.kind != "comprehension" or self.parent is None else self.parent.holder()

    def is_one_definition(self, name: str) -> bool:
        """Return whether the name has one meaning here, and that is not an import."""
        return self._meanings(name) == [None]

    def is_ambiguous(self, name: str) -> bool:
        """Return whether the name has several meanings in this very scope."""
        meanings = self.bound.get(name, ())
        return len(meanings) > 1 and (None in meanings or len(set(meanings)) > 1)

    def find(self, name: str) -> AssignmentTarget | None:
        """Return the one import that the name stands for here; None if it may stand for anything else."""
        first, *others = self._meanings(name) or [None]
        is_single = first is not None and all(other and other.dotted == first.dotted for other in others)
        return first if is_single else None

    def _meanings(self, name: str) -> list[AssignmentTarget | None]:
        scope: Scope | None = self
        while scope is not None and (name not in scope.bound or (scope is not self and scope.kind == "class")):
            scope = scope.parent
        return scope.bound[name] if scope is not None else []


def scopes_of(tree: ast.Module, own: Collection[str], *, standard: bool = False) -> Mapping[int, Scope]:
    """Return the scopes by the ``id`` of the node that opens each. Imports of modules ``own``, of the standard library
    (unless ``standard``) and relative ones are bound to None."""
    scopes: dict[int, Scope] = {id(tree): Scope("module", None)}
    stack: list[tuple[ast.AST, Scope]] = [(tree, scopes[id(tree)])]
    while stack:
        node, scope = stack.pop()
        kind, inside = _OPENS.get(type(node)), scope
        if kind is not None:
            inside = scopes[id(node)] = Scope(kind, scope)
        _bind(node, scope, inside, own, standard)
        stack += [(child, inside if within else scope) for child, within in inner_parts(node)][::-1]
    return scopes


def inner_parts(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the children of a node, each with whether it lies in the scope that the node opens."""
    parts: tuple[Sequence[ast.AST], Sequence[ast.AST]]
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            parts = function_parts(node), body
        case ast.Lambda(body=value):
            parts = function_parts(node), [value]
        case ast.ClassDef(body=body):
            parts = class_parts(node), body
        case _:
            parts = ((), children(node)) if _OPENS.get(type(node)) else (children(node), ())
    return ((child, within) for within in (False, True) for child in parts[within])


def class_parts(node: ast.ClassDef) -> list[ast.expr]:
    """Return the parts of a class that are evaluated outside of it."""
    return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]


def function_parts(node: FunctionNode | ast.Lambda, *, hints: bool = True) -> list[ast.AST]:
    """Return the parts of a function that are evaluated at its definition; with ``hints``, its annotations too."""
    arguments = node.args
    parts: list[ast.AST] = [*getattr(node, "decorator_list", ()), *arguments.defaults]
    parts += [default for default in arguments.kw_defaults if default is not None]
    if hints:
        nodes = (*(parameter.annotation for parameter in parameters_of(arguments)), getattr(node, "returns", None))
        parts += [annotation for annotation in nodes if annotation is not None]
    return parts


def _bind(node: ast.AST, scope: Scope, inside: Scope, own: Collection[str], standard: bool) -> None:
    match node:
        case ast.Name(ctx=ast.Load()):
            return  # most nodes
        case ast.Import(names=aliases):
            for alias in aliases:
                top = alias.name.partition(".")[0]
                name, module = (alias.asname, alias.name) if alias.asname else (top, top)
                scope.bind(name, AssignmentTarget(module) if standard or is_foreign(top, own) else None)
        case ast.ImportFrom(module=source, names=aliases, level=level):
            foreign = not level and source is not None and (standard or is_foreign(source, own))
            for alias in (entry for entry in aliases if entry.name != "*"):
                target = AssignmentTarget(str(source), alias.name) if foreign else None
                scope.bind(alias.asname or alias.name, target)
        case ast.NamedExpr(target=ast.Name(id=name)):
            scope.holder().bind(name)
        case (
            (ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name))
            | (ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)))
            | (ast.Name(id=str(name)) | ast.MatchMapping(rest=str(name)))
        ):
            scope.bind(name)
        case ast.Global(names=names):
            scope.declare(names, None)
        case ast.Nonlocal(names=names):
            scope.declare(names, scope.parent)
    match node:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments) | ast.Lambda(args=arguments):
            for parameter in parameters_of(arguments):
                inside.bind(parameter.arg)


def is_foreign(module: str, own: Collection[str]) -> bool:
    """Return whether a module belongs to a distribution: neither to the project nor to the standard library."""
    top = module.partition(".")[0]
    return top not in own and top not in _STANDARD
