"""What a script uses of other distributions: names, attributes through aliases, keywords of calls, overridden methods.

Left out are the standard library, relative imports, and the project's own modules. A use is guarded where the script
goes on without it: it catches the failure, asks first what is there, or provides the name itself.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import NamedTuple

from envdoctor.source.guards import NOTHING, Guard, asks_what_is_there, caught, leaves, suppressed
from envdoctor.source.overriding import own_parameters
from envdoctor.source.scopes import Scope, Target, function_parts, inner_parts, is_foreign, scopes_of

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: ``TryStar`` is of Python 3.11.
_TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))
#: Names behind a module that are looked at; what follows belongs to a class or an object.
_LONGEST_CHAIN = 4
_MOST = 20_000
#: How a module is put into ``sys.modules``, besides by an assignment.
_FAKING = ("setdefault", "__setitem__")


class TooMuch(Exception):
    """The file uses more than can be told."""


class Use(NamedTuple):
    """One use. ``kind`` is module (``module`` alone is imported), name (imported from it), attribute (read through it;
    ``name`` is dotted), keyword (of a call of ``name``) or override (``name`` is ``Class.method`` of the base class,
    ``parameters`` are those of the method without the bound one, as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``).

    ``within`` is the outermost function or class whose call it waits for; empty for what runs when the file does,
    or, where it stands in a ``branch``, may run then.
    """

    kind: str
    module: str
    name: str
    keyword: str
    parameters: tuple[str, ...]
    guarded: bool
    within: str
    branch: bool
    line: int

    @property
    def dotted(self) -> str:
        """``transformers.Trainer.compute_loss``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Found(NamedTuple):
    """What one file says: its uses; ``mentioned``, names that it reads, each with the definition that it stands in;
    ``provided``, dotted names that it sets in other modules."""

    uses: list[Use]
    mentioned: set[tuple[str, str]]
    provided: set[str]


class _Place(NamedTuple):
    """Where a node stands. ``outer`` is the outermost definition around it, ``deferred`` whether it waits for a call,
    ``branch`` whether for a condition, ``bases`` are the imported base classes of the class whose method it is in."""

    scope: Scope
    guard: Guard
    outer: str = ""
    deferred: bool = False
    branch: bool = False
    bases: tuple[Target, ...] = ()


def uses_of(tree: ast.Module, own: Collection[str] = ()) -> Found:
    """The uses of one file; imports of modules ``own`` are the project's. Raises :class:`TooMuch`."""
    return _Reader(tree, own).read()


class _Class(NamedTuple):
    """A class of the file: the imported classes that it derives from, and the fields that it declares itself.
    ``constructor``: it says itself how it is made."""

    bases: tuple[Target, ...]
    fields: frozenset[str]
    constructor: bool

    @property
    def made_by(self) -> Target | None:
        """The one imported class whose constructor is called for it."""
        return self.bases[0] if len(self.bases) == 1 and not self.constructor else None


class _Reader:
    """One walk over a tree, without recursion: what is nested deeply may still be read."""

    def __init__(self, tree: ast.Module, own: Collection[str]) -> None:
        self._tree, self._own = tree, own
        self._scopes = scopes_of(tree, own)
        self._hints = not any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
            for node in tree.body
        )
        self._classes: dict[str, _Class] = {}
        self._found = Found([], set(), set())
        self._waiting: list[tuple[ast.AST, _Place]] = []

    def read(self) -> Found:
        """Everything that the file uses."""
        self._push_block(self._tree.body, _Place(self._scopes[id(self._tree)], NOTHING))
        while self._waiting:
            node, place = self._waiting.pop()
            self._visit(node, place)
            if len(self._found.uses) > _MOST or len(self._found.mentioned) > _MOST:
                raise TooMuch
        return self._found

    def _visit(self, node: ast.AST, place: _Place) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, place)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            self._read_chain(node, place)
        elif isinstance(node, ast.Call):
            self._call(node, place)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self._provide([node.slice], _is_modules(node.value))
            self._push_children(node, place)
        elif isinstance(node, ast.ClassDef):
            self._define_class(node, place)
        elif isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            self._define_function(node, place)
        elif isinstance(node, _TRIES):
            body = place._replace(guard=place.guard.joined(caught(node)))
            self._push_block(node.finalbody, place)
            self._push_block(node.orelse, place)
            for handler in node.handlers:
                self._push_block(handler.body, place._replace(guard=place.guard._replace(optional=True)))
                self._push([handler.type] if handler.type is not None else [], place)
            self._push_block(node.body, body)
        elif isinstance(node, (ast.If, ast.IfExp)):
            self._condition(node, place)
        elif isinstance(node, ast.BoolOp):
            self._alternatives(node, place)
        elif isinstance(node, ast.AnnAssign) and (place.deferred or not self._hints):
            self._push([part for part in (node.target, node.value) if part is not None], place)
        else:
            guard = suppressed(node) if isinstance(node, (ast.With, ast.AsyncWith)) else NOTHING
            self._push_children(node, place._replace(guard=place.guard.joined(guard)))

    def _push(self, nodes: Sequence[ast.AST], place: _Place) -> None:
        self._waiting += [(node, place) for node in reversed(nodes)]

    def _push_children(self, node: ast.AST, place: _Place) -> None:
        scope = self._scopes.get(id(node), place.scope)
        parts = [(child, place._replace(scope=scope) if within else place) for child, within in inner_parts(node)]
        self._waiting += reversed(parts)

    def _push_block(self, body: Sequence[ast.stmt], place: _Place) -> None:
        """Statements in their order; those behind ``if not is_peft_available(): return`` are guarded by it."""
        parts: list[tuple[ast.AST, _Place]] = []
        for statement in body:
            parts.append((statement, place))
            if isinstance(statement, ast.If) and leaves(statement.body) and asks_what_is_there(statement.test):
                place = place._replace(guard=place.guard._replace(optional=True))
        self._waiting += reversed(parts)

    def _condition(self, node: ast.If | ast.IfExp, place: _Place) -> None:
        asked = asks_what_is_there(node.test)
        inside = place._replace(guard=place.guard._replace(optional=True)) if asked else place
        if isinstance(node, ast.If):
            inside = inside._replace(branch=place.branch or not _asks_if_main(node.test))
            self._push_block(node.body, inside)
            self._push_block(node.orelse, inside)
        else:
            self._push([node.body, node.orelse], inside)
        self._push([node.test], place)

    def _alternatives(self, node: ast.BoolOp, place: _Place) -> None:
        for value in node.values:
            self._push([value], place)
            if asks_what_is_there(value):
                place = place._replace(guard=place.guard._replace(optional=True))

    def _import(self, node: ast.Import | ast.ImportFrom, place: _Place) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._mention(alias.name.rpartition(".")[2], place)
                target = self._foreign(alias.name)
                self._use("module", target, alias, place)
            return
        target = self._foreign(node.module) if node.module and not node.level else None
        for alias in node.names:
            self._mention(alias.name, place)
            if alias.name == "*":
                self._use("module", target, node, place)
            elif target is not None:
                self._use("name", Target(target.module, alias.name), alias, place)

    def _foreign(self, module: str) -> Target | None:
        return Target(module) if is_foreign(module, self._own) else None

    def _read_chain(self, node: ast.Attribute | ast.Name, place: _Place) -> None:
        chain = self._chain(node, place)
        if chain is None:
            return
        target, read = chain
        if not isinstance(node.ctx, ast.Load):
            if target is not None and read:
                self._found.provided.add(f"{target.dotted}.{'.'.join(read)}")
            read = read[:-1]
        self._attribute(target, read, node, place)

    def _chain(self, node: ast.expr, place: _Place) -> tuple[Target | None, list[str]] | None:
        """The import that ``np.random.rand`` begins with, and the names behind it; of what begins with anything else
        that is visited next, and there is no chain."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            self._mention(node.attr, place)
            node = node.value
        if not isinstance(node, ast.Name):
            self._push([node], place)
            return None
        self._mention(node.id, place)
        return place.scope.find(node.id), names[::-1]

    def _attribute(self, target: Target | None, read: list[str], node: ast.AST, place: _Place) -> None:
        shown = read[:_LONGEST_CHAIN]
        if target is not None and shown and not any(name.startswith("__") for name in shown):
            name = ".".join([*([target.name] if target.name else []), *shown])
            self._use("attribute", Target(target.module, name), node, place)

    def _call(self, node: ast.Call, place: _Place) -> None:
        self._push([*node.args, *(keyword.value for keyword in node.keywords)], place)
        called = self._called(node.func, place)
        self._push([node.func], place)
        self._provide_by_call(node, place)
        if called is not None and called.name:
            own = (
                self._classes[node.func.id].fields
                if isinstance(node.func, ast.Name) and node.func.id in self._classes
                else ()
            )
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in own:
                    self._use("keyword", called, keyword, place, keyword=keyword.arg)

    def _called(self, func: ast.expr, place: _Place) -> Target | None:
        """What is called: something imported, or a method of the one imported base class through ``super()``."""
        names: list[str] = []
        while isinstance(func, ast.Attribute):
            names.append(func.attr)
            func = func.value
        if isinstance(func, ast.Call) and isinstance(func.func, ast.Name) and func.func.id == "super":
            if len(names) != 1 or len(place.bases) != 1:
                return None
            base = place.bases[0]
            return base if names[0] == "__init__" else Target(base.module, f"{base.name}.{names[0]}")
        if (
            isinstance(func, ast.Name)
            and not names
            and place.scope.is_one_definition(func.id)
            and func.id in self._classes
        ):
            return self._classes[func.id].made_by
        target = place.scope.find(func.id) if isinstance(func, ast.Name) else None
        if target is None or len(names) > _LONGEST_CHAIN:
            return None
        parts = [*([target.name] if target.name else []), *names[::-1]]
        return Target(target.module, ".".join(parts))

    def _provide_by_call(self, node: ast.Call, place: _Place) -> None:
        """``setattr(np, "float", float)`` and ``sys.modules.setdefault("torch._six", ...)``."""
        if isinstance(node.func, ast.Attribute):
            self._provide(node.args, node.func.attr in _FAKING and _is_modules(node.func.value))
        elif isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) > 1:
            target = place.scope.find(node.args[0].id) if isinstance(node.args[0], ast.Name) else None
            if target is not None:
                self._provide(node.args[1:], True, f"{target.dotted}.")

    def _provide(self, named: Sequence[ast.expr], really: bool, prefix: str = "") -> None:
        """The first of some expressions, when it is a text, names what the script provides itself."""
        first = named[0] if named else None
        if really and isinstance(first, ast.Constant) and isinstance(first.value, str):
            self._found.provided.add(prefix + first.value)

    def _define_class(self, node: ast.ClassDef, place: _Place) -> None:
        outside = [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        self._push(outside, place)
        bases = tuple(target for base in node.bases for target in self._bases(base, place))
        self._classes[node.name] = _Class(bases, _fields(node), _makes_itself(node))
        if node.decorator_list:
            self._mention(node.name, place)  # whoever decorates a class may make one
        # What ``super()`` finds in a class of this file is not the imported class's.
        direct = (
            bases if not any(isinstance(base, ast.Name) and base.id in self._classes for base in node.bases) else ()
        )
        inside = place._replace(scope=self._scopes[id(node)], outer=place.outer or node.name, bases=direct)
        self._push_block(node.body, inside)
        for base in bases:
            for statement in node.body:
                if isinstance(statement, _DEFINITIONS) and (parameters := own_parameters(statement)) is not None:
                    method = Target(base.module, f"{base.name}.{statement.name}")
                    self._use("override", method, statement, inside._replace(deferred=True), parameters=parameters)

    def _bases(self, base: ast.expr, place: _Place) -> tuple[Target, ...]:
        """The imported classes that a base is or, for a class of this file, that it derives from."""
        called = self._called(base, place) if not (isinstance(base, ast.Name) and base.id in self._classes) else None
        if called is not None and called.name:
            return (called,)
        return self._classes[base.id].bases if isinstance(base, ast.Name) and base.id in self._classes else ()

    def _define_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, place: _Place) -> None:
        self._push(function_parts(node, hints=self._hints), place)
        inside = place._replace(scope=self._scopes[id(node)], deferred=True)
        if isinstance(node, ast.Lambda):
            self._push([node.body], inside)
            return
        if node.decorator_list or node.name.startswith("test"):
            self._mention(node.name, place)  # a command, a fixture, a test: somebody else calls it
        self._push_block(node.body, inside._replace(outer=place.outer or node.name))

    def _mention(self, name: str, place: _Place) -> None:
        self._found.mentioned.add((name, place.outer))

    def _use(
        self,
        kind: str,
        target: Target | None,
        node: ast.AST,
        place: _Place,
        *,
        keyword: str = "",
        parameters: tuple[str, ...] = (),
    ) -> None:
        if target is not None:
            guarded = place.guard.covers(kind)
            within = place.outer if place.deferred else ""
            line = getattr(node, "lineno", 1)
            use = Use(kind, target.module, target.name, keyword, parameters, guarded, within, place.branch, line)
            self._found.uses.append(use)


def _fields(node: ast.ClassDef) -> frozenset[str]:
    """What a dataclass, or a class like one, may take besides."""
    annotated = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
    return frozenset(target.id for target in annotated if isinstance(target, ast.Name))


def _makes_itself(node: ast.ClassDef) -> bool:
    made = {one.name for one in node.body if isinstance(one, _DEFINITIONS)} & {"__init__", "__new__"}
    return bool(made) or bool(node.keywords)  # a metaclass may do anything


def _asks_if_main(test: ast.expr) -> bool:
    """``if __name__ == "__main__"``: a script is run."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_modules(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "modules"
