"""Values while an import is followed, without running anything: how they compare, the names that have them, and the
environment that they belong to."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
