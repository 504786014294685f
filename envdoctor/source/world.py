"""The values that matter while an import is followed, and the environment it is followed in."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


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
class Made:
    """Something of a module that is not followed, by its dotted name: ``importlib.util.find_spec``."""

    dotted: str


@dataclass(slots=True, unsafe_hash=True)
class Version:
    """A parsed version."""

    version: str


class Stop(NamedTuple):
    """What stops an import: the module and line that ask (``consumer``, ``line``), what of which module they ask for.

    ``kind`` is ``module``, ``name``, ``attribute``, ``argument`` (the class ``name`` does not take ``keyword``) or
    ``raise`` (the module itself gives up: ``text`` says why). What stops a class instead is a ``keyword`` that ``name``
    does not take, or an ``override`` with ``parameters`` that do not fit how the base class calls its method ``name``
    (``text``: ``2 num_items_in_batch=``); ``always`` when nobody can make, or train, an object of the class without
    coming by it.
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


class Following(Protocol):
    """Whoever follows an import, as an expression needs it: :class:`envdoctor.source.importing.Importing`."""

    world: World

    @property
    def certain(self) -> bool: ...

    def step(self, node: ast.AST) -> None: ...

    def compare(self, left: str, right: str) -> None: ...

    def unsure(self, action: Callable[..., Any], *arguments: Any) -> Any: ...

    def present(self, module: str) -> Any: ...

    def version(self, distribution: str) -> Any: ...

    def available(self, module: str) -> Any: ...

    def has(self, module: str, name: str) -> Any: ...

    def unbound(self, module: str, name: str) -> Any: ...

    def attribute(self, module: str, name: str, consumer: str, line: int) -> Any: ...

    def made(self, of: Class, keywords: Iterable[str], consumer: str, line: int) -> Any: ...

    def call(self, function: Function, arguments: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any: ...

    def load(self, module: str, consumer: str, line: int) -> None: ...


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
