"""The door of a room: the names that others and tests may use, each loaded from its module when it is asked for.

A room's ``__init__`` opens it. Code on the way of ``check`` names the modules themselves: a door that nobody uses costs
nothing.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(room: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return ``__all__`` and ``__getattr__`` of a room. ``names`` has the names by module, parted by blanks."""
    places = {name: f"{room}.{module}" for module, listed in names.items() for name in listed.split()}

    def from_its_module(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return sorted(places), from_its_module
