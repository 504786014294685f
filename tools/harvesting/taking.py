"""What importing a release takes of the other packages whose names the ledger has, by what the user imports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envdoctor.knowledge.entry_statements import entries
from envdoctor.knowledge.toml_files import load_toml
from envdoctor.source.takes import takes_of
from envdoctor.versions.names import normalise
from envdoctor.versions.requirement import read_requirement

Found = dict[str, list[str]]

__all__ = ["Taking"]


class Taking:
    """What releases take of the distributions ``providers``, when what the table entry-statements names is imported;
    ``tables`` is the folder of the tables."""

    def __init__(self, tables: Path, providers: Collection[str]) -> None:
        self.tables, self.providers = tables, providers
        self.owners = {row["module"]: row["name"] for row in self.rows("module-distributions")}

    def rows(self, table: str, part: str = "row", /) -> Sequence[Mapping[str, Any]]:
        """The rows of a table."""
        found: Sequence[Mapping[str, Any]] = load_toml(self.tables / f"{table}.toml").get(part, ())
        return found

    def of(self, folder: str, tops: Collection[str], package: tuple[str, str], required: Iterable[str]) -> Found:
        """The items of ``takes`` by subject, for a release (name, version) that lies in a folder, with its top-level
        modules and its requirements as texts.

        What an entry ``module:name`` takes is what it takes beyond the entry ``module``: that one is imported first.
        """
        asked = {entry.statement: entry for entry in entries(self, {package[0]: package[1]})}
        beside = [read_requirement(text).name for text in required if ";" not in text]
        found: dict[str, set[str]] = defaultdict(set)
        for take in takes_of(folder, tops, [(one.statement, one.module, one.name) for one in asked.values()], beside):
            top = take.module.partition(".")[0]
            if self.owners.get(top, normalise(top)) not in self.providers:
                continue
            item = f"{take.module}:{take.name}" if take.name else take.module
            item += f" @{take.consumer}" + (f" if {' and '.join(take.needs)}" if take.needs else "")
            for entry in map(asked.__getitem__, take.entries):
                found[f"{entry.module}:{entry.name}" if entry.name else entry.module].add(item)
        return {subject: sorted(items - found.get(_first(subject), set())) for subject, items in found.items()}


def _first(subject: str) -> str:
    """The entry that is imported before this one; none for a module."""
    module, _, name = subject.partition(":")
    return module if name else ""
