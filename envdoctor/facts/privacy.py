"""Facts that may leave this machine: without paths, host names, user names, UUIDs and addresses."""

import re

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Fact, Range, Records, Unknown, Value
from envdoctor.system.message import Message, mapped

_URL = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,20}://\S*")
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{4,}|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,253}")
#: From where an absolute path begins to the end of the text: a folder may hold blanks, so its end cannot be told.
_PATH = re.compile(r"(?<![\w/.])(?:~[\w.-]*[/\\]|~$|/(?=\S)|[A-Za-z]:[/\\]|\\\\).*", re.DOTALL)


def public_facts(facts: FactSet, registry: Registry) -> FactSet:
    """Return the facts as another machine or a bug report may have them.

    Facts and columns of privacy ``path`` or ``host``, and those the registry does not know, become unknown ("left out
    for privacy"); in the text of the others, paths, URLs and UUIDs become ``<path>``, ``<url>``, ``<uuid>``. Origins,
    which may name files of this machine, go.
    """
    public = FactSet(Fact(fact.key, _public(fact, registry), "", fact.source) for fact in facts)
    for prefix in facts.complete_prefixes():
        public.declare_complete(prefix, "")
    return public


def redact(text: str) -> str:
    """Replace every URL, UUID, e-mail address and absolute path by the kind of thing that it was."""
    text = _UUID.sub("<uuid>", _URL.sub("<url>", text[:65_536]))
    return _PATH.sub("<path>", _ADDRESS.sub("<address>", text))


def _public(fact: Fact, registry: Registry) -> Value:
    spec = registry.find(fact.key)
    value = fact.value
    if spec is None or spec.privacy != "public":
        return Unknown(Message("left out for privacy"))
    if isinstance(value, Records):
        allowed = {name for name, column in spec.columns.items() if column.privacy == "public"}
        items = tuple({name: _redacted(item[name]) for name in item if name in allowed} for item in value)
        return Records(items, mapped(value.incomplete, redact))
    return _redacted(value)


def _redacted(value: Value) -> Value:
    match value:
        case str():
            return mapped(value, redact)
        case tuple():
            return tuple(redact(text) for text in value)
        case Unknown() if not isinstance(value, Range):
            return Unknown(mapped(value.reason, redact))
    return value
