"""Values as far as they are known without running anything: the names that have them, and how they compare."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.source.world import UNKNOWN, Class, Following, Function, Made, Module, Version
from envdoctor.versions.pep440 import NotASpecifier, satisfies

PLAIN = (str, int, bool, float, bytes, type(None))
#: Items of a value that are looked at.
MOST = 20_000
#: Of a loop over more values, no round is followed.
MOST_ROUNDS = 500
_COMPARE: Mapping[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda left, right: left in right),
    ast.NotIn: ("not in", lambda left, right: left not in right),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class Frame:
    """The names of a module or a function while its statements are followed."""

    __slots__ = ("around", "module", "names")

    def __init__(self, module: str, names: dict[str, Any], around: Frame | None = None) -> None:
        self.module, self.names, self.around = module, names, around

    def get(self, name: str) -> Any:
        """The value of a name; UNKNOWN also for one that is not there, a builtin as :class:`Made`."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.around
        return Made(f"builtins.{name}")

    def forget(self, name: str) -> None:
        """Take the value of a name as not known, wherever it stands."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                frame.names[name] = UNKNOWN
            frame = frame.around


def joined(left: Any, right: Any) -> Any:
    """One of two values, when it is not known which."""
    try:
        same = type(left) is type(right) and is_small(left) and is_small(right) and left == right
    except RecursionError:
        return UNKNOWN
    return left if same else UNKNOWN


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None when that is not known."""
    if isinstance(value, (*PLAIN, tuple, list, dict, set, frozenset)):
        return bool(value)
    return True if isinstance(value, (Module, Function, Class, Version)) else None


def compared(left: Any, sign: ast.cmpop, right: Any, following: Following) -> Any:
    """What a comparison of two values gives."""
    spelled, compare = _COMPARE[type(sign)]
    match spelled, left, right:
        case "is" | "is not", _, _:
            known = not any(one is UNKNOWN or isinstance(one, Made) for one in (left, right))
        case "in" | "not in", _, str():
            known = left is not UNKNOWN
        case "in" | "not in", _, tuple() | list() | set() | frozenset() | dict():
            known = left is not UNKNOWN and not any(one is UNKNOWN for one in right)
        case "in" | "not in", _, _:
            known = False
        case _, Version(version=version), Version(version=other):
            following.compare(version, other)
            try:
                return satisfies(version, spelled + other.partition("+")[0])
            except NotASpecifier:
                return UNKNOWN
        case _:
            known = is_known(left) and is_known(right)
    try:
        return compare(left, right) if known else UNKNOWN
    except TypeError:
        return UNKNOWN


def is_known(value: Any) -> bool:
    """Whether a value, and every item of a list, is plain and known."""
    if not isinstance(value, (tuple, list)):
        return isinstance(value, PLAIN)
    items = _items(value, (tuple, list))
    return items is not None and all(isinstance(one, (*PLAIN, tuple, list)) for one in items)


def is_small(value: Any) -> bool:
    """Whether a value has a bounded number of items, those of its items too."""
    return _items(value, (tuple, list, dict, set, frozenset)) is not None


def _items(value: Any, kinds: tuple[type[Any], ...]) -> list[Any] | None:
    """A value and all items in it, each as often as it stands there: ``a = (a, a)`` doubles them. None for too many."""
    items: list[Any] = [value]
    for one in items:
        if isinstance(one, kinds):
            items += one.values() if isinstance(one, dict) else one
        if len(items) > MOST:
            return None
    return items


def is_known_deep(value: Any) -> bool:
    """The same, for tables and sets too."""
    if isinstance(value, (set, frozenset, dict)):
        return len(value) < MOST and all(map(is_known, value))
    return is_known(value)
