"""Find words of a rule that no source can give: such a condition would silently never hold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule, glob_fits

#: Facts that are looked up in a table or made from one: table, part and column of their words.
_TABLES: Mapping[str, Sequence[str]] = {
    "model.family": ["families family id"],
    "gpu.name": ["gpus row names", "gpu-series row names"],
    "torch_companion.package": ["torch-companions package name"],
    "extension.package": ["torch-extensions package name"],
    "cuda_library.component": ["cuda-wheels component name"],
    "shared_file.component": ["cuda-wheels component name"],
    "import_shadow.package": ["stack-modules module name"],
    "import_shadow.module": ["stack-modules module module"],
    "numpy_binary.package": ["numpy-2-builds package name"],
    "withdrawn.package": ["withdrawn-releases release package"],
}


def strange_words(rule: Rule, matrix: Matrix) -> Iterator[str]:
    """Yield words that no source can give, in conditions, assumptions, fixes and tests of a rule, where the registry or
    a table lists all words of a fact; tables must be valid."""
    texts = matrix.texts(rule)
    for name, clauses in (("affects", rule.affects), ("unless", rule.unless)):
        for number, clause in enumerate(clauses, 1):
            for condition in clause:
                where = f"{name} {number}: {condition.key}"
                yield from _strange(where, condition.key, condition.alternatives, matrix)
    for number, (key, raw, *_) in enumerate(rule.assume, 1):
        yield from _strange(f"assume {number}: {key}", key, raw, matrix)
    for number, fix in enumerate(texts["fix"], 1):
        for key, raw in fix["set"].items():
            spec, where = matrix.registry.find(key), f"fix {number}: set: {key}"
            if spec is None:
                yield f"{where} is not a registered fact"
                continue
            try:
                parse_value(spec, raw)
            except FactTypeError as error:
                yield f"{where}: {error}"
            yield from _strange(where, key, raw, matrix)
    for number, test in enumerate(texts["test"], 1):
        for key, raw in test["facts"].items():
            cells = [(key, raw)]
            if isinstance(raw, list) and raw and all(isinstance(item, Mapping) for item in raw):
                cells = [(f"{key}.{column}", cell) for item in raw for column, cell in item.items()]
            for name, cell in cells:
                yield from _strange(f"test {number}: {name}", name, cell, matrix, tables=False)


def _strange(where: str, key: str, raw: Any, matrix: Matrix, *, tables: bool = True) -> Iterator[str]:
    """Yield words that no source gives; with ``tables``, also words that no table has, which a test may show."""
    variable = key.removeprefix("env.")
    if variable != key and variable not in matrix.registry.names("env"):
        yield f"{where}: no source reads this variable"
    spec = matrix.registry.find(key)
    if spec is None or spec.type not in ("text", "texts"):
        return
    words = {*spec.values} or (_of_tables(matrix).get(key, set()) if tables else set())
    for word in raw if isinstance(raw, list) else [raw]:
        if not words or not isinstance(word, str) or word in ("absent", "present"):
            continue
        if not any(glob_fits(name.lower(), word.lower()) or fnmatchcase(word, name) for name in words):
            hint = f"known are {', '.join(sorted(words))}"
            hint = hint if len(words) <= 20 else f"none of {len(words)} known words is that"
            yield f"{where}: no source gives {word!r}; {hint}"


@lru_cache(maxsize=1)
def _of_tables(matrix: Matrix) -> Mapping[str, set[str]]:
    words = {key: set(_words(matrix, places)) for key, places in _TABLES.items()}
    return {**words, "model.type": set(_model_types(matrix))}


def _words(matrix: Matrix, places: Iterable[str]) -> Iterator[str]:
    for table, part, column in map(str.split, places):
        for row in matrix.rows(table, part):
            cell = row[column]
            # A glob of product names stands for one name that it fits.
            yield from [cell] if isinstance(cell, str) else (glob.replace("*", "").replace("?", "0") for glob in cell)


def _model_types(matrix: Matrix) -> Iterator[str]:
    for names in matrix.part("transformers-model-types", "since").values():
        yield from names
    yield from matrix.part("transformers-model-types", "never").get("names", ())
    for family in matrix.rows("families", "family"):
        yield from (*family["types"], *family.get("shared_types", ()))
        for repository in family.get("known", ()):
            yield from filter(None, [repository["facts"].get("model.type")])
