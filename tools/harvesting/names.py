"""What the files of one release say: the names that its modules offer, parameters, where things are defined.

Nothing is imported. The files lie in a folder as they would be installed; compiled ones are empty there.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from envdoctor.source import Importing, Library, Unreadable, World
from envdoctor.source.offers import Offers
from envdoctor.source.signatures import calls, parameters

__all__ = ["Home", "Names"]

#: Folders that are not for others.
_NOT_OFFERED = {"tests", "test", "__pycache__"}
_COMPILED = (".so", ".pyd")
_DEEPEST = 12


class Home(NamedTuple):
    """Where a name is defined: ``kind`` is class, def, value, module, or elsewhere for another package's."""

    module: str
    name: str
    kind: str

    @property
    def place(self) -> str:
        return f"{self.module}:{self.name}"


class _Shared(Library):
    """Modules that are the same in several releases are parsed once; no tree is kept."""

    known: ClassVar[dict[tuple[str, bool, bytes], Offers | Unreadable]] = {}

    def __init__(self, folder: str) -> None:
        super().__init__([folder])
        self._here: dict[str, Offers | Unreadable | None] = {}

    def offers(self, name: str) -> Offers | None:
        """What a module offers; None for one that is no source. Raises :class:`Unreadable`."""
        if name not in self._here:
            found = self.find(name)
            if found is None or found.kind != "source":
                self._here[name] = None
            else:
                key = name, bool(found.paths), sha256(self.text(found.path)).digest()
                if key not in self.known:
                    try:
                        self.known[key] = super().offers(name) or Unreadable("is no source")
                    except Unreadable as problem:
                        self.known[key] = problem
                    self._trees.clear()
                self._here[name] = self.known[key]
        offers = self._here[name]
        if isinstance(offers, Unreadable):
            raise offers
        return offers


class Names:
    """One release in a folder. ``modules`` are its top-level modules, ``standard`` those of the standard library."""

    _known: ClassVar[dict[tuple[str, str, bytes], Any]] = {}
    #: The tree that was parsed last.
    _tree: ClassVar[dict[bytes, ast.Module]] = {}

    def __init__(self, folder: str, modules: Iterable[str], standard: frozenset[str]) -> None:
        self.folder = folder
        self.tops = frozenset(modules)
        self.standard = standard
        self.library = _Shared(folder)
        world = World(
            version=lambda name: None,
            owners={},
            python=None,
            platform="linux",
            standard=standard,
            followed=lambda top: top in self.tops,
        )
        self._importing = Importing(self.library, world)
        self._parameters: dict[str, dict[str, tuple[str, ...] | None]] = {}
        self._calls: dict[str, dict[str, tuple[str, ...]]] = {}
        self.of = cache(self._of)
        self.home = cache(self._home)

    def all_modules(self) -> list[str]:
        """Return every module, by dotted name."""
        found = set()
        for top in self.tops:
            for folder, folders, files in os.walk(os.path.join(self.folder, top)):
                folders[:] = [name for name in folders if name.isidentifier() and name not in _NOT_OFFERED]
                package = os.path.relpath(folder, self.folder).replace(os.sep, ".")
                for file in files:
                    stem = file.partition(".")[0]
                    if file.endswith((".py", *_COMPILED)) and (stem.isidentifier() or stem == "__init__"):
                        found.add(package if stem == "__init__" else f"{package}.{stem}")
                        found.add(package)
            if self.library.find(top) is not None:
                found.add(top)
        return sorted(found)

    def offers(self, module: str) -> Offers | None:
        """What a module offers by itself; None for one without source that can be read."""
        try:
            return self.library.offers(module)
        except Unreadable:
            return None

    def kinds(self, top: str) -> list[str]:
        """Return the kinds of names that a lazy top-level module makes in its own ways (``*TokenizerFast``)."""
        offers = self.offers(top) if self.library.find(top) is not None else None
        return self._importing.names.making(offers.names.get(offers.maker, "")) or [] if offers and offers.maker else []

    def _of(self, module: str) -> tuple[frozenset[str], str | None]:
        """Return all names that can be imported from a module, except modules below it, and why there may be more."""
        found = self.library.find(module)
        if found is None or found.kind == "namespace":
            return frozenset(), None
        if found.kind == "compiled":
            return frozenset(), "it is compiled"
        offers = self.offers(module)
        if offers is None:
            return frozenset(), "it cannot be parsed"
        names, reason = {*offers.names, *offers.lazy}, offers.open
        if offers.below is not None:
            names |= self._importing.names.exported_below(module).keys()
        for star in offers.stars:
            if star == module:
                continue
            given, why = self._by_star(star)
            names |= given
            reason = reason or why
        return frozenset(names), reason

    def _by_star(self, module: str) -> tuple[frozenset[str], str | None]:
        """Return what ``from module import *`` gives."""
        if module.partition(".")[0] not in self.tops:
            return frozenset(), f"it takes over the names of {module}"
        if self.library.find(module) is None:
            return frozenset(), None
        offers = self.offers(module)
        if offers is not None and offers.exports is not None:
            return frozenset(offers.exports), None
        names, reason = self.of(module)
        return frozenset(name for name in names if not name.startswith("_")), reason

    def _home(self, module: str, name: str, depth: int = 0) -> Home | None:
        """Return where a module's name is defined; None if unknown."""
        offers = self.offers(module) if self.library.find(module) is not None else None
        if offers is None or depth > _DEEPEST:
            return None
        origin = offers.names.get(name) or offers.lazy.get(name)
        if origin is None and offers.below is not None:
            origin = self._importing.names.exported_below(module).get(name)
        if origin is None:
            inner = (self._home(star, name, depth + 1) for star in offers.stars if name in self._by_star(star)[0])
            return next(inner, None)
        if origin in ("class", "def", "value"):
            return Home(module, name, origin)
        if origin.startswith("module "):
            return Home(origin.removeprefix("module "), "", "module")
        source, _, inside = origin.partition(":")
        if source.partition(".")[0] not in self.tops:
            return Home(source, inside or name, "elsewhere")
        if source == module and (inside or name) == name:
            return None
        found = self._home(source, inside or name, depth + 1)
        if found is None and self.library.find(f"{source}.{inside}") is not None:
            return Home(f"{source}.{inside}", "", "module")
        return found

    def parameters(self, module: str) -> dict[str, tuple[str, ...] | None]:
        """Return those of all functions, classes and methods of a module, bases by the modules that define them."""
        if module not in self._parameters:
            self._parameters[module] = {
                name: None if items is None else tuple(sorted(map(self._based, items)))
                for name, items in self._parsed(parameters, module).items()
            }
        return self._parameters[module]

    def calls(self, module: str) -> dict[str, tuple[str, ...]]:
        """Return how the classes of a module call their own methods."""
        if module not in self._calls:
            self._calls[module] = {
                name: tuple(sorted(map(self._based, items))) for name, items in self._parsed(calls, module).items()
            }
        return self._calls[module]

    def _parsed(self, what: Callable[[ast.Module, str, Mapping[str, str]], Any], module: str) -> Any:
        """Return what a function reads in the whole tree of a module, once for all releases with the same text."""
        offers, found = self.offers(module), self.library.find(module)
        if offers is None or found is None:
            return {}
        source = self.library.text(found.path)
        digest = sha256(source).digest()
        key = what.__name__, module, digest
        if key not in self._known:
            if digest not in self._tree:
                self._tree.clear()
                self._tree[digest] = ast.parse(source)
            self._known[key] = what(self._tree[digest], module, offers.names)
        return self._known[key]

    def _based(self, item: str) -> str:
        """Return a base class under the module that defines it."""
        if not item.startswith("&"):
            return item
        home = self.home(*item[1:].split(":"))
        return f"&{home.place}" if home is not None and home.name else item

    def source(self, module: str) -> bytes:
        """Return the text of a module; empty if it has none that can be parsed."""
        found = self.library.find(module)
        return self.library.text(found.path) if found is not None and self.offers(module) is not None else b""

    def served(self) -> list[str]:
        """Return the texts of finders that the package puts into ``sys.meta_path``: they may name fileless modules."""
        return sorted({text for top in self.tops for text in self._importing.names.finder(top)})
