"""The registry: the fact keys and record columns that exist, and the values of each (``matrices/facts.toml``)."""

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Origin, Range, Records, Unknown, Unlisted, Value
from envdoctor.system.message import NOTHING, Message, MessageError, said_by
from envdoctor.versions.pep440 import NotASpecifier, dotted, is_version, satisfies
from envdoctor.versions.requirement import normalise, valid_name


class FactTypeError(MessageError, ValueError):
    """A given value does not fit its key; the message is a clause for the user."""


class FactSpec(NamedTuple):
    """The registry's entry of one key or column.

    ``privacy`` is public, path or host; ``help`` the id of the advice that would make the fact known. ``values`` are
    the texts that a text can be, each with its name for a person by language (empty: any text; ``*`` stands for any
    part); ``spellings`` are what people write instead of one of them, in lower case; ``only_said`` are values that hold
    only where they are stated (a run is training unless a serving engine is named). A number lies between ``least`` and
    ``most``. ``example`` is a value to show when the fact is asked for. ``label`` names the fact in a sentence,
    ``absent`` says there that it is absent, both by language. ``answer``: computed for a rule to ask for; a report need
    not print it beside the rule's words.
    ``names`` lists the names below a ``prefix.*`` that exist, each with its privacy, unless any name will do;
    ``first`` are the names that a reader asks for first.
    ``columns`` is empty unless ``type`` is ``records``; ``identity`` names the columns that tell two items apart,
    ``edit`` the column with the places where a user would edit (empty: no column has).

    ``depends_on`` are keys (``pkg.nvidia-*`` stands for several) whose change makes the value unknown; ``concerns``
    names, by such a pattern, the columns with the packages that an item is about: only that item goes, or for
    ``concerns`` of a column only its value in that item.
    """

    key: str
    type: str
    meaning: str = ""
    privacy: str = "public"
    help: str = ""
    columns: Mapping[str, "FactSpec"] = {}
    identity: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    concerns: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, Mapping[str, str]] = {}
    spellings: Mapping[str, str] = {}
    only_said: tuple[str, ...] = ()
    least: float = 0
    most: float = math.inf
    example: str = ""
    label: Mapping[str, str] = {}
    absent: Mapping[str, str] = {}
    answer: bool = False
    names: Mapping[str, str] = {}
    first: tuple[str, ...] = ()
    edit: str = ""


class Registry:
    """All registered keys; ``prefix.*`` entries register every key below the prefix.

    ``help_texts`` holds the advice that would supply facts, by its id: the texts by language, ``keys`` (the facts that
    can be given with it, each with an example), ``given_with`` (the fact that is known when it was taken), ``beside``
    (other texts where a ``fact`` is known) and ``part_of`` (the commands that need no such advice).
    """

    def __init__(self, specs: Mapping[str, FactSpec], help_texts: Mapping[str, Mapping[str, Any]]) -> None:
        self._specs = dict(specs)
        self._wild = {key[:-1]: spec for key, spec in specs.items() if key.endswith(".*")}
        self.help_texts = help_texts

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> "Registry":
        """Build from the parsed ``facts.toml``, which ``matrices/schema/facts.json`` holds."""
        return cls({key: _spec(key, entry) for key, entry in data.get("fact", {}).items()}, data.get("help", {}))

    def __iter__(self) -> Iterator[FactSpec]:
        return iter(self._specs.values())

    def find(self, key: str) -> FactSpec | None:
        """Return the entry of a key, of a key below a ``prefix.*``, or of a record column such as ``gpu.cc``."""
        spec = self._specs.get(key)
        if spec is not None:
            return spec
        head, _, tail = key.partition(".")
        wild = self._wild.get(head + ".")
        if wild is not None and tail:
            # A list of names says how private each one is; any other name is left out of exports.
            return wild._replace(privacy=wild.names.get(tail, "host")) if wild.names else wild
        parent = self.records_of(key)
        return None if parent is None else parent.columns[tail]

    def records_of(self, key: str) -> FactSpec | None:
        """Return the record list of a column such as ``gpu.cc``; None for a fact of its own (``gpu.count``)."""
        head, dot, tail = key.partition(".")
        parent = self._specs.get(head)
        if not dot or key in self._specs or parent is None or tail not in parent.columns:
            return None
        return parent

    def names(self, prefix: str) -> Mapping[str, str]:
        """Return the names below a prefix that exist (the environment variables), each with its privacy."""
        spec = self._wild.get(prefix + ".")
        return spec.names if spec is not None else {}

    def first(self, prefix: str) -> tuple[str, ...]:
        """Return the names below a prefix that a reader asks for first (the packages), in their order."""
        spec = self._wild.get(prefix + ".")
        return spec.first if spec is not None else ()

    def prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of ``prefix.*`` entries, without the dot: ``("pkg", "env")``."""
        return tuple(prefix[:-1] for prefix in self._wild)


def _spec(key: str, entry: Mapping[str, Any]) -> FactSpec:
    columns, values = entry.get("columns", {}), entry.get("values", {})
    as_they_are = ("type", "meaning", "privacy", "help", "least", "most", "label", "absent", "answer", "edit")
    lists = ("identity", "depends_on", "only_said", "first")
    fields: dict[str, Any] = {name: entry[name] for name in as_they_are if name in entry}
    fields.update((name, tuple(entry[name])) for name in lists if name in entry)
    return FactSpec(
        key=key,
        columns={
            name: _spec(f"{key}.{name}", {"help": entry.get("help", ""), **column}) for name, column in columns.items()
        },
        concerns={key: tuple(columns) for key, columns in entry.get("concerns", {}).items()},
        values=values if isinstance(values, Mapping) else {value: {} for value in values},
        spellings={word.lower(): value for value, words in entry.get("spellings", {}).items() for word in words},
        example=str(entry.get("example", "")),
        names={name: kind for kind, names in entry.get("names", {}).items() for name in names},
        **fields,
    )


def strange_name(key: str, registry: Registry) -> Message | None:
    """Return why a key below a prefix is not a fact: its package name is invalid, or no source reads the variable."""
    prefix, _, name = key.partition(".")
    if prefix == "pkg" and valid_name(name) is None:
        return Message("{} is no name of a package", shown(name))
    if prefix == "env" and name not in registry.names("env"):
        return Message("{} is no variable that is read", shown(name))
    return None


def canonical_key(key: str) -> str:
    """Return the key under which a fact is kept: ``pkg.Flash_Attn`` is ``pkg.flash-attn``."""
    return "pkg." + normalise(key[4:]) if key.startswith("pkg.") else key


def parse_value(spec: FactSpec, raw: object, unread: list[str] | None = None) -> Value:
    """Parse a value from JSON, TOML or text, and check it against its registered type.

    ``None`` and ``"absent"`` mean known to be absent. A package may also be a range of releases, or ``"installed"``.
    Numbers and booleans may be text (``--set`` gives text).
    Raises :class:`FactTypeError` with the expected and the actual value. With ``unread``, a cell of a list that does
    not fit becomes unknown instead, and ``unread`` gets its place and the reason.
    """
    if raw is None or raw == "absent":
        return ABSENT
    if spec.type == "records":
        return _records(spec, raw, unread)
    if spec.type == "texts":
        match raw:
            case str():
                return tuple(_spelled(spec, part.strip()) for part in raw.split(",") if part.strip())
            case list() | tuple() if all(isinstance(item, str) for item in raw):
                return tuple(_spelled(spec, item) for item in raw)
        raise FactTypeError("a list of text is expected, not {}", shown(raw))
    if isinstance(raw, (list, tuple, Mapping)):
        raise FactTypeError("{} is expected, not {}", _article(spec.type), shown(raw))
    if spec.type == "boolean":
        flag = raw if isinstance(raw, bool) else _FLAGS.get(raw.lower()) if isinstance(raw, str) else None
        if flag is None:
            raise FactTypeError("true or false is expected, not {}", shown(raw))
        return flag
    if spec.type == "number":
        return _number(spec, raw)
    if not isinstance(raw, str):
        raise FactTypeError("{} in quotes is expected, not {}", _article(spec.type), shown(raw))
    if len(raw) > 4096:
        raise FactTypeError("the text is {} characters long; at most 4096 are read", len(raw))
    if spec.type == "dotted" and dotted(raw) is None:
        raise FactTypeError('dotted integers such as "12.4" are expected, not {}', shown(raw))
    if spec.key == "pkg.*" and (raw == "installed" or raw.lstrip()[:1] in ("<", ">", "=", "!", "~")):
        return _range(raw)
    if spec.type == "version" and not is_version(raw):
        raise FactTypeError("a version by PEP 440 is expected, not {}", shown(raw))
    return _spelled(spec, raw) if spec.type == "text" else raw


def _range(raw: str) -> Range:
    specifiers = "" if raw == "installed" else raw.replace(" ", "")
    try:
        if not specifiers.isascii() or not specifiers.isprintable() or "===" in specifiers:
            raise NotASpecifier(NOTHING)
        satisfies("1", specifiers)
    except NotASpecifier:
        raise FactTypeError("a version or a range by PEP 440 is expected, not {}", shown(raw)) from None
    return Range(specifiers)


def unlisted(spec: FactSpec, value: Value) -> Unlisted | None:
    """Return the first word of a value that the registry does not list; None if all are listed, or any is allowed."""
    words = value if isinstance(value, tuple) else (value,)
    if not spec.values or spec.type not in ("text", "texts"):
        return None
    texts = (word for word in words if isinstance(word, str))
    word = next((word for word in texts if not any(fnmatchcase(word, pattern) for pattern in spec.values)), None)
    return None if word is None else Unlisted(word, spec.values)


def _spelled(spec: FactSpec, text: str) -> str:
    """Return a word as the registry spells it; case does not count, and usual spellings are replaced."""
    if not spec.values or text in spec.values:
        return text
    lowered = text.lower()
    spelling = spec.spellings.get(lowered)
    return spelling or next((value for value in spec.values if value.lower() == lowered), text)


_FLAGS = {**dict.fromkeys(("true", "yes", "1", "on"), True), **dict.fromkeys(("false", "no", "0", "off"), False)}


def _number(spec: FactSpec, raw: object) -> int | float:
    if isinstance(raw, str):
        try:
            raw = int(raw) if raw.lstrip("+-").isdecimal() and len(raw) < 20 else float(raw)
        except ValueError:
            if spec.key.endswith("_gib"):
                raise FactTypeError("a number of GiB is expected, not {}", shown(raw)) from None
            raise FactTypeError("a number is expected, not {}", shown(raw)) from None
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise FactTypeError("a number is expected, not {}", shown(raw))
    if isinstance(raw, float) and not math.isfinite(raw):
        raise FactTypeError("a finite number is expected")
    if raw < spec.least:
        raise FactTypeError("{} is expected, not {}", Message("at least {}", f"{spec.least:g}"), raw)
    if raw > spec.most:
        raise FactTypeError("{} is expected, not {}", Message("at most {}", f"{spec.most:g}"), raw)
    return raw


def _records(spec: FactSpec, raw: object, unread: list[str] | None) -> Records:
    if not isinstance(raw, (list, tuple)):
        raise FactTypeError("a list of tables is expected, not {}", shown(raw))
    items: list[dict[str, Value]] = []
    for number, entry in enumerate(raw, 1):
        if not isinstance(entry, Mapping):
            raise FactTypeError("item {}: a table of columns is expected, not {}", number, shown(entry))
        item: dict[str, Value] = {}
        for name, cell in entry.items():
            column = spec.columns.get(name)
            if column is None:
                raise FactTypeError("item {}: {} is no column of {}", number, shown(name), spec.key)
            try:
                value = parse_value(column, cell)
                places = value if name == spec.edit and isinstance(value, tuple) else None
                item[name] = value if places is None else tuple(map(Origin.read, places))
            except FactTypeError as error:
                if unread is None:
                    raise FactTypeError("item {}: {}: {}", number, name, error) from None
                unread.append(Message("item {}: {} counts as unknown: {}", number, name, error))
                item[name] = Unknown(said_by(error))
        items.append(item)
    return Records(tuple(items))


def _article(kind: str) -> str:
    words = {"text": "text", "number": Message("a number"), "boolean": Message("true or false")}
    return words.get(kind, Message("a version"))


def shown(raw: object) -> str:
    """Return a user's value as a message repeats it, of 60 characters at most."""
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "..."
