"""Regenerate what transformers releases offer to remote code: python tools/refresh_symbols.py FACTS_DIR [TABLES_DIR]

FACTS_DIR holds transformers_symbols.json and transformers_models.json, read from the syntax trees of released wheels.
The head of each table is written by hand and kept; review the difference before committing.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Spans = list[list[str | None]]

#: Submodules that transformers.utils hands on: a name that is in one of them is counted as being in the package.
_UTILS = ("transformers.utils.import_utils", "transformers.utils.generic", "transformers.utils.doc")
#: 5.x installs aliases for these modules, so that an import from them goes on working (see the caveats of the facts).
LAST_4 = "4.57.6"
_ALIASED = ("transformers.tokenization_utils", "transformers.tokenization_utils_fast")
#: Imports of the standard library and of other packages that happen to stand in a module.
_FOREIGN = re.compile(
    r"(?:[A-Z]|[a-z_]{1,3}|functools|version|warnings|inspect|logging|logger|math|json|copy|types|typing|enum|time|deque"
    r"|partial|wraps|reduce|chain|contextmanager|dataclass|dataclasses|field|fields|abstractmethod|defaultdict|threading"
    r"|Any|Callable|Optional|Union|Literal|Iterable|Iterator|Mapping|Sequence|TypedDict|TypeVar|Protocol|Enum|Path|Version"
    r"|ABC|Set|OrderedDict|MutableMapping|UserDict|TYPE_CHECKING|BytesIO|ThreadPoolExecutor|tempfile|shutil|importlib|itertools"
    r"|numpy|torch|random|requests|packaging|collections|subprocess|multiprocessing|operator|weakref|hashlib|traceback)\Z"
)


def minors_of(spans: Spans, versions: list[str]) -> set[int]:
    """Places in the list of versions that the spans cover."""
    found: set[int] = set()
    for first, last in spans:
        assert first is not None
        end = versions.index(last) if last is not None else len(versions) - 1
        found.update(range(versions.index(first), end + 1))
    return found


def specifier(places: set[int], versions: list[str]) -> str:
    """Runs of minors: ``>=4.34,<4.48``, several joined by `` | ``, nothing for all."""
    texts: list[str] = []
    for place in sorted(places):
        if place - 1 in places:
            continue
        end = place
        while end + 1 in places:
            end += 1
        low = f">={minor(versions[place])}" if place else ""
        high = f"<{minor(versions[end + 1])}" if end + 1 < len(versions) else ""
        texts.append(",".join(part for part in (low, high) if part))
    return " | ".join(texts)


def minor(version: str) -> str:
    """``4.34`` of ``4.34.1``."""
    return ".".join(version.split(".")[:2])


def wrapped(names: Iterable[str]) -> str:
    """A TOML list over several lines."""
    text = ", ".join(json.dumps(name) for name in sorted(names))
    if len(text) < 90:
        return f"[{text}]"
    lines = textwrap.fill(text, 116, break_on_hyphens=False, break_long_words=False)
    return "[\n" + textwrap.indent(lines, "  ") + ",\n]"


def symbols(facts: dict[str, Any]) -> str:
    """The [[module]] tables: names that are not in every release, by the releases that have them."""
    versions: list[str] = facts["versions"]
    everywhere = set(range(len(versions)))
    modules = facts["modules"]
    parts: list[str] = []
    for module, entry in sorted(modules.items()):
        aliased = module in _ALIASED
        present = everywhere if aliased else minors_of(entry["module_spans"], versions)
        groups: dict[str, list[str]] = {}
        for name, spans in entry["symbols_not_always_present"].items():
            if _FOREIGN.match(name):
                continue
            places = minors_of(spans, versions)
            if aliased and LAST_4 in (versions[place] for place in places):
                places |= {place for place in everywhere if place > versions.index(LAST_4)}  # under the alias
            if module == "transformers.utils":
                for other in _UTILS:
                    more = modules[other]["symbols_not_always_present"].get(name)
                    places |= minors_of(more, versions) if more else set()
            if places != present:
                groups.setdefault(specifier(places, versions), []).append(name)
        head = [f'[[module]]\nname = "{module}"']
        if present != everywhere:
            head.append(f'releases = "{specifier(present, versions)}"')
        body = [f'"{releases}" = {wrapped(names)}' for releases, names in sorted(groups.items())]
        parts.append("\n".join(head) + ("\n[module.names]\n" + "\n".join(body) if body else ""))
    return "\n\n".join(parts)


def model_types(facts: dict[str, Any]) -> str:
    """[since] and [until]: model types by the first release that registers them, and by the first that does not."""
    since: dict[str, list[str]] = {}
    until: dict[str, list[str]] = {}
    for row in facts["rows"]:
        since.setdefault(row["first_version"].removeprefix("<="), []).append(row["model_type"])
        if row["removed_in"]:
            until.setdefault(row["removed_in"], []).append(row["model_type"])
    parts = []
    for title, versions in (("since", since), ("until", until)):
        rows = [f'"{version}" = {wrapped(names)}' for version, names in sorted(versions.items(), key=_order)]
        parts.append("\n".join([f"[{title}]", *rows]))
    never = wrapped(facts["never_native"]["model_types"])
    return "\n\n".join([*parts, f"[never]\nnames = {never}"])


def _order(item: tuple[str, list[str]]) -> list[int]:
    return [int(part) for part in item[0].split(".")]


def main(facts: Path, tables: Path) -> None:
    """Write both tables behind their heads."""
    for source, name, marker, rows in (
        ("transformers_symbols", "transformers-symbols", "[[module]]", symbols),
        ("transformers_models", "transformers-model-types", "[since]", model_types),
    ):
        read = json.loads((facts / f"{source}.json").read_text(encoding="utf-8"))
        path = tables / f"{name}.toml"
        head = path.read_text(encoding="utf-8").split(f"\n{marker}\n")[0]
        head = re.sub(r"(?m)^as_of = .*$", f"as_of = {read['as_of']}", head)
        path.write_text(f"{head.rstrip()}\n\n{rows(read)}\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: refresh_symbols.py FACTS_DIR [TABLES_DIR]")
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parents[1] / "matrices/tables"))
