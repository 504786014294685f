"""What differs between machines, from the facts files that each of them wrote."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any

from envdoctor.facts.registry import FactTypeError, Registry, parse_value
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value, spell
from envdoctor.system.message import Message, joined, listed

#: Nodes that are named for one value before "and N more".
_NAMED = 8
#: Values that are told of a fact before "N other values".
_VALUES = 3
#: The GPUs of a machine are compared by these columns, in any order.
_GPU = ("name", "memory_gib")

Document = Mapping[str, Any]


def to_compare(document: Document, registry: Registry, without: Collection[str] = ()) -> Document:
    """What :func:`drift_between` reads of a facts file, and nothing of the machine's names and paths."""
    facts = {key: raw for key, raw in document["facts"].items() if key not in without}
    kept = {key: facts[key] for key, _ in _compared({"facts": facts}, registry)}
    if isinstance(kept.get("gpu"), list):
        kept["gpu"] = [{column: one[column] for column in _GPU if column in one} for one in kept["gpu"]]
    return {"facts": kept, "complete": document.get("complete", [])}


def drift_between(
    documents: Mapping[str, Document], registry: Registry, ranks: Mapping[str, int] = {}
) -> tuple[list[Fact], Records]:
    """The facts of all nodes, unknown where they differ, and a record for each that does.

    ``documents`` maps the name of a node to its facts file, whose shape was checked. Facts that name the machine or a
    path of it are not compared, and of lists only the GPUs. The records are incomplete where a fact that differs, or
    may differ, is not known on every node. With ``ranks``, how many each name stands for, these are counted.
    """
    seen: dict[str, dict[str, Any]] = {}
    for node, document in documents.items():
        for key, raw in _compared(document, registry):
            seen.setdefault(key, {})[node] = raw
    shared: list[Fact] = []
    first = next(iter(documents.values()))["facts"]
    items: list[dict[str, Value]] = []
    unknown: set[str] = set()
    for key, by_node in seen.items():
        head = key.partition(".")[0]
        missing = [
            node for node, one in documents.items() if node not in by_node and head not in one.get("complete", ())
        ]
        unknown.update(missing)
        values = {node: _raw_spelled(key, by_node.get(node), registry) for node in documents if node not in missing}
        value: Value = Unknown(Message("it differs between the machines"))
        if len(set(values.values())) > 1:
            items.append({"key": key, "values": _by_value(values, ranks), "agrees": _agreement(set(values.values()))})
        elif missing:
            continue
        else:
            value = _raw_parsed(registry.find(key), first.get(key))
        shared.append(Fact(key, value, Message("the facts files"), "given"))
    reason = Message("not every fact is known on {}", listed(sorted(unknown), _NAMED)) if unknown else None
    return shared, Records(tuple(sorted(items, key=lambda item: str(item["key"]))), reason)


def _compared(document: Document, registry: Registry) -> Iterator[tuple[str, Any]]:
    for key, raw in document["facts"].items():
        if key == "gpu" and isinstance(raw, list):
            kinds = Counter(
                " ".join(str(one.get(column, "")) for column in _GPU) if isinstance(one, dict) else str(one)
                for one in raw
            )
            gpus = ", ".join(f"{count} x {kind.strip()} GiB" for kind, count in sorted(kinds.items()))
            yield key, gpus or "none"
            continue
        spec = registry.find(key)
        if (
            spec is not None
            and spec.type != "records"
            and spec.privacy == "public"
            and registry.records_of(key) is None
        ):
            yield key, tuple(map(str, raw)) if isinstance(raw, list) else raw


def _raw_parsed(spec: Any, raw: Any) -> Value:
    try:
        return parse_value(spec, list(raw) if isinstance(raw, tuple) else raw) if raw is not None else ABSENT
    except FactTypeError:
        return str(raw)


def _raw_spelled(key: str, raw: Any, registry: Registry) -> str:
    if raw is None or raw == "absent":
        return spell(ABSENT)
    return raw if key == "gpu" else spell(_raw_parsed(registry.find(key), raw))


def _by_value(values: Mapping[str, str], ranks: Mapping[str, int]) -> str:
    """``2.5.0: 6 nodes; 2.4.1: node3``: the most common value first, with the nodes of the others named."""
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


def _agreement(values: set[str]) -> int:
    """How many of their first numbers versions have in common: 1 for 535.104.05 and 535.129.03."""
    numbers = [re.findall(r"\d+", value.partition("+")[0]) for value in values]
    return len(list(takewhile(lambda parts: len(set(parts)) == 1, zip(*numbers, strict=False))))


def _counted(number: int, ranks: Mapping[str, int]) -> Message:
    return Message("{} ranks", number) if ranks else Message("{} nodes", number)
