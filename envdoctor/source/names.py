"""Find by its files which modules an environment has, which names they have, where these are defined, and what they can
be called with there."""

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache

from envdoctor.source.definitions import texts_in
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.offers import Offers
from envdoctor.source.signatures import accepts
from envdoctor.source.values import World

_MOST_ALIASES = 6
_DEEPEST = 12
_BY_ENDING = re.compile(rb"\bname\.(endswith|startswith)\(\s*[\"'](\w+)[\"']")
_OWN = ("__name__", "__file__", "__doc__", "__path__", "__spec__")


class Names:
    """The modules of an environment and their names; every answer may also be "unknown"."""

    def __init__(self, library: Library, world: World) -> None:
        self.library = library
        self.world = world
        self._known = cache(lambda module, name: self._has(module, name, set()))

    def offers(self, module: str) -> Offers | None:
        """Return what a module itself offers; None if its source cannot be read, and for Python's own, which PYTHONPATH
        may name too."""
        try:
            return None if module.partition(".")[0] in self.world.standard else self.library.offers(module)
        except Unreadable:
            return None

    def has(self, module: str, name: str) -> bool | None:
        """Return whether a module has a name, or a submodule of it; None if unknown."""
        return self._known(module, name)

    def exported_below(self, module: str) -> Mapping[str, str]:
        """Return the names that a package offers because the modules in its folder export them, and these modules."""
        offers, exports = self.offers(module), self.library.exported
        if offers is None or offers.below is None:
            return {}
        if module not in exports:
            exports[module] = dict(self._exports_in(f"{module}.{offers.below}" if offers.below else module, 0))
        return exports[module]

    def exists(self, module: str) -> bool | None:
        """Return whether a module exists; None if unknown."""
        top = module.partition(".")[0]
        if top in self.world.standard or top == "__main__":
            return True
        if self.library.find(module) is not None:
            return True
        parent = module.rpartition(".")[0]
        if not parent:
            return False if self.world.complete else None
        above = self.library.find(parent)
        if above is None:
            return self.exists(parent) and None
        if above.kind == "compiled":
            return None
        if not above.paths:  # a plain module may be replaced by a package
            offers = self.offers(parent)
            return False if offers is not None and offers.open is None else None
        if above.kind == "namespace":
            return False if self.world.complete else None
        return self._served(module, parent)

    def _served(self, module: str, parent: str) -> bool | None:
        """Return whether a package makes a submodule that has no file: by its own finder, or by putting it there."""
        last = module.rpartition(".")[2]
        above = parent
        while above:
            offers = self.offers(above)
            if offers is None:
                return None
            if above == parent and (offers.open or last in offers.names or last in offers.lazy):
                return None
            if finder := self.finder(above):
                try:
                    if any(text in (last, module) or ("(" in text and _may_fit(text, module)) for text in finder):
                        return None
                except (re.error, RecursionError, OverflowError):
                    return None
                # Its pattern may consist of pieces.
                patterns = " ".join(text for text in finder if "\\" in text)
                if any(piece in module for piece in re.findall(r"(?<!\w)\w{8,}_", patterns)):
                    return None
            above = above.rpartition(".")[0]
        return False

    def finder(self, package: str) -> tuple[str, ...]:
        """Return the texts of the finders that a package puts into ``sys.meta_path``: itself, or by a module of its own
        that it takes a function from."""
        offers, top = self.offers(package), package.partition(".")[0]
        takes = [kind.partition(":")[0] for kind in (offers.names.values() if offers is not None else ())]
        texts = dict.fromkeys((offers and offers.finder) or ())
        for module in dict.fromkeys(home for home in takes if home.partition(".")[0] == top and home != package):
            place = self.library.find(module)
            with suppress(Unreadable):
                if place is not None and place.kind == "source" and b"sys.meta_path" in self.library.text(place.path):
                    other = self.offers(module)
                    texts.update(dict.fromkeys((other and other.finder) or ()))
        return tuple(texts)

    def _has(self, module: str, name: str, trail: set[str]) -> bool | None:
        if module.partition(".")[0] in self.world.standard or module in trail or len(trail) > 200:
            return None
        trail.add(module)
        if self.library.find(f"{module}.{name}") is not None:
            return True
        spec = self.library.find(module)
        if spec is None or spec.kind == "compiled":
            return None
        if spec.kind == "namespace":
            return False
        if not self.world.followed(module.partition(".")[0]) and self.library.mentions(module, name):
            return True
        offers = self.offers(module)
        if offers is None:
            return None
        if name in offers.names or name in offers.lazy or name in _OWN:
            return True
        answer: bool | None = False
        for star in offers.stars:
            if name.startswith("_"):
                starred = self.offers(star)
                inner = None if starred is None else name in (starred.exports or ())
            else:
                inner = self._has(star, name, trail)
            if inner:
                return True
            answer = None if inner is None else answer
        if name in self.exported_below(module):
            return True
        if not offers.open and answer is False and offers.maker:
            kinds = self.making(offers.names.get(offers.maker, ""))
            if kinds is None or any(fnmatchcase(name, kind) for kind in kinds):
                return None
        return None if offers.open else answer

    def making(self, home: str) -> list[str] | None:
        """Return the kinds of names (``*TokenizerFast``) for which the class that makes a lazy module's names has its
        own way; None if unknown."""
        for _ in range(_MOST_ALIASES):
            module, _, bound = home.partition(":")
            offers = self.offers(module) if bound else None
            if offers is None:
                return [] if bound else None
            if offers.names.get(bound) == "class":
                spec = self.library.find(module)
                source = self.library.text(spec.path) if spec is not None else b""
                ways = {(way, word.decode()) for way, word in _BY_ENDING.findall(source)}
                return sorted(f"*{word}" if way == b"endswith" else f"{word}*" for way, word in ways)
            home = offers.names.get(bound, "")
        return None

    def _exports_in(self, package: str, depth: int) -> Iterable[tuple[str, str]]:
        """Yield the names in ``__all__`` of the modules in the folder of a package, and their modules."""
        spec = self.library.find(package)
        if spec is None or not spec.paths or depth > 3:
            return
        files = self.library.files_below(spec.paths[0])
        stems = [path.replace("\\", "/").rpartition("/")[2][:-3] for path in files]
        generated = any(stem.startswith("modeling_") for stem in stems)
        for path, stem in zip(files, stems, strict=True):
            # The source of a generated modeling file is never imported.
            if stem != "__init__" and not (generated and stem.startswith("modular_")):
                yield from ((name, f"{package}.{stem}") for name in _exports(self.library.text(path)))
        for path in self.library.folders_below(spec.paths[0]):
            stem = path.replace("\\", "/").rpartition("/")[2]
            if not stem.startswith("_"):
                yield from self._exports_in(f"{package}.{stem}", depth + 1)

    def lazy_home(self, module: str, name: str) -> str | None:
        """Return the module that a lazy package loads when it is asked for a name."""
        offers = self.offers(module)
        if offers is None:
            return None
        home = offers.lazy.get(name)
        if home:
            return home.partition(":")[0]
        return self.exported_below(module).get(name) if home is None and name not in offers.names else None

    def place(self, module: str, name: str) -> str | None:
        """Return ``transformers.training_args:TrainingArguments`` for a public dotted name; None if unknown."""
        first, *rest = name.split(".")
        while rest and self.library.find(f"{module}.{first}") is not None:
            module, (first, *rest) = f"{module}.{first}", rest
        home = self._home(module, first, 0)
        return None if home is None else ".".join([home, *rest])

    def takes(self, place: str, keyword: str) -> bool | None:
        """Return whether the function or class at a place takes a keyword; None if unknown, or if it hands on any."""
        takes = accepts(place, keyword, self._items)
        if takes is not True or accepts(place, keyword, lambda other: {*(self._items(other) or ())} - {"**"}):
            return takes
        return None

    def ways(self, place: str, depth: int = 0) -> tuple[str, ...] | None:
        """Return how a method (``module:Class.method``) is called by its class, or by the base class that has it; empty
        if none calls it, None if unknown."""
        module, _, qualified = place.partition(":")
        owner, _, method = qualified.rpartition(".")
        calls = self.library.calls(module)
        if calls is None or depth > _DEEPEST:
            return None
        if qualified in calls:
            return calls[qualified]
        for base in (item[1:] for item in calls.get(owner, ()) if item.startswith("&")):
            home = self.place(*base.split(":"))
            inherited = self.ways(f"{home}.{method}", depth + 1) if home is not None else None
            if inherited is None or inherited:
                return inherited
        return ()

    def _items(self, place: str) -> tuple[str, ...] | None:
        home = self.place(*place.split(":")) if "." not in place.partition(":")[2] else place
        return self.library.parameters(home) if home is not None else None

    def _home(self, module: str, name: str, depth: int) -> str | None:
        offers = self.offers(module)
        if offers is None or depth > _DEEPEST:
            return None
        origin = offers.names.get(name) or offers.lazy.get(name) or self.exported_below(module).get(name)
        if origin is None:
            stars = (self._home(star, name, depth + 1) for star in offers.stars if star != module)
            return next((home for home in stars if home is not None), None)
        if origin in ("class", "def"):
            return f"{module}:{name}"
        if origin == "value" or origin.startswith("module "):
            return None
        source, _, inside = origin.partition(":")
        return self._home(source, inside or name, depth + 1) if (source, inside) != (module, name) else None


def _exports(source: bytes) -> list[str]:
    """Return the names of ``__all__ = [...]`` in a module's source."""
    start = source.rfind(b"\n__all__")
    if start < 0:
        return []
    end = source.find(b"]", start)
    try:
        value = ast.parse(source[start : end + 1].strip() or b"0").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [*texts_in(getattr(getattr(value, "value", None), "elts", ()))]


def _may_fit(pattern: str, module: str) -> bool:
    """Return whether a pattern from judged source fits a module, or repeats so much that a try could take forever."""
    return len(re.findall(r"[*+{]", pattern)) > 1 or re.search(pattern, module[:500]) is not None
