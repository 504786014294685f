"""Find every regular expression of the package, and how each is asked."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[2] / "envdoctor"
_CALLS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
#: What stands for a word that is only known while a command runs.
_WORD = "xy"


class Pattern(NamedTuple):
    place: str  # file:line, where it is written or asked
    text: str | bytes
    flags: int
    how: str  # match, fullmatch, search


def patterns() -> tuple[list[Pattern], list[str]]:
    """Return the patterns in the package's files, and the places of calls whose pattern could not be read."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if "_matrix" not in path.parts]
    modules = [_Module(path) for path in paths if b"import re\n" in path.read_bytes()]
    asked: dict[tuple[str, str], set[str]] = defaultdict(set)  # by the module and the name of a constant
    for module in modules:
        for name, how in module.references():
            asked[module.origin(name)].add(how)
    found = {pattern for module in modules for pattern in module.patterns(asked)}
    return sorted(found, key=repr), [place for module in modules for place in module.unread]


class _Module:
    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(PACKAGE.parent)
        self.name = ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(path.read_text("utf-8"))
        self.unread: list[str] = []
        self._seeking: list[str] = []  # names whose values are being looked for
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _names(self) -> dict[str, Any]:
        return vars(importlib.import_module(self.name))

    def origin(self, name: str) -> tuple[str, str]:
        """Return the module and the name that a name of this module stands for."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return str(node.module), alias.name
        return self.name, name

    def references(self) -> Iterator[tuple[str, str]]:
        """Yield the names that are read in this module, each with what it is asked."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id, self._how(node)

    def patterns(self, asked: dict[tuple[str, str], set[str]]) -> Iterator[Pattern]:
        for node in ast.walk(self.tree):
            if not (isinstance(node, ast.Call) and _is_re(node.func) and node.args):
                continue
            place = f"{self.path}:{node.lineno}"
            texts = [value for value in self._values(node.args[0], node) if isinstance(value, (str, bytes, re.Pattern))]
            if not texts:
                self.unread.append(place)
            flags = 0
            behind = node.args[1 if node.func.attr == "compile" else 2 :]  # the text that is asked is no flag
            for argument in [*behind, *(keyword.value for keyword in node.keywords)]:
                flags |= sum(int(value) for value in self._values(argument, node) if isinstance(value, re.RegexFlag))
            parent = self._parents[node]
            hows = {self._how(node.args[0])}
            if node.func.attr == "compile":
                target = parent.targets[0] if isinstance(parent, ast.Assign) else None
                is_constant = isinstance(target, ast.Name) and parent in self.tree.body
                hows = asked[self.name, target.id] if is_constant else {self._how(node)}
                if is_constant and not target.id.startswith("_"):  # modules without `re` may ask it too
                    hows = {*hows, "search"}
            for text in texts:
                if isinstance(text, re.Pattern):  # written where it is compiled
                    continue
                for how in hows:
                    yield Pattern(place, text, flags, how)

    def _how(self, node: ast.expr) -> str:
        """Return what a pattern is asked: an argument of a function of ``re``, or one whose method is called."""
        parent = self._parents[node]
        name = ""
        if isinstance(parent, ast.Call) and _is_re(parent.func) and parent.args[0] is node:
            name = parent.func.attr
        elif isinstance(parent, ast.Attribute) and isinstance(self._parents[parent], ast.Call):
            name = parent.attr
        return name if name in ("match", "fullmatch") else "search"

    def _values(self, node: ast.expr, at: ast.AST) -> list[Any]:
        """Return the values that an expression can have, those of the names in it too."""
        asked = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        try:  # a module is imported for names of its own alone: torch takes seconds
            names = {"re": re} if asked <= {"re"} else dict(self._names)
            return [eval(compile(ast.Expression(node), "", "eval"), names)]
        except Exception:
            pass
        if isinstance(node, ast.JoinedStr):
            parts = [self._values(part, at) or [_WORD] for part in node.values]
            return ["".join(map(str, chosen)) for chosen in product(*parts)]
        if isinstance(node, ast.FormattedValue):
            return self._values(node.value, at)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return [re.sub(rb"%[bd]", b"9", text) for text in self._values(node.left, at)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [a + b for a, b in product(self._values(node.left, at), self._values(node.right, at))]
        if isinstance(node, ast.IfExp):
            return [*self._values(node.body, at), *self._values(node.orelse, at)]
        if not isinstance(node, ast.Name) or node.id in self._seeking:
            return []
        self._seeking.append(node.id)
        values = self._assigned(node.id, at)
        self._seeking.pop()
        return values

    def _assigned(self, name: str, at: ast.AST) -> list[Any]:
        while not isinstance(at, (ast.FunctionDef, ast.Module)):
            at = self._parents[at]
        values = []
        for node in ast.walk(at):
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                values += self._values(node.value, at)
            elif isinstance(node, (ast.For, ast.comprehension)):
                rows = [row for rows in self._values(node.iter, at) for row in _rows(rows)]
                target = node.target
                if isinstance(target, ast.Name) and target.id == name:
                    values += rows
                elif isinstance(target, ast.Tuple):
                    for number, part in enumerate(target.elts):
                        if isinstance(part, ast.Name) and part.id == name:
                            values += [row[number] for row in rows]
        return values


def _rows(value: Any) -> list[Any]:
    if not (isinstance(value, (list, tuple)) or hasattr(value, "__next__") or hasattr(value, "mapping")):
        return []
    try:
        return list(value)
    except NameError:  # a generator over what only a run knows
        return []


def _is_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _CALLS
    )


def supplied() -> list[Pattern]:
    """Return the patterns that are put together from the matrix."""
    from envdoctor.matrix import load_matrix
    from envdoctor.observe.documents.locks.dockerfile import tag_pattern
    from envdoctor.observe.documents.reports.lines import Forms, Prose
    from envdoctor.observe.recipe.formats import Formats

    matrix = load_matrix()
    rows = [("values", row["values"], re.IGNORECASE, "fullmatch") for row in matrix.rows("report-forms", "label")]
    for row in matrix.rows("report-forms", "line"):
        rows.append(("pattern", row["pattern"], 0, "search" if row.get("each") else "fullmatch"))
    rows += [
        ("pattern", row["pattern"], re.IGNORECASE | re.ASCII, "search") for row in matrix.rows("report-forms", "phrase")
    ]
    rows += [("tag", tag_pattern(row["tag"]), 0, "fullmatch") for row in matrix.rows("images")]
    rows += [
        (name, one.pattern, 0, "search")
        for forms in (Forms(matrix), Prose(matrix, Formats(matrix)))
        for name, one in vars(forms).items()
        if isinstance(one, re.Pattern)
    ]
    return [Pattern(f"matrices: {column}", text, flags, how) for column, text, flags, how in rows]
