"""What the ledger keeps of one release's files: enough for imports, attributes and calls that people write.

Names of a module are kept unless they are private, come from the standard library, or from another package into a
module that is no package itself. Of packages that are ``lean`` only what a module defines is kept, of those that are
``thin`` (hundreds of models, each with the same imports) also no parameters. Names left out stand
together under the subject ``*``: of these nothing is known. Parameters are kept of what top-level modules offer (with
methods, and how these call each other), of what the modules right below them define, and of configuration classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harvesting.demands import demands
from harvesting.names import Names

__all__ = ["read"]

_CONFIGURES = ("Config", "Arguments")
#: Modules that are made or run by the package's developers alone.
_FOR_DEVELOPERS = ("modular_", "convert_", "conftest")
_SPECIAL_METHODS = ("__call__",)
#: Modules of stand-ins for what needs a library that is missing.
_STAND_INS = "dummy_"

Sections = dict[str, dict[str, set[str]]]


def read(names: Names, settings: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the sections of one release as items by subject, sorted; what modules define; texts of finders.

    The settings are those of ``[reading]``; tools/harvest.toml says what they are.
    """
    reading = _Reading(names, settings)
    sections = {
        section: {subject: sorted(items) for subject, items in sorted(subjects.items())}
        for section, subjects in reading.sections().items()
    }
    return {"sections": sections, "defined": reading.defined, "served": names.served()}


class _Reading:
    def __init__(self, names: Names, settings: Mapping[str, Sequence[str]]) -> None:
        self.names = names
        self.thin = tuple(f"{module}." for module in settings["thin"])
        self.lean = tuple(f"{module}." for module in settings["lean"])
        self.unlisted, self.private = frozenset(settings["unlisted"]), frozenset(settings["private"])
        self.surface = {*names.tops, *settings["surface"]}
        self.defined: dict[str, list[str]] = {}
        self.done: set[tuple[str, bool]] = set()
        self.modules = [
            module for module in names.all_modules() if not module.rpartition(".")[2].startswith(_FOR_DEVELOPERS)
        ]

    def sections(self) -> Sections:
        """Return everything but what is taken of others."""
        found: Sections = {
            name: defaultdict(set) for name in ("offers", "open", "parameters", "alias", "calls", "demands")
        }
        for module in self.modules:
            offered, reason = self.names.of(module)
            kept = set(filter(self._is_kept_name, offered))
            if module in self.unlisted:
                found["open"][module].add("its names are not listed here")
                kept = set()
            out = self._left_out(module, kept)
            found["offers"][module] = kept - out
            found["offers"]["*"] |= out
            if reason is not None:
                found["open"][module].add(reason)
            offers = self.names.offers(module)
            kinds = offers.names if offers is not None else {}
            defined = sorted(name for name in kept if kinds.get(name) in ("class", "def"))
            if defined and not self._is_thin(module):
                self.defined[module] = defined
            self._callables(found, module, kept - out)
            for text in demands(self.names, module):
                found["demands"]["*"].add(f"{text} @{module}")
        for top in self.names.tops:
            for kind in self.names.kinds(top):
                found["open"][f"{top}:{kind}"].add("it makes such names")
        if not found["offers"]["*"]:
            del found["offers"]["*"]
        found["calls"] = {place: ways for place, ways in found["calls"].items() if ways}
        return found

    def _is_kept_name(self, name: str) -> bool:
        return name.isidentifier() and (not name.startswith("_") or name == "__version__" or name in self.private)

    def _left_out(self, module: str, offered: Collection[str]) -> set[str]:
        """Return names that a module has from elsewhere and that are not recorded for it."""
        offers = self.names.offers(module)
        if offers is None:
            return set()
        found = self.names.library.find(module)
        hands_on = found is not None and bool(found.paths) and not self._is_thin(module)
        defines_only = f"{module}.".startswith((*self.thin, *self.lean))
        out = set()
        for name in offered:
            origin = offers.names.get(name, "")
            source = origin.removeprefix("module ").partition(":")[0] if ":" in origin or " " in origin else ""
            top = source.partition(".")[0]
            if not source or (hands_on and top not in self.names.standard):
                continue
            if top in self.names.standard or defines_only or top not in self.names.tops:
                out.add(name)
        if self._is_thin(module):
            for star in offers.stars:
                if star.rpartition(".")[2].startswith(_STAND_INS):
                    out |= set(offered) & self.names.of(star)[0] - offers.names.keys() - offers.lazy.keys()
        return out

    def _is_thin(self, module: str) -> bool:
        return f"{module}.".startswith(self.thin)

    def _callables(self, found: Sections, module: str, offered: Collection[str]) -> None:
        if self._is_thin(module) or (module.count(".") > 1 and module not in self.surface):
            offered = [name for name in offered if name.endswith(_CONFIGURES)]
        for name in offered:
            home = self.names.home(module, name) if not name.startswith("_") else None
            if home is None or home.kind not in ("class", "def") or self._is_thin(home.module):
                continue
            public = module in self.surface
            if not public and home.module != module:
                continue  # recorded where it is defined
            if public and home.module != module:
                found["alias"][f"{module}:{name}"].add(home.place)
            self._add(found, home.module, home.name, methods=module in self.names.tops)

    def _add(self, found: Sections, module: str, name: str, *, methods: bool) -> None:
        """Add what can be given to a function or class, to its methods and its base classes in this package."""
        place = f"{module}:{name}"
        if (place, methods) in self.done:
            return
        self.done.add((place, methods))
        known = self.names.parameters(module)
        ways_of = self.names.calls(module) if methods else {}
        own = known.get(name) or ()
        if known.get(name) is not None:
            found["parameters"][place] |= set(own)
        if methods:
            found["calls"][place] |= set(ways_of.get(name, ()))
            for subject, ways in ways_of.items():
                if subject.startswith(f"{name}.") and ways != ("0",):
                    found["calls"][f"{module}:{subject}"] |= set(ways)
            for subject, items in known.items():
                if subject.startswith(f"{name}.") and _is_told(subject.partition(".")[2], items or ()):
                    found["parameters"][f"{module}:{subject}"] |= set(items or ())
        for base in {item[1:] for item in (*own, *ways_of.get(name, ())) if item.startswith("&")}:
            owner, _, inner = base.partition(":")
            if owner.partition(".")[0] in self.names.tops and not self._is_thin(owner):
                self._add(found, owner, inner, methods=methods)


def _is_told(method: str, items: Collection[str]) -> bool:
    """Return whether the parameters of a method are kept: it is not private, and takes more than any or none."""
    if method.startswith("_") and method not in _SPECIAL_METHODS:
        return False
    return not all(item.startswith("*") for item in items)
