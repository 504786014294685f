"""What the ledger keeps of one release's files: enough for imports, attributes and calls that people write.

Names of a module are kept unless they are private or come from the standard library. Below the packages that are
``thin`` (hundreds of models, each with the same imports) only what a module defines is kept. Names left out stand
together under the subject ``*``: of these nothing is known. Parameters are kept of what top-level modules offer (with
methods, and how these call each other), of what the modules right below them define, and of configuration classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

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
    """The sections of one release as items by subject, sorted; what modules define; texts of finders.

    Of the settings ``thin``, ``unlisted``, ``surface`` and ``private`` are used; tools/harvest.toml says what they are.
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
        self.unlisted, self.private = frozenset(settings["unlisted"]), frozenset(settings["private"])
        self.surface = {*names.tops, *settings["surface"]}
        self.defined: dict[str, list[str]] = {}
        self.modules = [
            module for module in names.all_modules() if not module.rpartition(".")[2].startswith(_FOR_DEVELOPERS)
        ]

    def sections(self) -> Sections:
        """Everything but what is taken of others."""
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
            for text in self.names.demands(module):
                found["demands"]["*"].add(f"{text} @{module}")
        if not found["offers"]["*"]:
            del found["offers"]["*"]
        return found

    def _is_kept_name(self, name: str) -> bool:
        return name.isidentifier() and (not name.startswith("_") or name == "__version__" or name in self.private)

    def _left_out(self, module: str, offered: Collection[str]) -> set[str]:
        """Names that a module has from elsewhere and that are not recorded for it."""
        offers = self.names.offers(module)
        if offers is None:
            return set()
        out = set()
        for name in offered:
            origin = offers.names.get(name, "")
            source = origin.removeprefix("module ").partition(":")[0] if ":" in origin or " " in origin else ""
            if source and (self._is_thin(module) or source.partition(".")[0] in self.names.standard):
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
            known = self.names.parameters(home.module)
            if public and home.module != module:
                found["alias"][f"{module}:{name}"].add(home.place)
            at_top = module in self.names.tops
            for subject, items in self._of_callable(known, home.name, methods=at_top):
                found["parameters"][f"{home.module}:{subject}"] |= set(items)
            if at_top and home.kind == "class":
                ways_of = self.names.calls(home.module)
                for subject, ways in self._of_callable(ways_of, home.name, methods=True, private=True):
                    found["calls"][f"{home.module}:{subject}"] |= set(ways)

    def _of_callable(
        self, known: dict[str, Any], name: str, *, methods: bool, private: bool = False
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What is known of a function or class, and of its methods."""
        for subject, items in known.items():
            top, _, method = subject.partition(".")
            shown = private or not method.startswith("_") or method in _SPECIAL_METHODS
            if top == name and items is not None and shown and (methods or not method):
                yield subject, items
