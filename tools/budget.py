"""Measure the house, beside the budget that it may not exceed (``tests/house/budget.toml``).

    python tools/budget.py [--lower | --raise WHY]

Numbers only fall: ``--lower`` writes those that have. ``--raise`` writes those that had to rise as well, each with a
line in ``[raised]`` that says why.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from compiling import compile_matrix

from envdoctor.matrix import load_toml

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ROOT / "tests" / "house" / "budget.toml"
COLUMNS = ("lines", "logic", "files", "names")

#: By row (a room, tests, tools, rules, tables), the numbers by column.
Measured = Mapping[str, Mapping[str, int]]


def measured() -> dict[str, dict[str, int]]:
    """Return lines, lines of logic (inside functions: no blank, comment, docstring or import), files, public names."""
    package = ROOT / "envdoctor"
    rooms = sorted(path for path in package.iterdir() if path.is_dir() and any(path.rglob("*.py")))
    rows = {path.name: _python(path.rglob("*.py")) for path in rooms}
    rows["face"] = _python(package.glob("*.py"))
    rows["envdoctor"] = {column: sum(row[column] for row in rows.values()) for column in COLUMNS}
    rows["tests"] = _python((ROOT / "tests").rglob("*.py"))
    rows["tools"] = _python((ROOT / "tools").rglob("*.py"))
    rules = knowledge()["rules"]
    rows["rules"] = {"each": -(-rules["lines"] // rules["files"])}
    rows["tests import"] = {"modules": len(_imported_by_tests())}
    rows["check imports"] = {"modules": _imported_by_a_check()}
    return rows


def knowledge() -> dict[str, dict[str, int]]:
    """Return the lines and files of rules and tables. They grow with what is known: only the lines of a rule have a
    limit, on the average."""
    matrices = ROOT / "matrices"
    tables = (*matrices.glob("*.toml"), *matrices.glob("tables/*.toml"))
    return {"rules": _files(matrices.glob("rules/**/*.toml")), "tables": _files(tables)}


def budget() -> dict[str, dict[str, int]]:
    """Return the numbers that may not be exceeded."""
    rows: dict[str, dict[str, int]] = load_toml(BUDGET)["budget"]
    return rows


def raised() -> dict[str, str]:
    """Return why numbers were raised, by ``"row: column"``."""
    reasons: dict[str, str] = load_toml(BUDGET).get("raised", {})
    return reasons


def _imported_by_a_check() -> int:
    """Return how many modules of envdoctor a ``check`` of a folder with two packages imports when its cache is filled,
    with the matrix as a wheel carries it. The folder was made a moment ago, and is kept all the same."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom envdoctor.cli.main import main\n"
        "from envdoctor.matrix import matrix\nmatrix._COMPILED = Path(sys.argv[1]) / 'matrix'\n"
        "from envdoctor.system import cache\ncache._TICK = cache._SLOW_TICK = -1 << 62\n"
        "main(['check', '--path', sys.argv[1] + '/packages', '--no-config', '--no-gpu'])\n"
        "print('modules', sum(name.partition('.')[0] == 'envdoctor' for name in sys.modules))"
    )
    with TemporaryDirectory() as folder:
        for name, version in (("torch", "2.5.1"), ("transformers", "4.48.3")):
            info = Path(folder) / "packages" / f"{name}-{version}.dist-info"
            info.mkdir(parents=True)
            info.with_name(f"{name}.py").write_text("")
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        compile_matrix(ROOT / "matrices", Path(folder) / "matrix")
        command = [sys.executable, "-c", code, folder]
        environ = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "ENVDOCTOR_LANG": "en"}
        for _ in range(2):
            done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    return int(done.stdout.rpartition("modules ")[2])


def doors() -> dict[str, dict[str, str]]:
    """Return the names in the door of each room, with their modules."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((ROOT / "envdoctor").glob("*/__init__.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "door":
                room, names = f"envdoctor.{path.parent.name}", ast.literal_eval(node.args[1])
                found[room] = {name: f"{room}.{module}" for module, told in names.items() for name in told.split()}
    return found


@lru_cache(maxsize=1)
def users() -> dict[str, set[str]]:
    """Return the files of tests, and the other modules, that use each name of a door (``envdoctor.facts.Fact``)."""
    found: dict[str, set[str]] = {}
    homes = {(module, name): f"{room}.{name}" for room, names in doors().items() for name, module in names.items()}
    for path in (*(ROOT / "envdoctor").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        user = ".".join(parts).removesuffix(".py") if parts[0] == "envdoctor" else "/".join(parts)
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
        taken = [
            (n.module, a.name, a.asname) for n in nodes if isinstance(n, ast.ImportFrom) and n.module for a in n.names
        ]
        modules = {named or name: f"{module}.{name}" for module, name, named in taken}
        through = [
            (modules.get(n.value.id, ""), n.attr)
            for n in nodes
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
        ]
        for module, name in (*((module, name) for module, name, _ in taken), *through):
            used = homes.get((module, name), f"{module}.{name}")
            if not used.startswith(f"{user}."):
                found.setdefault(used, set()).add(user)
    return found


def _imported_by_tests() -> set[str]:
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
    limits, rows, columns = budget(), measured(), (*COLUMNS, "modules", "each")
    for name, row in knowledge().items():
        rows[name] = row | rows.get(name, {})
    lines = [f"{'':14}" + "".join(f"{column:>16}" for column in columns)]
    for name, row in rows.items():
        cells = []
        for column in columns:
            number, limit = row.get(column), limits.get(name, {}).get(column)
            below = "" if number is None or limit is None or number == limit else f" ({number - limit:+,})"
            cells.append(f"{'' if number is None else f'{number:,}{below}':>16}")
        lines.append(f"{name:14}" + "".join(cells).rstrip())
    return "\n".join(lines)


def write(why: str = "") -> None:
    """Write the numbers that have fallen, and rows that are new; rows that are gone go. With a reason write those that
    rose, too."""
    head, limits, reasons, rows = BUDGET.read_text(encoding="utf-8").partition("[budget]\n")[0], budget(), raised(), []
    for name, row in measured().items():
        limit = {**row, **limits.get(name, {})}
        rose = {column: number for column, number in row.items() if why and number > limit[column]}
        reasons.update((f"{name}: {column}", why) for column in rose)
        cells = (f"{column} = {rose.get(column, min(number, limit[column]))}" for column, number in row.items())
        key = f'"{name}"' if " " in name else name
        rows.append(f"{key} = {{ {', '.join(cells)} }}\n")
    lines = "".join(f'"{key}" = {json.dumps(reason, ensure_ascii=False)}\n' for key, reason in reasons.items())
    BUDGET.write_text(f"{head}[budget]\n{''.join(rows)}\n[raised]\n{lines}", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--lower"]:
            write()
        case ["--raise", why]:
            write(why)
    print(table())
