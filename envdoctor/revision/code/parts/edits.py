"""What the edit of one statement does to a function that is otherwise the same, and which names it reads no more."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from envdoctor.revision.code.parts.tree import Definition, FileCode
from envdoctor.text.message import Message

_TOKEN = re.compile(r"'[^']*'|[A-Za-z_]\w*|\d[\w.]*|[-+*/<>=!&|^~%@]+|\S")
_OPERATOR = re.compile(r"[-+*/<>=!&|^~%@]+\Z|not\Z")
_TARGET = re.compile(r"[\w, ()*]+\Z")
#: A name that is no attribute, no keyword's and no word in quotes.
_NAME = re.compile(r"(?<![.\w'])[A-Za-z_]\w*(?!\w|'|=(?!=))")
_MADE = re.compile(r"self\.(\w+) = (\w+)\(")
#: What is unpacked from these is often not used.
_SIZES = re.compile(r"\.(?:size\(\)|shape\b)|get_batch_size|config\.")
LOST, TURNED = Message("nothing takes its place"), Message("an operator is turned round")


def edit_of(gone: Counter[str], come: Counter[str]) -> Message | None:
    """Return what became of the only statement that changed: a part of it is gone, or an operator is another one; None
    for anything else."""
    if gone.total() != 1 or come.total() > 1:
        return None
    before, after = (_TOKEN.findall(next(iter(side), "")) for side in (gone, come))
    if _plain(before) == _plain(after):
        return TURNED
    first = next((one for one, other in zip(before, after, strict=False) if one != other), "")
    rest = iter(before)
    # What is called may not take an argument any more.
    return LOST if first != "," and all(token in rest for token in after) else None


def replaced(gone: Counter[str], come: Counter[str], old: Definition) -> tuple[str, str] | None:
    """Return the one name of the only statement that changed and the other name that stands in its place, where the old
    function has both."""
    if gone.total() != 1 or come.total() != 1:
        return None
    (target, _, before), (other, _, after) = (next(iter(side)).rpartition(" = ") for side in (gone, come))
    if target != other or not (target or before.startswith("return ")):
        return None
    was, now = _TOKEN.findall(before), _TOKEN.findall(after)
    pairs = [pair for pair in zip(was, now, strict=False) if pair[0] != pair[1]]
    if len(was) != len(now) or len(pairs) != 1:
        return None
    known = _names(old.lines)[0].union(one.name for one in old.parameters)
    are_one = any(line.strip() in (f"{a} = {b}", f"{b} = {a}") for a, b in pairs for line in old.lines)
    return pairs[0] if known.issuperset(pairs[0]) and not are_one else None


def _plain(tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if not _OPERATOR.match(token)]


def no_longer_read(old: Definition, new: Definition, alone: bool) -> list[str]:
    """Return the names that both functions give a value and only the old one reads; parameters where nothing else
    changed (``alone``), for many are there for their callers."""
    if any("…" in line for one in (old, new) for line in one.lines):
        return []
    (bound, read), (still_bound, still_read) = (_names(one.lines) for one in (old, new))
    if alone:
        bound |= {one.name for one in old.parameters}
        still_bound |= {one.name for one in new.parameters}
    return sorted((bound & read & still_bound) - still_read)


def _names(lines: Sequence[str]) -> tuple[set[str], set[str]]:
    """The names that some statements give a value, and those that they read, but for that value itself."""
    bound, read = set[str](), set[str]()
    for line in lines:
        target, _, value = line.strip().partition(" = ")
        names = {*_NAME.findall(target)} if value and _TARGET.match(target) else set()
        read |= {*_NAME.findall(value if names else line)} - names
        bound |= names if not _SIZES.search(value) else set()
    return bound, read


def refused(code: FileCode) -> Iterator[tuple[str, str, str]]:
    """Yield each method that gives a keyword to another one of its file, or to a module that its class makes, which
    takes no such parameter: the method, what it calls, and the keyword."""
    functions = {one.name: one for one in code.definitions if one.kind == "function"}
    for one in functions.values():
        maker = functions.get(f"{one.owner}.__init__")
        made = dict(_MADE.findall("\n".join(maker.lines))) if maker else {}
        for call in one.calls if one.owner else ():
            owner, _, leaf = call.name.partition(".")
            called = functions.get(f"{one.owner}.{leaf}") or functions.get(f"{made.get(leaf)}.forward")
            if owner != "self" or called is None or any(taken.kind == "**" for taken in called.parameters):
                continue
            takes = {taken.name for taken in called.parameters if taken.kind != "positional"}
            words = [word.partition("=")[0] for word in call.keywords if word != "**"]
            yield from ((one.name, called.name, word) for word in words if word not in takes)
