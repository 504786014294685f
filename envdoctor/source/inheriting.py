"""Find where a class does not fit its base classes in other packages: keywords that they do not take, methods that they
call in another way; and keywords in its methods that functions of other packages do not take.

A lineage is a class with the classes that it derives from, in whatever package they are. The modules are read
without the bodies of their functions; of a method that matters the body is read by itself.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from envdoctor.source.definitions import (
    FunctionNode,
    Scope,
    TryStar,
    all_nodes,
    children,
    last_name,
    names_in,
    of_kind,
    scopes_of,
    statements,
)
from envdoctor.source.importing import Importing
from envdoctor.source.library import Unreadable
from envdoctor.source.signatures import added_by, bases_of, can_be_called, own_parameters, way_of
from envdoctor.source.uses import asks_what_is_there, caught, leaves, suppressed
from envdoctor.source.values import Stop

_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_PERHAPS = (*_LATER, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.match_case)
_DEEPEST = 12
_CALLED = re.compile(rb"\b([A-Za-z_]\w*)\(")
_ASSIGNED = re.compile(rb"\.(\w+)\s*=[^=]")
#: Methods by which every object of a class comes that is made, or trained.
_RUN = ("__init__", "train")


class Call(NamedTuple):
    """``self.name(…)``, ``super().name(…)`` or ``name(…)``: the ``owner`` is self, super or empty.

    ``way`` is how it is called (``2 num_items_in_batch=``), None if that is unknown, or if the method is handed on;
    ``keywords`` are the given ones, ``rest`` the name behind ``**``. ``sure``: it stands in no condition.
    """

    owner: str
    name: str
    way: str | None
    keywords: tuple[str, ...]
    rest: str
    sure: bool
    line: int


class _Calls:
    """One walk over a method, without recursion: the calls in it, except those whose failure it catches, or that depend
    on what it finds: a version, a signature, an attribute."""

    def __init__(self, method: FunctionNode) -> None:
        arguments = [*method.args.posonlyargs, *method.args.args]
        self._bound = arguments[0].arg if arguments else ""
        self._waiting: list[tuple[ast.AST, bool]] = []
        #: Variables that hold the answers to the method's questions.
        self._answers: set[str] = set()
        self._block(method.body if arguments else [], True)

    def __iter__(self) -> Iterator[Call]:
        while self._waiting:
            node, sure = self._waiting.pop()
            call = self._call(node, sure)
            if call is not None:
                yield call
            else:
                self._visit(node, sure)

    def _block(self, body: Sequence[ast.AST], sure: bool) -> None:
        """Push statements in their order, up to the first ones that depend on what is there, or is missing."""
        parts: list[tuple[ast.AST, bool]] = []
        for statement in body:
            parts.append((statement, sure))
            if isinstance(statement, ast.If) and leaves(statement.body) and self._asks(statement.test):
                break
        self._waiting += reversed(parts)

    def _visit(self, node: ast.AST, sure: bool) -> None:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                self._waiting.append((test, sure))
                for part in () if self._asks(test) else (node.body, node.orelse):
                    self._block(part if isinstance(part, list) else [part], False)
            case ast.BoolOp(values=values):
                if not any(map(self._asks, values)):
                    self._waiting += [(value, sure and not place) for place, value in enumerate(values)]
            case ast.Try() | TryStar():
                self._block([] if "keyword" in caught(node) else node.body, sure)
                self._block(node.orelse + node.finalbody, sure)
                for handler in node.handlers:
                    self._block(handler.body, False)
            case ast.With() | ast.AsyncWith() if "keyword" in suppressed(node):
                pass
            case ast.Lambda(args=arguments, body=value):
                self._waiting += [(arguments, False), (value, False)]
            case _:
                if isinstance(node, ast.Assign) and self._asks(node.value):
                    self._answers.update(names_in(node.targets))
                inside = sure and not isinstance(node, _PERHAPS)
                block = getattr(node, "body", [])
                self._block(block, inside)
                later = set(map(id, block))
                self._waiting += [(child, inside) for child in children(node) if id(child) not in later]

    def _call(self, node: ast.AST, sure: bool) -> Call | None:
        """Return a call, or a method that is handed on; push what stands in its arguments."""
        match node:
            case ast.Call(func=called, args=args, keywords=keywords):
                owner = self._owner(called)
                if owner is None:
                    return None
                self._waiting += [(argument, sure) for argument in (*args, *(keyword.value for keyword in keywords))]
                words = tuple(keyword.arg for keyword in keywords if keyword.arg is not None)
                rest = next(names_in(keyword.value for keyword in keywords if keyword.arg is None), "")
                return Call(owner, last_name(called), way_of(node), words, rest, sure, called.lineno)
            case ast.Attribute(attr=name, lineno=line) if owner := self._owner(node):
                return Call(owner, name, None, (), "", sure, line)
        return None

    def _owner(self, called: ast.AST) -> str | None:
        match called:
            case ast.Name():
                return ""
            case ast.Attribute(value=ast.Name(id=self._bound), ctx=ast.Load()):
                return "self"
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), ctx=ast.Load()):
                return "super"
        return None

    def _asks(self, test: ast.expr) -> bool:
        return asks_what_is_there(test) or not self._answers.isdisjoint(names_in(all_nodes(test)))


class _Source(NamedTuple):
    """A module: its tree without bodies, where its names come from, its own scope, its lines, and the names of the
    attributes that it assigns to."""

    tree: ast.Module
    names: Mapping[str, str]
    scope: Scope
    lines: list[bytes]
    assigned: frozenset[str]


class _Member:
    """One class of a lineage. ``methods`` holds its own by name; None for a name that may be something else."""

    def __init__(self, module: str, node: ast.ClassDef, end: int, source: _Source, bases: list[str | None]) -> None:
        self.module, self.node, self.bases = module, node, bases
        self.place, self.top = f"{module}:{node.name}", module.partition(".")[0]
        self._source = source
        self.methods: dict[str, FunctionNode | None] = {}
        direct = set(map(id, node.body))
        for statement in statements(node.body):
            match statement:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    sure = id(statement) in direct and name not in self.methods
                    self.methods[name] = statement if sure else None
                case ast.Assign(targets=targets):
                    self.methods |= dict.fromkeys(names_in(targets))
        starts = [*map(_line, node.body[1:]), end]
        self._ends = {statement.lineno: after for statement, after in zip(node.body, starts, strict=True)}
        self.body = cache(self._body)
        #: The calls of a method to methods of its own object, and the last names of all that it calls.
        self.calls = cache(lambda name: tuple(_Calls(body)) if (body := self.body(name)) is not None else ())
        self.mentions = cache(lambda name: dict.fromkeys(map(bytes.decode, _CALLED.findall(self.text(name)))))

    def text(self, name: str) -> bytes:
        """Return the source of a method; empty if the name may be something else."""
        node = self.methods.get(name)
        return b"".join(self._source.lines[node.lineno - 1 : self._ends[node.lineno] - 1]) if node is not None else b""

    def _body(self, name: str) -> FunctionNode | None:
        """Return a method with its body; None if it cannot be read."""
        node = self.methods.get(name)
        try:
            above = b"\n" * (node.lineno - 2) + b"if 1:\n" if node is not None else b"0"
            block = ast.parse(above + self.text(name)).body
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            return None
        match block:
            case [ast.If(body=[ast.FunctionDef() | ast.AsyncFunctionDef() as method, *_]), *_] if node is not None:
                method.decorator_list = node.decorator_list
                return method
        return None

    def takes_from(self, name: str) -> str:
        """Return where the module imports a name from (``module:name``) if it does so in one way, else an empty
        text."""
        home = self._source.names.get(name, "")
        return home if ":" in home and not self._source.scope.is_ambiguous(name) else ""

    def binds(self, name: str) -> set[str]:
        """Return the names that a method binds itself."""
        body = self.body(name)
        nodes = list(ast.walk(body)) if body is not None else []
        stored = names_in(node for node in nodes if not isinstance(getattr(node, "ctx", None), ast.Load))
        return {*stored, *(node.arg for node in of_kind(nodes, ast.arg))}

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """Return a method's parameters as :func:`~envdoctor.source.signatures.own_parameters` does; None also if the
        module assigns to an attribute of that name, which may be the object's method."""
        node = self.body(name) if name not in self._source.assigned else None
        return own_parameters(node) if node is not None else None


class _Lineage:
    """The members of a lineage in the order in which Python looks for a method, and how each base class is ``written``
    (``transformers:Trainer``), by its place."""

    def __init__(self, members: list[_Member], written: Mapping[str, str]) -> None:
        self.members, self.written = members, written
        self.own = members[0].top

    @cached_property
    def callers(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        """Return the methods of other packages' members by the names that they call, each with its member's index."""
        callers: dict[str, list[tuple[int, str]]] = {}
        for at, member in enumerate(self.members):
            for method in member.methods if member.top != self.own else ():
                for called in member.mentions(method):
                    callers.setdefault(called, []).append((at, method))
        return callers

    def definer(self, name: str, start: int = 0) -> int | None:
        """Return the index of the first member from ``start`` on that has a method."""
        return next((at for at in range(start, len(self.members)) if name in self.members[at].methods), None)

    def runs(self, at: int, name: str) -> bool:
        """Return whether a method of a member may run: no other replaces it, or an earlier one calls it by super()."""
        return self.definer(name) == at or any(
            (call.owner, call.name) == ("super", name)
            for member in self.members[:at]
            for method in member.methods
            if name in member.mentions(method)
            for call in member.calls(method)
        )

    @cached_property
    def always(self) -> set[tuple[int, str]]:
        """Return the methods, each with its member, that run for every object that is made, or trained."""
        reached: set[tuple[int, str]] = set()
        stack = [(name, 0) for name in _RUN]
        while stack:
            name, start = stack.pop()
            at = self.definer(name, start)
            if at is None or (at, name) in reached:
                continue
            reached.add((at, name))
            calls = [call for call in self.members[at].calls(name) if call.owner and call.sure]
            stack += [(call.name, 0 if call.owner == "self" else at + 1) for call in calls]
        return reached


def _line(statement: ast.stmt) -> int:
    """Return the first line of a statement, or of its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


class Inheriting:
    """The classes of one environment; every class is read at most once."""

    def __init__(self, following: Importing) -> None:
        self._followed = following.world.followed
        self._names, self._library = following.names, following.library
        self._member, self._source = cache(self._readable), cache(self._module)

    def unfit(self, module: str, name: str) -> list[Stop]:
        """Return what does not fit in the class of a public name; empty if it has no base class in another package, or
        if that is unknown."""
        place, written = self._names.place(module, name), dict[str, str]()
        try:
            members = self._above(place, written, 0) if place is not None else None
            if not members or all(member.top == members[0].top for member in members):
                return []
            lineage = _Lineage(list(dict.fromkeys(members[::-1]))[::-1], written)
            return [*self._handed(lineage), *_overrides(lineage), *self._passed(lineage)]
        except (Unreadable, RecursionError, MemoryError):
            return []

    def _above(self, place: str, written: dict[str, str], depth: int) -> list[_Member] | None:
        """Return the class at a place (``module:Class``) and those above it; None if a base class is unknown."""
        member = self._member(place)
        if member is None or depth > _DEEPEST:
            return None
        members = [member]
        for base in member.bases:
            home = self._names.place(*base.split(":")) if base is not None else None
            above = self._above(home, written, depth + 1) if home is not None else None
            if above is None or home is None or base is None:
                return None
            written.setdefault(home, base)
            members += above
        return members

    def _readable(self, place: str) -> _Member | None:
        module, _, name = place.partition(":")
        try:
            source = self._source(module)
        except (Unreadable, RecursionError, MemoryError):
            return None
        node = next((top for top in of_kind(source.tree.body, ast.ClassDef) if top.name == name), None)
        if node is None or added_by(node.decorator_list) != set():
            return None
        used = {name for base in node.bases for name in names_in(ast.walk(base))}
        if any(map(source.scope.is_ambiguous, (name, *used))):
            return None
        end = min((_line(top) for top in source.tree.body if top.lineno > node.lineno), default=len(source.lines) + 1)
        return _Member(module, node, end, source, bases_of(node, module, source.names))

    def _module(self, module: str) -> _Source:
        """Read a module. Raises :class:`~envdoctor.source.library.Unreadable`, also if the module has no source."""
        spec, offers = self._library.find(module), self._library.offers(module)
        if spec is None or offers is None:
            raise Unreadable("")
        text, tree = self._library.text(spec.path), self._library.tree(module)
        assigned = frozenset(word.decode() for word in _ASSIGNED.findall(text))
        scope = scopes_of(tree, (), standard=True)[id(tree)]
        return _Source(tree, offers.names, scope, text.splitlines(True), assigned)

    def _handed(self, lineage: _Lineage) -> Iterator[Stop]:
        """Yield unfit keywords that ``super()`` hands to a base class of another package."""
        for at, member, name in _own_methods(lineage):
            for call in member.calls(name) if b"super()." in member.text(name) else ():
                for keyword in call.keywords if call.owner == "super" else ():
                    receiver = _receiver(lineage, at, call.name, keyword)
                    method = "" if call.name == "__init__" else f".{call.name}"
                    takes = self._names.takes(receiver.place + method, keyword) if receiver is not None else None
                    if receiver is not None and takes is False and lineage.runs(at, name):
                        base, _, written = lineage.written[receiver.place].partition(":")
                        always = call.name == name == "__init__" and call.sure and (at, name) in lineage.always
                        target = (base, written + method)
                        yield Stop("keyword", member.module, call.line, *target, keyword=keyword, always=always)

    def _passed(self, lineage: _Lineage) -> Iterator[Stop]:
        """Yield unfit keywords that methods pass to what their module takes from other packages."""
        for at, member, name in _own_methods(lineage):
            called = member.mentions(name) if lineage.definer(name) == at else ()
            homes = {callee: member.takes_from(callee) for callee in called}
            tops = {callee: home.partition(":")[0].partition(".")[0] for callee, home in homes.items()}
            own = ("", member.top)
            homes = {callee: homes[callee] for callee, top in tops.items() if top not in own and self._followed(top)}
            for call in member.calls(name) if homes else ():
                base, _, function = homes.get(call.name if not call.owner else "", "").partition(":")
                place = self._names.place(base, function) if base and call.keywords else None
                refused = [keyword for keyword in call.keywords if place and self._names.takes(place, keyword) is False]
                for keyword in refused if refused and call.name not in member.binds(name) else ():
                    yield Stop("keyword", member.module, call.line, base, function, keyword=keyword, always=False)


def _overrides(lineage: _Lineage) -> Iterator[Stop]:
    """Yield own methods that override methods of other packages' base classes, which call them with other arguments."""
    for at, member, name in _own_methods(lineage):
        parameters = member.parameters(name) if lineage.definer(name) == at else None
        if parameters is None:
            continue
        replaced = next((base for base in lineage.members if base.top != lineage.own and name in base.methods), None)
        unfit = [
            (call.sure and (caller, method) in lineage.always, call.way)
            for caller, method in (lineage.callers.get(name, ()) if replaced is not None else ())
            for call in lineage.members[caller].calls(method)
            if (call.owner, call.name) == ("self", name) and call.way and not can_be_called(parameters, call.way)
            if lineage.runs(caller, method)
        ]
        node = member.methods[name]
        if unfit and replaced is not None and node is not None:
            always, way = max(unfit, key=lambda pair: pair[0])
            base, _, written = lineage.written[replaced.place].partition(":")
            target = (base, f"{written}.{name}", way)
            yield Stop("override", member.module, node.lineno, *target, parameters=parameters, always=always)


def _own_methods(lineage: _Lineage) -> Iterator[tuple[int, _Member, str]]:
    """Yield every method of the own members, with its member and the member's index."""
    for at, member in enumerate(lineage.members):
        if member.top == lineage.own:
            yield from ((at, member, name) for name in member.methods)


def _receiver(lineage: _Lineage, at: int, name: str, keyword: str) -> _Member | None:
    """Return the base class of another package that gets a keyword which a member hands to ``super()``."""
    for member in (candidate for candidate in lineage.members[at + 1 :] if name in candidate.methods):
        if member.top != lineage.own:
            return member
        body = member.body(name)
        rest = body.args.kwarg if body is not None else None
        if body is None or rest is None or keyword in {arg.arg for arg in (*body.args.args, *body.args.kwonlyargs)}:
            return None
        # It must hand all further keywords to ``super()``, once.
        handed = any((call.owner, call.name, call.rest) == ("super", name, rest.arg) for call in _Calls(body))
        if not handed or list(names_in(ast.walk(body))).count(rest.arg) != 1:
            return None
    return None
