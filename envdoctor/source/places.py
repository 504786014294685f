"""Where what a module offers is defined, what it can be called with there, and how classes call their own methods."""

from __future__ import annotations

from envdoctor.source.names import Names
from envdoctor.source.signatures import accepts

_DEEPEST = 12


class Places:
    """The definitions of an environment's modules."""

    def __init__(self, names: Names) -> None:
        self._names, self._library = names, names.library

    def place(self, module: str, name: str) -> str | None:
        """``transformers.training_args:TrainingArguments`` for a public dotted name; None when that cannot be told."""
        first, *rest = name.split(".")
        while rest and self._library.find(f"{module}.{first}") is not None:
            module, (first, *rest) = f"{module}.{first}", rest
        found = self._home(module, first, 0)
        return None if found is None else ".".join([found, *rest])

    def takes(self, place: str, keyword: str) -> bool | None:
        """Whether what stands at a place takes a keyword; None when that cannot be told, or it hands on any."""
        takes = accepts(place, keyword, self._items)
        return takes if takes is not True or accepts(place, keyword, self._named) else None

    def ways(self, place: str, depth: int = 0) -> tuple[str, ...] | None:
        """How a method (``module:Class.method``) is called by its class, or the base class that it comes from; empty
        when none calls it, None when that cannot be told."""
        module, _, qualified = place.partition(":")
        owner, _, method = qualified.rpartition(".")
        known = self._library.calls(module)
        if known is None or depth > _DEEPEST:
            return None
        if qualified in known:
            return known[qualified]
        for base in (item[1:] for item in known.get(owner, ()) if item.startswith("&")):
            home = self.place(*base.split(":"))
            inherited = self.ways(f"{home}.{method}", depth + 1) if home is not None else None
            if inherited is None or inherited:
                return inherited
        return ()

    def _named(self, place: str) -> tuple[str, ...] | None:
        return tuple(item for item in self._items(place) or () if item != "**")

    def _items(self, place: str) -> tuple[str, ...] | None:
        home = self.place(*place.split(":")) if "." not in place.partition(":")[2] else place
        return self._library.parameters(home) if home is not None else None

    def _home(self, module: str, name: str, depth: int) -> str | None:
        offers = self._names.offers(module)
        if offers is None or depth > _DEEPEST:
            return None
        origin = offers.names.get(name) or offers.lazy.get(name) or self._names.exported_below(module).get(name)
        if origin is None:
            stars = (self._home(star, name, depth + 1) for star in offers.stars if star != module)
            return next((home for home in stars if home is not None), None)
        if origin in ("class", "def"):
            return f"{module}:{name}"
        if origin == "value" or origin.startswith("module "):
            return None
        source, _, inside = origin.partition(":")
        return self._home(source, inside or name, depth + 1) if (source, inside) != (module, name) else None
