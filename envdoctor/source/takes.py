"""What the imports of one package take from other distributions, by its files alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from envdoctor.source.importing import Importing, OutOfBudget
from envdoctor.source.library import Library
from envdoctor.source.world import UNKNOWN, Failed, Made, Module, World
from envdoctor.versions.names import normalise

__all__ = ["Take", "takes_of"]


class Take(NamedTuple):
    """``module`` of another distribution, or its ``name`` ("" for the module itself), as ``consumer`` takes it when one
    of ``entries`` is imported. ``needs`` are distributions without which it is not taken."""

    module: str
    name: str
    consumer: str
    entries: tuple[str, ...]
    needs: tuple[str, ...]


def takes_of(
    folder: str, tops: Iterable[str], entries: Iterable[tuple[str, str, str | None]], required: Iterable[str]
) -> list[Take]:
    """What the modules ``tops`` below a folder take from others, sorted.

    ``entries`` are (statement, module, name) of what is imported. ``required`` are distributions that are always beside
    the package (normalised); the others are taken as absent first, then one by one as present: what is taken only then
    needs them. What stands in a branch whose condition cannot be decided, or where a failure is caught, is left out.
    """
    own, entries = frozenset(tops), list(entries)
    library = Library([folder])
    always = frozenset(required)
    found: dict[tuple[str, str, str], tuple[set[str], frozenset[str]]] = {}
    asked: set[str] = set()
    for beside in (frozenset[str](), None):
        present = always if beside is not None else None
        for statement, key in _followed(library, own, present, entries, asked):
            found.setdefault(key, (set(), frozenset() if beside is not None else frozenset("?")))[0].add(statement)
    optional = {normalise(key[0].partition(".")[0]) for key, (_, needs) in found.items() if needs} & asked
    for one in sorted(optional):
        for statement, key in _followed(library, own, always | {one}, entries, asked):
            statements, needs = found.setdefault(key, (set(), frozenset((one,))))
            if needs == frozenset("?"):
                found[key] = statements | {statement}, frozenset((one,))
    by_name = {(module, consumer) for module, name, consumer in found if name}
    return sorted(
        Take(*key, tuple(sorted(statements)), tuple(sorted(needs)))
        for key, (statements, needs) in found.items()
        if "?" not in needs and (key[1] or (key[0], key[2]) not in by_name)
    )


def _followed(
    library: Library,
    own: frozenset[str],
    present: frozenset[str] | None,
    entries: Sequence[tuple[str, str, str | None]],
    asked: set[str],
) -> Iterable[tuple[str, tuple[str, str, str]]]:
    """Each entry's takes, where exactly those distributions are beside the package; all of them for None."""
    following = _Taking(library, own, present, asked)
    for statement, module, name in entries:
        following.taken = {}
        try:
            following.statement(module, [name] if name else [])
        except (OutOfBudget, RecursionError):
            continue
        for key in following.reached(module, name):
            yield statement, key


class _Taking(Importing):
    """Imports of one package beside which every module and name of others is there, as far as they are present."""

    def __init__(self, library: Library, own: frozenset[str], present: frozenset[str] | None, asked: set[str]) -> None:
        self._own, self._present, self._asked = own, present, asked
        self.taken: dict[tuple[str, str, str], None] = {}
        self._by_module: dict[str, dict[tuple[str, str, str], None]] = {}
        self._inner: dict[str, dict[str, None]] = {}
        super().__init__(
            library,
            World(
                version=lambda name: UNKNOWN if self._is_present(normalise(name)) else None,
                owners={},
                python=None,
                platform="linux",
                standard=frozenset(sys.stdlib_module_names) | {"distutils", "imp"},
                followed=own.__contains__,
            ),
        )

    def reached(self, module: str, name: str | None) -> list[tuple[str, str, str]]:
        """What the modules that an entry loads take."""
        found: dict[tuple[str, str, str], None] = dict(self.taken)
        waiting, seen = [module], set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            found.update(self._by_module.get(one, {}))
            waiting += self._inner.get(one, {})
        return list(found)

    def load(self, module: str, consumer: str, line: int) -> None:
        top = module.partition(".")[0]
        if top in self._own:
            if self.certain and not self._catching:
                parts = module.split(".")
                for length in range(1, len(parts) + 1):
                    self._inner.setdefault(consumer, {})[".".join(parts[:length])] = None
            super().load(module, consumer, line)
        elif module and top not in self.world.standard:
            if not self._is_present(normalise(top)):
                if self._unsure or self._catching or self._depth:
                    raise Failed("ModuleNotFoundError", None)
                return
            self._note(module, "", consumer)

    def present(self, module: str) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard:
            return super().present(module)
        return Module(module) if self._is_present(normalise(top)) else None

    def available(self, module: str) -> Any:
        return self._is_present(normalise(module))

    def has(self, module: str, name: str) -> Any:
        return super().has(module, name) if module.partition(".")[0] in self._own else UNKNOWN

    def attribute(self, module: str, name: str, consumer: str, line: int) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard:
            return super().attribute(module, name, consumer, line)
        return UNKNOWN

    def _take(self, module: str, name: str, consumer: str, line: int) -> Any:
        top = module.partition(".")[0]
        if top in self._own or top in self.world.standard or name == "TYPE_CHECKING":
            return super()._take(module, name, consumer, line)
        self._note(module, name, consumer)
        decides = top in ("packaging", "importlib_metadata") or (name.startswith("is_") and name.endswith("_available"))
        return Made(f"{module}.{name}") if decides else UNKNOWN

    def _is_present(self, distribution: str) -> bool:
        self._asked.add(distribution)
        return self._present is None or distribution in self._present

    def _note(self, module: str, name: str, consumer: str) -> None:
        if self.certain and not self._catching and consumer:
            self._by_module.setdefault(consumer, {})[module, name, consumer] = None
