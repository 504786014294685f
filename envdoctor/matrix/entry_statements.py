"""Imports that people write of installed packages: the table entry-statements, for links, probe and benchmark.

A statement takes one module or one name, so that its text names the entry that works or fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.versions.pep440 import is_version, satisfies

_Rows = Callable[[str], Sequence[Mapping[str, Any]]]
_WORD = r"[A-Za-z_]\w*"
_STATEMENT = re.compile(rf"(?:import|from) ({_WORD}(?:\.{_WORD})*)(?: import ({_WORD}))?\Z", re.ASCII)


class EntryStatement(NamedTuple):
    """``statement`` as people write it, the ``package`` whose name it takes (normalised), the ``module`` and in it the
    ``name`` (None: the module itself). ``needs_gpu``: it fails on a machine without an accelerator.
    ``derives``: a class of that name is compared with its base classes in other packages."""

    statement: str
    package: str
    module: str
    name: str | None
    needs_gpu: bool
    derives: bool


def parse_statement(statement: str) -> tuple[str, str | None]:
    """Return ``trl`` and ``SFTTrainer`` for ``from trl import SFTTrainer``, ``trl`` and None for ``import trl``.

    Raises ValueError for any other form of statement.
    """
    match = _STATEMENT.match(statement)
    if match is None or statement.startswith("from ") != (match[2] is not None):
        raise ValueError(f"neither `import module` nor `from module import name`: {statement[:60]!r}")
    return match[1], match[2]


def entries(rows: _Rows, installed: Mapping[str, str]) -> Iterator[EntryStatement]:
    """Yield the entries of these packages (normalised names with their versions), in the order of the table, which
    ``rows`` gives by its name.

    A package whose version is invalid by PEP 440 gets only the statements that every release has. Statements that are
    only written together with another package are left out if that package is missing.
    """
    for row in rows("entry-statements"):
        version, releases = installed.get(row["name"]), row.get("versions")
        if version is None or not (releases is None or (is_version(version) and satisfies(version, releases))):
            continue
        if installed.keys() >= set(row.get("beside", ())):
            for statement in row["statements"]:
                names = parse_statement(statement)
                yield EntryStatement(
                    statement, row["name"], *names, bool(row.get("needs_gpu")), bool(row.get("derives"))
                )


def named(rows: _Rows, package: str, column: str) -> frozenset[str]:
    """Return the items of a column in the rows of a package: ``choice``, statements that code takes for one purpose
    among several; ``every_run``, methods."""
    return frozenset(item for row in rows("entry-statements") if row["name"] == package for item in row.get(column, ()))
