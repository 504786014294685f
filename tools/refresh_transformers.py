"""Write transformers-model-types and transformers-symbols anew: python tools/refresh_transformers.py [TABLES]

Every release of transformers from 4.26 on is read on the package index: syntax trees of some files of its wheel.
Nothing is imported. That takes about ten minutes. The heads of the tables, the names of the modules, and [never]
stay as they are. Review the difference before committing: it is what changed in the world, or a mistake.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from package_index import Index
from packaging.version import Version

from envdoctor.knowledge.toml_files import load_toml

TABLES = Path(__file__).parents[1] / "matrices" / "tables"
FIRST = Version("4.26")
#: Where the model types are.
MAPPINGS = ("transformers.models.auto.configuration_auto", "transformers.models.auto.auto_mappings")
#: Modules whose names transformers.utils hands on: a name that is in one of them is counted as being in the package.
UTILS = ("transformers.utils.import_utils", "transformers.utils.generic", "transformers.utils.doc")
#: From 5.0 on aliases stand for these modules, so that what was imported from them can still be.
ALIASED = ("transformers.tokenization_utils", "transformers.tokenization_utils_fast")
#: Nobody takes what is in these from transformers.
GENERAL = {*sys.stdlib_module_names, "packaging"}


class Release(NamedTuple):
    """What one release has: the model types that it registers, and by module the names that can be imported from it."""

    types: set[str]
    names: dict[str, set[str]]


def releases(index: Index) -> list[str]:
    """Every release with a wheel, in order; those that were withdrawn too, because people have them."""
    names = {link.filename.split("-")[1] for link in index.files("transformers") if link.filename.endswith("-any.whl")}
    return sorted((name for name in names if (v := Version(name)) >= FIRST and not v.is_prerelease), key=Version)


def read(index: Index, version: str, modules: Iterable[str]) -> Release:
    """One release, with the names of these modules."""
    wheel = index.wheel(f"transformers-{version}-py3-none-any.whl")
    types = {kind for module in MAPPINGS for kind in registered(tree(wheel, module) or ast.Module([], []))}
    trees = {module: tree(wheel, module) for module in modules}
    return Release(types, {module: set(offered(found.body)) for module, found in trees.items() if found is not None})


def tree(wheel: ZipFile, module: str) -> ast.Module | None:
    """The syntax tree of a module or package; None when the wheel has none of that name."""
    path = module.replace(".", "/")
    for name in (f"{path}.py", f"{path}/__init__.py"):
        if name in wheel.NameToInfo:
            return ast.parse(wheel.read(name))
    return None


def registered(module: ast.Module) -> Iterator[str]:
    """The keys of CONFIG_MAPPING_NAMES, which is assigned and updated."""
    for statement in module.body:
        if not ast.unparse(statement).startswith("CONFIG_MAPPING_NAMES"):
            continue
        for node in ast.walk(statement):
            keys: Sequence[ast.expr | None] = node.keys if isinstance(node, ast.Dict) else ()
            keys = node.elts[:1] if isinstance(node, ast.Tuple) and len(node.elts) == 2 else keys
            yield from (key.value for key in keys if isinstance(key, ast.Constant))


def offered(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that a module defines, assigns or takes from another module, also under a condition."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            if node.level or str(node.module).partition(".")[0] not in GENERAL:
                yield from (name.asname or name.name for name in node.names)
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            parts = [node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
            parts += [handler.body for handler in getattr(node, "handlers", [])]
            for part in parts:
                yield from offered(part)


def minor(version: str) -> str:
    """``4.34`` of ``4.34.1``."""
    return ".".join(version.split(".")[:2])


def specifier(places: set[int], minors: Sequence[str]) -> str:
    """Runs of minors: ``>=4.34,<4.48``, several joined by `` | ``, nothing for all."""
    texts: list[str] = []
    for place in sorted(places):
        if place - 1 in places:
            continue
        end = place
        while end + 1 in places:
            end += 1
        low = f">={minors[place]}" if place else ""
        high = f"<{minors[end + 1]}" if end + 1 < len(minors) else ""
        texts.append(",".join(part for part in (low, high) if part))
    return " | ".join(texts)


def symbols(found: Mapping[str, Release], modules: Iterable[str]) -> str:
    """The [[module]] tables: names that are not in every release, by the releases that have them. Of each minor the
    last patch counts."""
    last = {minor(version): release for version, release in found.items()}
    minors, numbered = list(last), list(enumerate(last.values()))
    from_5 = {place for place, name in enumerate(minors) if int(name.split(".")[0]) >= 5}
    parts: list[str] = []
    for module in sorted(modules):
        present = {place for place, release in numbered if module in release.names}
        present |= from_5 if module in ALIASED else set()
        own = set().union(*(release.names.get(module, set()) for _, release in numbered))
        handed_on = UTILS if module == "transformers.utils" else ()
        where = {
            name: {p for p, release in numbered for one in (module, *handed_on) if name in release.names.get(one, ())}
            for name in own
        }
        groups: dict[str, list[str]] = {}
        for name, places in where.items():
            if module in ALIASED and min(from_5) - 1 in places:
                places |= from_5
            if places != present:
                groups.setdefault(specifier(places, minors), []).append(name)
        head = [f'[[module]]\nname = "{module}"']
        head += [f'releases = "{specifier(present, minors)}"'] * (len(present) != len(minors))
        body = [f'"{spans}" = {wrapped(names)}' for spans, names in sorted(groups.items())]
        parts.append("\n".join([*head, *(["[module.names]", *body] if body else [])]))
    return "\n\n".join(parts) + "\n"


def model_types(found: Mapping[str, Release], never: Iterable[str]) -> str:
    """[since] and [until]: model types by the first release that registers them, and by the first that does no more."""
    since: dict[str, list[str]] = {}
    until: dict[str, list[str]] = {}
    before: set[str] = set()
    for version, release in found.items():
        if release.types - before:
            since[version] = sorted(release.types - before)
        if before - release.types:
            until[version] = sorted(before - release.types)
        before = release.types
    parts = []
    for title, versions in (("since", since), ("until", until)):
        parts.append(
            "\n".join([f"[{title}]", *(f'"{version}" = {wrapped(names)}' for version, names in versions.items())])
        )
    return "\n\n".join([*parts, f"[never]\nnames = {wrapped(never)}\n"])


def wrapped(names: Iterable[str]) -> str:
    """A TOML list over several lines."""
    text = ", ".join(json.dumps(name) for name in sorted(names))
    if len(text) < 90:
        return f"[{text}]"
    lines = textwrap.fill(text, 116, break_on_hyphens=False, break_long_words=False)
    return "[\n" + textwrap.indent(lines, "  ") + ",\n]"


def rewrite(table: Path, marker: str, body: str, newest: str) -> None:
    """Replace what follows the head of a table."""
    head = table.read_text(encoding="utf-8").partition(f"\n{marker}\n")[0]
    major, number, *_ = newest.split(".")
    head = re.sub(r"(?m)^as_of = .*$", f"as_of = {date.today()}", head)
    head = re.sub(r"(?m)^covers = .*$", f'covers = ">={FIRST},<{major}.{int(number) + 1}"', head)
    table.write_text(f"{head.rstrip()}\n\n{body}", encoding="utf-8")


def main(tables: Path) -> None:
    """Read every release and write both tables behind their heads."""
    names, types = tables / "transformers-symbols.toml", tables / "transformers-model-types.toml"
    present: dict[str, Any] = load_toml(types)
    modules = [module["name"] for module in load_toml(names)["module"]]
    index = Index()
    versions = releases(index)
    last = {minor(version): version for version in versions}.values()
    found = {version: read(index, version, modules if version in last else ()) for version in versions}
    rewrite(types, "[since]", model_types(found, present["never"]["names"]), versions[-1])
    rewrite(names, "[[module]]", symbols(found, modules), versions[-1])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLES)
