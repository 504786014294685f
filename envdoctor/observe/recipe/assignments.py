"""Facts that somebody gives: ``--set key=value``, or key and value of a configuration; the last one wins."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from envdoctor.facts.registry import (
    FactSpec,
    FactTypeError,
    Registry,
    canonical_key,
    parse_value,
    strange_name,
    unlisted,
)
from envdoctor.facts.values import Fact
from envdoctor.system.message import Message, MessageError, did_you_mean

_COLUMNS_WANTED = "{} {}: a list; give its columns ({}.{}=…), or {}=absent"
#: Lists whose items people describe by columns; others come out of observations and derivations.
_GIVEN_BY_COLUMNS = ("gpu",)
#: What is given for the name of a package: a requirement, or a release of three numbers.
_RELEASE = re.compile(r"=|\s*\d+\.\d+\.\d")
#: ``key=value`` as a user types it, or the key and the value.
Assignment = str | tuple[str, object]


class AssignmentError(MessageError, ValueError):
    """An assignment is wrong; the message quotes it."""


def key_of(assignment: Assignment) -> str:
    """Return the key of the fact that is given."""
    return canonical_key((assignment.partition("=")[0] if isinstance(assignment, str) else assignment[0]).strip())


def typed(assignment: Assignment) -> str:
    """Return what is given as it is typed behind ``--set``."""
    return assignment if isinstance(assignment, str) else f"{assignment[0]}={spelled(assignment[1])}"


def spelled(value: object) -> str:
    """Return a value as it is typed behind ``--set KEY=``."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(map(spelled, value))
    return str(value)


def fact_called(word: str, registry: Registry, formats: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the fact of a recipe that a word names: as it is called here, or by a key of a trainer (``cutoff_len``),
    by the table recipe-formats."""
    word = word.removeprefix("recipe.")
    fields = [_field(row.get("keys", {}).get(word)) for row in formats]
    names = (f"recipe.{field}" for field in (word, *fields))
    return next((name for name in names if registry.find(name) is not None), None)


def _field(meaning: Any) -> Any:
    """Return the field that a key gives as it is written, but for words that leave it open."""
    match meaning:
        case {"field": field, "words": words} if {*words.values()} == {"?"}:
            return field
    return meaning


def parse_assignments(
    assignments: Iterable[Assignment],
    registry: Registry,
    origin: str = "--set",
    formats: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
) -> list[Fact]:
    """Return the facts that are given; ``formats`` gives the rows of recipe-formats, by whose keys a fact may be
    called. Raises :class:`AssignmentError`.

    Record columns are given for one item: ``gpu.cc=9.0`` describes one GPU, a list several. In a text commas separate
    them, but not within double quotes.
    """
    facts: list[Fact] = []
    columns: dict[str, list[dict[str, str]]] = {}
    for assignment in assignments:
        key, text = key_of(assignment), typed(assignment)
        _, equals, raw = text.partition("=")
        key = f"{key}.name" if key in _GIVEN_BY_COLUMNS and raw.strip() != "absent" else key
        spec = registry.find(key)
        if not equals:
            raise AssignmentError("{} {}: key=value is expected", origin, text)
        if spec is None or key.endswith("*"):
            raise AssignmentError("{} {}: {}", origin, text, _hint(key, raw, registry, formats))
        if (strange := strange_name(key, registry)) is not None:
            head, _, name = key.partition(".")
            hint = Message("`envdoctor facts` shows how they are written")
            near = did_you_mean(name, registry.names(head), hint)
            raise AssignmentError("{} {}: {}; {}", origin, text, strange, near)
        if spec.type == "records" and raw.strip() != "absent":
            column = next(iter(spec.columns))
            raise AssignmentError(_COLUMNS_WANTED, origin, text, key, column, key)
        parent = registry.records_of(key)
        if parent is not None:
            match assignment:
                case (_, list(several)):
                    cells = list(map(spelled, several))
                case _:
                    cells = _cells(raw)
            # One item after the other has the column; what it had before is forgotten.
            items, column = columns.setdefault(parent.key, []), key.partition(".")[2]
            for item in items:
                item.pop(column, None)
            while items and not items[-1]:
                items.pop()
            items += [{} for _ in range(len(cells) - len(items))]
            for item, cell in zip(items, cells, strict=False):
                item[column] = cell.strip()
            continue
        columns.pop(key, None)
        if not raw.strip() and spec.type != "texts":
            raise AssignmentError("{} {}: a value is expected after =, or {}=absent", origin, text, key)
        try:
            value = parse_value(spec, raw.strip())
        except FactTypeError as error:
            raise AssignmentError("{} {}: {}", origin, text, error) from None
        other = unlisted(spec, value)
        if other is not None:
            raise AssignmentError("{} {}: {}", origin, text, _refused(spec, other.word, registry))
        facts.append(Fact(key, value, origin, "given"))
    for head, items in columns.items():
        parent = registry.find(head)
        assert parent is not None
        try:
            facts.append(Fact(head, parse_value(parent, items), origin, "given"))
        except FactTypeError as error:
            raise AssignmentError("{} {}: {}", origin, head, error) from None
    return facts


def _cells(raw: str) -> list[str]:
    import csv

    try:
        cells = next(csv.reader([raw], skipinitialspace=True), []) or [""]
    except csv.Error:
        cells = [""]
    if (len(cells) > 1 and not all(cell.strip() for cell in cells)) or "\n" in raw or "\r" in raw:
        raise AssignmentError("{} holds an empty value between its commas, or a line end", repr(raw[:60]))
    return cells


def _hint(key: str, raw: str, registry: Registry, formats: Callable[[], Iterable[Mapping[str, Any]]]) -> Message:
    keys = [spec.key for spec in registry if not spec.key.endswith("*") and spec.type != "records"]
    keys += [column.key for spec in registry for column in spec.columns.values() if spec.key in _GIVEN_BY_COLUMNS]
    listed = Message("`envdoctor matrix facts` lists them")
    nearest = [name for name in keys if name.endswith(f".{key}")]
    nearest.sort(key=lambda name: not name.startswith("recipe."))
    package = key.removesuffix(".version")
    if "." not in package and _RELEASE.match(raw):
        nearest = [f"pkg.{package}"]
    key_of_call = fact_called(key, registry, formats())
    nearest = [key_of_call] if key_of_call is not None else nearest
    if nearest:
        return Message("{} is not a known fact; did you mean {}?", key, nearest[0])
    return Message("{} is not a known fact; {}", key, did_you_mean(key, keys, listed))


def _refused(spec: FactSpec, word: str, registry: Registry) -> Message:
    """Return why a word is not taken, with the nearest one, or the key that it is a value of."""
    others = (fact for fact in registry if fact.key != spec.key and fact.key.startswith("recipe."))
    other = next((fact for fact in others if word in fact.values), None)
    listed = Message("known are {}", ", ".join(spec.values))
    if other is not None:
        return Message("{} is no value of it; did you mean {}={}?", repr(word), other.key, word)
    near = did_you_mean(word.replace(" ", "_"), spec.values, listed, spec.spellings)
    return Message("{} is no value of it; {}", repr(word), near)
