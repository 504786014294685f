"""Write the table transformers-model-types anew: python tools/refresh_transformers.py [TABLE]

Every release of transformers from 4.26 on is read on the package index: syntax trees of some files of its wheel.
Nothing is imported. That takes about ten minutes. The head of the table and [never] stay as they are. Review the
difference before committing: it is what changed in the world, or a mistake.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from package_index import Index
from packaging.version import Version

from envdoctor.matrix import load_toml

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "transformers-model-types.toml"
FIRST = Version("4.26")
#: Where the model types are.
MAPPINGS = ("transformers.models.auto.configuration_auto", "transformers.models.auto.auto_mappings")


def releases(index: Index) -> list[str]:
    """Return every release from the first one of the table on."""
    return [version for version in index.wheels("transformers") if Version(version) >= FIRST]


def read(index: Index, version: str) -> set[str]:
    """The model types that one release registers."""
    wheel = index.wheel(f"transformers-{version}-py3-none-any.whl")
    return {kind for module in MAPPINGS for kind in registered(tree(wheel, module) or ast.Module([], []))}


def tree(wheel: ZipFile, module: str) -> ast.Module | None:
    """Return the syntax tree of a module or package; None if the wheel has none of that name."""
    path = module.replace(".", "/")
    for name in (f"{path}.py", f"{path}/__init__.py"):
        if name in wheel.NameToInfo:
            return ast.parse(wheel.read(name))
    return None


def registered(module: ast.Module) -> Iterator[str]:
    """Yield the keys of CONFIG_MAPPING_NAMES, which is assigned and updated."""
    for statement in module.body:
        if not ast.unparse(statement).startswith("CONFIG_MAPPING_NAMES"):
            continue
        for node in ast.walk(statement):
            keys: Sequence[ast.expr | None] = node.keys if isinstance(node, ast.Dict) else ()
            keys = node.elts[:1] if isinstance(node, ast.Tuple) and len(node.elts) == 2 else keys
            yield from (key.value for key in keys if isinstance(key, ast.Constant))


def spans(found: Mapping[str, set[str]], place: str = "") -> str:
    """Return the parts ``since`` and ``until`` of a table, below a place: names by the first release that has them, and
    by the first that has them no more, to this day."""
    since: dict[str, str] = {}
    last: dict[str, str] = {}
    for version, names in found.items():
        since = {**dict.fromkeys(names, version), **since}
        last |= dict.fromkeys(names, version)
    behind = dict(pairwise(found))
    parts = []
    for title, versions in (("since", since), ("until", {name: behind.get(end) for name, end in last.items()})):
        of_release = ((version, [name for name, its in versions.items() if its == version]) for version in found)
        lines = (f'"{version}" = {wrapped(names)}' for version, names in of_release if names)
        parts.append("\n".join([f"[{place}{title}]", *lines]))
    return "\n\n".join(parts)


def renewed(head: str, first: Version, last: str) -> str:
    """Return the head of a table as of today, which covers the releases from the first to the minor of the last."""
    major, minor, *_ = Version(last).release
    head = re.sub(r"(?m)^as_of = .*$", f"as_of = {date.today()}", head.rstrip())
    return re.sub(r"(?m)^covers = .*$", f'covers = ">={first},<{major}.{minor + 1}"', head)


def wrapped(names: Iterable[str]) -> str:
    """Return a TOML list over several lines."""
    text = ", ".join(json.dumps(name) for name in sorted(names))
    if len(text) < 90:
        return f"[{text}]"
    lines = textwrap.fill(text, 116, break_on_hyphens=False, break_long_words=False)
    return "[\n" + textwrap.indent(lines, "  ") + ",\n]"


def main(table: Path) -> None:
    """Read every release and write the table behind its head."""
    present: dict[str, Any] = load_toml(table)
    index = Index()
    versions = releases(index)
    body = spans({version: read(index, version) for version in versions})
    never = f"[never]\nnames = {wrapped(present['never']['names'])}\n"
    head = renewed(table.read_text(encoding="utf-8").partition("\n[since]\n")[0], FIRST, versions[-1])
    table.write_text(f"{head}\n\n{body}\n\n{never}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE)
