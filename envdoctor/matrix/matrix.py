"""The matrix as one object: from the compiled files of a wheel, or from the TOML files of a checkout, which one
sentence refuses if they cannot be read. And the imports that people write of installed packages (entry-statements): one
module or name each, so that the text names what works or fails."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.matrix.ledger import Ledger
from envdoctor.matrix.rules import Rule
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, MessageError, said_by

_PACKAGE = Path(__file__).resolve().parents[1]
_COMPILED = _PACKAGE / "_matrix"
#: A newer matrix that was installed beside envdoctor: the data-only distribution envdoctor-matrix.
_BESIDE = _PACKAGE.parent / "envdoctor_matrix"
_CHECKOUT = _PACKAGE.parent / "matrices"
#: The form of a compiled matrix that this engine reads.
FORM = 1
_LONGEST_HEAD, _DAY = 8 << 20, r"\d{4}\.\d\d\.\d\d"
_PRIVATE = "x-"


class MatrixError(MessageError, ValueError):
    """The matrix cannot be used; the message names the file."""


class _BrokenRule(NamedTuple):
    """A rule file that this engine cannot evaluate. ``unusable`` is the sentence for the user when nothing may be
    judged before it is mended: the file is not TOML, or its id is not free."""

    id: str
    origin: str
    problems: list[str]
    unusable: Message | None = None


class Matrix:
    """Rules, tables, families and the registry.

    ``version`` is the date of the newest change to a rule, ``source`` says where the matrix was read
    ("bundled", "checkout", "envdoctor-matrix", followed by private folders). ``home`` is the folder of its files, TOML
    ones in a checkout.
    """

    def __init__(self, registry: Registry, *, source: str, home: Path) -> None:
        self.registry = registry
        self._rules: list[Rule] = []
        #: The rules of a compiled matrix that were not needed yet: JSON by scope.
        self._unread: dict[str, str] = {}
        self.broken: list[_BrokenRule] = []
        self.version = ""
        self.source = source
        self.home = home
        #: The released packages; read on demand.
        self.ledger = Ledger(home / "ledger")
        #: The files of rules that were read as TOML, by their ids.
        self.files: dict[str, Path] = {}
        self._tables: dict[str, Mapping[str, Any]] = {}

    @property
    def compiled(self) -> bool:
        """Return whether its tables are an installed distribution's, which change with the matrix's version alone."""
        return self.home in (_COMPILED, _BESIDE)

    @property
    def rules(self) -> list[Rule]:
        """Return all rules, in the order of their files."""
        if self._unread:
            self._read(tuple(self._unread))
            self._rules.sort(key=lambda rule: rule.origin.split("/"))
        return self._rules

    def only(self, concerns: Callable[[Rule], bool]) -> "Matrix":
        """Return the same matrix with only the rules that ``concerns`` accepts."""
        return self._with(rule for rule in self.rules if concerns(rule))

    def of_scopes(self, *scopes: str) -> "Matrix":
        """Return the same matrix with only the rules of these scopes; others are not even read."""
        self._read(scopes)
        return self._with(rule for rule in self._rules if rule.scope in scopes)

    def _read(self, scopes: Iterable[str]) -> None:
        try:
            for scope in scopes:
                self._rules += map(Rule._make, json.loads(self._unread.pop(scope, "[]")))
        except (ValueError, TypeError) as error:
            raise _unreadable(error) from None

    def _with(self, rules: Iterable[Rule]) -> "Matrix":
        part = copy(self)
        part._rules, part._unread = list(rules), {}
        return part

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a table (``"torch-builds"``) or ``"families"``, read on first use; empty if missing.

        Raises :class:`MatrixError`.
        """
        if name not in self._tables:
            source = (self.home / f"{name}.toml", self.home / "tables" / f"{name}.toml")
            compiled = self.home / f"{name}.json"
            try:
                if compiled.is_file():
                    self._tables[name] = json.loads(compiled.read_bytes())
                else:
                    self._tables[name] = next((load_toml(path) for path in source if path.is_file()), {})
            except (OSError, ValueError) as error:
                raise MatrixError("table {}: {}", name, error) from None
        return self._tables[name]

    def rows(self, name: str, part: str = "row") -> Sequence[Mapping[str, Any]]:
        """Return the rows of an array of tables (``[[row]]``, ``[[family]]``); empty if there is no such table.

        ``matrices/schema`` says which columns they have; the lint checks it.
        """
        rows: Sequence[Mapping[str, Any]] = self.table(name).get(part, ())
        return rows

    def part(self, name: str, part: str) -> Mapping[str, Any]:
        """Return a part of a table that is a table itself (``[organisations]``, ``[ptx]``); empty if missing."""
        table: Mapping[str, Any] = self.table(name).get(part, {})
        return table

    def texts(self, rule: Rule) -> Mapping[str, Any]:
        """Return the texts, fixes, evidence and tests of a rule."""
        if isinstance(rule.texts, Mapping):
            return rule.texts
        offset, length = rule.texts
        with open(self.home / "texts.jsonl", "rb") as file:
            file.seek(offset)
            texts: Mapping[str, Any] = json.loads(file.read(length))
        return texts

    def fixed_in(self, rule_id: str) -> str:
        """Return the first releases without the problem of a rule, ``torch 2.5.1``; an empty text if unknown."""
        rule = self.find(rule_id)
        releases = self.texts(rule)["bound"].get("fixed_in", {}) if rule is not None else {}
        return ", ".join(f"{key.removeprefix('pkg.')} {version}" for key, version in releases.items())

    def find(self, rule_id: str) -> Rule | None:
        """Return the rule of that id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def origins(self) -> dict[str, str]:
        """Return the file of every rule by its id, also of rules that cannot be evaluated."""
        return {rule.id: rule.origin for rule in self.rules} | {rule.id: rule.origin for rule in self.broken}

    def retired(self, rule_id: str) -> Mapping[str, Any] | None:
        """Return what became of a former id: ``now`` is the present one, missing if the rule was withdrawn on a
        ``date``, ``because`` of something. None if the id never was a rule's, or still is."""
        return self.part("retired", "retired").get(rule_id)


def load_matrix(private: Iterable[Path] = ()) -> Matrix:
    """Load the shipped matrix and the private rules of the given folders; without folders, once in a process while the
    files of the installation stay as they are. Raises :class:`MatrixError`."""
    if folders := tuple(private):
        return _usable(read_matrix(folders))
    return _shipped(tuple((home, _stamp(home / "index.jsonl")) for home in (_COMPILED, _BESIDE, _CHECKOUT)))


@lru_cache(maxsize=1)
def _shipped(_homes: tuple[tuple[Path, tuple[int, int] | None], ...]) -> Matrix:
    return _usable(read_matrix())


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def load_source(home: Path, *, source: str) -> Matrix:
    """Load a matrix from TOML files, as they lie in a checkout. Raises :class:`MatrixError`."""
    return _usable(read_source(home, source=source))


def _usable(matrix: Matrix) -> Matrix:
    for unusable in filter(None, (rule.unusable for rule in matrix.broken)):
        raise MatrixError(unusable)
    return matrix


def read_matrix(private: Iterable[Path] = ()) -> Matrix:
    """Like :func:`load_matrix`, but put unusable rule files into ``broken``: for the lint, which names them all.

    Raises :class:`MatrixError` if there is no matrix, or no rule in a private folder.
    """
    if (_COMPILED / "index.jsonl").is_file():
        matrix = _newest(_load_compiled(_COMPILED))
    elif _CHECKOUT.is_dir():
        matrix = read_source(_CHECKOUT, source="checkout")
    else:
        raise MatrixError("the matrix is missing from this installation of envdoctor: install it again")
    for folder in private:
        option = f"--matrix {folder}: "
        if not os.path.isdir(folder):
            raise MatrixError("{}no such folder", option)
        rules = folder / "rules" if os.path.isdir(folder / "rules") else folder
        files = _rule_files(rules, option)
        if not files:
            raise MatrixError("{}no rule file (*.toml) in it", option)
        _read_rules(matrix, rules, files, option)
        matrix.source += f" + {folder}"
    return matrix


def read_source(home: Path, *, source: str) -> Matrix:
    """Read a matrix from TOML files; unusable rule files are in ``broken``.

    Raises :class:`MatrixError` if its registry of facts cannot be read.
    """
    try:
        registry = Registry.from_mapping(load_toml(home / "facts.toml"))
    except ValueError as error:
        raise MatrixError(said_by(error)) from None
    matrix = Matrix(registry, source=source, home=home)
    _read_rules(matrix, home / "rules", _rule_files(home / "rules"))
    matrix.version = max((rule.texts["modified"] for rule in matrix.rules), default="").replace("-", ".")
    return matrix


def add_file(matrix: Matrix, path: Path) -> None:
    """Add one private rule, for the lint: when it cannot be used, it is among ``broken``."""
    _read_rules(matrix, path.parent, [path], f"{path}: ")


def _read_rules(matrix: Matrix, folder: Path, files: Iterable[Path], option: str = "") -> None:
    """Add the rules of these files in a folder; ``option`` gave it when they are private ones."""
    from envdoctor.matrix.rule_file import RuleError, parse_rule  # a compiled matrix has no files

    places = matrix.origins()
    for path in files:
        origin = path.relative_to(folder.parent).as_posix()
        problem = None
        if option and not path.stem.startswith(_PRIVATE):
            problem = f"the id of a private rule starts with {_PRIVATE}"
        elif path.stem in places:
            problem = f"the id {path.stem} is also that of {places[path.stem]}"
        places.setdefault(path.stem, origin)
        matrix.files.setdefault(path.stem, path)
        try:
            if problem is None:
                matrix.rules.append(parse_rule(path.stem, origin, load_toml(path), matrix.registry, matrix.ledger))
                continue
        except RuleError as error:
            matrix.broken.append(_BrokenRule(path.stem, origin, error.problems))
            continue
        except TomlError as error:
            problem = error.problem
        where = f"{option}{origin}" if option else str(path)
        matrix.broken.append(_BrokenRule(path.stem, origin, [problem], Message("{}: {}", where, problem)))


def _rule_files(folder: Path, option: str = "") -> list[Path]:
    """Return all files of the folder that may be rules. Raises :class:`MatrixError`."""
    try:
        return sorted(folder.rglob("*.toml"))
    except OSError as error:
        raise MatrixError("{}cannot be read: {}", option or folder, because_of(error)) from None


def _newest(bundled: Matrix) -> Matrix:
    """Return the matrix of envdoctor-matrix if it is installed whole, newer, and of a form that this engine reads."""
    try:
        if not (_BESIDE / "index.jsonl").is_file():  # neither absent nor a pipe
            return bundled
        with open(_BESIDE / "index.jsonl", encoding="ascii") as file:
            index = json.loads(file.readline(_LONGEST_HEAD))
        if index["schema"] != FORM or not re.fullmatch(_DAY, index["version"]) or index["version"] <= bundled.version:
            return bundled
        if any((_BESIDE / name).stat().st_size != size for name, size in index["files"].items()):
            return bundled
        return _load_compiled(_BESIDE, "envdoctor-matrix")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return bundled  # it is broken, and the bundled one is whole


def _load_compiled(home: Path, source: str = "bundled") -> Matrix:
    try:
        head, *rules = (home / "index.jsonl").read_text(encoding="ascii").splitlines()
        index = json.loads(head)
        unread = dict(zip(index["scopes"], rules, strict=True))
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    matrix = Matrix(Registry.from_mapping(index["registry"]), source=source, home=home)
    matrix.version, matrix._unread = index["version"], unread
    return matrix


def _unreadable(error: Exception) -> MatrixError:
    return MatrixError("the matrix of this installation cannot be read ({}): install envdoctor again", error)


#: The most bytes of a TOML file.
LARGEST = 8 << 20
#: tomllib's time grows with the square of a key's parts; no real file has so many.
_MOST_PARTS = 200
_TEXTS = (
    rb"(?s)\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"\"\")?|'''(?:[^']|'(?!''))*(?:''')?"
    rb"|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|#[^\n]*"
)


class TomlError(MessageError, ValueError):
    """A TOML file cannot be read: its name, and the problem (with the parser's line and column)."""

    def __init__(self, name: str, problem: Message) -> None:
        super().__init__(Message("{}: {}", name, problem))
        self.problem = problem


def load_toml(path: Path) -> dict[str, Any]:
    """Parse a regular file. Raises :class:`TomlError`."""
    try:
        data = Files().whole(str(path), LARGEST)
    except OSError as error:
        raise TomlError(str(path), Message("cannot be read: {}", because_of(error))) from None
    return parse_toml(data, str(path))


def _dots(parts: Iterable[bytes]) -> int:
    """Return the largest number of dots in a part."""
    return max(part.count(b".") for part in parts)


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """Parse UTF-8 bytes. Raises :class:`TomlError`."""
    try:  # its compiled wheels are three times as fast as what Python brings
        import tomli as tomllib
    except ImportError:
        import tomllib  # type: ignore[no-redef,unused-ignore]
    if _dots(data.split(b"\n")) >= _MOST_PARTS <= _dots(re.split(rb"[^\w. \t-]", re.sub(_TEXTS, b"a", data))):
        raise TomlError(name, Message("not TOML that can be read: a key has {} parts or more", _MOST_PARTS))
    try:
        document: dict[str, Any] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise TomlError(name, Message("not UTF-8 text (byte {})", error.start)) from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(name, Message("not TOML: {}", error)) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise TomlError(name, Message("not TOML that can be read: {}", error)) from None
    except RecursionError:
        raise TomlError(name, Message("nested too deeply to be read")) from None
    return document
