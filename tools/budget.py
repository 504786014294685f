"""Measure the house, beside the budget that it may not exceed (``tests/house/budget.toml``).

    python tools/budget.py [--lower]

Numbers only fall: ``--lower`` writes those that have. One that must rise is raised by hand, with a line in ``[raised]``
that says why.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ROOT / "tests" / "house" / "budget.toml"
COLUMNS = ("lines", "logic", "files", "names")

#: By row (a room, tests, tools, rules, tables), the numbers by column.
Measured = Mapping[str, Mapping[str, int]]


def measured() -> dict[str, dict[str, int]]:
    """Return lines, lines of logic (inside functions: no blank, comment, docstring or import), files, public names."""
    package = ROOT / "envdoctor"
    rooms = sorted(path for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py")))
    rows = {path.name: _python(path.rglob("*.py")) for path in rooms if path.name != "_matrix"}
    rows["face"] = _python(package.glob("*.py"))
    rows["envdoctor"] = {column: sum(row[column] for row in rows.values()) for column in COLUMNS}
    rows["tests"] = _python((ROOT / "tests").rglob("*.py"))
    rows["tools"] = _python((ROOT / "tools").rglob("*.py"))
    matrices = ROOT / "matrices"
    rows["rules"] = _files(matrices.glob("rules/**/*.toml"))
    rows["tables"] = _files((*matrices.glob("*.toml"), *matrices.glob("tables/*.toml")))
    rows["tests import"] = {"modules": len(imported_by_tests())}
    return rows


def budget() -> dict[str, dict[str, int]]:
    """Return the numbers that may not be exceeded."""
    rows: dict[str, dict[str, int]] = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["budget"]
    return rows


def imported_by_tests() -> set[str]:
    """Return the modules of envdoctor that tests import from; a child of a test that does so counts as well."""
    return {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        for name in _modules(node)
        if name.partition(".")[0] == "envdoctor"
    }


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            below = f"{node.module}.{alias.name}"
            path = ROOT / below.replace(".", "/")
            yield below if path.is_dir() or path.with_suffix(".py").is_file() else node.module


def _files(paths: Iterable[Path]) -> dict[str, int]:
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return {"lines": sum(text.count("\n") for text in texts), "files": len(texts)}


def _python(paths: Iterable[Path]) -> dict[str, int]:
    row = dict.fromkeys(COLUMNS, 0)
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        row["lines"] += text.count("\n")
        row["logic"] += len(_logic(tree))
        row["files"] += 1
        row["names"] += sum(1 for node in tree.body if _is_public(node))
    return row


def _logic(tree: ast.Module) -> set[int]:
    """Return the lines inside functions on which code stands that is neither an import nor a docstring."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = [node for body in bodies for statement in body for node in ast.walk(statement)]
    lines = {node.lineno for node in inside if isinstance(node, (ast.expr, ast.stmt, ast.excepthandler))}
    for node in inside:
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_text(node):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_public(node: ast.stmt) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, kinds) and not node.name.startswith("_")


def table() -> str:
    """Return what is measured, with how far it is below its budget."""
    limits = budget()
    lines = [f"{'':14}" + "".join(f"{column:>16}" for column in (*COLUMNS, "modules"))]
    for name, row in measured().items():
        cells = []
        for column in (*COLUMNS, "modules"):
            number, limit = row.get(column), limits.get(name, {}).get(column)
            below = "" if number is None or limit is None or number == limit else f" ({number - limit:+,})"
            cells.append(f"{'' if number is None else f'{number:,}{below}':>16}")
        lines.append(f"{name:14}" + "".join(cells).rstrip())
    return "\n".join(lines)


def lower() -> None:
    """Write the numbers that have fallen, and rows that are new; rows that are gone go."""
    text = BUDGET.read_text(encoding="utf-8") if BUDGET.is_file() else "[budget]\n"
    limits = budget() if BUDGET.is_file() else {}
    head, _, rest = text.partition("[budget]\n")
    _, mark, raised = rest.partition("[raised]\n")
    rows = []
    for name, row in measured().items():
        limit = limits.get(name, {})
        cells = (f"{column} = {min(number, limit.get(column, number))}" for column, number in row.items())
        key = f'"{name}"' if " " in name else name
        rows.append(f"{key} = {{ {', '.join(cells)} }}\n")
    BUDGET.write_text(f"{head}[budget]\n{''.join(rows)}" + (f"\n{mark}{raised}" if mark else ""), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        lower()
    print(table())
