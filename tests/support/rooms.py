"""What a room finds by itself in its folders: an observer or a comparer by its file, a derivation by its own name."""

import sys
from collections.abc import Callable
from typing import Any

from envdoctor.facts import View
from envdoctor.judge.derivations import derivations
from envdoctor.observe import observers
from envdoctor.revision import COMPARERS

_OBSERVED = ("machine", "packages", "binaries", "model", "source", "code")


def observer(name: str) -> Any:
    """The observer of that name."""
    return next(one for one in observers(*_OBSERVED) if one.name == name)


def observing(name: str) -> Any:
    """The module of the observer of that name."""
    return sys.modules[observer(name).find.__module__]


def derivation(name: str) -> Any:
    """The derivation of that name."""
    return next(one for one in derivations() if one.name.endswith(f":{name}"))


def computing(name: str) -> Callable[[Callable[[str], Any], Any], Any]:
    """What the derivation of that name gives for a reader of facts and the tables."""
    found = derivation(name)
    return lambda value, matrix: found.compute(View(value), matrix)


def comparer(name: str) -> Any:
    """The comparer of an area, or that of this module or function."""
    texts = ((one, getattr(one.compare, "__module__", ""), getattr(one.compare, "__name__", "")) for one in COMPARERS)
    return next(one for one, module, function in texts if name in (one.area, module.rpartition(".")[2], function))
