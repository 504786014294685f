"""Facts that somebody gives: a facts file (``envdoctor.facts/1``), by ``envdoctor facts`` or by hand, or the record of
a watched run; ``--set key=value``, or key and value of a configuration, of which the last one wins; and what differs
between machines, from the facts files that each of them wrote."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import (
    FactSpec,
    FactTypeError,
    Registry,
    canonical_key,
    parse_value,
    strange_name,
    unlisted,
)
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value, spell
from envdoctor.observe.errors import ObservationError
from envdoctor.system.documents import content_of
from envdoctor.system.message import Message, MessageError, did_you_mean, joined, listed, quoted, said_by, unpacked

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "envdoctor.facts/1"
#: What ``envdoctor.experiments.watch`` writes: a facts file with more beside the facts.
FLIGHT_SCHEMA = "envdoctor.flight/1"
#: A document of nothing but brackets takes a hundred times its size in memory.
_LARGEST = 64 * 1024 * 1024
_MOST_PACKAGES = 20_000  # as in locks
_TOP = ("schema", "facts", "complete", "unknown", "origins", "tool", "incomplete", "messages")
_TOPS = {SCHEMA: _TOP, FLIGHT_SCHEMA: ("schema", "facts", "details", "arguments", "findings")}


class FactsFileError(ObservationError):
    """The file cannot be used; the message names the file and what is wrong with it."""


def read_facts_file(place: "Path", registry: Registry, path: str = "", unread: list[str] | None = None) -> FactSet:
    """Return the facts of the file at ``place``, which the user calls ``path``. Raises :class:`FactsFileError`.

    ``null`` and ``"absent"`` are known to be absent, keys that are not there are unknown, and prefixes in
    ``"complete"`` make unlisted keys absent. ``gpu.name`` and ``gpu.cc`` may be plain lists.
    A value that its key cannot have is refused; with ``unread`` it is unknown, and the list gets the reason.
    """
    path = path or str(place)
    return facts_of_document(load_facts_document(place, path), path, registry, unread)


def load_facts_document(place: "Path", path: str) -> Mapping[str, Any]:
    """Return the file as it stands, its shape checked, its facts not. Raises :class:`FactsFileError`."""
    with _named(path):
        data = content_of(str(place), _LARGEST, "facts file", FactsFileError, path)
        if not data.strip():
            raise FactsFileError("is empty")
        try:
            document: Mapping[str, Any] = json.loads(data, object_pairs_hook=_without_repetition)
        except (RecursionError, MemoryError):
            raise FactsFileError("nested too deeply or too large to be read") from None
        except ValueError as error:  # of json, of UTF-8, and of numbers with too many digits
            raise FactsFileError("not JSON: {}; `envdoctor facts --format json` writes a facts file", error) from None
        _check_shape(document)
        return document


def facts_of_document(
    document: Mapping[str, Any], path: str, registry: Registry, unread: list[str] | None = None
) -> FactSet:
    """Return the facts of a document that was read already, from ``path`` or a part of it; ``unread`` as for
    :func:`read_facts_file`. Raises :class:`FactsFileError`."""
    with _named(path):
        _check_shape(document)
        return _facts(document, path.replace("\\", "/").rpartition("/")[2], registry, unread)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Put the name of the file before what is wrong with it."""
    try:
        yield
    except FactsFileError as error:
        raise FactsFileError("{}: {}", path, error) from None


def _facts(document: Mapping[str, Any], origin: str, registry: Registry, unread: list[str] | None) -> FactSet:
    facts = FactSet()
    table = document["facts"]
    columns: dict[str, dict[str, Any]] = {}
    for spelling, raw in table.items():
        key = canonical_key(spelling)
        spec = registry.find(key)
        if spec is None or key.endswith("*"):
            keys = [spec.key for spec in registry if not spec.key.endswith("*")]
            near = did_you_mean(key, keys, Message("`envdoctor matrix facts` lists the known keys"))
            raise FactsFileError("{} is not a known fact; {}", repr(key[:60]), near)
        if key.startswith("pkg.") and (strange := strange_name(key, registry)) is not None:
            raise FactsFileError(strange)
        if key != spelling and key in table:
            raise FactsFileError("{} and {} are the same package", repr(spelling[:60]), repr(key[:60]))
        parent = registry.records_of(key)
        if parent is not None:
            columns.setdefault(parent.key, {})[key] = raw
            continue
        facts.add(Fact(key, _spoken(document, _value(key, spec, raw, unread)), origin, "given"))
    for parent_key, lists in columns.items():
        if parent_key in facts:
            raise FactsFileError("give {} as a list of tables or by columns, not both", parent_key)
        facts.add(Fact(parent_key, _from_columns(parent_key, lists, registry, unread), origin, "given"))
    for prefix in document.get("complete", []):
        if prefix not in registry.prefixes():
            allowed = ", ".join(registry.prefixes())
            raise FactsFileError("complete: {} is none of {}", repr(str(prefix)[:60]), allowed)
        facts.declare_complete(prefix, origin)
    for key, reason in document.get("incomplete", {}).items():
        fact = facts.get(key)
        if isinstance(fact.value, Records):
            facts.add(fact._replace(value=Records(fact.value.items, _message(document, str(reason)))))
    for spelling, reason in document.get("unknown", {}).items():
        key = canonical_key(spelling)
        spec = registry.find(key)
        if spec is not None and not key.endswith("*") and registry.records_of(key) is None and key not in facts:
            facts.add(Fact(key, Unknown(_message(document, str(reason))), origin, "given"))
    return facts


def _check_shape(document: object) -> None:
    if not isinstance(document, dict) or "schema" not in document:
        raise FactsFileError('not a facts file: "schema": "{}" is missing', SCHEMA)
    schema = document["schema"]
    if not isinstance(schema, str) or schema not in _TOPS:
        raise FactsFileError("schema {} is not known; this envdoctor reads {}", repr(str(schema)[:60]), SCHEMA)
    for key in document:
        if key not in _TOPS[schema]:
            raise FactsFileError("unknown key {} beside {}", repr(key[:60]), ", ".join(_TOP[:3]))
    for key in ("facts", "complete", "unknown", "incomplete", "messages"):
        kind = list if key == "complete" else dict
        if not isinstance(document.get(key, kind()), kind):
            raise FactsFileError("{}: {} is expected", key, Message("a list") if kind is list else Message("a table"))
    if "facts" not in document:
        raise FactsFileError('"facts" is missing')
    lists = (value for value in document["facts"].values() if isinstance(value, (list, dict)))
    if max(map(len, (document["facts"], *lists))) > _MOST_PACKAGES:
        raise FactsFileError("names more than {} packages, and no environment has so many", f"{_MOST_PACKAGES:,}")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object in which no key is given twice: which of the two is meant cannot be told."""
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise FactsFileError("the key {} is given twice", repr(twice[:60]))
    return table


def _value(key: str, spec: FactSpec, raw: object, unread: list[str] | None) -> Value:
    cells: list[str] = []
    other: Unknown | None
    try:
        value = parse_value(spec, raw, None if unread is None else cells)
        other = unlisted(spec, value)
    except FactTypeError as error:
        if unread is None or spec.type == "records":
            raise FactsFileError("{}: {}", key, error) from None
        other = Unknown(said_by(error))
    if unread is not None:
        unread += [Message("{}: {}", key, cell) for cell in cells]
        unread += [] if other is None else [Message("{} counts as unknown: {}", key[:60], other.reason)]
    return other or value


def _from_columns(parent: str, lists: Mapping[str, Any], registry: Registry, unread: list[str] | None) -> Value:
    for key, cells in lists.items():
        if not isinstance(cells, list):
            raise FactsFileError("{}: a list with one value for each {} is expected", key, parent)
    if len(lengths := {len(cells) for cells in lists.values()}) != 1:
        raise FactsFileError("{}: the lists differ in length", ", ".join(sorted(lists)))
    spec = registry.find(parent)
    assert spec is not None
    items = [{key.partition(".")[2]: cells[number] for key, cells in lists.items()} for number in range(lengths.pop())]
    return _value(parent, spec, items, unread)


def _spoken(document: Mapping[str, Any], value: Value) -> Value:
    """Return the value with its messages, where the document says of which parts they are made."""
    if not document.get("messages"):
        return value
    if isinstance(value, Records):
        items = tuple({column: _spoken(document, cell) for column, cell in item.items()} for item in value)
        return Records(items, value.incomplete)
    return _message(document, value) if isinstance(value, str) and value in document["messages"] else value


def _message(document: Mapping[str, Any], text: str) -> Message:
    """Return the text as the message that the document says it is, if it is one."""
    try:
        message = unpacked(document["messages"][text])
    except Exception:  # whatever is wrong with it, the text counts
        message = None
    return message if isinstance(message, Message) and message == text else quoted(text[:500])


#: Nodes that are named for one value before "and N more".
_NAMED = 8
#: Values that are told of a fact before "N other values".
_VALUES = 3
#: The GPUs of a machine are compared by these columns, in any order.
_GPU = ("name", "memory_gib")

Document = Mapping[str, Any]


def to_compare(document: Document, registry: Registry, without: Collection[str] = ()) -> Document:
    """Return what :func:`drift_between` reads of a facts file, and nothing of the machine's names and paths."""
    facts = {key: raw for key, raw in document["facts"].items() if key not in without}
    chosen = {key: facts[key] for key, _ in _compared({"facts": facts}, registry)}
    if isinstance(chosen.get("gpu"), list):
        chosen["gpu"] = [{column: gpu[column] for column in _GPU if column in gpu} for gpu in chosen["gpu"]]
    return {"facts": chosen, "complete": document.get("complete", [])}


def drift_between(
    documents: Mapping[str, Document], registry: Registry, ranks: Mapping[str, int] = {}
) -> tuple[list[Fact], Records]:
    """Return the facts of all nodes, unknown where they differ, and a record for each that does.

    ``documents`` maps the name of a node to its facts file, whose shape was checked. Facts that name the machine or a
    path of it are not compared, and of lists only the GPUs. The records are incomplete where a fact that differs, or
    may differ, is not known on every node; they begin with the driver and go up to what trains. With ``ranks``, how
    many each name stands for, these are counted.
    """
    by_key: dict[str, dict[str, Any]] = {}
    documents = {node: _with_gpus(document) for node, document in documents.items()}
    for node, document in documents.items():
        for key, raw in _compared(document, registry):
            by_key.setdefault(key, {})[node] = raw
    shared: list[Fact] = []
    first = next(iter(documents.values()))["facts"]
    items: list[dict[str, Value]] = []
    unknown: set[str] = set()
    for key, by_node in by_key.items():
        head = key.partition(".")[0]
        silent = (node for node in documents if node not in by_node)
        missing = [node for node in silent if head not in documents[node].get("complete", ())]
        unknown.update(missing)
        spec, absent = registry.find(key), (None, "absent")
        raws = {node: by_node.get(node) for node in documents if node not in missing}
        values = {
            node: spell(ABSENT if raw in absent else raw if key == "gpu" else _raw_parsed(spec, raw))
            for node, raw in raws.items()
        }
        value: Value = Unknown(Message("it differs between the machines"))
        if len(set(values.values())) > 1:
            # How many of their first numbers versions have in common: 1 for 535.104.05 and 535.129.03.
            numbers = [re.findall(r"\d+", entry.partition("+")[0]) for entry in set(values.values())]
            agrees = len(list(takewhile(lambda parts: len(set(parts)) == 1, zip(*numbers, strict=False))))
            items.append({"key": key, "values": _by_value(values, ranks), "agrees": agrees})
        elif missing:
            continue
        else:
            value = _raw_parsed(spec, first.get(key))
        shared.append(Fact(key, value, Message("the facts files"), "given"))
    reason = Message("not every fact is known on {}", listed(sorted(unknown), _NAMED)) if unknown else None
    drift = registry.find("drift")
    first = drift.first if drift is not None else ()
    order = {key: next((n for n, like in enumerate(first) if fnmatchcase(key, like)), len(first)) for key in by_key}
    items.sort(key=lambda item: (order[str(item["key"])], str(item["key"])))
    return shared, Records(tuple(items), reason)


def _gpu(item: Mapping[str, Any]) -> str:
    """Return the name of a GPU with its memory, if it is known."""
    size = item.get("memory_gib")
    return f"{item.get('name', 'GPU')} {size} GiB" if size is not None else str(item.get("name", "GPU"))


def _with_gpus(document: Document) -> Document:
    """Return the document with its GPUs as records where it gives their columns as plain lists."""
    facts = document["facts"]
    columns = {name: facts[f"gpu.{name}"] for name in _GPU if isinstance(facts.get(f"gpu.{name}"), list)}
    gpus = [dict(zip(columns, gpu, strict=True)) for gpu in zip(*columns.values(), strict=False)]
    return {**document, "facts": {"gpu": gpus, **facts}} if gpus else document


def _compared(document: Document, registry: Registry) -> Iterator[tuple[str, Any]]:
    for key, raw in document["facts"].items():
        if key == "gpu" and isinstance(raw, list):
            kinds = Counter(_gpu(gpu) if isinstance(gpu, dict) else str(gpu) for gpu in raw)
            gpus = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
            yield key, gpus or "none"
            continue
        spec = registry.find(key)
        if spec is None or spec.type == "records" or registry.records_of(key) is not None:
            continue
        if spec.privacy == "public":
            yield key, tuple(map(str, raw)) if isinstance(raw, list) else raw


def _raw_parsed(spec: Any, raw: Any) -> Value:
    try:
        return parse_value(spec, list(raw) if isinstance(raw, tuple) else raw) if raw is not None else ABSENT
    except FactTypeError:
        return str(raw)


def _by_value(values: Mapping[str, str], ranks: Mapping[str, int]) -> str:
    """Return ``2.5.0: 6 nodes; 2.4.1: node3``: the most common value first, with the nodes of the others named."""
    by_value: dict[str, list[str]] = {}
    for node, value in values.items():
        by_value.setdefault(value, []).append(node)
    counted = {value: sum(ranks.get(node, 1) for node in nodes) for value, nodes in by_value.items()}
    first, *others = sorted(by_value.items(), key=lambda entry: (-counted[entry[0]], entry[0]))
    whose = listed(first[1], _NAMED) if len(first[1]) == 1 else _counted(counted[first[0]], ranks)
    words = [Message("{}: {}", first[0], whose)]
    words += [Message("{}: {}", value, listed(nodes, _NAMED)) for value, nodes in others[: _VALUES - 1]]
    rest = [counted[value] for value, _ in others[_VALUES - 1 :]]
    words += [Message("{} other values: {}", len(rest), _counted(sum(rest), ranks))] if rest else []
    return joined(words)


def _counted(number: int, ranks: Mapping[str, int]) -> Message:
    return Message("{} ranks", number) if ranks else Message("{} nodes", number)


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
