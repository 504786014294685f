"""The contract of a comparer: what it is given, what it gives, and one difference as the rules see it.

A comparer is a module in a folder of ``revision/``, with its row in ``COMPARERS`` (``comparing.py``). It reads what it
needs and nothing that is known to be equal, and judges nothing. Its first docstring says what kinds of changes mean if
their names do not; all kinds are listed in ``matrices/facts.toml``.
"""

import json
import math
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from envdoctor.facts.values import Value
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.files import LARGEST, JsonObject, JsonProblem, parse_object
from envdoctor.revision.hub.pickle_reading import Clock
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.message import Message

#: Which part of a repository a change is in, in the order of reports.
AREAS = ("weights", "config", "generation", "tokenizer", "template", "code", "preprocessor", "files", "licence")

_MOST_CODE_FILES = 20
_LARGEST_CODE = 1 << 20

Item = TypeVar("Item")
Key = TypeVar("Key")

#: The kind of a change on the path of a training step whose cause is not known.
UNNAMED = "training-code-changed"


class Change(NamedTuple):
    """One difference.

    ``kind`` is a dashed word of its area (``gradient-checkpointing-noop``), ``path`` the file in the new snapshot (the
    old one when it is gone), ``symbol`` what it is about: a class and method, a canonical config key, a tensor name
    pattern with ``{i}`` for running numbers, a token. ``before`` and ``after`` are short texts for people; None where
    there is nothing. ``count`` is how many things it stands for (tensors of a pattern). ``detail`` adds a clause.
    ``hunk`` shows what changed in a function: lines of a unified diff, without control characters and bounded, each
    beginning with ``+``, ``-``, a blank or ``@``. Rules do not see it.
    """

    area: str
    kind: str
    path: str
    symbol: str
    before: str | None = None
    after: str | None = None
    count: int = 1  # type: ignore[assignment]  # tuple.count is of no use here
    detail: str | None = None
    hunk: tuple[str, ...] = ()


class Compared(NamedTuple):
    """The outcome of one comparer. ``changes`` in the order of the files; ``unread`` are parts that could not be read
    or decided (then the area is not "unchanged"); ``facts`` are summary facts (``revision.weights`` = "identical"),
    ``equal`` are short statements for the summary of what is equal ("7 of 7 weight files (12.5 GB)"). ``listing`` has
    every single difference where ``changes`` tells one cause once, and ``amounts`` what each side holds (tensors,
    parameters, bytes), by dtype and by module."""

    changes: tuple[Change, ...] = ()
    unread: tuple[Unread, ...] = ()
    facts: Mapping[str, Value] = {}
    equal: tuple[str, ...] = ()
    listing: tuple[Change, ...] = ()
    amounts: Mapping[str, Mapping[str, Mapping[str, tuple[int, int, int]]]] = {}


class Revisions(NamedTuple):
    """Two snapshots to compare, and the matrix's tables. ``clock`` is the time that all comparers have for looking at
    headers and pickles; ``files`` are those that the comparer wants, sorted. Of weights ``values`` bytes are read from
    a Hub, any number from this machine, or none if it is None; ``progress`` is told before, and how far it is."""

    old: Snapshot
    new: Snapshot
    matrix: Matrix
    clock: Clock
    files: tuple[str, ...] = ()
    values: int | None = None
    progress: Callable[[str], None] = lambda text: None

    def same(self, path: str) -> bool:
        """Return whether both snapshots hold the file and their object ids say that its bytes are the same."""
        return self.state(path) == "same"

    def changed(self, paths: Iterable[str] | None = None) -> list[str]:
        """Return the paths (of ``files``) that are in a snapshot and not known to be the same in both, sorted."""
        candidates = self.files if paths is None else set(paths)
        present = self.old.files.keys() | self.new.files.keys()
        return sorted(path for path in candidates if path in present and not self.same(path))

    def state(self, path: str) -> Literal["added", "removed", "same", "changed", "unknown"]:
        """Return what object ids and sizes say of the file; ``unknown`` if it has to be read."""
        first, second = self.old.files.get(path), self.new.files.get(path)
        if first is None or second is None:
            return "added" if first is None else "removed"
        is_same = first.same_as(second)
        if is_same is not None:
            return "same" if is_same else "changed"
        # One of the two was not hashed, or one is an LFS file and the other is not: only the sizes can tell.
        return "changed" if first.size != second.size else "unknown"

    def sizes(self, path: str) -> tuple[str | None, str | None]:
        """Return the size of the file in each snapshot, in words; None if the snapshot lacks it."""
        first, second = (side.files.get(path) for side in (self.old, self.new))
        return first and Message("{} bytes", f"{first.size:,}"), second and Message("{} bytes", f"{second.size:,}")

    def code(self) -> tuple[str, str] | Unread | None:
        """Return the Python files of both snapshots as two texts, the second of configurations; None without any,
        Unread if not all can be read."""
        paths = sorted(path for path in self.old.files.keys() | self.new.files.keys() if path.endswith(".py"))
        if len(paths) > _MOST_CODE_FILES:
            return Unread(paths[-1], Message("only {} files of this kind are compared", _MOST_CODE_FILES))
        texts: tuple[list[str], list[str]] = [], []
        for path in paths:
            is_configuration = posixpath.basename(path).startswith("configuration")
            for side in (self.new,) if self.same(path) else (self.old, self.new):
                content = side.read(path, _LARGEST_CODE) if path in side.files else b""
                if isinstance(content, Unread):
                    return content
                texts[is_configuration].append(content.decode("utf-8", "replace"))
        return ("\n".join(texts[0]), "\n".join(texts[1])) if paths else None

    def read(self, path: str, limit: int) -> tuple[bytes | None, bytes | None] | Unread:
        """Return the file in both snapshots, None if a snapshot lacks it; unread if either cannot be read."""
        before = self.old.read(path, limit) if path in self.old.files else None
        after = self.new.read(path, limit) if path in self.new.files else None
        if isinstance(before, Unread):
            return before
        return after if isinstance(after, Unread) else (before, after)


class Comparer(NamedTuple):
    """Who compares an area. ``wants`` says whether it takes a file; None: what no comparer of another area wants."""

    area: str
    compare: Callable[[Revisions], Compared]
    wants: Callable[[str], bool] | None


def parted(parts: Iterable[Item | Unread]) -> tuple[tuple[Item, ...], tuple[Unread, ...]]:
    """Return the good parts, and the parts that could not be read."""
    items = list(parts)
    unread = tuple(item for item in items if isinstance(item, Unread))
    return tuple(item for item in items if not isinstance(item, Unread)), unread


def outcome(parts: Iterable[Change | Unread], name: str | None, harmless: Collection[str] = ()) -> Compared:
    """Return the outcome. What has the ``name`` is equal if all was read and each change is of a harmless kind."""
    changes, unread = parted(parts)
    settled = name and not unread and all(change.kind in harmless for change in changes)
    return Compared(changes, unread, equal=(name,) if name and settled else ())


def differences(old: Mapping[Key, Item], new: Mapping[Key, Item]) -> Iterator[tuple[Key, Item | None, Item | None]]:
    """Yield key, old and new value of what differs, in the order of the new table, what is gone at the end."""
    for key in dict.fromkeys([*new, *old]):
        before, after = old.get(key), new.get(key)
        if not same(before, after):
            yield key, before, after


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: true is not 1, and NaN is NaN."""
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case int() | float(), int() | float():
            return bool(left == right) or (math.isnan(left) and math.isnan(right))
        case list(), list():
            return len(left) == len(right) and all(map(same, left, right))
        case dict(), dict():
            return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)


def read_json(snapshot: Snapshot, path: str, limit: int = LARGEST) -> JsonObject | Unread | None:
    """Return the object in ``path``; None when the snapshot has no such file, unread when it cannot be had."""
    if path not in snapshot.files:
        return None
    content = snapshot.read(path, limit)
    return content if isinstance(content, Unread) else parse_json(content, path)


def parse_json(content: bytes, path: str) -> JsonObject | Unread:
    """Return the object in a file's bytes."""
    try:
        return parse_object(content)
    except JsonProblem as error:
        return Unread(path, Message("it {}", error))


# Short texts for people: JSON values, two long texts around the place where they differ, and the lines that do.

#: Characters of a before or after text.
LONGEST = 90
_BEFORE, _AFTER = 34, 40
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_OTHER_VALUE = re.compile(r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)\Z")
#: Lines of one diff, characters of a line, lines of each text that are compared, equal lines around a change.
_MOST_LINES, WIDEST, _COMPARED, _AROUND = 400, 240, 2_000, 2
#: Templates are often one line: they are shown statement by statement.
_STATEMENTS = re.compile(r"(?<=%\})(?=.)|\r?\n")


def short(value: object) -> str:
    """Return a JSON value in at most :data:`LONGEST` characters; long lists keep their ends and say how many items."""
    match value:
        case str():
            # Blanks at an end, and a text that looks like a number, are seen in quotes alone.
            plain = value and value == value.strip() and not _OTHER_VALUE.match(value)
            text = value if plain else json.dumps(value, ensure_ascii=False)
        case list() if len(value) > 6:
            first, last = json.dumps(value[:3], ensure_ascii=False)[:-1], json.dumps(value[-1], ensure_ascii=False)
            text = f"{first}, ..., {last}] ({len(value)} items)"
        case dict() if len(value) > 4:
            text = f"{{{', '.join(list(map(str, value))[:3])}, ...}} ({len(value)} keys)"
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return _cut(visible(text))


def _cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def visible(text: str) -> str:
    """Return the text on one line, with escapes for breaks and hidden characters."""
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def around(before: str, after: str) -> tuple[str, str]:
    """Return both texts in quotes, made visible and cut to the surroundings of the first difference."""
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    start = at - _BEFORE if at - _BEFORE >= 6 else 0  # less is not worth an ellipsis
    return _window(before, start, at + _AFTER), _window(after, start, at + _AFTER)


def _window(text: str, start: int, stop: int) -> str:
    stop = len(text) if len(text) - stop < 6 else stop
    # Escapes make the text longer; what is cut must not be the difference, which lies in the first half.
    shown = _cut(visible(text[start:stop]), 2 * LONGEST)
    return ("..." if start else "") + f'"{shown}"' + ("..." if stop < len(text) else "")


def hunk(before: Sequence[str], after: Sequence[str], *, starts: Sequence[int] = (0, 0)) -> Iterator[str]:
    """Yield the lines of a unified diff; ``starts`` are the numbers of the lines before the first ones."""
    lines = unified_diff(before[:_COMPARED], after[:_COMPARED], n=_AROUND, lineterm="")
    for line in islice(lines, 2, _MOST_LINES + 2):
        if line.startswith("@@"):
            line = re.sub(r"([-+])(\d+)", lambda at: f"{at[1]}{int(at[2]) + starts[at[1] == '+']}", line)
        yield line[0] + visible(line[1:].expandtabs(4))


def template_hunk(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a diff of two templates; a blank at the end of a changed line is shown as ``\u00b7``."""
    old, new = (_STATEMENTS.split(text, _COMPARED) for text in (before, after))
    lines = []
    for line in hunk(old, new):
        bare = line[0] + line[1:].rstrip(" ")
        lines.append((bare + "\u00b7" * (len(line) - len(bare)) if line[0] in "+-" else bare)[:WIDEST])
    return tuple(lines)
