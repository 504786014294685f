"""What is known while a script is followed: values, with what stands for those that cannot be told, and the calls."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from envdoctor.observe.recipe.reading.script_files import Beside
from envdoctor.observe.recipe.reading.script_options import Parser
from envdoctor.source.definitions import chain

#: Bounds of the work: statements and expressions, calls that are told, calls of the script's functions in each other.
_MOST_STEPS = 200_000
_LONGEST = 200  # characters of the name of a call that is told
_MOST_CALLS = 5000
_DEEPEST_MAPPING = 6


class _Open:
    """The value of what cannot be told."""

    def __bool__(self) -> bool:
        raise TypeError("nobody knows")


OPEN: Any = _Open()
#: Stands for a key that is given under a condition only.
PERHAPS: Any = _Open()


class Item(NamedTuple):
    """A value in a mapping, and its line."""

    value: Any
    line: int


class Object(dict[str, Item]):
    """The attributes of a namespace or of an instance of a class of the script."""

    kind: ast.ClassDef | None = None


class Returned(Exception):
    """A function returns a value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class TooLong(Exception):
    """The script has more statements than are followed."""


class Run(ABC):
    """The state of following a script: its ``calls`` in the order in which they run, each with its settings, ``(name,
    [[key, value, line, how]], whether it is made under a condition)``; ``how`` is 1 for a computed value, 2 for a key
    that is given under a condition."""

    def __init__(self, words: Sequence[str | None], beside: Beside, names: str) -> None:
        self.calls: list[tuple[str, list[Any], bool]] = []
        self._branches: list[int] = []  # of each branch that may not be taken, how many mappings there were before it
        self._born: dict[int, tuple[int, Any]] = {}
        self.words = words
        self._steps = 0
        self._running: list[str] = []
        self._entered: set[ast.AST] = set()
        self._globals: dict[str, Any] = {"__name__": "__main__"}
        self._wanted = re.compile(names)
        self._beside = beside
        self._place = beside.folder
        self._closures: dict[ast.AST, dict[str, Any]] = {}
        self._homes: dict[ast.AST, tuple[dict[str, Any], str]] = {}

    @abstractmethod
    def value(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Evaluate an expression; its calls are told."""

    @abstractmethod
    def _block(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> None: ...

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLong

    @contextmanager
    def _at(self, node: ast.AST) -> Iterator[None]:
        """Follow what stands in the module of a node."""
        before = self._globals, self._place
        self._globals, self._place = self._homes.get(node, before)
        try:
            yield
        finally:
            self._globals, self._place = before

    def _put(self, base: dict[str, Item], key: str, value: Any, line: int) -> None:
        """Set an item; in a branch that may not be taken, of a mapping that was there before it, perhaps."""
        before = bool(self._branches) and self._born.get(id(base), (0, base))[0] <= self._branches[-1]
        base[key] = Item((OPEN if key in base else PERHAPS) if before else value, line)

    def _new(self, mapping: Any) -> Any:
        self._born[id(mapping)] = (len(self._born) + 1, mapping)
        return mapping

    def tell(self, name: str, settings: list[Any]) -> None:
        """Add a call to those that are told."""
        if len(self.calls) < _MOST_CALLS and len(name) <= _LONGEST and self._wanted.fullmatch(name):
            self.calls.append((name, settings[:_MOST_CALLS], False))


def dotted(node: ast.expr) -> str:
    """``AutoModel.from_pretrained``; empty for what is no plain name."""
    root, names = chain(node)
    return ".".join([root.id, *names]) if isinstance(root, ast.Name) and len(names) <= 10 else ""


def items_of(value: Any, line: int) -> Any:
    """Dictionaries of a document as those of a script, whose values have lines; interpolations are open."""
    if isinstance(value, dict):
        return Object({key: Item(items_of(one, line), line) for key, one in value.items()})
    return OPEN if isinstance(value, str) and "${" in value else value


def told(value: Any) -> Any:
    return OPEN if value is PERHAPS else value


def mapping_of(value: Any) -> dict[str, Item]:
    return value if isinstance(value, dict) else {}


def same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and not isinstance(one, (ast.AST, Parser)) and one == other)


def add_setting(settings: list[Any], key: str, value: Any, line: int, depth: int = 0) -> None:
    """The setting, or those of a mapping, each with its own line."""
    flat = isinstance(value, dict) and (not isinstance(value, Object) or not key) and depth < _DEEPEST_MAPPING
    if flat and value and len(settings) < _MOST_CALLS:
        for name, item in value.items():
            add_setting(settings, f"{key}.{name}" if key else name, item.value, item.line, depth + 1)
    elif key:
        known = value is None or isinstance(value, (str, int, float, bool)) or _plain(value)
        settings.append([key, value if known else None, line, 2 if value is PERHAPS else int(not known)])


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, (str, int, float, bool)) for one in value)
