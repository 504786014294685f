"""Which functions a training step can reach, what changed in them, line by line, and what that is known to mean."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import translate
from itertools import accumulate, takewhile, zip_longest
from typing import NamedTuple

from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.files import JsonObject
from envdoctor.revision.code.parts.canonical import LOOKS_AT_NAMES, MODULE_LEVEL, QUIET
from envdoctor.revision.code.parts.changes import FilePair
from envdoctor.revision.code.parts.loaded import CodeSide, on_the_path
from envdoctor.revision.code.parts.tree import NAME, Definition, assigned, inlined, names_of
from envdoctor.revision.comparer import LONGEST, UNNAMED, WIDEST, Change, Revisions, hunk, read_json, visible
from envdoctor.system.message import Message

#: Lines of definitions that are compared line by line in all.
_MAX_DIFFED = 60_000
#: More changed statements of a function are a rewrite, and more of all functions another model: no cause is told.
_REWRITE, _ANOTHER_MODEL = 30, 20_000
#: Kinds of changes of what is written between the lines of a definition; the last two only of methods.
_BODIES = ("definition-changed", "definition-added", "definition-removed")
_TABLE = "training-code"
_SWITCHES = re.compile(r"checkpoint|isinstance\(module")
_SWITCHING_KINDS = frozenset(f"gradient-checkpointing-{word}" for word in ("noop", "fails", "mended"))
_NAMING_KINDS = frozenset(("name-undefined", "name-mended"))
_FIRST_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"(?<![\w'])([^\W\d]\w*)(?![\w'])(=?)")
#: What may do something: calls by their names, and words.
_DOES = re.compile(r"\b(?:\w+(?=\()|yield\b|await\b)| :?= ")
#: ``mask=mask`` gives what ``mask`` gives, and a value the same numbers on another device.
_SAME_NAME = re.compile(r"\b(\w+)=\1\b(?![.\w(\[])|\.to\((?:device=)?[\w.]*\bdevice\)(?=.)")
_EXPANDS = re.compile(r"\.expand(?:_as)?\([^()]*(?:\([^()]*\)[^()]*)*\)$")
_IN_PLACE = re.compile(r"\.\w+_\(|\[.*\] [-+*/|&]?= | [-+*/|&]= ")
_OFF = frozenset({"False", "None", "0", "0.0"})
_TOKEN = re.compile(r"'[^']*'|[A-Za-z_]\w*|\d[\w.]*|[-+*/<>=!&|^~%@]+|\S")
#: The same, with dotted names as one.
_DOTTED = re.compile(_TOKEN.pattern.replace(r"]\w*", r"][\w.]*", 1))
_OPERATOR = re.compile(r"[-+*/<>=!&|^~%@]+\Z|not\Z")
#: What a number stands behind that a result depends on: an operator, the name of a dimension, a size, a triangle.
_COUNTS = re.compile(r"(?:[*/+@]\(?|\b(?:dim|axis|diagonal)=\(?|\.(?:size|triu|tril)\(|\.shape\[)-?$")
#: Numbers in the shape of a tensor, and a number's own sign, which may count the same axis from the other end.
_LIKE = re.compile(r"\b(torch\.(?:zeros|ones|empty|rand|randn)_like\()([\w.]+)(?:, dtype=[\w.]+)?\)")
_SIGNED = re.compile(r"-(?=\d)")
_KEYWORD = re.compile(r"\b\w+=(?!=)(?:[^=,()]|\((?:[^()]|\([^()]*\))*\))+")
#: Statements that may have changed places together, and characters of one that stands before another.
_FEW, _SHORT = 4, 40
_LOST, _TURNED = Message("nothing takes its place"), Message("an operator is turned round")


class _Cause(NamedTuple):
    """A row of the table: what a change of these words (of a group of them, where there is one) means. ``where`` are
    functions, by their qualified names, and ``files`` paths; ``whole`` compares whole statements that hold such a
    word; ``both`` tells only words for others, or what one or two statements did. A statement that has the words
    ``instead`` takes it over, or gives it up; ``without`` is cut out before words are sought."""

    kind: str
    whole: bool
    both: bool
    words: re.Pattern[str]
    where: re.Pattern[str]
    files: re.Pattern[str]
    instead: re.Pattern[str]
    without: re.Pattern[str]

    def found_in(self, lines: Iterable[str]) -> Counter[str]:
        """Count the words, or the statements, of some lines."""
        counts: Counter[str] = Counter()
        for line in lines:
            text = "" if line.lstrip().startswith(("from ", "import ")) else self.without.sub("", line)
            words = [match[match.lastindex or 0] for match in self.words.finditer(text)]
            counts.update([line.strip()] if words and self.whole else words)
        return counts

    def found_twice(self, lines: Sequence[str], heads: Collection[str]) -> Counter[str]:
        """Count what stands in both arms of these conditions, of which one runs."""
        counts: Counter[str] = Counter()
        for place, line in [part for part in enumerate(lines) if _plain(part[1].strip()) in heads][:_REWRITE]:
            mark = " " * (len(line) - len(line.lstrip()) + 1)
            inside = [*takewhile(lambda one, start=mark: one.startswith(start), lines[place + 1 :])]  # type: ignore[misc]
            other = inside.index(f"{mark}block 1") if f"{mark}block 1" in inside else 0
            counts += self.found_in(inside[:other]) & self.found_in(inside[other:])
        return counts


def _causes(matrix: Matrix) -> list[_Cause]:
    rows = matrix.rows(_TABLE)
    parts = {"words": "", "where": "", "files": "", "instead": r"(?!)", "without": r"(?!)"}
    flags = [[row["kind"], *(row.get(flag, False) for flag in ("whole", "both"))] for row in rows]
    patterns = [[re.compile(row.get(part, default)) for part, default in parts.items()] for row in rows]
    return [_Cause(*first, *rest) for first, rest in zip(flags, patterns, strict=True)]


class _Both(NamedTuple):
    """A function of both revisions, with statements of one alone; some may be told, or only names and prints differ."""

    path: str
    old: Definition
    new: Definition
    gone: Counter[str]
    come: Counter[str]
    is_told: bool
    is_alike: bool

    @property
    def changed(self) -> int:
        """Return how many statements changed."""
        return self.gone.total() + self.come.total()


def told(
    changes: Sequence[Change], pairs: Sequence[FilePair], revisions: Revisions, code_sides: Sequence[CodeSide]
) -> Iterator[Change]:
    """Yield the changes; those of bodies and values with what they mean, or as changed and not judged, with the lines.
    What no training step reaches keeps its kind."""
    entries = {entry.name for side in code_sides for entry in side.entries}
    path = on_the_path((code for pair in pairs for code in (pair.old, pair.new)), entries)
    by_path = {pair.path: tuple({one.name: one for one in code.definitions} for code in pair[2:]) for pair in pairs}
    paths = {pair.path: (pair.old_path, pair.new_path) for pair in pairs}
    sides = [tuple(side.get(change.symbol) for side in by_path.get(change.path, ({}, {}))) for change in changes]
    both = _functions(changes, sides, _spoken(pairs, revisions.matrix), _renamed(changes, sides, pairs))
    kinds = Counter(change.kind for change in changes)
    alone = sum(bool(one.changed) for one in both.values()) + kinds["signature-changed"] <= 1
    everywhere = _everywhere(both.values(), changes, by_path, _causes(revisions.matrix))
    fresh, helpers = _one_sided(pairs)
    budget = _MAX_DIFFED
    for change, (old, new) in zip(changes, sides, strict=True):
        one = new or old
        is_method = one is not None and one.kind == "function" and bool(one.owner)
        body = change.kind in _BODIES[: 3 if is_method else 1]
        if change.kind == "default-changed" and old and new:
            defaults = {parameter.name: parameter.default for parameter in old.parameters}
            other = {one.name for one in new.parameters if one.name in defaults and one.default != defaults[one.name]}
            # Unused is a default that config.json sets, or of what no step calls.
            if other <= _settings(revisions) if "Config" in new.owner else new.name not in path:
                change = change._replace(kind="default-unused")
        if change.kind in _NAMING_KINDS and change.symbol not in path:
            continue
        if not body and change.kind not in _SWITCHING_KINDS | _NAMING_KINDS:
            yield change
            continue
        budget -= sum(each.last - each.first + 1 for each in (old, new) if each)
        if budget > 0:
            shown = [
                side.texts.get(where or "", [])[each.first - 1 : each.last] if each else ()
                for each, where, side in zip((old, new), paths[change.path], code_sides, strict=True)
            ]
            lines = hunk(*shown, starts=[each.first - 1 if each else 0 for each in (old, new)])
            change = change._replace(hunk=tuple(line[:WIDEST] for line in lines))
        # At module level conditions and attempts stand around imports and definitions, which are told by themselves.
        heads = all(text.startswith(("if ", "try, ")) for text in (change.before, change.after) if text)
        if not body or (change.symbol not in path and (change.symbol != MODULE_LEVEL or heads)):
            yield change
            continue
        function = both.get((change.path, change.symbol))
        meanings, rest = _meanings(function, everywhere, fresh, helpers, alone) if function else ([], True)
        for kind, lost, gained, detail in meanings:
            yield change._replace(kind=kind, before=_words(lost), after=_words(gained), detail=detail or change.detail)
        if function and function.is_alike and not rest:
            yield change._replace(kind="formatting-only")
        elif rest or not (meanings or (function and function.is_told)):
            counts = [sum(line.startswith(sign) for line in change.hunk) for sign in "+-"]
            amount = Message("+{} -{}", *counts) if change.hunk else change.detail
            if function and not (everywhere and function.changed <= _REWRITE):
                amount = Message("{} statements changed, too many to seek a cause", function.changed)
            yield change._replace(kind=UNNAMED, detail=amount)


def _settings(revisions: Revisions) -> set[str]:
    """Return the keys of config.json that both sides set."""
    sides = (revisions.new,) if revisions.same("config.json") else (revisions.old, revisions.new)
    documents = [read_json(side, "config.json") for side in sides]
    return set.intersection(
        *({*document.data} if isinstance(document, JsonObject) else set[str]() for document in documents)
    )


def _spoken(pairs: Sequence[FilePair], matrix: Matrix) -> Callable[[str], bool]:
    """Return what tells whether the old code speaks of a name, or transformers reads a key of that name itself."""
    words = {name for pair in pairs for part in pair.old.definitions for name in part.mentions}
    keys = "|".join(translate(key) for row in matrix.rows("config-keys", "kind") for key in row["keys"])
    return lambda name: name in words or re.match(keys, name) is not None


#: Names of the old code, and what the new code calls the same: definitions, and parameters.
_Renamed = tuple[Mapping[str, str], Mapping[str, str]]


def _renamed(
    changes: Sequence[Change], sides: Iterable[tuple[Definition | None, ...]], pairs: Sequence[FilePair]
) -> _Renamed:
    """Return definitions with another name and the same body, where no side speaks of the other's, and parameters."""
    codes = [pair.old for pair in pairs], [pair.new for pair in pairs]
    spoken = [
        {name for code in side for one in code.definitions for name in (*one.mentions, one.leaf)} for side in codes
    ]
    moves = [one for one in changes if one.kind == "definition-moved"]
    names = {(one.before or "").rpartition(".")[2].rpartition(" ")[2]: one.symbol.rpartition(".")[2] for one in moves}
    names = {old: new for old, new in names.items() if old not in spoken[1] and new not in spoken[0]}
    return names, {name: new for one, two in sides if one and two for name, new in _parameters(one, two).items()}


def _parameters(old: Definition, new: Definition) -> Mapping[str, str]:
    """Return the parameters that have other names in the same places, which the other function does not know."""
    if len(old.parameters) != len(new.parameters):
        return {}
    names = [{item.name for item in side.parameters}.union(*names_of(side.lines)) for side in (old, new)]
    pairs = [pair for pair in zip(old.parameters, new.parameters, strict=True) if pair[0][1:] == pair[1][1:]]
    return {item.name: other.name for item, other in pairs if item.name not in names[1] and other.name not in names[0]}


def _compared(old: Definition, new: Definition, renamed: _Renamed) -> list[list[str]]:
    """Return the statements of both functions, without those that only ask for what nothing reads (it was printed) and
    the other function does not bind, and of no parameter that may be None; what the new code lacks has its names."""
    parameters = _parameters(old, new)

    def spelled(word: re.Match[str]) -> str:
        name, keyword = word.groups()
        new_name = parameters.get(name) or renamed[0].get(name) or (renamed[1].get(name) if keyword else None)
        return (new_name or name) + keyword

    statements, names = list[list[str]](), [names_of(function.lines) for function in (old, new)]
    for function, (bound, reads), (there, _) in zip((old, new), names, reversed(names), strict=True):
        lone = bound - reads - there if LOOKS_AT_NAMES.isdisjoint(function.mentions) else set[str]()
        perhaps = {parameter.name for parameter in function.parameters if parameter.default == "None"}
        lines = [(line, line.partition(" = ")[0] in lone and "…" not in line) for line in _statements(function)]
        lines = [(line, idle and perhaps.isdisjoint(_TOKEN.findall(line))) for line, idle in lines]
        statements.append([line for line, idle in lines if not (idle and QUIET.issuperset(_DOES.findall(line)[1:]))])
    statements = [inlined(*sides) for sides in (statements, reversed(statements))]
    new_lines = {*statements[1]}
    return [[line if line in new_lines else _plain(_WORD.sub(spelled, line)) for line in statements[0]], statements[1]]


def _functions(
    changes: Sequence[Change],
    sides: Iterable[tuple[Definition | None, ...]],
    spoken: Callable[[str], bool],
    renamed: _Renamed,
) -> dict[tuple[str, str], _Both]:
    """Return the changed functions by file and name, without statements that are told already or differ in ``renamed``
    names alone, and without what only stores an option that nothing was ``spoken`` of: what reads it changed too."""
    patterns: dict[tuple[str, str], list[re.Pattern[str]]] = defaultdict(list)
    for change in changes:
        if change.kind in _SWITCHING_KINDS | _NAMING_KINDS:
            names = (change.before or change.after or "").replace(", ", "|")
            words = re.compile(rf"\b(?:{names})\b") if change.kind in _NAMING_KINDS else _SWITCHES
            patterns[change.path, change.symbol].append(words)
    functions: dict[tuple[str, str], _Both] = {}
    for change, (old, new) in zip(changes, sides, strict=True):
        if change.kind == _BODIES[0] and old and new and old.kind == new.kind == "function":
            lines = _compared(old, new, renamed)
            before, after = map(Counter, lines)
            gone, come, key = before - after, after - before, (change.path, change.symbol)
            options = {item.name for item in new.parameters if "Config" in new.owner and not spoken(item.name)}
            stored = {f"self.{name} = {name}" for name in options.difference(item.name for item in old.parameters)}
            come = Counter({line: number for line, number in come.items() if line not in stored})
            if key in patterns:
                spoken_of = {line for line in (*gone, *come) if any(words.search(line) for words in patterns[key])}
                gone, come = _without(spoken_of, gone, come)
            alike = lines[0] == lines[1] and [*_statements(old)] != [*_statements(new)]
            functions[key] = _Both(change.path, old, new, gone, come, bool(stored) or key in patterns, alike)
    return functions


def _plain(line: str) -> str:
    return _SAME_NAME.sub(r"\1", _SAME_NAME.sub(r"\1", line))


def _statements(function: Definition) -> Iterator[str]:
    """Yield the statements, and with each that writes in place into an expanded tensor the one that expands it."""
    expanded: dict[str, str] = {}
    for line in function.lines:
        line = _plain(line.strip())
        yield line
        match = _FIRST_NAME.match(line)
        name, end = (match[0], match.end()) if match else ("", 0)
        if name and _EXPANDS.search(line) and " = " in line:
            expanded[name] = line
        elif name in expanded and _IN_PLACE.match(line, end):
            yield f"{expanded[name]}; {line}"
        elif line.startswith(f"{name} = "):
            expanded.pop(name, None)


def _one_sided(pairs: Sequence[FilePair]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of the options that only the new configurations have and that are off by default, and of calls of
    functions that one revision alone has."""
    codes = [pair.old for pair in pairs], [pair.new for pair in pairs]
    sides = [[one for code in side for one in code.definitions if one.kind == "function"] for side in codes]
    options = [[one for one in side if one.name.endswith("Config.__init__")] for side in sides]
    old, new = ([item for one in side for item in one.parameters] for side in options)
    off = {item.name for item in new if item.default in _OFF}.difference(item.name for item in old)
    helpers = {one.leaf for one in sides[0]} ^ {one.leaf for one in sides[1]}
    groups = ["|".join(map(re.escape, sorted(names))) or "(?!)" for names in (off, helpers)]
    return re.compile(rf"\b(?:{groups[0]})\b"), re.compile(rf"\b(?:{groups[1]})\(")


#: The definitions of a file by name, old and new, and by cause the words that went and that came.
_Named = Mapping[str, tuple[Mapping[str, Definition], ...]]
_Everywhere = dict[_Cause, tuple[Counter[str], Counter[str]]]
#: A kind of change, the words that went and that came, and what became of the only statement that changed.
_Meaning = tuple[str, Counter[str], Counter[str], Message | None]


def _everywhere(
    both: Iterable[_Both], changes: Iterable[Change], by_path: _Named, rows: Sequence[_Cause]
) -> _Everywhere:
    """Return what all functions lost and gained: a word that went here and came there was moved."""
    sides: list[list[str]] = [[], []]
    for function in both:
        sides[0] += function.gone.elements()
        sides[1] += function.come.elements()
    whole = {(change.path, change.kind, change.symbol) for change in changes}
    # What a helper returns is what was assigned before.
    given = [{line.partition(" = ")[2]: line for line in side} for side in reversed(sides)]
    for path, both_sides in by_path.items():
        for kind, side, other, definitions in zip(_BODIES[:0:-1], sides, given, both_sides, strict=True):
            for part in definitions.values():
                if any((path, kind, name) in whole for name in accumulate(part.name.split("."), "{}.{}".format)):
                    side += [other.get(line.removeprefix("return "), line) for line in _statements(part)]
    rows = rows if sum(map(len, sides)) <= _ANOTHER_MODEL else ()
    return {row: (row.found_in(sides[0]), row.found_in(sides[1])) for row in rows}


def _meanings(
    function: _Both, everywhere: _Everywhere, fresh: re.Pattern[str], helpers: re.Pattern[str], alone: bool
) -> tuple[list[_Meaning], bool]:
    """Return what the change means, cause by cause, and whether the function changed beyond that. A statement is told
    once. Statements that came with a ``fresh`` option are not judged, for it is off, and calls of ``helpers`` that one
    revision has are not, for their statements are. Parts change places only where the function changed ``alone``."""
    meanings: list[_Meaning] = []
    _, old, new, gone, come, *_ = function
    optional, whole_edit, is_judged = any(map(fresh.search, come)), _edit_of(gone, come), function.changed <= _REWRITE
    helped = [line for line in (*gone, *come) if helpers.search(line)]
    gone, come = _without(helped, gone, come)
    for row, (lost, gained) in everywhere.items() if is_judged else ():
        moved = [sum(row.instead.search(line) is not None for line in side) for side in function[3:5]]
        if moved[0] != moved[1] or not (row.where.search(new.name) and row.files.search(function.path)):
            continue
        before, after = row.found_in(gone.elements()), row.found_in(come.elements())
        lost_lines, lines_gained = before - after - (gained - after), after - before - (lost - before)
        edit = None if gained - after else whole_edit
        if edit == _TURNED and before and not (lost_lines or lines_gained) and (row.whole or "mask" in row.kind):
            lost_lines, lines_gained = gone, come
        lost_lines -= row.found_twice(old.lines, function.gone) if lost_lines else lost_lines
        lines_gained -= row.found_twice(new.lines, function.come) if lines_gained else lines_gained
        if row.both and not (lost_lines and lines_gained):
            continue
        if lost_lines or (lines_gained and not optional):
            meanings.append((row.kind, lost_lines, lines_gained, edit))
            judged = {
                line
                for line in (*gone, *come)
                if {*row.found_in([line])} & {*lost_lines, *lines_gained} or line in lost_lines + lines_gained
            }
            gone, come = _without(judged, gone, come)
    if is_judged and not any(edit for *_, edit in meanings):
        other = _replaced(function.gone, function.come, old, alone and not meanings)
        places = _places(function) if alone else None
        checks = any(line.startswith("assert ") for line in function.gone)
        is_one = function.gone.total() == 1 == function.come.total()
        unread = _no_longer_read(old, new, is_one and not checks)
        if other:
            return [*meanings, ("value-replaced", Counter(other[:1]), Counter(other[1:]), None)], False
        meanings += [("value-unused", Counter(unread), Counter(), None)] if unread else []
        if places:
            return [*meanings, places], False
    reordered = not (function.changed or function.is_told or function.is_alike) and old.lines != new.lines
    return meanings, bool(gone or come or helped) or reordered


def _places(function: _Both) -> _Meaning | None:
    """Return what stands in another place: parts of the changed statements, which are the same otherwise, or the one
    statement that reads what another one gave before."""
    before, after = (Counter(map(str.strip, part.lines)) for part in (function.old, function.new))
    if before == after:
        before, after = (_givers(part.lines) for part in (function.old, function.new))
        gone, come = before - after, after - before
        return ("order-changed", gone, come, None) if gone.total() == 1 == come.total() else None
    gone, come = before - after, after - before
    words = [Counter(_TOKEN.findall("\n".join(side.elements()))) for side in (gone, come)]
    parts = [sorted(map(_unordered, side.elements())) for side in (gone, come)]
    gives = all(" = " in line or line.startswith("return ") for line in (*gone, *come))
    same = words[0] == words[1] and gone.total() == come.total() <= _FEW
    return ("places-changed", gone, come, None) if same and gives and parts[0] != parts[1] else None


def _unordered(line: str) -> list[str]:
    """Return the parts of a statement, sorted where their order means nothing."""
    words, rest = _KEYWORD.findall(line), _KEYWORD.sub("", line)
    target, _, value = rest.rpartition(" = ")
    return [target, *sorted(words), *sorted(" * ".join(sorted(term.split(" * "))) for term in value.split(" + "))]


def _givers(lines: Sequence[str]) -> Counter[str]:
    """Count the statements, each with the one that gave a name that it reads."""
    giver_of, counts = dict[str, str](), Counter[str]()
    for line in map(str.strip, lines):
        target, value = assigned(line)
        for name in {*NAME.findall(value)}:
            giver = giver_of.get(name, "")
            counts[f"{giver[:_SHORT]}{'…' * (len(giver) > _SHORT)}; {line}" if giver else line] += 1
        giver_of |= dict.fromkeys(NAME.findall(target), line)
    return counts


def _without(judged: Collection[str], *sides: Counter[str]) -> Iterator[Counter[str]]:
    """Yield the statements of each side without the told ones and their counterparts on the other side."""
    for side, other in zip(sides, reversed(sides), strict=True):
        there = [line for line in other if line in judged and line not in side and len(side) <= _REWRITE]
        mates = {mate for line in there for mate in get_close_matches(line, [*side.keys() - judged], 1)}
        yield Counter({line: number for line, number in side.items() if line not in judged and line not in mates})


def _words(counts: Counter[str]) -> str | None:
    text = ", ".join(list(counts)[:4])
    return visible(text)[:LONGEST] or None


def _edit_of(gone: Counter[str], come: Counter[str]) -> Message | None:
    """Return how the only changed statement changed: it or a part of it is gone, or an operator differs; else None.
    What goes with its condition counts once, and so does the same edit of a few statements."""
    if not come and sum(number for line, number in gone.items() if not line.startswith("if ")) == 1:
        return _LOST
    if not come.total() <= gone.total() <= max(1, min(come.total(), _FEW)):
        return None
    pairs = zip_longest(gone.elements(), come.elements(), fillvalue="")
    edits = {_token_edit(*map(_TOKEN.findall, pair)) for pair in pairs}
    return edits.pop()[0] if len(edits) == 1 else None


def _token_edit(before: Sequence[str], after: Sequence[str]) -> tuple[Message | None, str]:
    """Return what became of one statement, and the parts that went or were turned round."""
    if [word for word in before if not _OPERATOR.match(word)] == [word for word in after if not _OPERATOR.match(word)]:
        return _TURNED, " ".join(map("".join, zip(before, after, strict=False)))
    first = next((word for word, other in zip(before, after, strict=False) if word != other), "")
    rest = iter(before)
    # What is called may not take an argument any more.
    is_part = first != "," and all(token in rest for token in after)
    return (_LOST if is_part else None), " ".join((Counter(before) - Counter(after)).elements())


def _replaced(gone: Counter[str], come: Counter[str], old: Definition, alone: bool) -> tuple[str, str] | None:
    """Return the one name of the only changed statement and the name that replaced it, if the old function has both; of
    a number that counts, what stands beside it; of a tensor, what has its shape alone. Where the statement changed
    ``alone`` and for no known cause, what it gave before and gives with an operator turned round."""
    if gone.total() != 1 or come.total() != 1:
        return None
    (target, _, before), (other, _, after) = (next(iter(side)).rpartition(" = ") for side in (gone, come))
    if target == other and (likes := _LIKE.findall(after)) and _LIKE.sub(r"\2", after) == before:
        return likes[0][1], "".join(likes[0])
    if alone and target == other and _token_edit(*map(_TOKEN.findall, (before, after)))[0] == _TURNED:
        parts = [sorted(_TOKEN.findall(_SIGNED.sub("", side))) for side in (before, after)]
        return (before, after) if parts[0] != parts[1] and (target or before.startswith("return ")) else None
    was, now = _DOTTED.findall(before), _DOTTED.findall(after)
    pairs = [(place, *pair) for place, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]]
    if target != other or not (target or before.startswith("return ")) or len(was) != len(now) or len(pairs) != 1:
        return None
    ((place, before_token, token),) = pairs
    if before_token[0].isdigit() and token[0].isdigit():
        near = slice(max(0, place - 3), place + 2)
        counts = _COUNTS.search("".join(was[max(0, place - 4) : place]))
        return ("".join(was[near]), "".join(now[near])) if counts else None
    (root, _, rest), (new_root, _, new_rest) = (one.partition(".") for one in (before_token, token))
    old_names = names_of(old.lines)[0].union(parameter.name for parameter in old.parameters)
    reads = old_names.union(*map(_DOTTED.findall, old.lines)) if rest and new_rest else old_names
    # A part of self may be the same part of the configuration, and a method of a tensor another spelling.
    is_called = was[place + 1 : place + 2] == ["("]
    is_other = "self" not in (root, new_root) if rest == new_rest else root == "self" or not is_called
    are_one = any(line.strip() in (f"{before_token} = {token}", f"{token} = {before_token}") for line in old.lines)
    known = old_names.issuperset((root, new_root)) and (rest == new_rest or reads.issuperset((before_token, token)))
    return (before_token, token) if known and is_other and not are_one else None


def _no_longer_read(old: Definition, new: Definition, alone: bool) -> list[str]:
    """Return names that both give a value and only the old one reads; parameters too if ``alone`` changed."""
    if any("…" in line for part in (old, new) for line in part.lines):
        return []
    (bound, reads), (still_bound, still_read) = (names_of(part.lines) for part in (old, new))
    if alone:
        bound |= {parameter.name for parameter in old.parameters}
        still_bound |= {parameter.name for parameter in new.parameters}
    return sorted((bound & reads & still_bound) - still_read)
