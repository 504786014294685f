"""Write the table default-attention anew: python tools/refresh_attention.py [--work DIR] [TABLE]

The first and the last release of each minor of transformers from 4.36 on is read on the package index: which attention
a model class takes when nobody asks for one. Nothing is imported. What was read of a release is kept in DIR.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from zipfile import ZipFile

from package_index import Index
from packaging.version import Version
from refresh_recipe_defaults import windows
from refresh_transformers import MAPPINGS, registered, releases, renewed, tree, wrapped

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "default-attention.toml"
#: Before, no release chose an attention by itself.
FIRST = Version("4.36")
_CLASS = re.compile(r"^class \w+\(.*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_SUPPORTS = re.compile(r"^    _supports_sdpa(?:: \w+)? = True", re.MULTILINE)
#: Where a class swaps the attention that would be taken.
_SWAPS = re.compile(
    r"def _(?:check_and_enable_sdpa|autoset_attn_implementation|check_and_adjust_attn_implementation)\b"
)


def chosen(index: Index) -> list[str]:
    """Return the first and the last release of each minor."""
    every = [version for version in releases(index) if Version(version) >= FIRST]
    minors = [[*group] for _, group in groupby(every, key=lambda version: Version(version).release[:2])]
    return [version for minor in minors for version in dict.fromkeys((minor[0], minor[-1]))]


def read(wheel: ZipFile) -> dict[str, str]:
    """What each model type of a release takes: sdpa, eager, or "open" where its class decides in code of its own."""
    types = {kind for module in MAPPINGS for kind in registered(tree(wheel, module) or ast.Module([], []))}
    special = dict(_special(wheel))
    found = {}
    for kind in types:
        module = special.get(kind, kind.replace("-", "_"))
        name = f"transformers/models/{module}/modeling_{module}.py"
        if name in wheel.NameToInfo:
            found[kind] = _taken(wheel.read(name).decode())
    return found


def _special(wheel: ZipFile) -> Iterator[tuple[str, str]]:
    """Model types whose module has another name: pairs of texts, or keys and values, of one table."""
    for module in MAPPINGS:
        for statement in (tree(wheel, module) or ast.Module([], [])).body:
            if not ast.unparse(statement).startswith("SPECIAL_MODEL_TYPE_TO_MODULE_NAME"):
                continue
            for node in ast.walk(statement):
                pairs = [node.elts] if isinstance(node, ast.Tuple) and len(node.elts) == 2 else []
                if isinstance(node, ast.Dict):
                    pairs = [[key, value] for key, value in zip(node.keys, node.values, strict=True) if key]
                for key, value in pairs:
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                        yield key.value, value.value


def _taken(text: str) -> str:
    for match in _CLASS.finditer(text):
        head = match[0].partition("\n")[0]
        if "PreTrainedModel" in head.partition("(")[0] or "(PreTrainedModel" in head:
            if _SWAPS.search(match[0]):
                return "eager" if re.search(r"_attn_implementation = ['\"]eager['\"]", match[0]) else "open"
            return "sdpa" if _SUPPORTS.search(match[0]) else "eager"
    return "open"


def rows(found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, list[str]]]:
    """Return by releases, as ranges, the model types with sdpa, and those whose class decides."""
    oldest = next(iter(found))
    result: dict[str, dict[str, list[str]]] = {"sdpa": {}, "open": {}}
    for kind in sorted({kind for types in found.values() for kind in types}):
        for what, table in result.items():
            held = windows({version: types.get(kind) == what for version, types in found.items()})
            spans = [span.replace(f">={oldest}", f">={FIRST}") for is_held, span in held if is_held]
            if spans:
                table.setdefault(" | ".join(spans), []).append(kind)
    return result


def main() -> None:
    """Read what is not kept, and write the table behind its head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    asked = parser.parse_args()
    index = Index()
    found = {}
    for version in chosen(index):
        kept = asked.work / f"{version}.json" if asked.work else None
        if kept is not None and kept.is_file():
            found[version] = json.loads(kept.read_text())
            continue
        found[version] = read(index.wheel(f"transformers-{version}-py3-none-any.whl", whole=True))
        if kept is not None:
            kept.write_text(json.dumps(found[version]))
    text = asked.table.read_text(encoding="utf-8").partition("\n[sdpa]\n")[0]
    parts = [renewed(text, FIRST, next(reversed(found)))]
    for what, kinds in rows(found).items():
        ordered = sorted(kinds, key=lambda spans: [int(number) for number in re.findall(r"\d+", spans)])
        parts.append("\n".join([f"[{what}]", *(f"{json.dumps(spans)} = {wrapped(kinds[spans])}" for spans in ordered)]))
    asked.table.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
