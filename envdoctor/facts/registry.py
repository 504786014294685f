"""The registry: which fact keys and record columns exist, and what may be said of each (``matrices/facts.toml``)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Records, Value

__all__ = [
    "TYPES",
    "FactSpec",
    "FactTypeError",
    "Registry",
    "RegistryError",
    "canonical_key",
    "dotted",
    "normalise",
    "parse_value",
]

TYPES = ("text", "texts", "number", "boolean", "version", "dotted", "records")
_PRIVACY = ("public", "path", "host")
_DOTTED = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}\Z")


class RegistryError(ValueError):
    """``facts.toml`` is wrong; the message names the key."""


class FactTypeError(ValueError):
    """A given value does not fit its key; the message is a clause for the user."""


class FactSpec(NamedTuple):
    """What the registry says of one key.

    ``columns`` is empty unless ``type`` is ``records``; ``identity`` names the columns that tell two items apart.
    ``help`` is the id of the advice that would make the fact known.
    """

    key: str
    type: str
    meaning: str
    observer: str
    cost: str
    privacy: str
    help: str
    columns: Mapping[str, FactSpec]
    identity: tuple[str, ...]


class Registry:
    """All registered keys; ``prefix.*`` entries register every key below the prefix."""

    def __init__(self, specs: Mapping[str, FactSpec], help_texts: Mapping[str, Mapping[str, str]]) -> None:
        self._specs = dict(specs)
        self._wild = {key[:-1]: spec for key, spec in specs.items() if key.endswith(".*")}
        self.help_texts = help_texts

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Registry:
        """Build from the parsed ``facts.toml``. Raises :class:`RegistryError`."""
        specs: dict[str, FactSpec] = {}
        for key, entry in data.get("fact", {}).items():
            specs[key] = _spec(key, entry)
        return cls(specs, data.get("help", {}))

    def __iter__(self) -> Iterator[FactSpec]:
        return iter(self._specs.values())

    def find(self, key: str) -> FactSpec | None:
        """The entry of a key, of a key below a ``prefix.*``, or of a record column such as ``gpu.cc``."""
        spec = self._specs.get(key)
        if spec is not None:
            return spec
        head, dot, tail = key.partition(".")
        if not dot:
            return None
        wild = self._wild.get(head + ".")
        if wild is not None and tail:
            return wild
        parent = self._specs.get(head)
        if parent is not None and parent.type == "records":
            return parent.columns.get(tail)
        return None

    def records_of(self, key: str) -> FactSpec | None:
        """The record list that a column such as ``gpu.cc`` belongs to; None for a fact of its own (``gpu.count``)."""
        head, dot, tail = key.partition(".")
        parent = self._specs.get(head)
        if not dot or key in self._specs or parent is None or tail not in parent.columns:
            return None
        return parent

    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of ``prefix.*`` entries, without the dot: ``("pkg", "env")``."""
        return tuple(prefix[:-1] for prefix in self._wild)


def _spec(key: str, entry: Mapping[str, Any]) -> FactSpec:
    kind = entry.get("type")
    if kind not in TYPES:
        raise RegistryError(f"facts.toml: {key}: type {kind!r} is none of {', '.join(TYPES)}")
    privacy = entry.get("privacy", "public")
    if privacy not in _PRIVACY:
        raise RegistryError(f"facts.toml: {key}: privacy {privacy!r} is none of {', '.join(_PRIVACY)}")
    columns: dict[str, FactSpec] = {}
    for name, column in entry.get("columns", {}).items():
        columns[name] = _spec(f"{key}.{name}", {"help": entry.get("help", ""), **column})
    if (kind == "records") != bool(columns):
        raise RegistryError(f"facts.toml: {key}: columns belong to type records, and to no other")
    return FactSpec(
        key=key,
        type=kind,
        meaning=entry.get("meaning", ""),
        observer=entry.get("observer", ""),
        cost=entry.get("cost", ""),
        privacy=privacy,
        help=entry.get("help", ""),
        columns=columns,
        identity=tuple(entry.get("identity", ())),
    )


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    if "_" in name or "." in name or "--" in name:  # files with a million names are read too
        name = re.sub(r"[-_.]+", "-", name)
    return name.lower()


def canonical_key(key: str) -> str:
    """The key under which a fact is kept: ``pkg.Flash_Attn`` is ``pkg.flash-attn``."""
    return "pkg." + normalise(key[4:]) if key.startswith("pkg.") else key


def dotted(text: str) -> tuple[int, ...] | None:
    """``"12.4"`` as integers, or None when it is not dotted integers. Trailing zeros do not count (12.0 is 12)."""
    if not _DOTTED.match(text):
        return None
    parts = [int(part) for part in text.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def parse_value(spec: FactSpec, raw: object) -> Value:
    """A value from JSON, TOML or text, checked against its registered type.

    ``None`` and ``"absent"`` mean known to be absent. Text is accepted for numbers and booleans (``--set`` gives text).
    Raises :class:`FactTypeError` with what was expected and what was found.
    """
    if raw is None or raw == "absent":
        return ABSENT
    if spec.type == "records":
        return _records(spec, raw)
    if spec.type == "texts":
        if isinstance(raw, str):
            return tuple(part.strip() for part in raw.split(",") if part.strip())
        if isinstance(raw, (list, tuple)) and all(isinstance(item, str) for item in raw):
            return tuple(raw)
        raise FactTypeError(f"a list of text is expected, not {_short(raw)}")
    if isinstance(raw, (list, tuple, Mapping)):
        raise FactTypeError(f"{_article(spec.type)} is expected, not {_short(raw)}")
    if spec.type == "boolean":
        return _boolean(raw)
    if spec.type == "number":
        return _number(raw)
    if isinstance(raw, bool) or not isinstance(raw, str):
        raise FactTypeError(f"{_article(spec.type)} in quotes is expected, not {_short(raw)}")
    if len(raw) > 4096:
        raise FactTypeError(f"the text is {len(raw)} characters long; at most 4096 are read")
    if spec.type == "dotted" and dotted(raw) is None:
        raise FactTypeError(f'dotted integers such as "12.4" are expected, not {_short(raw)}')
    if spec.type == "version" and not _PEP440.match(raw):
        raise FactTypeError(f"a version by PEP 440 is expected, not {_short(raw)}")
    return raw


#: PEP 440's public and local version identifiers, from the specification's appendix in our own words.
_PEP440 = re.compile(
    r"""\s*v?
    (?:\d{1,18}!)?\d{1,18}(?:\.\d{1,18})*                               # epoch, release
    (?:[-_.]?(?:a|alpha|b|beta|c|rc|pre|preview)[-_.]?\d{0,18})?         # pre-release
    (?:-\d{1,18}|[-_.]?(?:post|rev|r)[-_.]?\d{0,18})?                   # post-release
    (?:[-_.]?dev[-_.]?\d{0,18})?                                        # development release; may be a time stamp
    (?:\+[a-z0-9]{1,64}(?:[-_.][a-z0-9]{1,64})*)?                       # local label
    \s*\Z""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def _boolean(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "yes", "1", "on"):
        return True
    if isinstance(raw, str) and raw.lower() in ("false", "no", "0", "off"):
        return False
    raise FactTypeError(f"true or false is expected, not {_short(raw)}")


def _number(raw: object) -> int | float:
    if isinstance(raw, str):
        try:
            raw = int(raw) if raw.lstrip("+-").isdecimal() and len(raw) < 20 else float(raw)
        except ValueError:
            raise FactTypeError(f"a number is expected, not {_short(raw)}") from None
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise FactTypeError(f"a number is expected, not {_short(raw)}")
    if isinstance(raw, float) and not math.isfinite(raw):
        raise FactTypeError("a finite number is expected")
    return raw


def _records(spec: FactSpec, raw: object) -> Records:
    if not isinstance(raw, (list, tuple)):
        raise FactTypeError(f"a list of tables is expected, not {_short(raw)}")
    items: list[dict[str, Value]] = []
    for number, entry in enumerate(raw, 1):
        if not isinstance(entry, Mapping):
            raise FactTypeError(f"item {number}: a table of columns is expected, not {_short(entry)}")
        item: dict[str, Value] = {}
        for name, cell in entry.items():
            column = spec.columns.get(name)
            if column is None:
                raise FactTypeError(f"item {number}: {_short(name)} is no column of {spec.key}")
            try:
                item[name] = parse_value(column, cell)
            except FactTypeError as error:
                raise FactTypeError(f"item {number}: {name}: {error}") from None
        items.append(item)
    return Records(tuple(items))


def _article(kind: str) -> str:
    return {"text": "text", "number": "a number", "boolean": "true or false"}.get(kind, "a version")


def _short(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "..."
