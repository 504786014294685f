"""Values while Python is followed, without running anything: what operators, methods and builtins give for them, the
names that have them, and the environment that they belong to."""

import ast
import builtins
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

PLAIN = (str, int, bool, float, bytes, type(None))
#: The largest number of items of a value.
MOST = 20_000
#: Of a loop over more values, no round is followed.
MOST_ROUNDS = 500


class _Unknown:
    """A value that is not known."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


# The values are not frozen, which would make each three times as dear: a hundred thousand are made for an environment.


@dataclass(slots=True, unsafe_hash=True)
class Module:
    """A module by its dotted name."""

    module: str


@dataclass(slots=True, unsafe_hash=True)
class Function:
    """A function of a module that is followed; ``at_top``: it stands in no class and no other function."""

    module: str
    node: ast.FunctionDef
    at_top: bool


@dataclass(slots=True, unsafe_hash=True)
class Class:
    """A class of a module that is followed."""

    module: str
    cls: str


@dataclass(slots=True, unsafe_hash=True)
class Reference:
    """A name of a module that is not followed: ``importlib.util.find_spec``."""

    dotted: str


@dataclass(slots=True, unsafe_hash=True)
class Version:
    """A parsed version."""

    version: str


class Stop(NamedTuple):
    """The cause that stops an import: the module and line that ask (``consumer``, ``line``), and what they ask for.

    ``kind`` is ``module``, ``name``, ``attribute``, ``argument`` (the class ``name`` does not take ``keyword``) or
    ``raise`` (the module itself gives up: ``text`` says why). What stops a class instead is a ``keyword`` that ``name``
    does not take, or an ``override`` with ``parameters`` that do not fit how the base class calls its method ``name``
    (``text``: ``2 num_items_in_batch=``); ``always`` when it stops every object of the class that is made, or trained.
    """

    kind: str
    consumer: str
    line: int
    module: str
    name: str
    text: str = ""
    keyword: str = ""
    parameters: tuple[str, ...] = ()
    always: bool = True


class Failed(Exception):
    """An exception in the code that is followed: its class by name, what caused it, and what would stop it next."""

    def __init__(self, kind: str, stop: Stop | None, behind: Sequence[Stop] = ()) -> None:
        super().__init__(kind)
        self.kind, self.stop, self.behind = kind, stop, behind


class World(NamedTuple):
    """The environment.

    ``version`` gives the version of a distribution: None when it is not installed, UNKNOWN when that is not known.
    ``owners`` maps top-level modules to their distributions where the names differ. ``python`` is ``(3, 11)``, None
    when unknown. ``standard`` are the top-level modules of the standard library. ``followed`` says of a top-level
    module whether its own imports are followed, ``complete`` whether a module that is in no folder is missing.
    """

    version: Callable[[str], Any]
    owners: Mapping[str, tuple[str, ...]]
    python: tuple[int, ...] | None
    platform: str
    standard: frozenset[str]
    followed: Callable[[str], bool]
    complete: bool = True


@dataclass(slots=True, eq=False)
class Frame:
    """The names of a module or a function while its statements are followed, and what it may have ``returned`` so
    far."""

    module: str
    names: dict[str, Any]
    around: "Frame | None" = None
    returned: list[Any] = field(default_factory=list)

    def get(self, name: str) -> Any:
        """Return the value of a name; a builtin, or any name that is not bound, as :class:`Reference`."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.around
        return Reference(f"builtins.{name}")

    def forget(self, name: str) -> None:
        """Take the value of a name as not known, wherever it stands."""
        if name in self.names:
            self.names[name] = UNKNOWN
        if self.around is not None:
            self.around.forget(name)


def joined(left: Any, right: Any) -> Any:
    """Return the value of two possible values if they are equal, else UNKNOWN."""
    try:
        same = type(left) is type(right) and is_small(left) and is_small(right) and left == right
    except RecursionError:
        return UNKNOWN
    return left if same else UNKNOWN


def truth(value: Any) -> bool | None:
    """Return whether a value counts as true; None if unknown."""
    if isinstance(value, (*PLAIN, tuple, list, dict, set, frozenset)):
        return bool(value)
    return True if isinstance(value, (Module, Function, Class, Version)) else None


def is_known(value: Any) -> bool:
    """Return whether a value, and every item of a list, is plain and known."""
    if not isinstance(value, (tuple, list)):
        return isinstance(value, PLAIN)
    items = _items(value, (tuple, list))
    return items is not None and all(isinstance(entry, (*PLAIN, tuple, list)) for entry in items)


def is_small(value: Any) -> bool:
    """Return whether a value has a bounded number of items, including the items inside its items."""
    return _items(value, (tuple, list, dict, set, frozenset)) is not None


def _items(value: Any, kinds: tuple[type[Any], ...]) -> list[Any] | None:
    """Return a value and all items in it, each as often as it occurs: ``a = (a, a)`` doubles them. None if too many."""
    items: list[Any] = [value]
    for entry in items:
        if isinstance(entry, kinds):
            items += entry.values() if isinstance(entry, dict) else entry
        if len(items) > MOST:
            return None
    return items


def is_known_deep(value: Any) -> bool:
    """Like :func:`is_known`, for tables and sets too."""
    if isinstance(value, (set, frozenset, dict)):
        return len(value) < MOST and all(map(is_known, value))
    return is_known(value)


_LARGEST_NUMBER = 1 << 63
_TEXT_METHODS = frozenset(
    ("upper", "lower", "strip", "lstrip", "rstrip", "split", "startswith", "endswith", "replace", "partition")
)
_OTHER_METHODS = frozenset(("union", "keys", "values", "items", "copy", "get", "count", "index", "difference"))
#: The errors of a method for arguments that it refuses, or of a value that lacks the method.
REFUSED = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
#: Builtins whose result is plain, and those that make a container.
PLAIN_CALLS = ("len", "str", "int", "float", "bool", "any", "all", "sorted", "min", "max")
_CALLS = (*PLAIN_CALLS, "tuple", "list", "set", "frozenset", "dict")
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def own_method(holder: Any, name: str, arguments: list[Any]) -> Any:
    """Return the result of a known value's method that changes nothing."""
    allowed = _TEXT_METHODS if isinstance(holder, str) else _OTHER_METHODS
    grown = [len(holder), *(len(text) for text in arguments[1:] if isinstance(text, str))]  # by replace
    is_bounded = not isinstance(holder, str) or (max(grown) <= MOST and math.prod(filter(None, grown)) <= MOST)
    if name in ("count", "index") and not is_known(holder):
        return UNKNOWN
    if name not in allowed or not is_bounded or not all(map(is_known_deep, arguments)):
        return UNKNOWN
    try:
        value = getattr(holder, name)(*arguments)
    except REFUSED:
        return UNKNOWN
    return list(value) if name in ("keys", "values", "items") else value


def builtin(name: str, arguments: Sequence[Any]) -> Any:
    """Return what a function of Python's own gives that does nothing else."""
    is_length = name == "len" and len(arguments) == 1 and isinstance(arguments[0], (tuple, list))
    is_bounded = all(isinstance(value, PLAIN) for value in arguments) or name != "str"
    is_bounded = is_bounded and all(len(value) <= MOST for value in arguments if isinstance(value, (str, bytes)))
    if name not in _CALLS or not (is_length or (is_bounded and all(map(is_known_deep, arguments)))):
        return UNKNOWN
    try:
        return getattr(builtins, name)(*arguments)
    except REFUSED:
        return UNKNOWN


class Expressions:
    """The values of expressions by what operators make of them. A kind of expression that has no method ``visit_…`` is
    not known; subclasses add what names, attributes and calls give, in a ``scope`` of theirs."""

    _visits: ClassVar[Mapping[type, Callable[..., Any]]]

    def __init_subclass__(cls) -> None:
        names = [name for name in dir(cls) if name.startswith("visit_")]
        cls._visits = {getattr(ast, name.removeprefix("visit_")): getattr(cls, name) for name in names}

    def step(self) -> None:
        """Count work."""

    def put(self, target: ast.expr, value: Any, scope: Any) -> None:
        """Give a name, or an item or attribute of something, its value."""

    def value(self, node: ast.expr, scope: Any) -> Any:
        """Return the value of an expression."""
        if node.__class__ is ast.Constant:  # every second one
            return node.value
        self.step()
        visit = self._visits.get(type(node))
        return UNKNOWN if visit is None else visit(self, node, scope)

    def unsure(self, node: ast.expr, scope: Any) -> Any:
        """Return the value of an expression that may not be evaluated at all."""
        return self.value(node, scope)

    def truth(self, value: Any) -> bool | None:
        """Return whether a value counts as true; None if unknown."""
        return truth(value)

    def bind(self, target: ast.expr, value: Any, scope: Any) -> None:
        """Give the names of an assignment's target their value."""
        match target:
            case ast.Tuple(elts=items) | ast.List(elts=items):
                fits = isinstance(value, (tuple, list)) and len(value) == len(items)
                for index, inner in enumerate(items):
                    self.bind(inner, value[index] if fits else UNKNOWN, scope)
            case ast.Starred(value=inner):
                self.bind(inner, UNKNOWN, scope)
            case _:
                self.put(target, value, scope)

    def visit_NamedExpr(self, node: ast.NamedExpr, scope: Any) -> Any:
        value = self.value(node.value, scope)
        self.bind(node.target, value, scope)
        return value

    def visit_BoolOp(self, node: ast.BoolOp, scope: Any) -> Any:
        stops = isinstance(node.op, ast.Or)
        unsure = False
        for operand in node.values:
            value = self.unsure(operand, scope) if unsure else self.value(operand, scope)
            verdict = self.truth(value)
            if verdict is stops:
                return value if not unsure else (stops if isinstance(value, bool) else UNKNOWN)
            unsure = unsure or verdict is None
        return UNKNOWN if unsure else value

    def visit_UnaryOp(self, node: ast.UnaryOp, scope: Any) -> Any:
        match node.op, self.value(node.operand, scope):
            case ast.Not(), value:
                verdict = self.truth(value)
                return UNKNOWN if verdict is None else not verdict
            case ast.USub(), (int() | float()) as value:
                return -value
            case ast.UAdd(), (int() | float()) as value:
                return value
        return UNKNOWN

    def visit_BinOp(self, node: ast.BinOp, scope: Any) -> Any:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        match node.op, left:
            case ast.Div(), str() if isinstance(right, str):
                return os.path.join(left, right)[:MOST]  # a path is its text
            case kind, int() | float() if isinstance(right, (int, float)) and type(kind) in _OPERATORS:
                try:
                    result = _OPERATORS[type(kind)](left, right)
                except ArithmeticError:
                    return UNKNOWN
                return result if abs(result) < _LARGEST_NUMBER else UNKNOWN
            case ast.Add(), str() | tuple() | list() if type(left) is type(right) and len(left) + len(right) <= MOST:
                return operator.add(left, right) if is_known(left) and is_known(right) else UNKNOWN
        return UNKNOWN

    def visit_Compare(self, node: ast.Compare, scope: Any) -> Any:
        left = self.value(node.left, scope)
        result: Any = True
        for sign, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            answer = self.compared(left, sign, right)
            if answer is False:
                return False
            if answer is not True:
                result = UNKNOWN
            left = right
        return result

    def compared(self, left: Any, sign: ast.cmpop, right: Any) -> Any:
        """Return the result of a comparison of two values."""
        match sign, right:
            case ((ast.Is() | ast.IsNot()), _):
                is_sure = not any(side is UNKNOWN or isinstance(side, Reference) for side in (left, right))
            case ((ast.In() | ast.NotIn()), str()):
                is_sure = left is not UNKNOWN
            case ((ast.In() | ast.NotIn()), tuple() | list() | set() | frozenset() | dict()):
                is_sure = is_known(left) and is_known_deep(right)
            case ((ast.In() | ast.NotIn()), _):
                is_sure = False
            case _:
                is_sure = is_known(left) and is_known(right)
        try:
            return _OPERATORS[type(sign)](left, right) if is_sure else UNKNOWN
        except (TypeError, RecursionError):
            return UNKNOWN

    def visit_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Any) -> Any:
        values: list[Any] = []
        is_open = False
        for element in node.elts:
            if not isinstance(element, ast.Starred):
                values.append(self.value(element, scope))
                continue
            inner = self.value(element.value, scope)
            is_open = is_open or not isinstance(inner, (tuple, list)) or len(values) + len(inner) > MOST
            values += () if is_open else inner
        return UNKNOWN if is_open else self.sequence(node, values)

    visit_List = visit_Set = visit_Tuple

    def sequence(self, node: ast.Tuple | ast.List | ast.Set, values: list[Any]) -> Any:
        """Return a tuple, list or set of these values."""
        return values

    def visit_Subscript(self, node: ast.Subscript, scope: Any) -> Any:
        base = self.value(node.value, scope)
        match node.slice:
            case ast.Slice(lower=lower, upper=upper, step=step):
                bounds = [None if bound is None else self.value(bound, scope) for bound in (lower, upper)]
                whole = (bound is None or (isinstance(bound, int) and abs(bound) < MOST) for bound in bounds)
                may_slice = isinstance(base, (str, tuple, list)) and step is None and all(whole)
                return base[slice(*bounds)] if may_slice and len(base) <= MOST else UNKNOWN
        return self.item(base, self.value(node.slice, scope))

    def item(self, base: Any, key: Any) -> Any:
        """Return an item of a value."""
        if isinstance(base, (dict, tuple, list, str)) and is_known(key):
            try:
                return base[key]
            except (KeyError, IndexError, TypeError):
                pass
        return UNKNOWN

    def visit_JoinedStr(self, node: ast.JoinedStr, scope: Any) -> Any:
        parts: list[str] = []
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if (getattr(part, "conversion", -1), getattr(part, "format_spec", None)) == (-1, None):
                match value:
                    case str():
                        parts.append(value)
                    case int() | float() if abs(value) < _LARGEST_NUMBER:
                        parts.append(str(value))
        fits = len(parts) == len(node.values) and sum(map(len, parts)) <= MOST
        return "".join(parts) if fits else UNKNOWN


Expressions.__init_subclass__()
