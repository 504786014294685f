"""The matrix as one object: from the compiled files of a wheel, or from the TOML files of a checkout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.knowledge.rules import Rule, RuleError, parse_rule
from envdoctor.knowledge.toml_files import TomlError, load_toml

__all__ = ["BrokenRule", "Matrix", "MatrixError", "load_matrix", "load_source"]

_PACKAGE = Path(__file__).resolve().parents[1]
_COMPILED = _PACKAGE / "_matrix"
_CHECKOUT = _PACKAGE.parent / "matrices"
_PRIVATE = "x-"


class MatrixError(ValueError):
    """The matrix cannot be used; the message names the file."""


class BrokenRule(NamedTuple):
    """A rule file that parses as TOML and that this engine cannot evaluate."""

    id: str
    origin: str
    problems: list[str]


class Matrix:
    """Rules, tables, families and the registry.

    ``version`` is the date of the newest change to a rule, ``source`` says where the matrix was read
    ("bundled", "checkout", followed by private folders).
    """

    def __init__(
        self,
        *,
        registry: Registry,
        rules: Sequence[Rule],
        broken: Sequence[BrokenRule],
        version: str,
        source: str,
        home: Path,
        compiled: bool,
    ) -> None:
        self.registry = registry
        self.rules = list(rules)
        self.broken = list(broken)
        self.version = version
        self.source = source
        self._home = home
        self._compiled = compiled
        self._tables: dict[str, Mapping[str, Any]] = {}

    def only(self, concerns: Callable[[Rule], bool]) -> Matrix:
        """The same matrix with those rules alone that ``concerns`` lets through."""
        part = Matrix(
            registry=self.registry,
            rules=[rule for rule in self.rules if concerns(rule)],
            broken=self.broken,
            version=self.version,
            source=self.source,
            home=self._home,
            compiled=self._compiled,
        )
        part._tables = self._tables
        return part

    def table(self, name: str) -> Mapping[str, Any]:
        """A table (``"torch-builds"``) or ``"families"``, read when first asked for; empty when there is none.

        Raises :class:`MatrixError`.
        """
        if name not in self._tables:
            try:
                self._tables[name] = self._read_table(name)
            except (OSError, ValueError) as error:
                raise MatrixError(f"table {name}: {error}") from None
        return self._tables[name]

    def rows(self, name: str, part: str = "row") -> Sequence[Mapping[str, Any]]:
        """The rows of a part of a table (``[[row]]``, ``[[family]]``); none where there is no such table."""
        found: Sequence[Mapping[str, Any]] = self.table(name).get(part, ())
        return found

    def part(self, name: str, part: str) -> Mapping[str, Any]:
        """A part of a table that is one (``[organisations]``); empty where there is no such table."""
        found: Mapping[str, Any] = self.table(name).get(part, {})
        return found

    def texts(self, rule: Rule) -> Mapping[str, Any]:
        """The texts, fixes, evidence and tests of a rule."""
        if isinstance(rule.texts, Mapping):
            return rule.texts
        offset, length = rule.texts
        with open(self._home / "texts.jsonl", "rb") as file:
            file.seek(offset)
            texts: Mapping[str, Any] = json.loads(file.read(length))
        return texts

    def find(self, rule_id: str) -> Rule | None:
        """The rule of that id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def retired(self) -> Mapping[str, Any]:
        """Renamed and withdrawn ids with date and reason."""
        retired: Mapping[str, Any] = self.table("retired").get("retired", {})
        return retired

    def _read_table(self, name: str) -> Mapping[str, Any]:
        if self._compiled:
            path = self._home / f"{name}.json"
            if not path.is_file():
                return {}
            data: Mapping[str, Any] = json.loads(path.read_bytes())
            return data
        for path in (self._home / f"{name}.toml", self._home / "tables" / f"{name}.toml"):
            if path.is_file():
                return load_toml(path)
        return {}


def load_matrix(private: Iterable[Path] = ()) -> Matrix:
    """The shipped matrix and the private rules of the given folders. Raises :class:`MatrixError`."""
    if (_COMPILED / "index.json").is_file():
        matrix = _load_compiled(_COMPILED)
    elif _CHECKOUT.is_dir():
        matrix = load_source(_CHECKOUT, source="checkout")
    else:
        raise MatrixError("the matrix is missing from this installation of envdoctor: install it again")
    for folder in private:
        _add_private(matrix, folder)
    return matrix


def load_source(home: Path, *, source: str) -> Matrix:
    """A matrix from TOML files, as they lie in a checkout. Raises :class:`MatrixError`."""
    try:
        registry = Registry.from_mapping(load_toml(home / "facts.toml"))
    except ValueError as error:
        raise MatrixError(str(error)) from None
    rules, broken = _read_rules(home / "rules", registry)
    return Matrix(
        registry=registry,
        rules=rules,
        broken=broken,
        version=_version(rules),
        source=source,
        home=home,
        compiled=False,
    )


def _read_rules(folder: Path, registry: Registry) -> tuple[list[Rule], list[BrokenRule]]:
    rules: list[Rule] = []
    broken: list[BrokenRule] = []
    seen: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.toml")):
        if path.stem in seen:
            raise MatrixError(f"{path}: the id {path.stem} is also that of {seen[path.stem]}")
        seen[path.stem] = path
        try:
            data = load_toml(path)
        except TomlError as error:
            raise MatrixError(str(error)) from None
        origin = path.relative_to(folder.parent).as_posix()
        try:
            rules.append(parse_rule(path.stem, origin, data, registry))
        except RuleError as error:
            broken.append(BrokenRule(path.stem, origin, error.problems))
    return rules, broken


def _add_private(matrix: Matrix, folder: Path) -> None:
    if not folder.is_dir():
        raise MatrixError(f"--matrix {folder}: no such folder")
    rules, broken = _read_rules(folder / "rules" if (folder / "rules").is_dir() else folder, matrix.registry)
    if not rules and not broken:
        raise MatrixError(f"--matrix {folder}: no rule file (*.toml) in it")
    known = {rule.id for rule in matrix.rules} | {rule.id for rule in matrix.broken}
    found = [(rule.id, rule.origin) for rule in rules] + [(rule.id, rule.origin) for rule in broken]
    for rule_id, origin in found:
        if not rule_id.startswith(_PRIVATE):
            raise MatrixError(f"--matrix {folder}: {origin}: the id of a private rule starts with {_PRIVATE}")
        if rule_id in known:
            raise MatrixError(f"--matrix {folder}: {origin}: the id is already taken")
        known.add(rule_id)
    matrix.rules += rules
    matrix.broken += broken
    matrix.source += f" + {folder}"


def _version(rules: Iterable[Rule]) -> str:
    newest = max((str(rule.texts["modified"]) for rule in rules), default="")
    return newest.replace("-", ".")


def _load_compiled(home: Path) -> Matrix:
    try:
        index = json.loads((home / "index.json").read_bytes())
    except (OSError, ValueError) as error:
        raise MatrixError(
            f"the matrix of this installation cannot be read ({error}): install envdoctor again"
        ) from None
    return Matrix(
        registry=Registry.from_mapping(index["registry"]),
        rules=[Rule._make(entry) for entry in index["rules"]],
        broken=[],
        version=index["version"],
        source="bundled",
        home=home,
        compiled=True,
    )
