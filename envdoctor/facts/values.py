"""The values that a fact can have: known, known to be absent, or unknown with the reason."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.system.message import Message, packed, unpacked


class Origin(str):
    """The place where a user edits: ``line`` (from 1) of the file at ``path``, or of a notebook's ``cell`` (from 1, all
    cells counted). As a text it is ``train.yaml:14`` or ``eval.ipynb:cell 3:2``."""

    __slots__ = ("cell", "line", "path")
    path: str
    line: int
    cell: int | None

    def __new__(cls, path: str, line: int, cell: int | None = None) -> "Origin":
        origin = super().__new__(cls, f"{path}:{line}" if cell is None else f"{path}:cell {cell}:{line}")
        origin.path, origin.line, origin.cell = path, line, cell
        return origin

    def __getnewargs__(self) -> Any:
        return self.path, self.line, self.cell

    @classmethod
    def read(cls, text: str) -> str:
        """Read such a text of a facts file; return any other text as it is."""
        match = re.match(r"(?s)(.+?)(?::cell (\d{1,8}))?:(\d{1,8})\Z", text, re.ASCII)
        return cls(match[1], int(match[3]), int(match[2]) if match[2] else None) if match else text


class Absent:
    """The type of :data:`ABSENT`: known to be absent (package not installed, variable unset)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Unknown:
    """A value that could not be established.

    ``reason`` is a clause for the user: the attempt that failed, or the missing option ("no --model was given").
    """

    __slots__ = ("reason",)

    def __init__(self, reason: Message) -> None:
        self.reason = reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and self.reason == other.reason

    def __hash__(self) -> int:
        return hash(self.reason)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason!r})"


class Range(Unknown):
    """A version that is known by its ``specifiers`` only (``>=0.15,<0.17``; empty: any installed release), or a number
    that is one of several (``40 or 80``).

    ``releases`` are the possible ones by the ledger, with one before the first and behind the last where the range is
    open there; empty where no ledger knows them. A reader that does not use them takes the value as unknown.
    """

    __slots__ = ("releases", "specifiers")

    def __init__(self, specifiers: str, releases: tuple[str | int, ...] = ()) -> None:
        super().__init__(
            Message("only known to be {}", specifiers) if specifiers else Message("only known to be installed")
        )
        self.specifiers = specifiers
        self.releases = releases


class Unlisted(Unknown):
    """A ``word`` of the user that is not among the words ``known`` for its fact."""

    __slots__ = ("known", "word")

    def __init__(self, word: str, known: Iterable[str]) -> None:
        self.word, self.known = word[:60], tuple(known)
        listed = ", ".join(name for name in self.known if "*" not in name)
        super().__init__(Message("{} is none of {}", repr(self.word), listed))


#: The value of a fact that was not given, and that nothing observes here.
NOT_GIVEN = Unknown(Message("not given"))
#: A value that is unknown for no stated reason, such as a column that an item lacks.
NOT_KNOWN = Unknown(Message("not known"))

#: A scalar that is known. Versions are text as written by their package; dotted versions are text ("12.4").
Known = str | int | float | bool | tuple[str, ...]


class Records:
    """A list of records (GPUs, distributions, changes), each with named columns.

    ``items`` are mappings from column name to a known value, :data:`ABSENT` or :class:`Unknown`; a column that an item
    lacks is unknown. ``incomplete`` is None when the list is known to hold every item, otherwise the reason why it may
    not: "no item matched" is an answer only for a complete list.
    """

    __slots__ = ("incomplete", "items")

    def __init__(self, items: tuple[Mapping[str, "Value"], ...], incomplete: Message | None = None) -> None:
        self.items = items
        self.incomplete = incomplete

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Mapping[str, "Value"]]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records):
            return NotImplemented
        return self.items == other.items and self.incomplete == other.incomplete

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Records({self.items!r}, incomplete={self.incomplete!r})"


Value = str | int | float | bool | tuple[str, ...] | Absent | Unknown | Records


class Fact(NamedTuple):
    """One fact: its registered key, its value, and where the value comes from.

    ``origin`` is an :class:`Origin`, or names a file or an option in words a person can follow ("torch/version.py",
    "--set"); it may contain a path of this machine and is treated as private in exports.
    ``source`` groups origins by kind: environment, machine, model, recipe, preset (a library's choice for a setting
    that the recipe leaves open, or an installer's for one that a list does), given, told (in a sentence), derived,
    default, unasked or assumed.
    """

    key: str
    value: Value
    origin: str
    source: str

    @property
    def is_computed(self) -> bool:
        """Return whether it follows from other facts."""
        return self.source in ("derived", "default", "unasked", "assumed")

    @property
    def is_guess(self) -> bool:
        """Return whether it is assumed because no source answered: enough for a finding, not for its absence."""
        return self.source in ("unasked", "assumed")


def plain(value: Value) -> object:
    """Return the value as JSON: text, number, boolean, list, null for absent.

    Raises ``ValueError`` for an unknown value: callers decide how to write those.
    """
    match value:
        case Range():
            return spell(value)
        case Unknown():
            raise ValueError(f"an unknown value has no JSON form: {value.reason}")
        case Absent():
            return None
        case tuple():
            return list(value)
        case Records():
            return [{key: plain(cell) for key, cell in item.items() if not isinstance(cell, Unknown)} for item in value]
    return value


def spell(value: Value) -> str:
    """Return the value as a sentence has it: ``true``, ``2``, ``8.6, 9.0``, ``absent``, ``unknown``."""
    match value:
        case Range():
            return value.specifiers or "installed"
        case Unknown():
            return "unknown"
        case Absent():
            return "absent"
        case bool():
            return "true" if value else "false"
        case tuple():
            return ", ".join(value) if value else "none"
        case Records():
            return f"{len(value)} item" + ("" if len(value) == 1 else "s")
        case float():
            return f"{value:g}"
    return str(value)


def written(value: Value) -> object:
    """Return any value, an unknown one too, as JSON for envdoctor's own cache; :func:`restored` reads it again."""
    match value:
        case Records():
            items = [{column: written(cell) for column, cell in item.items()} for item in value]
            return {"items": items, "incomplete": packed(value.incomplete)}
        case Range():
            return {"specifiers": value.specifiers, "releases": value.releases}
        case Unlisted():
            return {"word": value.word, "known": value.known}
        case Unknown():
            return {"unknown": packed(value.reason)}
        case Message():
            return {"said": packed(value)}
        case Origin():
            return {"path": value.path, "line": value.line, "cell": value.cell}
        case tuple():
            return [written(part) for part in value]
        case Absent():
            return None
    return value


def restored(data: Any) -> Value:
    """Read a value that :func:`written` wrote."""
    value: Value = data
    match data:
        case None:
            value = ABSENT
        case list():
            value = tuple(Origin(**part) if isinstance(part, dict) else part for part in data)
        case {"specifiers": specifiers, "releases": releases}:
            value = Range(specifiers, tuple(releases))
        case {"word": word, "known": known}:
            value = Unlisted(word, known)
        case {"unknown": reason}:
            value = Unknown(unpacked(reason))
        case {"said": text}:
            value = unpacked(text)
        case dict():
            items = tuple({column: restored(cell) for column, cell in item.items()} for item in data["items"])
            value = Records(items, data["incomplete"] and unpacked(data["incomplete"]))
    return value
