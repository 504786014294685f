"""Facts as a file of the published format ``envdoctor.facts/1``, which ``--facts`` reads back on any machine."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor import __version__
from envdoctor.facts.factset import FactSet, public_facts
from envdoctor.facts.registry import FactSpec, FactTypeError, Registry, parse_value
from envdoctor.facts.values import Range, Records, Unknown, Value, plain
from envdoctor.report.report import CleanFacts
from envdoctor.system.message import Message, packed

SCHEMA = "envdoctor.facts/1"


def render(facts: FactSet, registry: Registry, *, public: bool = False) -> str:
    """Return the facts file as ASCII-only JSON with a final newline; the same facts give the same bytes. ``public``
    leaves out what identifies this machine or its user (see :mod:`envdoctor.facts.factset`)."""
    return json.dumps(document(facts, registry, public=public), ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def document(facts: FactSet, registry: Registry, *, public: bool = False) -> dict[str, object]:
    """Return the facts file as JSON data (``schemas/facts.schema.json``).

    A reader needs ``facts`` alone. ``incomplete`` names the lists of records that may lack items: a reader must not
    take such a list for complete. A column that an item lacks is unknown. Derived facts are left out: a reader derives
    them again from the file and from its own options. ``messages`` has the ids and values of the sentences, for readers
    in another language.
    """
    facts = CleanFacts(public_facts(facts, registry) if public else facts)
    entries = _readable(facts, registry)
    data = fact_data(entries)
    return {
        "schema": SCHEMA,
        "tool": {"name": "envdoctor", "version": __version__},
        "facts": data.known,
        "complete": sorted(facts.complete_prefixes()),
        "incomplete": data.incomplete,
        "unknown": data.unknown,
        "origins": data.origins,
        "messages": {text: packed(text) for fact in entries for text in _messages(fact.value)},
    }


def _messages(value: Value) -> Iterator[Message]:
    """Yield the sentences of a value, which another reader may want in another language."""
    if isinstance(value, Records):
        yield from _messages(value.incomplete or "")
        for item in value:
            for cell in item.values():
                yield from _messages(cell)
    text = value.reason if isinstance(value, Unknown) else value
    if isinstance(text, Message) and text.id != "{}":
        yield text


def _readable(facts: FactSet, registry: Registry) -> FactSet:
    """Return the facts that a reader accepts: registered keys with values of their type; it does not know others."""
    subset = FactSet()
    for fact in facts:
        spec = registry.find(fact.key)
        if spec is None or fact.is_computed:
            continue
        value = fact.value
        if isinstance(value, Records):
            rows = ({name: cell for name, cell in item.items() if name in spec.columns} for item in value)
            items = ({name: _accepted(spec.columns[name], cell) for name, cell in item.items()} for item in rows)
            subset.add(fact._replace(value=Records(tuple(items), value.incomplete)))
        else:
            subset.add(fact._replace(value=_accepted(spec, value)))
    for prefix in facts.complete_prefixes():
        subset.declare_complete(prefix, "")
    return subset


def _accepted(spec: FactSpec, value: Value) -> Value:
    if isinstance(value, Unknown):
        return value
    try:
        parse_value(spec, plain(value))
    except FactTypeError as error:
        return Unknown(Message("not written: {}", error))
    return value


# --- facts as JSON data ----------------------------------------------------------------------------------------------


class _FactData(NamedTuple):
    """Facts by key: ``known`` JSON values (null = known to be absent) and their ``origins``; why a list of records is
    ``incomplete``; why a value is ``unknown``. A key in none of them was not given."""

    known: dict[str, object]
    origins: dict[str, str]
    incomplete: dict[str, str]
    unknown: dict[str, str]


def fact_data(facts: FactSet) -> _FactData:
    """Return the data of clean facts. A number that JSON cannot hold (NaN) counts as unknown."""
    data = _FactData({}, {}, {}, {})
    for key, value, origin, _ in sorted(facts, key=lambda fact: fact.key):
        if isinstance(value, Unknown) and not isinstance(value, Range):
            data.unknown[key] = value.reason
        elif not _finite(value):
            data.unknown[key] = "the value is not a finite number"
        else:
            if isinstance(value, Records):
                data.incomplete.update({key: value.incomplete} if value.incomplete is not None else {})
                items = ({name: cell for name, cell in item.items() if _finite(cell)} for item in value)
                value = Records(tuple(items), value.incomplete)
            data.known[key] = plain(value)
            data.origins.update({key: origin} if origin else {})
    return data


def _finite(value: Value) -> bool:
    return not isinstance(value, float) or value - value == 0
