"""What changed in Python files, from what is known of each before and after: which lives on under another name, and
which definitions, statements and imports came, went or are others."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from envdoctor.revision.code.parts.canonical import MODULE_LEVEL
from envdoctor.revision.code.parts.tree import NO_CODE, Definition, FileCode, Parameter
from envdoctor.revision.comparer import Change
from envdoctor.system.message import Message

#: Smaller bodies are alike by chance.
_LIGHTEST = 16
_SHARED = 0.5
_GRADIENT_HOOK = "_set_gradient_checkpointing"
_GRADIENT_FLAG = "supports_gradient_checkpointing"
_SWITCH_METHODS = ("gradient_checkpointing_enable", _GRADIENT_HOOK)
_NOOP = "gradient-checkpointing-noop"
_ATTENTION_CLASS = re.compile(r"attention|attn|sdpa", re.IGNORECASE)
_NO_ATTENTION_CLASS = re.compile(r"mask|config|output|pool", re.IGNORECASE)
_ATTENTION_PARAMETER = re.compile(r"(attn|attention)_?impl|flash_?attn|flash_attention|use_sdpa", re.IGNORECASE)
_CHECKPOINT_KEYWORDS = frozenset(
    ["use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"]
)
_READS_FLAG = re.compile(r"self\.gradient_checkpointing\b(?! = )")
_DEAD = re.compile(r"\bnot self\.training\b|\band False\b|\bFalse and\b|^ *if False\b")
_ISINSTANCE = re.compile(r"isinstance\(\w+, \(?([\w., ]+)\)")
_MADE = re.compile(r"self\.(\w+) = (\w+)\(")
_MAX_NAMES = 6
#: Fewer names by position may be those of another function.
_FEWEST = 3
#: Functions and calls of a file that are looked at for them.
_MOST = 200
#: Values of a class by which transformers loads weights.
_LOADING_VALUE = re.compile(r"_tied_weights_keys|_keep_in_fp32_modules\w*|_checkpoint_conversion_mapping")
_ATTENTION_VALUE = re.compile(r"^_supports_(sdpa|flash)|attention_classes$", re.IGNORECASE)
#: Packages that whoever loads a model with transformers and torch has.
_AT_HAND = frozenset(
    {"torch", "transformers", "numpy", "huggingface_hub", "tokenizers", "safetensors", "packaging", "yaml", "regex"}
    | {"requests", "tqdm", "filelock", "typing_extensions"}
)

#: Names that several definitions of a file share are told apart by their order.
Named = Mapping[tuple[str, int], Definition]
_change = partial(Change, "code")


class FilePair(NamedTuple):
    """One file before and after: no path and no code where there is none. The paths differ when it was renamed."""

    old_path: str | None
    new_path: str | None
    old: FileCode
    new: FileCode

    @property
    def path(self) -> str:
        """Return the path to report: the new one if there is one."""
        return self.new_path or self.old_path or ""


def pair_files(old: Mapping[str, FileCode], new: Mapping[str, FileCode]) -> list[FilePair]:
    """Pair the files by path; a removed and an added file are one if they share half of their definitions."""
    pairs = [FilePair(path, path, old[path], new[path]) for path in sorted(old.keys() & new.keys())]
    gone = {path: {definition.name for definition in old[path].definitions} for path in sorted(old.keys() - new.keys())}
    for path in sorted(new.keys() - old.keys()):
        names = {definition.name for definition in new[path].definitions}
        best = max(gone, key=lambda other: len(names & gone[other]), default=None)
        if best is not None and names and len(names & gone[best]) >= _SHARED * max(len(names), len(gone[best])):
            pairs.append(FilePair(best, path, old[best], new[path]))
            del gone[best]
        else:
            pairs.append(FilePair(None, path, NO_CODE, new[path]))
    pairs += [FilePair(path, None, old[path], NO_CODE) for path in gone]
    return sorted(pairs, key=lambda pair: pair.path)


#: Definitions that moved, by path and name: in the old and in the new revision.
_Moved = tuple[set[tuple[str, str]], set[tuple[str, str]]]


def moved_definitions(pairs: Sequence[FilePair]) -> tuple[list[Change], _Moved]:
    """Return the changes of definitions with the same body elsewhere, whole classes only, and where both are."""
    changes, moved = list[Change](), (set[tuple[str, str]](), set[tuple[str, str]]())
    waiting: dict[str, list[tuple[str, Definition]]] = {}
    for pair in pairs:
        for definition in _lone(_named(pair.old), _named(pair.new)):
            if definition.kind != "value" and definition.weight >= _LIGHTEST:
                waiting.setdefault(definition.sense, []).append((pair.old_path or "", definition))
    for pair in pairs:
        for definition in _lone(_named(pair.new), _named(pair.old)):
            candidates = waiting.get(definition.sense)
            if candidates:
                same_name = [index for index, (_, other) in enumerate(candidates) if other.leaf == definition.leaf]
                old_path, other = candidates.pop(same_name[0] if same_name else 0)
                moved[0].add((old_path, other.name))
                moved[1].add((pair.path, definition.name))
                before = other.name if old_path == pair.path else f"{old_path}: {other.name}"
                changes.append(_change("definition-moved", pair.path, definition.name, before, definition.name))
    return changes, moved


def compare_file(pair: FilePair, moved: _Moved) -> Iterator[Change]:
    """Yield the changes of a file that is in both revisions, without what was moved."""
    before, after = _named(pair.old), _named(pair.new)
    values = {definition.name for definition in pair.new.definitions if definition.kind == "value"}
    gates = values.intersection(site.scope for site in pair.new.sites if site.is_gate)
    for key, new in after.items():
        if key in before:
            yield from _definition(pair.path, before[key], new)
        elif not ((pair.path, new.name) in moved[1] or new.name in gates or _inside(new, before, after)):
            yield from _definition(pair.path, None, new, is_kept="." in new.name)
    for old in _lone(before, after):
        if (pair.old_path or "", old.name) not in moved[0]:
            stays = old.owner in {name for name, _ in after} and not _may_inherit(old, before, after)
            yield from _definition(pair.path, old, None, is_kept=stays)
    yield from _statements(pair)
    yield from _imports(pair)
    yield from _checkpointing(pair)
    yield from _undefined(pair)
    yield from _misplaced(pair)


def one_sided(pair: FilePair) -> Iterator[Change]:
    """Yield the changes of a file that was added or removed as a whole."""
    state, code = ("added", pair.new) if pair.new_path else ("removed", pair.old)
    yield _change(f"file-{state}", pair.path, pair.path, count=max(1, len(code.definitions)))
    for definition in code.definitions:
        changes = _definition(pair.path, *((None, definition) if pair.new_path else (definition, None)))
        yield from (change for change in changes if change.kind in (f"attention-class-{state}", _NOOP))
    if pair.new_path:
        yield from _packages_required(pair)


def _named(code: FileCode) -> Named:
    counts: Counter[str] = Counter()
    definitions: dict[tuple[str, int], Definition] = {}
    for definition in code.definitions:
        definitions[definition.name, counts[definition.name]] = definition
        counts[definition.name] += 1
    return definitions


def _lone(here: Named, there: Named) -> list[Definition]:
    """Return the definitions that are missing there, whole classes only."""
    return [definition for key, definition in here.items() if key not in there and not _inside(definition, there, here)]


def _inside(definition: Definition, there: Named, here: Named) -> bool:
    """Return whether the definition is in a class that itself is missing there: the class stands for it."""
    names = definition.owner.split(".")
    scopes = [(".".join(names[:end]), 0) for end in range(1, len(names) + 1)]
    return any(scope in here and scope not in there for scope in scopes)


def _may_inherit(value: Definition, before: Named, after: Named) -> bool:
    """Return whether a base may give the flag that a class no longer sets: it has other bases, or a class sets it."""
    if not value.name.endswith(f".{_GRADIENT_FLAG}"):
        return False
    flags = [name for name, _ in after if name.endswith(f".{_GRADIENT_FLAG}") and name != value.name]
    return bool(flags) or before[value.owner, 0].text != after[value.owner, 0].text


def _definition(path: str, old: Definition | None, new: Definition | None, *, is_kept: bool = True) -> Iterator[Change]:
    """Yield the changes of a definition; ``is_kept``: its class or module is on both sides."""
    definition = new or old
    assert definition
    state = "added" if old is None else "removed" if new is None else "changed"
    before, after = old and old.text, new and new.text
    if old and new and old.sense == new.sense:
        return
    if old and new and old.kind != new.kind:
        yield _change(
            "definition-changed", path, definition.name, old.kind, new.kind, detail=Message("another kind of thing")
        )
    elif new and new.is_idle and new.owner and new.leaf in _SWITCH_METHODS and not (old and old.is_idle):
        yield _change(_NOOP, path, definition.name, before, after, detail=Message("nothing is set"))
    elif old and new and definition.kind == "function":
        yield from _signature(path, old, new)
        if old.meaning != new.meaning or old.decorators != new.decorators:
            yield _change("definition-changed", path, new.name)
    elif old and new and definition.kind == "class":
        if before != after:
            yield _change("definition-changed", path, definition.name, before, after, detail="bases")
        if old.decorators != new.decorators:
            was, now = (", ".join(side.decorators) or None for side in (old, new))
            yield _change("definition-changed", path, definition.name, was, now, detail="decorators")
    elif not (old and new and old.meaning == new.meaning):
        kind = f"definition-{state}"
        if (
            definition.kind == "class"
            and _ATTENTION_CLASS.search(definition.leaf)
            and not _NO_ATTENTION_CLASS.search(definition.leaf)
        ):
            kind = f"attention-class-{state}"
        elif state == "removed" and definition.leaf == _GRADIENT_HOOK and is_kept:
            kind = "gradient-checkpointing-hook-removed"
        elif definition.kind == "value" and is_kept and definition.leaf == _GRADIENT_FLAG:
            kind = "gradient-checkpointing-flag-changed"
        elif definition.kind == "value" and is_kept and _ATTENTION_VALUE.search(definition.leaf):
            kind = "attention-default-changed"
        elif definition.kind == "value" and is_kept and _LOADING_VALUE.fullmatch(definition.leaf):
            kind = "definition-changed"
        yield _change(kind, path, definition.name, before, after)


def _statements(pair: FilePair) -> Iterator[Change]:
    """Yield the changed statements of a module or class body that define nothing, one change a body."""
    classes = {statement.name for statement in pair.old.definitions} & {
        statement.name for statement in pair.new.definitions
    }
    before, after = (
        Counter((statement.scope, statement.meaning) for statement in code.statements) for code in (pair.old, pair.new)
    )
    texts = {
        (statement.scope, statement.meaning): statement.text
        for code in (pair.old, pair.new)
        for statement in code.statements
    }
    removed, added = before - after, after - before
    detail = Message("statements outside functions")
    for scope in dict.fromkeys(scope for scope, _ in [*removed, *added]):
        if scope == MODULE_LEVEL or scope in classes:
            was, now = (
                "; ".join(texts[key] for key in part if key[0] == scope)[:400] or None for part in (removed, added)
            )
            yield _change("definition-changed", pair.path, scope, was, now, detail=detail)


def _imports(pair: FilePair) -> Iterator[Change]:
    before, after = ({imported.name: imported.required for imported in code.imports} for code in (pair.old, pair.new))
    for name in (name for name in after if name not in before):
        detail = Message("needed to load the file") if after[name] else None
        yield _change("import-added", pair.path, name, None, name, detail=detail)
    yield from (_change("import-removed", pair.path, name, name) for name in before if name not in after)
    yield from _packages_required(pair)


def _packages_required(pair: FilePair) -> Iterator[Change]:
    """Yield ``package-required`` for packages that must be installed beside the ones that everybody has."""
    imports = ([imported.name for imported in code.imports if imported.demanded] for code in (pair.old, pair.new))
    before, after = ({name.partition(".")[0] for name in names} for names in imports)
    for package in sorted(after - before - sys.stdlib_module_names - _AT_HAND):
        yield _change("package-required", pair.path, package, None, package)


def _signature(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    if old.parameters == new.parameters:
        return
    before, after = ({parameter.name: parameter for parameter in side.parameters} for side in (old, new))
    # A default for what had none takes no call away.
    common = [name for name, item in before.items() if item.default is not None and name in after]
    other = [name for name in common if before[name].default != after[name].default]
    alike = [item[:2] for item in old.parameters] == [item[:2] for item in new.parameters]
    if other and alike and all(after[name].default is not None for name in other):
        attention = any(map(_ATTENTION_PARAMETER.search, other))
        kind = "attention-default-changed" if attention else "default-changed"
        yield _change(kind, path, new.name, _defaults(before, other), _defaults(after, other))
        return
    removed, added = [name for name in before if name not in after], [name for name in after if name not in before]
    # A configuration takes any name through **kwargs, and whoever makes one gives names.
    open_ended = "Config" in new.owner and any(parameter.kind == "**" for parameter in new.parameters)
    extends = open_ended or (not removed and not other and _only_extends(old, new))
    if open_ended and other:
        yield _change("default-changed", path, new.name, _defaults(before, other), _defaults(after, other))
    kind = "signature-extended" if extends else "signature-changed"
    words = [
        f"{verb} {', '.join(names[:_MAX_NAMES])}" for verb, names in (("without", removed), ("with", added)) if names
    ]
    yield _change(kind, path, new.name, old.text, new.text, detail="; ".join(words) or "other order or defaults")


def _only_extends(old: Definition, new: Definition) -> bool:
    """Return whether every call that the old signature accepts means the same to the new one."""
    names = {parameter.name for parameter in old.parameters}
    same_names = [item for item in new.parameters if item.name in names]
    if [item[:2] for item in same_names] != [item[:2] for item in old.parameters]:
        return False
    places = [parameter.name in names for parameter in new.parameters if parameter.kind in ("positional", "normal")]
    takes_rest = any(parameter.kind == "*" for parameter in old.parameters)
    # A new positional parameter before *args takes what used to be the first of those.
    more = [item for item in new.parameters if item.name not in names and item.kind not in ("*", "**")]
    optional = all(item.default is not None and (item.kind == "keyword" or not takes_rest) for item in more)
    return optional and places == sorted(places, reverse=True)


def _defaults(parameters: dict[str, Parameter], names: Sequence[str]) -> str:
    shown = [(name, parameters[name].default) for name in names[:_MAX_NAMES]]
    return ", ".join(name if default is None else f"{name}={default}" for name, default in shown)


def _undefined(pair: FilePair) -> Iterator[Change]:
    """Yield the functions with names that nothing binds, new and mended ones."""
    codes = [() if "*" in code.bound else code.definitions for code in (pair.old, pair.new)]
    before, after = ({part.name: part.unbound for part in code if part.unbound} for code in codes)
    old_names = {name for names in before.values() for name in names}
    for symbol, names in after.items():
        if unknown := [name for name in names if name not in old_names]:
            yield _change("name-undefined", pair.path, symbol, None, ", ".join(unknown[:_MAX_NAMES]))
    remaining = {part.name for part in pair.new.definitions}
    for symbol, names in before.items():
        if mended := [name for name in names if symbol in remaining and name not in after.get(symbol, ())]:
            yield _change("name-mended", pair.path, symbol, ", ".join(mended[:_MAX_NAMES]), None)


def _misplaced(pair: FilePair) -> Iterator[Change]:
    """Yield what gives names by position as a ``forward`` took them, which takes others there now: of a class of the
    file that the caller's class speaks of."""
    before, after = (
        {
            part.name: [item.name for item in part.parameters if item.name != "self"]
            for part in [part for part in code.definitions if part.leaf == "forward"][:_MOST]
        }
        for code in (pair.old, pair.new)
    )
    speak = {(part.owner, word) for part in pair.new.definitions for word in part.mentions}
    for name, now in after.items():
        was, owner = before.get(name, []), name.rpartition(".")[0]
        place = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), len(was))
        others = pair.new.definitions if place < len(was) and {*was} <= {*now} else ()
        callers = [part for part in others if (part.owner, owner) in speak and part.calls]
        for function in callers[:_MOST]:
            given = [one for one in _by_position(function) if one == was[: len(one)] and place < len(one) >= _FEWEST]
            if given and not any(one == other[: len(one)] for one in given for other in after.values()):
                yield _change("arguments-misplaced", pair.path, function.name, was[place], now[place], detail=name)


def _by_position(function: Definition) -> Iterator[list[str]]:
    """Yield what the calls of a function give by position; of a layer that is checkpointed, what the layer is given."""
    calls = function.calls[:_MOST]
    inputs = [list(call.arguments[1:]) for call in calls if "checkpoint" in call.name.rpartition(".")[2]]
    rest = [list(call.arguments[1:]) for call in calls if call.arguments[:1] == ("*inputs",)]
    yield from [*(list(call.arguments) for call in calls), *inputs]
    yield from (first + second for first in inputs[:_FEWEST] for second in rest[:_FEWEST])


def _checkpointing(pair: FilePair) -> Iterator[Change]:
    """Yield what became of gradient checkpointing, and what is called with a keyword that it does not take."""
    (was, _), (now, where) = (_switches(code) for code in (pair.old, pair.new))
    if was is not False and now is False:
        yield _change(_NOOP, pair.path, where, detail=Message("nothing is set"))
    elif was is False and now:
        yield _change("gradient-checkpointing-mended", pair.path, where)
    before, after = ({key: (method, words) for key, method, words in _refused(code)} for code in (pair.old, pair.new))
    for (name, word), (method, words) in after.items():
        if (name, word) not in before and word:
            yield _change("call-refused", pair.path, name, None, word, detail=method)
        elif (name, word) not in before:
            detail = Message("checkpoint() does not take {}", words)
            yield _change("gradient-checkpointing-fails", pair.path, name, None, words, detail=detail)
    for (name, word), (_, words) in before.items():
        if (
            not word
            and (name, word) not in after
            and any(definition.name == name for definition in pair.new.definitions)
        ):
            yield _change("gradient-checkpointing-mended", pair.path, name, words, None)


def _switches(code: FileCode) -> tuple[bool | None, str]:
    """Return whether the switch reaches a module that asks for it (None: unknown), and which method decides."""
    classes = {definition.name: definition for definition in code.definitions if definition.kind == "class"}
    functions = [definition for definition in code.definitions if definition.kind == "function" and definition.owner]
    if any("GradientCheckpointingLayer" in kind.mentions for kind in classes.values()):
        return True, ""
    readers = {function.owner for function in functions if _asks(function)}
    caller = next((function for function in functions if any(map(_READS_FLAG.search, function.lines))), None)
    hook = next((function for function in functions if function.leaf == _GRADIENT_HOOK), None)
    if caller and not readers:
        return False, caller.name
    if hook is None or hook.is_idle:
        return (True if readers and hook is None else None), caller.name if caller else ""
    lines = " ".join(hook.lines)
    targets = re.findall(r"[\w.]+", " ".join(_ISINSTANCE.findall(lines)))
    if "gradient_checkpointing = False" in lines:
        return False, hook.name
    if "gradient_checkpointing" not in lines or not targets or not all(name in classes for name in targets):
        return None, hook.name
    return any(_is_a(reader, target, classes) for reader in readers for target in targets), hook.name


def _asks(function: Definition) -> bool:
    """Return whether a function asks for the flag; if only a condition does, whether it can be true and checkpoints."""
    for number, line in enumerate(function.lines):
        if _READS_FLAG.search(line) and not _DEAD.search(line):
            if not line.lstrip().startswith("if self.gradient_checkpointing"):
                return True
            depth = len(line) - len(line.lstrip())
            for inner in function.lines[number + 1 :]:
                if len(inner) - len(inner.lstrip()) <= depth:
                    break
                if "checkpoint" in inner:
                    return True
    return False


def _is_a(name: str, target: str, classes: Mapping[str, Definition]) -> bool:
    """Return whether the file shows that the class is the other one, or derives from it."""
    waiting, visited = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in classes and name not in visited:
            waiting += classes[name].mentions
        visited.add(name)
    return target in visited


def _refused(code: FileCode) -> Iterator[tuple[tuple[str, str], str, str]]:
    """Yield where a function gives ``checkpoint`` keywords that it refuses, and where a method gives one to another one
    of its file, or to a module that its class makes, which takes no such parameter: the function and the keyword (none
    for ``checkpoint``), what it calls, and the keywords."""
    functions = {definition.name: definition for definition in code.definitions if definition.kind == "function"}
    for function, call in ((maker, call) for maker in functions.values() for call in maker.calls):
        words = [word.partition("=")[0] for word in call.keywords if word != "**"]
        owner, _, leaf = call.name.partition(".")
        if call.name.rpartition(".")[2] == "checkpoint":
            extra = ", ".join(word for word in words if word not in _CHECKPOINT_KEYWORDS)
            if extra and "use_reentrant=False" not in call.keywords:
                yield (function.name, ""), "", extra
        if owner != "self" or not (function.owner and words):
            continue
        maker = functions.get(f"{function.owner}.__init__")
        attributes = dict(_MADE.findall("\n".join(maker.lines))) if maker else {}
        method = functions.get(f"{function.owner}.{leaf}") or functions.get(f"{attributes.get(leaf)}.forward")
        if method and all(parameter.kind != "**" for parameter in method.parameters):
            takes = {parameter.name for parameter in method.parameters if parameter.kind != "positional"}
            yield from (((function.name, word), method.name, word) for word in words if word not in takes)
