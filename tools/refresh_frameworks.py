"""Write the table framework-models anew: python tools/refresh_frameworks.py [TABLE]

Every release of vLLM, SGLang, LLaMA-Factory and unsloth with a wheel is read on the package index: the architectures
that engines register, the repositories that trainers have templates or mappings for, each as the family that it is of.
Nothing is imported. The head of the table stays as it is. Review the difference before committing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from package_index import Index
from refresh_transformers import releases, spans, tree

from envdoctor.facts import Unknown, View
from envdoctor.judge.derivations.model import model_family
from envdoctor.matrix import Matrix, load_matrix

AUTO = "transformers.models.auto.modeling_auto"
TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "framework-models.toml"
#: What loads a model that has no class or mapping of its own: from the release that has it on, a model that is not
#: listed may run all the same.
FALLBACKS = ("TransformersModel", "TransformersForCausalLM", "FastModel")


class _Framework(NamedTuple):
    """``members`` are the files of its wheel to read, ``names`` what stands in the text of one: architectures, or with
    ``repos`` names of repositories. ``whole``: they are many, and the wheel is small."""

    package: str
    members: str
    names: Callable[[str], Iterator[str]]
    repos: bool = False
    whole: bool = False


def registered(text: str) -> Iterator[str]:
    """Yield the keys of vLLM's dictionaries from architectures to (module, class), or to the class itself."""
    for node in ast.walk(ast.parse(text)):
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            named = isinstance(value, ast.Name) or (
                isinstance(value, ast.Tuple) and all(isinstance(one, ast.Constant) for one in value.elts)
            )
            if named and isinstance(key, ast.Constant) and re.fullmatch(r"[A-Z]\w+", str(key.value)):
                yield str(key.value)


def entry_classes(text: str) -> Iterator[str]:
    """Yield the classes that a module of SGLang registers by their own names."""
    for listed in re.findall(r"(?m)^EntryClass\s*=\s*(\[[^\]]*\]|\w+)", text):
        yield from re.findall(r"\w+", re.sub(r"#.*", "", listed))


def downloads(text: str) -> Iterator[str]:
    """Yield the repositories that LLaMA-Factory has a template for."""
    yield from re.findall(r'DownloadSource\.(?:DEFAULT|MODELSCOPE): "([^"]+)"', text)


def mapped(text: str) -> Iterator[str]:
    """Yield the repositories that unsloth maps, and its class for all others."""
    yield from re.findall(r'"([\w.-]+/[\w.-]+)"', text)
    yield from re.findall(r"(?m)^class (FastModel)\b", text)


FRAMEWORKS = (
    _Framework("vllm", r"vllm/model_executor/(models/(__init__|registry)|model_loader)\.py", registered),
    _Framework("sglang", r"sglang/srt/models/\w+\.py", entry_classes, whole=True),
    _Framework("llamafactory", r"llamafactory/extras/constants\.py", downloads, repos=True),
    _Framework("unsloth", r"unsloth/models/(mapper|loader)\.py", mapped, repos=True),
)


def read(framework: _Framework, wheel: ZipFile) -> set[str]:
    """What one wheel has."""
    members = [name for name in wheel.namelist() if re.fullmatch(framework.members, name)]
    return {name for member in members for name in framework.names(wheel.read(member).decode("utf-8", "replace"))}


def families_of(matrix: Matrix, classes: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Families by architecture: by what families.toml says of them, and by the ``classes`` that transformers has for
    their types. An architecture such as LlamaForCausalLM is of several."""
    found: dict[str, set[str]] = {}
    for family in matrix.rows("families", "family"):
        known = [one["facts"] for one in family.get("known", ())]
        types = {*family["types"], *(one["model.type"] for one in known if "model.type" in one)}
        named = {*family["architectures"], *(name for one in known for name in one.get("model.architectures", ()))}
        for name in named.union(*(classes.get(kind, ()) for kind in types)):
            found.setdefault(name, set()).add(family["id"])
    return found


def classes_by_type(index: Index) -> dict[str, set[str]]:
    """Return the classes with a language model that the newest transformers has for each type."""
    module = tree(index.wheel(f"transformers-{releases(index)[-1]}-py3-none-any.whl"), AUTO)
    found: dict[str, set[str]] = {}
    for node in ast.walk(module or ast.Module([], [])):
        cells = node.elts if isinstance(node, ast.Tuple) and len(node.elts) == 2 else ()
        texts = [cell.value for cell in cells if isinstance(cell, ast.Constant) and isinstance(cell.value, str)]
        if len(texts) == 2 and re.search(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel)$", texts[1]):
            found.setdefault(texts[0], set()).add(texts[1])
    return found


def family_of(repo: str, matrix: Matrix) -> set[str]:
    """Return the family of this repository."""
    family = model_family.compute(View(lambda key: repo if key == "model.repo" else Unknown("")), matrix)[
        "model.family"
    ].value
    return {family} if isinstance(family, str) else set()


def table(framework: _Framework, index: Index, matrix: Matrix, by_architecture: Mapping[str, set[str]]) -> str:
    """Return the part of one framework."""
    names: dict[str, set[str]] = {}
    for version, wheel in index.wheels(framework.package).items():
        if here := read(framework, index.wheel(wheel, whole=framework.whole)):
            names[version] = here
        print(framework.package, version, len(here), file=sys.stderr, flush=True)
    fallback = next((version for version, here in names.items() if here.intersection(FALLBACKS)), None)
    ever: set[str] = set().union(*names.values())
    ids = {name: family_of(name, matrix) if framework.repos else by_architecture.get(name, set()) for name in ever}
    found = {version: {one for name in here for one in ids[name]} for version, here in names.items()}
    head = "\n".join([f"[{framework.package}]", *([f'fallback = "{fallback}"'] if fallback else [])])
    return f"{head}\n\n{spans(found, framework.package + '.')}"


def main(path: Path) -> None:
    """Read every release and write the table behind its head."""
    index, matrix = Index(), load_matrix()
    by_architecture = families_of(matrix, classes_by_type(index))
    body = "\n\n".join(table(framework, index, matrix, by_architecture) for framework in FRAMEWORKS)
    head = re.split(r"(?m)^\[vllm\]$", path.read_text(encoding="utf-8"))[0]
    head = re.sub(r"as_of = [0-9-]+", f"as_of = {date.today()}", head, count=1)
    path.write_text(f"{head.rstrip()}\n\n{body}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE)
