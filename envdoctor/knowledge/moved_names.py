"""Where names, keywords and members went that released packages no longer have: the table moved-names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.versions.pep440 import release_of
from envdoctor.versions.ranges import contains, parse_ranges

if TYPE_CHECKING:
    from envdoctor.knowledge.matrix import Matrix


class Move(NamedTuple):
    """One row: ``releases`` of ``package`` have what is asked for. It is called ``new`` elsewhere: a module and a name
    (``evaluate:load``), another keyword, another member; empty when nothing took its place. ``new_package`` has it in
    ``new_releases`` (empty: not told). ``write`` says by language what to write, where that is more than a name; a
    keyword of the same name that it speaks of is one of the class ``into``."""

    package: str
    releases: str
    new: str
    new_package: str
    new_releases: str
    write: Mapping[str, str]
    source: str
    into: str = ""

    def has(self, version: str) -> bool | None:
        """Whether a version of the package has what is asked for; None for a text that is no version."""
        release = release_of(version)
        return None if release is None else contains(parse_ranges(self.releases), release)


def name_moves(matrix: Matrix, module: str, name: str = "") -> Iterator[Move]:
    """The rows about a name of a module, then those about the module itself, or one that it lies in. Without a name
    those about the module."""
    rows = matrix.rows("moved-names", "name")
    sought = [f"{module}:{name}", f"{module}.{name}"] if name else []
    parts = module.split(".")
    sought += [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for place in sought:
        yield from (_move(row) for row in rows if place in row["old"])


def modules_with(matrix: Matrix, name: str) -> Iterator[str]:
    """The modules that rows tell to have, or have had, a name."""
    for row in matrix.rows("moved-names", "name"):
        yield from (old.partition(":")[0] for old in row["old"] if old.endswith(f":{name}"))


def keyword_moves(matrix: Matrix, called: Iterable[str], keyword: str) -> Iterator[Move]:
    """The rows about a keyword of a function or class that goes by one of these names: ``TrainingArguments``, or
    ``*`` for any."""
    yield from _of(matrix.rows("moved-names", "keyword"), called, keyword)


def member_moves(matrix: Matrix, classes: Iterable[str], member: str) -> Iterator[Move]:
    """The rows about a method or attribute of a class that goes by one of these names."""
    yield from _of(matrix.rows("moved-names", "member"), classes, member)


def keepers(matrix: Matrix, package: str, called: str, keyword: str) -> Iterator[tuple[str, str]]:
    """The packages with which a call takes a keyword that ``package`` itself refuses, and the releases of them."""
    for row in matrix.rows("moved-names", "kept"):
        matches = any(fnmatchcase(called, of) for of in row["of"]) and any(
            fnmatchcase(keyword, old) for old in row["old"]
        )
        if row["package"] == package and matches:
            yield row["by"], row["releases"]


def _of(rows: Iterable[Mapping[str, Any]], owners: Iterable[str], old: str) -> Iterator[Move]:
    names = tuple(owners)
    for row in rows:
        if old in row["old"] and any(
            name == "*" or fnmatchcase(name, pattern) for pattern in row["of"] for name in names
        ):
            yield _move(row)


def _move(row: Mapping[str, Any]) -> Move:
    new = row.get("new", "")
    package = row.get("new_package", row["package"] if new else "")
    new_releases, write, source = row.get("new_releases", ""), row.get("write", {}), row["source"]
    return Move(row["package"], row["releases"], new, package, new_releases, write, source, row.get("into", ""))
