"""Write the table recipe-defaults anew: python tools/refresh_recipe_defaults.py [--only PACKAGE ...] [TABLE]

Every release with a wheel of the libraries that recipes configure is read on the package index: the defaults in its
argument classes, argument parsers, parameters of functions and YAML files, of the keys that recipe-formats reads as a
field. Nothing is imported. What a release works out is left out. The head of the table and the packages that are not
asked for stay as they are. Review the difference before committing.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import yaml
from package_index import Index
from packaging.version import Version

from envdoctor.matrix import Matrix, load_matrix, load_toml
from envdoctor.observe.recipe.formats import Formats

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "recipe-defaults.toml"
#: The value of a default that a release works out.
OPEN = object()
Defaults = dict[str, Any]


class Source(NamedTuple):
    """Where the defaults of one call stand: ``members`` are the files of the wheel of ``package`` to read, ``names``
    the classes, functions (``Class.method``) or YAML documents there, of which the first counts that a release has, or
    with ``all_of`` every one; ``form`` is the format whose keys they are. Releases before ``since`` are not read."""

    package: str
    form: str
    call: str
    members: str
    names: tuple[str, ...]
    since: str = "0"
    all_of: bool = False


_TRL = r"trl/(trainer|experimental/\w+)/(\w+_config|utils)\.py|trl/trainer/base_config\.py"
_SWIFT = r"swift/(llm/|trainers/|ray/|megatron/)?(arguments?|train|base)(/.*)?\.py|swift/(trainers|llm)/\w*arg\w*\.py"
_VERL = r"verl/trainer/config/.*\.yaml"
SOURCES = (
    Source("transformers", "hf-arguments", "transformers.TrainingArguments", r"transformers/training_args\.py",
           ("TrainingArguments",), "4.26"),
    Source("transformers", "quantization", "transformers.BitsAndBytesConfig",
           r"transformers/utils/(quantization_config|bitsandbytes)\.py", ("BitsAndBytesConfig.__init__",), "4.30"),
    Source("peft", "peft", "peft.LoraConfig", r"peft/tuners/lora(/config)?\.py|peft/(utils/)?config\.py",
           ("LoraConfig",)),
    *(Source("trl", "trl", f"trl.{name}Config", _TRL, (f"{name}Config",), "0.7") for name in
      ("SFT", "DPO", "GRPO", "KTO", "Reward", "PPO", "RLOO", "PRM", "ORPO", "CPO", "OnlineDPO", "GKD", "Model")),
    Source("llamafactory", "llamafactory", "", r"llamafactory/hparams/\w+\.py",
           ("ModelArguments", "DataArguments", "FinetuningArguments", "TrainingArguments"), all_of=True),
    Source("ms-swift", "ms-swift", "", _SWIFT, ("SftArguments", "TrainArguments"), "2.0"),
    Source("ms-swift", "megatron-swift", "", _SWIFT, ("MegatronSftArguments", "MegatronTrainArguments"), "3.4"),
    Source("axolotl", "axolotl", "", r"axolotl/utils/(schemas/\w+|config/models/input/\w+/__init__)\.py",
           ("AxolotlInputConfig",)),
    *(Source("openrlhf", form, f"train_{name}", rf"openrlhf/cli/train_{name}\.py", ("add_argument",))
      for name in ("sft", "dpo", "rm", "kto", "ppo_ray") for form in ("openrlhf", "openrlhf-flat")),
    Source("verl", "verl", "main_ppo", _VERL, ("_generated_ppo_trainer", "ppo_trainer")),
    Source("verl", "verl-sft", "sft_trainer", _VERL, ("sft_trainer_engine", "sft_trainer")),
    Source("unsloth", "unsloth", "from_pretrained", r"unsloth/models/loader\.py",
           ("FastLanguageModel.from_pretrained",)),
    Source("unsloth", "unsloth", "get_peft_model", r"unsloth/models/llama\.py", ("FastLlamaModel.get_peft_model",)),
    Source("vllm", "vllm", "", r"vllm/engine/arg_utils\.py|vllm/config(/\w+)?\.py", ("EngineArgs",), "0.4"),
    Source("sglang", "sglang", "", r"sglang/srt/server_args\.py", ("ServerArgs",), "0.3"),
)  # fmt: skip


class Wheel:
    """The classes, functions and documents in some files of a wheel, by their names."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.trees = [tree for name, text in texts.items() if name.endswith(".py") and (tree := _parsed(text))]
        nodes = [node for tree in self.trees for node in ast.walk(tree)]
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self.constants = {
            target.id: node.value
            for tree in self.trees
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def defaults(self, name: str) -> Defaults:
        """The defaults of a class, a method, all ``add_argument`` calls, or a YAML document; none where it has none."""
        if name == "add_argument":
            return dict(self._arguments())
        if "." in name:
            kind, _, method = name.partition(".")
            methods = [one for one in getattr(self.classes.get(kind), "body", ()) if isinstance(one, ast.FunctionDef)]
            found = next((one for one in methods if one.name == method), None)
            return self._parameters(found) if found is not None else {}
        if name in self.classes:
            return self.fields(name)
        file = next((path for path in self.texts if path.endswith(f"/{name}.yaml")), None)
        return dict(_flat(self._document(file))) if file is not None else {}

    def fields(self, name: str, depth: int = 0) -> Defaults:
        """Return the fields of a dataclass or model, with those of the classes below it."""
        node = self.classes.get(name)
        found: Defaults = {}
        if node is None or depth > 12:
            return found
        for base in reversed(node.bases):
            found |= self.fields(ast.unparse(base).rpartition(".")[2], depth + 1)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                found[one.target.id] = self.value(one.value, node)
            elif isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                found[one.targets[0].id] = self.value(one.value, node)
        return found

    def value(self, node: ast.expr, kind: ast.ClassDef | None = None, depth: int = 0) -> Any:
        """Return the value of a default; ``OPEN`` if it is computed."""
        if depth > 6:
            return OPEN
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("field", "Field", "HfArg"):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    return self.value(keyword.value, kind, depth + 1)
                if keyword.arg == "default_factory":
                    factory = keyword.value
                    return self.value(factory.body, kind, depth + 1) if isinstance(factory, ast.Lambda) else OPEN
            return self.value(node.args[0], kind, depth + 1) if node.args else OPEN
        if isinstance(node, ast.Name):
            inner = list(kind.body if kind is not None else ())
            assigned = [
                one.value
                for one in inner
                if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id == node.id
            ]
            # Assigned once more under a condition: the release works it out.
            below = [one for part in inner if isinstance(part, ast.If) for one in ast.walk(part)]
            again = any(isinstance(one, ast.Name) and one.id == node.id for one in below)
            if len(assigned) == 1 and not again:
                return self.value(assigned[0], None, depth + 1)
            if not assigned and node.id in self.constants:
                return self.value(self.constants[node.id], None, depth + 1)
            return OPEN
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.classes:
            return self.fields(node.value.id).get(node.attr, OPEN)
        try:
            value = ast.literal_eval(node)
        except (ValueError, SyntaxError, TypeError):
            return OPEN
        return list(value) if isinstance(value, tuple) else value

    def _parameters(self, node: ast.FunctionDef) -> Defaults:
        names = [*node.args.posonlyargs, *node.args.args]
        pairs = list(zip(reversed(names), reversed(node.args.defaults), strict=False))
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        return {name.arg: self.value(value) for name, value in pairs if value is not None}

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument") and node.args:
                    said = {one.arg: one.value for one in node.keywords}
                    name = self.value(node.args[0])
                    action = str(self.value(said["action"])) if "action" in said else ""
                    default = {"store_true": False, "store_false": True}.get(action)
                    value = self.value(said["default"]) if "default" in said else default
                    yield str(name).lstrip("-").replace("-", "_"), value

    def _document(self, path: str) -> Any:
        document = yaml.safe_load(self.texts[path]) or {}
        found: dict[str, Any] = {}
        for item in document.pop("defaults", ()):
            # group@place: file
            for group, file in (item if isinstance(item, dict) else {}).items():
                folder, _, place = str(group).partition("@")
                inner = f"{path.rpartition('/')[0]}/{folder}/{file}.yaml"
                if inner in self.texts:
                    _put(found, place or folder, self._document(inner))
        _merge(found, document)
        return found


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _put(found: dict[str, Any], place: str, inner: Any) -> None:
    for name in reversed(place.split(".")):
        inner = {name: inner}
    _merge(found, inner)


def _merge(found: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        else:
            found[key] = value


def _flat(document: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        dotted = f"{name}.{key}" if name else str(key)
        if isinstance(value, dict):
            yield from _flat(value, dotted)
        else:
            yield dotted, OPEN if isinstance(value, str) and ("${" in value or value == "???") else value


def read(source: Source, wheel: ZipFile) -> Defaults:
    """The defaults of one release."""
    members = [name for name in wheel.namelist() if re.fullmatch(rf"([^/]+\.data/purelib/)?({source.members})", name)]
    opened = Wheel({name: wheel.read(name).decode("utf-8", "replace") for name in members})
    found: Defaults = {}
    for name in source.names:
        found |= opened.defaults(name)
        if found and not source.all_of:
            break
    return found


def windows(values: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return each value with the releases that have it, as specifiers; nothing for releases that leave it open."""
    versions, found = list(values), []
    for _, run in groupby(enumerate(versions), lambda place: repr(values[place[1]])):
        places = [*run]
        first, behind = places[0][1], versions[places[-1][0] + 1 :]
        found.append((values[first], ",".join([f">={first}", *(f"<{version}" for version in behind[:1])])))
    return [(value, releases) for value, releases in found if value is not OPEN]


def spelled(value: Any) -> str:
    """A value as TOML; nothing for a list stands for the ones that are not given."""
    if value is None:
        return '"none"'
    return json.dumps([str(one) for one in value] if isinstance(value, list) else value)


def rows(source: Source, releases: Mapping[str, Defaults], formats: Formats) -> str:
    """Return the rows of one call, one for each key that says a field."""
    form = formats[source.form]
    keys = sorted({key for one in releases.values() for key in one})
    lines = []
    for key in keys:
        known = formats.find(form, key)
        fields = [one.field for one in known[1]] if known is not None else []
        if not fields or fields == ["file"] or set(fields) & {"model", "revision"}:
            continue
        values = {version: one.get(key, OPEN) for version, one in releases.items()}
        usable = {version: OPEN if isinstance(one, dict) else one for version, one in values.items()}
        found = windows(usable)
        spans = ", ".join(f'{{ value = {spelled(value)}, releases = "{span}" }}' for value, span in found)
        if any(value is not None for value, _ in found):
            lines.append(f"{json.dumps(key) if '.' in key else key} = [{spans}]")
    if not lines:
        return ""
    first, last = next(iter(releases)), next(reversed(releases))
    head = [f'format = "{source.form}"', *([f'call = "{source.call}"'] if source.call else [])]
    head += [f'package = "{source.package}"', f'first = "{first}"', f'last = "{last}"']
    return "\n".join(["[[arguments]]", *head, "[arguments.defaults]", *lines])


def harvested(package: str, index: Index, matrix: Matrix) -> Iterator[str]:
    """Yield the rows of one package."""
    formats = Formats(matrix)
    sources = [source for source in SOURCES if source.package == package and source.form in {f.name for f in formats}]
    found: dict[Source, dict[str, Defaults]] = {source: {} for source in sources}
    for version, name in index.wheels(package).items():
        if all(Version(version) < Version(source.since) for source in sources):
            continue
        try:
            wheel = index.wheel(name)
            for source in sources:
                if Version(version) >= Version(source.since) and (defaults := read(source, wheel)):
                    found[source][version] = defaults
        except Exception as error:  # a wheel that cannot be fetched by parts
            print(package, version, type(error).__name__, error, file=sys.stderr)
        print(package, version, [len(one.get(version, ())) for one in found.values()], file=sys.stderr, flush=True)
    yield from filter(None, (rows(source, releases, formats) for source, releases in found.items() if releases))


def main(path: Path, only: Iterable[str]) -> None:
    """Read the releases and write the table behind its head."""
    index, matrix = Index(), load_matrix()
    asked = tuple(only) or tuple(dict.fromkeys(source.package for source in SOURCES))
    head, *parts = path.read_text(encoding="utf-8").split("\n[[arguments]]\n")
    present = load_toml(path).get("arguments", ())
    kept: dict[str, list[str]] = {}
    for row, text in zip(present, parts, strict=True):
        kept.setdefault(row["package"], []).append(f"[[arguments]]\n{text.strip()}")
    for package in asked:
        kept[package] = list(harvested(package, index, matrix))
    order = dict.fromkeys(source.package for source in SOURCES)
    body = "\n\n".join(text for package in order for text in kept.get(package, ()))
    head = re.sub(r"(?m)^as_of = .*$", f"as_of = {date.today()}", head)
    path.write_text(f"{head.rstrip()}\n\n{body}\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--only", nargs="*", default=())
    asked = parser.parse_args()
    main(asked.table, asked.only)
