"""What importing a release takes of the other packages whose names the ledger has, by what the user imports."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from envdoctor.matrix import Ledger, entries, load_toml
from envdoctor.versions import normalise, read_requirement
from harvesting.takes import Others, Take, takes_of

Found = dict[str, list[str]]

__all__ = ["Taking"]


class Taking:
    """What releases take of the distributions ``providers``, when what the table entry-statements names is imported;
    ``tables`` is the folder of the tables, ``ledger`` tells the releases of the others and their modules."""

    def __init__(self, tables: Path, ledger: Ledger, providers: Collection[str]) -> None:
        self.tables, self.ledger, self.providers = tables, ledger, providers
        self.owners = {row["module"]: row["name"] for row in self.rows("module-distributions")}

    def rows(self, table: str, part: str = "row", /) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a table."""
        found: Sequence[Mapping[str, Any]] = load_toml(self.tables / f"{table}.toml").get(part, ())
        return found

    def of(
        self, package: tuple[str, str], day: str, required: Iterable[str], folder: str, tops: Collection[str]
    ) -> Found:
        """The items of ``takes`` by subject, for a release (name, version) of a ``day`` that lies in a folder, with its
        top-level modules and its requirements as texts.

        What an entry ``module:name`` takes is what it takes beyond the entry ``module``: that one is imported first.
        torch counts as required, though many declare it as an extra.
        """
        among = {*self.providers, "torch"}
        installed = {**dict.fromkeys(among, ""), package[0]: package[1]}
        asked = {entry.statement: entry for entry in entries(self.rows, installed) if entry.package == package[0]}
        beside = [read_requirement(text).name for text in required if ";" not in text]
        found: dict[str, set[str]] = defaultdict(set)
        statements = [(one.statement, one.module, one.name) for one in asked.values()]
        others = Others(among.__contains__, partial(self._releases, day), self._is_module)
        for take in takes_of(folder, tops, package, statements, required=[*beside, "torch"], others=others):
            what = self._what(take)
            if not what:
                continue
            item = f"{what} @{take.consumer}" + (f" if {' and '.join(take.needs)}" if take.needs else "")
            for entry in map(asked.__getitem__, take.entries):
                found[f"{entry.module}:{entry.name}" if entry.name else entry.module].add(item)
        return {subject: sorted(items - found.get(_first(subject), set())) for subject, items in found.items()}

    def _releases(self, day: str, name: str) -> tuple[list[str], list[str]]:
        """Return the releases of another distribution, up to and including a day."""
        package = self.ledger.package(name)
        every = [one for one in package.releases if not one.yanked] if package is not None else []
        return [one.version for one in every if one.date <= day], [one.version for one in every]

    def _is_module(self, module: str) -> bool:
        package = self.ledger.package(self._owner(module))
        return package is not None and any(item[0] == module for item in package.items_of("offers", module))

    def _owner(self, module: str) -> str:
        """Return the distribution of a module, or the one that a requirement is about."""
        top = re.split(r"[^\w-]", module, maxsplit=1)[0]
        return self.owners.get(top, normalise(top))

    def _what(self, take: Take) -> str:
        """What is taken, as the ledger says it: of a package without names there only which one, if it is always."""
        if self._owner(take.module) in self.providers or not take.module.replace(".", "").isidentifier():
            return f"{take.module}:{take.name}" if take.name else take.module.replace(" ", "")
        return "" if take.needs else take.module.partition(".")[0]


def _first(subject: str) -> str:
    """Return the entry that is imported before this one; "" for a module."""
    module, _, name = subject.partition(":")
    return module if name else ""
