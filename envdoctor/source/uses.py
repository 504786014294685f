"""Find what a script uses of other distributions: names, attributes of aliases, keywords of calls, overridden methods.

It leaves out the standard library, relative imports, and the project's own modules. A use is guarded where the script
goes on without it: it catches the failure, asks first what is there, or provides the name itself.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

from envdoctor.source.definitions import (
    AssignmentTarget,
    Scope,
    TryStar,
    all_nodes,
    attributes_of,
    chain,
    class_parts,
    dotted,
    elements,
    function_parts,
    functions_in,
    inner_parts,
    is_foreign,
    last_name,
    methods_of,
    names_in,
    of_kind,
    scopes_of,
    siblings_of,
    text_of,
)
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.names import Names
from envdoctor.source.notebook import parse_code
from envdoctor.source.signatures import can_be_called, own_parameters
from envdoctor.source.values import UNKNOWN, World
from envdoctor.system.files import Files

# Guards: a script catches the failure of a use, or makes it only where something is there.

#: A condition about versions, availability or attributes, by the names in it; not ``torch.cuda.is_available()``.
_ASKS = re.compile(
    r"(?<!con)version|(?<!\Ais_)available(?!_(?:models|devices|gpus|memory)\Z)|installed|hasattr|find_spec|signature"
    r"|type_checking|supports?_|importable|\A_?(?:has|have)_|__dataclass_fields__|\Adir\Z|\Agetattr\Z"
    r"|_(?:ge|gt|le|lt)_?\d|\Ais_(?:new|old|legacy)_",
    re.IGNORECASE,
)
_LEAVING = {"exit", "quit", "_exit", "abort"}
#: The kinds of uses that fail with each error.
_TELLS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("ImportError", "ModuleNotFoundError"), ("module", "name")),
    "AttributeError": ("attribute",),
    "TypeError": ("keyword",),
    **dict.fromkeys(("", "Exception", "BaseException"), ("module", "name", "attribute", "keyword")),
}
#: The guards of code that may not run at all: no failure in it is certain.
_EVERY = frozenset(("module", "name", "attribute", "keyword", "override"))
_IMPORTS = frozenset(("module", "name"))


def caught(node: ast.Try) -> frozenset[str]:
    """Return the kinds of uses whose failure a ``try`` catches, without handlers that end the script with another
    error."""
    errors: list[ast.expr | None] = []
    for handler in node.handlers:
        match handler.body:
            case [*_, ast.Raise()]:
                pass
            case [*_, ast.Expr(value=ast.Call(func=func))] if last_name(func) in _LEAVING:
                pass
            case _:
                errors += elements(handler.type)
    return _told_by(errors)


def suppressed(node: ast.With | ast.AsyncWith) -> frozenset[str]:
    """Return the kinds of uses whose failure ``with contextlib.suppress(ImportError)`` catches."""
    errors: list[ast.expr | None] = []
    for item in node.items:
        match item.context_expr:
            case ast.Call(func=func, args=kinds) if last_name(func) == "suppress":
                errors += kinds
    return _told_by(errors)


def asks_what_is_there(test: ast.expr) -> bool:
    """Return whether a condition asks for a version, for what is installed, or for an attribute."""
    return any(name and _ASKS.search(name) for name in map(last_name, all_nodes(test)))


def answers_of(tree: ast.AST) -> frozenset[str]:
    """Return the names that hold an answer about what is there, and nothing else in the file: ``OLD =
    version.parse(torch.__version__) < ...``, and what a handler of a failed import sets to a constant."""
    answers: set[str] = set()
    bound, known = Counter[str](), Counter[str]()
    nodes = all_nodes(tree)
    imported = {node.asname or node.name.partition(".")[0] for node in of_kind(nodes, ast.alias)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound[name] += 1
            case ast.Assign(targets=[*targets], value=value) if (holds := _is_answer(value, imported)) is not None:
                known.update(names_in(targets))
                answers.update(names_in(targets) if holds else ())
            case ast.Try(body=[*body], handlers=[*handlers]):
                imports = any(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body)
                for handler in handlers:
                    told = _told_by(elements(handler.type))
                    if "module" in told and (imports or told == _IMPORTS):
                        answers.update(names_in(_set_to_constants(handler.body)))
                for part in body:
                    if isinstance(part, ast.Assign) and _is_answer(part.value, imported) is None:
                        known.update(names_in(part.targets))
            case _:
                pass
    return frozenset(name for name in answers if bound[name] <= known[name])


def _is_answer(value: ast.expr, imported: Collection[str]) -> bool | None:
    """Return whether an assigned value answers what is there; None if it does not, and is no constant."""
    match value:
        case ast.Constant():
            return False
        case ast.Call(func=ast.Name(id="getattr"), args=[of, *_]):
            return getattr(chain(of)[0], "id", "") in imported or None
        case ast.Call(func=asked) | (ast.Compare() | ast.BoolOp() | ast.UnaryOp() as asked):
            return asks_what_is_there(asked) or None
    return None


def _set_to_constants(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[*targets], value=ast.Constant()):
                yield from targets


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Return whether the block ends with a return, continue or break, so that what follows runs only without it."""
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Continue, ast.Break))


def _told_by(errors: Iterable[ast.expr | None]) -> frozenset[str]:
    return frozenset(kind for error in errors for kind in _TELLS.get(last_name(error), ()))


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
    or, where it stands in a ``branch``, may run then. ``caller`` is the function that it stands in, if only the guards
    around its calls in the file guard it.
    """

    kind: str
    module: str
    name: str
    keyword: str
    parameters: tuple[str, ...]
    guarded: bool
    within: str
    branch: bool
    caller: str
    line: int

    @property
    def dotted(self) -> str:
        """Return ``transformers.Trainer.compute_loss``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class FoundUses(NamedTuple):
    """The uses of one file; ``mentioned``, names that it reads, each with the definition that it stands in;
    ``provided``, dotted names that it sets in other modules; ``classes``, its classes with their base classes, of
    which those of the project's other files have no module. A method's use may be about such a base class."""

    uses: list[Use]
    mentioned: set[tuple[str, str]]
    provided: set[str]
    classes: dict[str, tuple[AssignmentTarget, ...]]


class _Place(NamedTuple):
    """The place of a node. ``guarded`` are the kinds of uses whose failure does not stop the script there, ``outer`` is
    the outermost definition around it, ``deferred`` whether it waits for a call, ``branch`` whether for a condition,
    ``bases`` are the imported base classes of the class whose method it is in, ``within`` is the function around it
    that nobody outside the file calls, and ``derived`` says of a class that it has base classes."""

    scope: Scope
    guarded: frozenset[str] = frozenset()
    outer: str = ""
    deferred: bool = False
    branch: bool = False
    bases: tuple[AssignmentTarget, ...] = ()
    within: str = ""
    derived: bool = False


def uses_of(tree: ast.Module, own: Collection[str] = ()) -> FoundUses:
    """Return the uses of one file; imports of modules ``own`` are the project's. Raises :class:`TooMuch`."""
    return _Reader(tree, own).read()


class _Class(NamedTuple):
    """A class of the file: the classes of other files that it derives from, and the fields that it declares itself,
    which a dataclass takes. ``constructor``: it says itself how it is made, or its metaclass may."""

    bases: tuple[AssignmentTarget, ...]
    fields: frozenset[str]
    constructor: bool

    @property
    def made_by(self) -> AssignmentTarget | None:
        """Return the one imported class whose constructor is called for it."""
        return self.bases[0] if len(self.bases) == 1 and self.bases[0].module and not self.constructor else None


class _Reader:
    """One walk over a tree, without recursion: deeply nested code can still be read."""

    def __init__(self, tree: ast.Module, own: Collection[str]) -> None:
        self._tree, self._own = tree, own
        self._scopes = scopes_of(tree, own)
        self._hints = not any(
            isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
            for node in tree.body
        )
        self._answers = answers_of(tree)
        self._classes: dict[str, _Class] = {}
        self._found = FoundUses([], set(), set(), {})
        self._of_project: dict[str, str] = {}
        self._waiting: list[tuple[ast.AST, _Place]] = []

    def read(self) -> FoundUses:
        """Return everything that the file uses."""
        self._push_block(self._tree.body, _Place(self._scopes[id(self._tree)]))
        while self._waiting:
            node, place = self._waiting.pop()
            self._visit(node, place)
            if max(len(self._found.uses), len(self._found.mentioned)) > _MOST:
                raise TooMuch
        return self._found

    def _asks(self, test: ast.expr) -> bool:
        """Return whether a condition asks what is there, itself or by a name that holds the answer."""
        return asks_what_is_there(test) or not self._answers.isdisjoint(names_in(all_nodes(test)))

    @cached_property
    def _calls(self) -> dict[str, frozenset[str]]:
        """The failed imports that are caught, or not made, wherever the file calls a name. One that it hands on may be
        called from anywhere. A handler of every error around the whole script does not go on."""
        guards: dict[str, frozenset[str]] = {}
        called = {id(node.func) for node in of_kind(all_nodes(self._tree), ast.Call)}
        waiting: list[tuple[ast.AST, frozenset[str], frozenset[str], bool]]
        waiting = [(self._tree, frozenset(), frozenset(), False)]
        while waiting:
            node, guarded, asked, inner = waiting.pop()
            tried, branch, within = guarded, asked, list[ast.stmt]()
            match node:
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                    guards[name] = guards.get(name, _IMPORTS) & (guarded | asked if id(node) in called else asked)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    guarded, inner = frozenset(), True
                case ast.Try(body=[*body]):
                    kinds = caught(node)
                    tried, within = guarded | (kinds if inner or "keyword" not in kinds else frozenset()), body
                case ast.ExceptHandler(body=[*body]):
                    branch, within = _IMPORTS, body
                case ast.If(body=[*body], orelse=[*orelse]) if self._asks(node.test):
                    branch, within = _IMPORTS, [*body, *orelse]
                case _:
                    pass
            parts = set(map(id, within))
            for one in ast.iter_child_nodes(node):
                waiting.append((one, tried, branch, inner) if id(one) in parts else (one, guarded, asked, inner))
        return guards

    def _visit(self, node: ast.AST, place: _Place) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, place)
            case ast.Attribute() | ast.Name():
                self._read_chain(node, place)
            case ast.Call():
                self._call(node, place)
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=key, ctx=ast.Store()):
                self._provide(key)
                self._push_children(node, place)
            case ast.ClassDef():
                self._define_class(node, place)
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                self._push(function_parts(node, hints=self._hints), place)
                is_open = bool(node.decorator_list) or node.name.startswith("test")
                if is_open:
                    self._mention(node.name, place)  # a command, a fixture, a test: called from elsewhere
                within = "" if is_open or (place.derived and node.name[:1] != "_") else node.name
                inside = place._replace(deferred=True, outer=place.outer or node.name, within=within, derived=False)
                self._push_block(body, inside._replace(scope=self._scopes[id(node)]))
            case ast.Lambda(body=value):
                self._push(function_parts(node, hints=self._hints), place)
                self._push([value], place._replace(scope=self._scopes[id(node)], deferred=True))
            case ast.Try() | TryStar():
                self._push_block(node.finalbody, place)
                self._push_block(node.orelse, place)
                for handler in node.handlers:
                    self._push_block(handler.body, _optional(place))
                    self._push([handler.type], place)
                self._push_block(node.body, place._replace(guarded=place.guarded | caught(node)))
            case ast.If(test=test, body=body, orelse=orelse):
                inside = _optional(place) if self._asks(test) else place
                is_run = isinstance(test, ast.Compare) and dotted(test.left) == "__name__"
                inside = inside._replace(branch=place.branch or not is_run)
                self._push_block(body, inside)
                self._push_block(orelse, inside)
                self._push([test], place)
            case ast.IfExp(test=test, body=one, orelse=other):
                self._push([one, other], _optional(place) if self._asks(test) else place)
                self._push([test], place)
            case ast.BoolOp(values=values):
                for value in values:
                    self._push([value], place)
                    place = _optional(place) if self._asks(value) else place
            case ast.AnnAssign(target=target, value=assigned) if place.deferred or not self._hints:
                self._push([target, assigned], place)
            case ast.With() | ast.AsyncWith():
                self._push_children(node, place._replace(guarded=place.guarded | suppressed(node)))
            case _:
                self._push_children(node, place)

    def _push(self, nodes: Sequence[ast.AST | None], place: _Place) -> None:
        self._waiting += [(node, place) for node in reversed(nodes) if node is not None]

    def _push_children(self, node: ast.AST, place: _Place) -> None:
        scope = self._scopes.get(id(node), place.scope)
        parts = [(child, place._replace(scope=scope) if within else place) for child, within in inner_parts(node)]
        self._waiting += reversed(parts)

    def _push_block(self, body: Sequence[ast.stmt], place: _Place) -> None:
        """Push statements in their order; those behind ``if not is_peft_available(): return`` are guarded by it."""
        parts: list[tuple[ast.AST, _Place]] = []
        for statement in body:
            parts.append((statement, place))
            if isinstance(statement, ast.If) and leaves(statement.body) and self._asks(statement.test):
                place = _optional(place)
        self._waiting += reversed(parts)

    def _import(self, node: ast.Import | ast.ImportFrom, place: _Place) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._mention(alias.name.rpartition(".")[2], place)
                self._use("module", self._foreign(alias.name), alias, place)
            return
        target = self._foreign(node.module) if node.module and not node.level else None
        for alias in node.names:
            self._mention(alias.name, place)
            if alias.name == "*":
                self._use("module", target, node, place)
            elif target is not None:
                self._use("name", AssignmentTarget(target.module, alias.name), alias, place)
            else:
                self._of_project[alias.asname or alias.name] = alias.name

    def _foreign(self, module: str) -> AssignmentTarget | None:
        return AssignmentTarget(module) if is_foreign(module, self._own) else None

    def _read_chain(self, node: ast.Attribute | ast.Name, place: _Place) -> None:
        root, names = chain(node)
        for name in names:
            self._mention(name, place)
        if not isinstance(root, ast.Name):
            self._push([root], place)
            return
        self._mention(root.id, place)
        target = place.scope.find(root.id)
        if not isinstance(node.ctx, ast.Load):
            if target is not None and names:
                self._found.provided.add(f"{target.dotted}.{'.'.join(names)}")
            names = names[:-1]
        shown = names[:_LONGEST_CHAIN]
        if target is not None and shown and not any(name.startswith("__") for name in shown):
            name = ".".join([*([target.name] if target.name else []), *shown])
            self._use("attribute", AssignmentTarget(target.module, name), node, place)

    def _call(self, node: ast.Call, place: _Place) -> None:
        self._push([*node.args, *(keyword.value for keyword in node.keywords)], place)
        target = self._called(node.func, place)
        self._push([node.func], place)
        self._provide_by_call(node, place)
        if target is not None and target.name:
            cls = self._class(node.func)
            own = cls.fields if cls is not None else ()
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in own:
                    self._use("keyword", target, keyword, place, keyword=keyword.arg)

    def _called(self, func: ast.expr, place: _Place) -> AssignmentTarget | None:
        """Return the imported target of a call, or for ``super()`` a method of the one imported base class."""
        match func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=method):
                base = place.bases[0] if len(place.bases) == 1 else None
                if base is None or method == "__init__":
                    return base
                return AssignmentTarget(base.module, f"{base.name}.{method}")
            case ast.Name(id=name) if place.scope.is_one_definition(name) and name in self._classes:
                return self._classes[name].made_by
        root, names = chain(func)
        target = place.scope.find(root.id) if isinstance(root, ast.Name) else None
        if target is None or len(names) > _LONGEST_CHAIN:
            return None
        return AssignmentTarget(target.module, ".".join(filter(None, [target.name, *names])))

    def _class(self, node: ast.expr) -> _Class | None:
        return self._classes.get(node.id) if isinstance(node, ast.Name) else None

    def _provide_by_call(self, node: ast.Call, place: _Place) -> None:
        """Read ``setattr(np, "float", float)`` and ``sys.modules.setdefault("torch._six", ...)``."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="modules"), attr=name), args=[key, *_]):
                if name in _FAKING:
                    self._provide(key)
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=name), key, *_]):
                target = place.scope.find(name)
                if target is not None:
                    self._provide(key, f"{target.dotted}.")

    def _provide(self, expression: ast.expr, prefix: str = "") -> None:
        """Note a name that the script provides itself, if the expression for it is a text."""
        name = text_of(expression)
        if name is not None:
            self._found.provided.add(prefix + name)
            if not prefix:
                line = getattr(expression, "lineno", 1)
                self._found.uses.append(Use("module", name, "", "", (), True, "", False, "", line))

    def _define_class(self, node: ast.ClassDef, place: _Place) -> None:
        self._push(class_parts(node), place)
        bases: tuple[AssignmentTarget, ...] = ()
        for base in node.bases:  # imported, or of this file: then its own imported base classes
            target, cls = self._called(base, place), self._class(base)
            if target is None and isinstance(base, ast.Name) and base.id in self._of_project:
                target = AssignmentTarget("", self._of_project[base.id])
            bases += cls.bases if cls is not None else (target,) if target is not None and target.name else ()
        fields = frozenset(names_in(part.target for part in node.body if isinstance(part, ast.AnnAssign)))
        constructors = {function.name for function in functions_in(node.body)} & {"__init__", "__new__"}
        self._classes[node.name] = _Class(bases, fields, bool(constructors or node.keywords))
        self._found.classes[node.name] = bases
        if node.decorator_list:
            self._mention(node.name, place)  # its decorator may make an object of it
        # What ``super()`` finds in a class of this file is not the imported class's.
        direct = bases if all(base.module for base in bases) and not any(map(self._class, node.bases)) else ()
        inside = place._replace(scope=self._scopes[id(node)], outer=place.outer or node.name, bases=direct)
        inside = inside._replace(derived=bool(node.bases or node.keywords))
        self._push_block(node.body, inside)
        for parent, function in product(bases, functions_in(node.body)):
            parameters = own_parameters(function)
            if parameters is not None:
                method = AssignmentTarget(parent.module, f"{parent.name}.{function.name}")
                self._use("override", method, function, inside._replace(deferred=True), parameters=parameters)

    def _mention(self, name: str, place: _Place) -> None:
        self._found.mentioned.add((name, place.outer))

    def _use(
        self,
        kind: str,
        target: AssignmentTarget | None,
        node: ast.AST,
        place: _Place,
        *,
        keyword: str = "",
        parameters: tuple[str, ...] = (),
    ) -> None:
        if target is not None:
            guarded = kind in place.guarded
            is_called = not guarded and kind in _IMPORTS and place.within and kind in self._calls.get(place.within, ())
            caller = place.within if is_called else ""
            within = place.outer if place.deferred else ""
            about = (kind, target.module, target.name, keyword, parameters, guarded or bool(caller))
            use = Use(*about, within, place.branch, caller, getattr(node, "lineno", 1))
            self._found.uses.append(use)


def _optional(place: _Place) -> _Place:
    """Return the place in code that may not run at all."""
    return place._replace(guarded=_EVERY)


# What a bounded child is asked.

_RECURSION = 6000


def code_of(content: bytes, own: Collection[str], *, notebook: bool, definitions: bool = False) -> dict[str, Any]:
    """Return ``uses`` (each with its place for its line: the line, and the cell of a notebook), ``mentioned``,
    ``provided`` and ``classes`` of one file, ``unread`` cells, and with ``definitions`` also ``methods``,
    ``attributes`` and ``siblings`` (``definitions.py``). ``own`` are the project's own modules. Raises what
    :func:`parse_code` and :func:`uses_of` raise."""
    tree, place, unread = parse_code(content, notebook=notebook)
    uses = uses_of(tree, own)
    columns = {
        "uses": [(*use[:-1], place(use.line)) for use in uses.uses],
        "mentioned": sorted(uses.mentioned),
        "provided": sorted(uses.provided),
        "classes": uses.classes,
        "unread": unread,
    }
    if definitions:
        parts = {"methods": methods_of, "attributes": attributes_of, "siblings": siblings_of}
        columns |= {name: sorted(set(reader(tree))) for name, reader in parts.items()}
    return columns


def lacks_of(use: Sequence[str], *, root: str, folders: Sequence[str], complete: bool) -> str | bool | None:
    """Return what the installed files lack of a ``use``, ``[kind, module, name, keyword, parameters]``: False if they
    have it, None if that is unknown, else what is missing: the dotted name of a module or of what should lie in one,
    the keyword, or how the base class calls the overridden method (``2 num_items_in_batch=``). ``folders`` are those of
    an environment below its ``root``; ``complete`` says whether they are all."""
    sys.setrecursionlimit(_RECURSION)
    try:
        return _lacks(use, _names(root, complete, *folders))
    except (Unreadable, RecursionError, MemoryError):
        return None


@cache
def _names(root: str, complete: bool, *folders: str) -> Names:
    """Return the modules of one environment, read once."""
    world = World(
        version=lambda name: UNKNOWN,
        owners={},
        python=None,
        platform="",
        standard=frozenset(sys.stdlib_module_names),
        followed=lambda top: True,
        complete=complete,
    )
    return Names(Library(folders, Files(root)), world)


def _lacks(use: Sequence[str], names: Names) -> str | bool | None:
    kind, module, name, keyword, parameters = use
    missing = _missing(names, module, name)
    if missing is not False or kind not in ("keyword", "override"):
        return missing
    place = names.place(module, name)
    if place is None:
        return None
    if kind == "keyword":
        takes = names.takes(place, keyword)
        return None if takes is None else False if takes else keyword
    ways = names.ways(place)
    return None if ways is None else next((way for way in ways if not can_be_called(parameters, way)), False)


def _missing(names: Names, module: str, name: str) -> str | bool | None:
    """Return the dotted name of what is missing; False when all of it is there."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        inner = ".".join(parts[:length])
        there = names.exists(inner)
        if there is not True:
            return inner if there is False else None
    for part in filter(None, name.split(".")):
        offered = names.has(module, part)
        if offered is not True:
            return f"{module}.{part}" if offered is False else None
        if names.library.find(f"{module}.{part}") is None:
            return False  # no module: what belongs to it is not followed
        offers = names.library.offers(module)
        if offers is not None and offers.names.get(part, "module").partition(" ")[0] != "module":
            return False
        module = f"{module}.{part}"
    return False
