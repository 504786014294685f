"""Check the documents of a checkout: their shape by the JSON Schemas in ``matrices/schema``, which editors complete
them by (the library jsonschema, extra ``lint``), and bounds, evidence, wording, translations, ids; and
words that no source can give: such a condition would silently never hold."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from envdoctor.facts.registry import FactTypeError, parse_value, unlisted
from envdoctor.facts.values import ABSENT
from envdoctor.matrix.entry_statements import parse_statement
from envdoctor.matrix.matrix import Matrix, TomlError, load_toml
from envdoctor.matrix.rules import Condition, ConditionError, Rule, glob_fits, parse_condition, placeholders
from envdoctor.matrix.symptoms import faults_of
from envdoctor.versions.pep440 import is_version, order, satisfies
from envdoctor.versions.releases import parse_ranges

#: In characters, a placeholder by its column.
_LONGEST_MESSAGE = 120
_RECORD = re.compile(r"\{\w+\.")
_PROOF = ("issue", "release-notes", "source", "artefact", "reproduced")
#: The facts that decide which code of transformers runs a model.
_OF_THE_MODEL = {
    *("model.type", "model.family", "model.architectures", "model.repo", "model.quantization", "model.weight_formats"),
    *("model.remote_code", "model.code_methods", "model.code_names", "model.config_keys", "model.tokenizer_class"),
    *("recipe.attn", "recipe.dtype", "recipe.load_dtype", "recipe.gradient_checkpointing"),
}
#: The facts that only a training run has; ``recipe.method`` too, unless it lets inference in.
_OF_TRAINING = {"recipe.stage", "recipe.gradient_accumulation", "recipe.gradient_checkpointing", "recipe.arguments"}


def lint_rule(rule: Rule, matrix: Matrix, schemas: "Schemas", *, today: date) -> Iterator[str]:
    """Yield complaints about one rule, each a clause that names the key."""
    texts = matrix.texts(rule)
    if rule.id in matrix.files:
        yield from _faults(matrix.files[rule.id], "rule", schemas)
    for key in ("added", "modified"):
        if texts[key] > today.isoformat():
            yield f"rule: {key}: {texts[key]} lies in the future"
    if texts["modified"] < texts["added"]:
        yield "rule: modified lies before added"
    yield from _bound(rule, texts)
    yield from _engines(rule, texts, matrix)
    yield from _evidence(rule, texts, today)
    yield from _wording(rule, texts, matrix)
    yield from _fixes(rule, texts, matrix)
    ordinary = matrix.part("ordinary-log", "log").get("lines", ())
    for symptom in texts["symptom"]:
        yield from (f"symptom: {fault}" for fault in faults_of(symptom, ordinary))
    for other, columns in rule.explained_by.items():
        explaining = matrix.find(other)
        spec = matrix.registry.find(explaining.each) if explaining is not None and explaining.each else None
        if explaining is None or spec is None or not spec.columns.keys() >= set(columns):
            yield f"explained_by: there is no rule {other} whose records have these columns"
        elif other != rule.id and rule.id in explaining.explained_by:
            yield f"explained_by: {rule.id} and {other} explain each other"
    for other in rule.supersedes:
        superseded = matrix.find(other)
        if superseded is None:
            yield f"supersedes: there is no rule {other}"
        elif other == rule.id or rule.id in superseded.supersedes:
            yield f"supersedes: {rule.id} and {other} stand for each other"


def lint_documents(matrix: Matrix, schemas: "Schemas", only: Sequence[Path] | None = None) -> Iterator[tuple[str, str]]:
    """Yield complaints about the tables and the registry of a checkout, or ``only`` these files, as (file, complaint);
    those of a wheel were linted before."""
    home = matrix.home
    paths = sorted((*home.glob("*.toml"), *home.glob("tables/*.toml"))) if only is None else only
    complaints = [
        (path.relative_to(home).as_posix(), fault) for path in paths for fault in _faults(path, path.stem, schemas)
    ]
    yield from complaints
    for path in paths if not complaints else ():
        if path.stem in _CHECKS:
            yield from ((path.relative_to(home).as_posix(), problem) for problem in _CHECKS[path.stem](matrix))


def _faults(path: Path, name: str, schemas: "Schemas") -> Iterator[str]:
    try:
        document = load_toml(path)
    except TomlError as error:
        yield error.problem
        return
    yield from schemas.faults(name, document)


def _registry(matrix: Matrix) -> Iterator[str]:
    keys = {spec.key for spec in matrix.registry}
    for spec in matrix.registry:
        if spec.help not in matrix.registry.help_texts:
            yield f"{spec.key}: help: there is no advice {spec.help!r}"
        for column in (*spec.identity, *(column for columns in spec.concerns.values() for column in columns)):
            if column not in spec.columns:
                yield f"{spec.key}: {column} is no column of it"
        of_columns = (key for column in spec.columns.values() for key in column.depends_on)
        for key in (*spec.depends_on, *spec.concerns, *of_columns):
            if matrix.registry.find(key) is None and key not in keys:
                yield f"{spec.key}: depends_on: {key} is not a registered fact"
    for name, entry in matrix.registry.help_texts.items():
        for key in entry.get("keys", ()):
            explained = matrix.registry.find(key)
            if explained is None or not explained.example:
                yield f"help: {name}: {key} is no registered fact with an example"


def _retired(matrix: Matrix) -> Iterator[str]:
    for rule_id, entry in matrix.part("retired", "retired").items():
        if matrix.find(rule_id) is not None:
            yield f"{rule_id} is retired and is also a rule: an id is never used again"
        elif "now" in entry and matrix.find(entry["now"]) is None:
            yield f"{rule_id}: now: there is no rule {entry['now']}"


def _families(matrix: Matrix) -> Iterator[str]:
    owners: dict[str, str] = {}
    for family in matrix.rows("families", "family"):
        for kind in (*family["types"], *family["architectures"]):
            if kind in owners:
                yield f"{kind} belongs to {owners[kind]} and to {family['id']}"
            owners[kind] = family["id"]
        for repository in family.get("known", ()):
            for key in repository["facts"]:
                if matrix.registry.find(key) is None:
                    yield f"{family['id']}: {key} is not a registered fact"


def _needs(matrix: Matrix) -> Iterator[str]:
    for row in matrix.rows("run-needs"):
        for key, operand in row.get("when", {}).items():
            try:
                parse_condition(matrix.registry, key, operand)
            except ConditionError as error:
                yield f"{row['key']}: when: {error}"


def _known_errors(matrix: Matrix) -> Iterator[str]:
    ordinary = matrix.part("ordinary-log", "log").get("lines", ())
    for row in matrix.rows("known-errors", "error"):
        if matrix.find(row["id"]) is not None:
            yield f"{row['id']}: a rule has this id"
        for symptom in row["symptom"]:
            yield from (f"{row['id']}: {fault}" for fault in faults_of(symptom, ordinary))


def _formats(matrix: Matrix) -> Iterator[str]:
    spec = matrix.registry.find("recipe.framework")
    for row in matrix.rows("recipe-formats", "format"):
        if spec is not None and unlisted(spec, row.get("framework", ABSENT)):
            yield f"{row['name']}: framework: {row['framework']} is not among the values of it in facts.toml"


#: Further checks of a document, by its name.
_CHECKS: Mapping[str, Callable[[Matrix], Iterator[str]]] = {
    "facts": _registry,
    "retired": _retired,
    "families": _families,
    "run-needs": _needs,
    "known-errors": _known_errors,
    "recipe-formats": _formats,
}


def _bound(rule: Rule, texts: Mapping[str, Any]) -> Iterator[str]:
    bound = texts["bound"]
    if len(bound) != 1:
        yield "rule: exactly one of fixed_in, last_seen, open_ended is needed"
        return
    compared: dict[str, set[tuple[str, str]]] = {}
    for clause in rule.affects:
        for condition in clause:
            bounds = [tuple(pair) for part in condition.alternatives if isinstance(part, list) for pair in part]
            compared.setdefault(condition.key, set()).update(bounds)
    ((name, versions),) = bound.items()
    for key, version in versions.items() if name != "open_ended" else ():
        operators = compared.get(key, set())
        # Single releases may be named (==2.5.0, ==2.5.*), all of them older than the fixed one.
        ranks = [order(operand.removesuffix(".*")) for operator, operand in operators if operator == "=="]
        fixed = order(version)
        are_below = bool(ranks) and fixed is not None and all(rank is not None and rank < fixed for rank in ranks)
        if not operators:
            yield f"rule: {name}: {key} is no condition of the rule"
        elif name == "fixed_in" and ("<", version) not in operators and not are_below:
            yield f"rule: fixed_in: no condition ends below {key} {version}"
        elif name == "last_seen" and operators.isdisjoint((("<=", version), ("==", version))):
            yield f"rule: last_seen: no condition ends with {key} {version}"


def _engines(rule: Rule, texts: Mapping[str, Any], matrix: Matrix) -> Iterator[str]:
    """Yield model conditions that forget serving engines and trainers, which may not run transformers' code."""
    if texts["engines"]:
        return
    frameworks = matrix.rows("framework-models", "framework")
    engines = {"engine", *(row["name"] for row in frameworks if row["model_code"] == "engine")}
    excepted = {name for clause in rule.unless for name in _frameworks(clause)}
    for number, clause in enumerate(rule.affects, 1):
        keys = {condition.key for condition in clause}
        if "pkg.transformers" not in keys or not keys & _OF_THE_MODEL or any(_frameworks(clause)):
            continue
        if excepted.isdisjoint(engines) and not any(map(_trains, clause)):
            yield (
                f"affects {number}: vLLM, SGLang and LMDeploy run models without transformers' code: say so in an"
                ' exception, "model.run_by" = ["engine", "trainer"], or in a condition on recipe.framework, or say'
                " engines = true when they are concerned too"
            )
        elif "trainer" not in excepted:
            yield (
                f"affects {number}: torchtune and other trainers bring models of their own: name them in an exception,"
                ' "model.run_by" = "trainer", or the frameworks that are concerned in a condition on recipe.framework'
            )


_OF_THE_FRAMEWORK = ("recipe.framework", "model.run_by")


def _frameworks(clause: Iterable[Condition]) -> Iterator[str]:
    return (name for condition in clause if condition.key in _OF_THE_FRAMEWORK for name in condition.alternatives)


def _trains(condition: Condition) -> bool:
    if condition.key == "recipe.method":
        return not {"infer", "serve", "present"} & set(condition.alternatives)
    return condition.key in _OF_TRAINING and condition.alternatives not in (["absent"], [False])


def _evidence(rule: Rule, texts: Mapping[str, Any], today: date) -> Iterator[str]:
    evidence = texts["evidence"]
    if not evidence:
        yield "evidence: at least one source is needed"
    if rule.severity == "error" and not any(entry["kind"] in _PROOF for entry in evidence):
        yield f"evidence: an error needs one of {', '.join(_PROOF)}"
    for number, entry in enumerate(evidence, 1):
        if entry["checked"] > today.isoformat():
            yield f"evidence {number}: checked: {entry['checked']} lies in the future"


def _wording(rule: Rule, texts: Mapping[str, Any], matrix: Matrix) -> Iterator[str]:
    assumed = {entry[0] for entry in rule.assume}
    clauses = [{condition.key for condition in clause} | assumed for clause in rule.affects]
    for name in ("message", "why", "details"):
        table = texts[name]
        if table is None:
            continue
        used = placeholders(table["en"])
        for key in sorted(used):
            if matrix.registry.find(key) is None:
                yield f"{name}: {{{key}}} is not a registered fact"
            elif not all(key in words or _follows(key, words) for words in clauses):
                yield f"{name}: {{{key}}} is not known when the rule applies: a clause of affects does not use it"
        chinese = table.get("zh")
        if chinese is not None and placeholders(chinese) != used:
            yield f"{name}: the placeholders of zh and en differ"
    for language in ("en", "zh"):
        length = len(_RECORD.sub("{", texts["message"].get(language, "")))
        if length > _LONGEST_MESSAGE:
            yield f"message: {language} has {length} characters, at most {_LONGEST_MESSAGE} are allowed"


def _follows(key: str, keys: set[str]) -> bool:
    """Return whether a fact is known with others: ``model.name`` with any of the model, ``gpu.cc`` with torch's
    code."""
    if key == "gpu.cc":
        return not keys.isdisjoint(("gpu.kernels", "gpu.gap"))
    return key == "model.name" and any(other.startswith("model.") for other in keys)


def _fixes(rule: Rule, texts: Mapping[str, Any], matrix: Matrix) -> Iterator[str]:
    lists = [spec for spec in matrix.registry if spec.type == "records"] if rule.each else []
    columns = {f"{spec.key}.{column}" for spec in lists for column in spec.columns}
    for number, fix in enumerate(texts["fix"], 1):
        if fix["kind"] == "advice" and fix["safety"] != "manual":
            yield f'fix {number}: add safety = "manual": this fix applies nothing'
        unknown = sorted(placeholders(" ".join((*fix["constraints"], *fix["uninstall"]))) - columns - {*rule.keys()})
        if unknown:
            yield f"fix {number}: {unknown[0]} is no column of a list of records that a rule with each may read"


class Schemas:
    """The schemas of a folder. Raises :class:`ImportError` without the library."""

    def __init__(self, folder: Path) -> None:
        from jsonschema import Draft7Validator
        from jsonschema.validators import extend
        from referencing import Registry
        from referencing.jsonschema import DRAFT7

        self._documents = {path.stem: json.loads(path.read_bytes()) for path in folder.glob("*.json")}
        resources = ((f"{name}.json", DRAFT7.create_resource(schema)) for name, schema in self._documents.items())
        registry, kind = Registry().with_resources(resources), extend(Draft7Validator, {"x-unique": _unique})
        self._validator = partial(kind, registry=registry, format_checker=_format_checker())

    def faults(self, name: str, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with a document, each with its place: "row 2: key: ..."."""
        if name not in self._documents:
            yield "no schema says what is in it"
            return
        errors = self._validator(self._documents[name]).iter_errors(json.loads(json.dumps(document, default=str)))
        for error in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
            # A part of a schema may say in words of its own what is wrong with a value.
            text = error.schema.get("x-says", "").format(given=repr(error.instance)) or error.message
            place = ""  # "row 2: key: " for ``["row", 1, "key"]``
            for part in error.absolute_path:
                place = f"{place[:-2]} {part + 1}: " if isinstance(part, int) and place else f"{place}{part}: "
            yield f"{place}{text if len(text) <= 160 else f'{text[:157]}...'}"


def _unique(validator: Any, columns: list[str], rows: Any, schema: Any) -> Iterator[Any]:
    """Yield an error for each row that has the same values in these columns as an earlier one."""
    from jsonschema import ValidationError

    identities = []
    for number, row in enumerate(rows if isinstance(rows, list) else ()):
        identity = [row.get(column) for column in columns] if isinstance(row, dict) else [number]
        if identity in identities:
            yield ValidationError(f"{', '.join(columns)}: {', '.join(map(str, identity))} occurs twice", path=[number])
        identities.append(identity)


def _format_checker() -> Any:
    """Return the checker of formats that JSON Schema does not know."""
    from jsonschema import FormatChecker

    checker = FormatChecker()
    tests: Mapping[str, Callable[[str], object]] = {
        "version": is_version,
        "specifier": lambda text: text and satisfies("1", text) is not None,
        "releases": parse_ranges,
        "statement": parse_statement,
        "bounded": _is_bounded,
        "bounded-pattern": lambda text: _is_bounded(text) and "value" in re.compile(text).groupindex,
        "date": date.fromisoformat,
    }
    for name, test in tests.items():
        checker.checks(name, raises=(ValueError, re.error))(
            lambda text, test=test: not isinstance(text, str) or test(text)
        )
    return checker


def _is_bounded(pattern: str) -> bool:
    """Return whether nothing in a regular expression repeats without end."""
    plain = re.sub(r"\[[^\]]*\]?", "x", re.sub(r"\\.", "x", re.compile(pattern).pattern))
    return not re.search(r"[*+]|,\}", plain)


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
