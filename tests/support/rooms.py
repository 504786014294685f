"""What a room finds by itself in its folders: an observer, a derivation or a comparer, by the name of its file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envdoctor.derive import derivations
from envdoctor.observe import observers
from envdoctor.revision import comparers

__all__ = ["comparer", "derivation", "observer"]

_OBSERVED = ("machine", "packages", "binaries", "model", "source", "code")


def observer(name: str) -> Any:
    """The observer of that name."""
    return _named((module for room in _OBSERVED for module in observers(room)), name)


def derivation(name: str) -> Any:
    """The derivation of that name."""
    return _named(derivations(), name)


def comparer(name: str) -> Any:
    """The comparer of that name."""
    return _named(comparers(), name)


def _named(modules: Iterable[Any], name: str) -> Any:
    return next(module for module in modules if module.__name__.rpartition(".")[2] == name)
