"""What changed in Python files, from what is known of each before and after: which lives on under another name, and
which definitions, statements and imports came, went or are others."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from envdoctor.revision.code.parts.tree import MODULE_LEVEL, NO_CODE, Definition, FileCode, Parameter
from envdoctor.revision.comparer import Change
from envdoctor.text.message import Message

#: Smaller bodies are alike by chance.
_LIGHTEST = 16
_SHARED = 0.5
_GRADIENT_HOOK = "_set_gradient_checkpointing"
_GRADIENT_FLAG = "supports_gradient_checkpointing"
_GRADIENT_SWITCH = "gradient_checkpointing_enable"
_ATTENTION_CLASS = re.compile(r"attention|attn|sdpa", re.IGNORECASE)
_NO_ATTENTION_CLASS = re.compile(r"mask|config|output|pool", re.IGNORECASE)
_ATTENTION_PARAMETER = re.compile(r"(attn|attention)_?impl|flash_?attn|flash_attention|use_sdpa", re.IGNORECASE)
_MAX_NAMES = 6
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
        """The path to report: the new one if there is one."""
        return self.new_path or self.old_path or ""


def pair_files(old: Mapping[str, FileCode], new: Mapping[str, FileCode]) -> list[FilePair]:
    """Files by their path; a file that went and one that came are one when they share half of their definitions."""
    pairs = [FilePair(path, path, old[path], new[path]) for path in sorted(old.keys() & new.keys())]
    gone = {path: {one.name for one in old[path].definitions} for path in sorted(old.keys() - new.keys())}
    for path in sorted(new.keys() - old.keys()):
        names = {one.name for one in new[path].definitions}
        best = max(gone, key=lambda other: len(names & gone[other]), default=None)
        if best is not None and names and len(names & gone[best]) >= _SHARED * max(len(names), len(gone[best])):
            pairs.append(FilePair(best, path, old[best], new[path]))
            del gone[best]
        else:
            pairs.append(FilePair(None, path, NO_CODE, new[path]))
    pairs += [FilePair(path, None, old[path], NO_CODE) for path in gone]
    return sorted(pairs, key=lambda pair: pair.path)


class Moved(NamedTuple):
    """Definitions that went in one place and came in another with the same body: the changes, and what they explain,
    path and name in the old and in the new revision."""

    changes: list[Change]
    old: set[tuple[str, str]]
    new: set[tuple[str, str]]


def moved_definitions(pairs: Sequence[FilePair]) -> Moved:
    """Find the definitions that moved, whole classes only."""
    moved = Moved([], set(), set())
    waiting: dict[str, list[tuple[str, Definition]]] = {}
    for pair in pairs:
        for one in _lone(_named(pair.old), _named(pair.new)):
            if one.kind != "value" and one.weight >= _LIGHTEST:
                waiting.setdefault(one.sense, []).append((pair.old_path or "", one))
    for pair in pairs:
        for one in _lone(_named(pair.new), _named(pair.old)):
            candidates = waiting.get(one.sense)
            if candidates:
                same_name = [index for index, (_, other) in enumerate(candidates) if other.leaf == one.leaf]
                old_path, other = candidates.pop(same_name[0] if same_name else 0)
                moved.old.add((old_path, other.name))
                moved.new.add((pair.path, one.name))
                before = other.name if old_path == pair.path else f"{old_path}: {other.name}"
                moved.changes.append(_change("definition-moved", pair.path, one.name, before, one.name))
    return moved


def compare_file(pair: FilePair, moved: Moved) -> Iterator[Change]:
    """Changes of a file that is in both revisions; what was moved is left out."""
    before, after = _named(pair.old), _named(pair.new)
    values = {one.name for one in pair.new.definitions if one.kind == "value"}
    gates = values.intersection(site.scope for site in pair.new.sites if site.is_gate)
    for key, new in after.items():
        if key in before:
            yield from _in_both(pair.path, before[key], new)
        elif not ((pair.path, new.name) in moved.new or new.name in gates or _inside(new, before, after)):
            yield _added(pair.path, new)
    for old in _lone(before, after):
        if (pair.old_path or "", old.name) not in moved.old:
            stays = old.owner in {name for name, _ in after} and not _may_inherit(old, before, after)
            yield _removed(pair.path, old, class_stays=stays)
    yield from _statements(pair)
    yield from _imports(pair)


def one_sided(pair: FilePair) -> Iterator[Change]:
    """Changes of a file that came or went as a whole."""
    what, code = ("added", pair.new) if pair.new_path else ("removed", pair.old)
    yield _change(f"file-{what}", pair.path, pair.path, count=max(1, len(code.definitions)))
    for one in code.definitions:
        if _is_attention_class(one):
            yield _change(f"attention-class-{what}", pair.path, one.name)
        elif pair.new_path and _is_idle_switch(one):
            yield _idle(pair.path, one, None)
    if pair.new_path:
        yield from _packages_required(pair)


def _named(code: FileCode) -> Named:
    found: dict[tuple[str, int], Definition] = {}
    seen: Counter[str] = Counter()
    for one in code.definitions:
        found[one.name, seen[one.name]] = one
        seen[one.name] += 1
    return found


def _lone(here: Named, there: Named) -> list[Definition]:
    """Definitions that are not there, whole classes only."""
    return [one for key, one in here.items() if key not in there and not _inside(one, there, here)]


def _inside(definition: Definition, there: Named, here: Named) -> bool:
    """Whether the definition is in a class that itself is not there: the class stands for it."""
    scope = definition.owner
    while scope:
        if (scope, 0) in here and (scope, 0) not in there:
            return True
        scope = scope.rpartition(".")[0]
    return False


def _may_inherit(value: Definition, before: Named, after: Named) -> bool:
    """Whether a base may give the flag that a class no longer sets: its bases are others, or another class sets it."""
    if not value.name.endswith(f".{_GRADIENT_FLAG}"):
        return False
    scope = value.owner, 0
    return before[scope].text != after[scope].text or any(
        name.endswith(f".{_GRADIENT_FLAG}") and name != value.name for name, _ in after
    )


def _is_attention_class(one: Definition) -> bool:
    return one.kind == "class" and bool(_ATTENTION_CLASS.search(one.leaf)) and not _NO_ATTENTION_CLASS.search(one.leaf)


def _is_idle_switch(one: Definition) -> bool:
    return one.is_idle and "." in one.name and one.leaf in (_GRADIENT_SWITCH, _GRADIENT_HOOK)


def _idle(path: str, new: Definition, before: str | None) -> Change:
    return _change("gradient-checkpointing-noop", path, new.name, before, new.text, detail=Message("nothing is set"))


def _in_both(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    if old.sense == new.sense and old.annotations == new.annotations:
        return
    if old.kind != new.kind:
        detail = Message("another kind of thing")
        yield _change("definition-changed", path, new.name, old.kind, new.kind, detail=detail)
    elif _is_idle_switch(new) and not old.is_idle:
        yield _idle(path, new, old.text)
    elif new.kind == "function":
        yield from _functions(path, old, new)
    elif new.kind == "value":
        if old.meaning != new.meaning:
            yield _change(_value_kind(new, "definition-changed"), path, new.name, old.text, new.text)
    else:
        if old.text != new.text:
            yield _change("definition-changed", path, new.name, old.text, new.text, detail="bases")
        if old.decorators != new.decorators:
            before, after = (", ".join(one.decorators) or None for one in (old, new))
            yield _change("definition-changed", path, new.name, before, after, detail="decorators")


def _value_kind(value: Definition, otherwise: str) -> str:
    if value.leaf == _GRADIENT_FLAG:
        return "gradient-checkpointing-flag-changed"
    return "attention-default-changed" if _ATTENTION_VALUE.search(value.leaf) else otherwise


def _added(path: str, new: Definition) -> Change:
    kind = "definition-added"
    if _is_idle_switch(new):
        return _idle(path, new, None)
    if _is_attention_class(new):
        kind = "attention-class-added"
    elif new.kind == "value" and "." in new.name:
        kind = _value_kind(new, kind)
    return _change(kind, path, new.name, None, new.text)


def _removed(path: str, old: Definition, *, class_stays: bool) -> Change:
    kind = "definition-removed"
    if old.leaf == _GRADIENT_HOOK and class_stays:
        kind = "gradient-checkpointing-hook-removed"
    elif _is_attention_class(old):
        kind = "attention-class-removed"
    elif old.kind == "value" and class_stays:
        kind = _value_kind(old, kind)
    return _change(kind, path, old.name, old.text, None)


def _statements(pair: FilePair) -> Iterator[Change]:
    """Statements of a module or class body that define nothing, one change a body."""
    classes = {one.name for one in pair.old.definitions} & {one.name for one in pair.new.definitions}
    before, after = (Counter((one.scope, one.meaning) for one in code.statements) for code in (pair.old, pair.new))
    texts = {(one.scope, one.meaning): one.text for code in (pair.old, pair.new) for one in code.statements}
    gone, come = before - after, after - before
    detail = Message("statements outside functions")
    for scope in dict.fromkeys(scope for scope, _ in [*gone, *come]):
        if scope == MODULE_LEVEL or scope in classes:
            was, now = ("; ".join(texts[key] for key in part if key[0] == scope)[:400] or None for part in (gone, come))
            yield _change("definition-changed", pair.path, scope, was, now, detail=detail)


def _imports(pair: FilePair) -> Iterator[Change]:
    before, after = ({one.name: one.required for one in code.imports} for code in (pair.old, pair.new))
    for name, required in after.items():
        if name not in before:
            detail = Message("needed to load the file") if required else None
            yield _change("import-added", pair.path, name, None, name, detail=detail)
    for name in before:
        if name not in after:
            yield _change("import-removed", pair.path, name, name, None)
    yield from _packages_required(pair)


def _packages_required(pair: FilePair) -> Iterator[Change]:
    """``package-required``: packages that have to be installed, beside those that everybody has."""
    known, asked = (
        {one.name.partition(".")[0] for one in code.imports if one.demanded} for code in (pair.old, pair.new)
    )
    for package in sorted(asked - known - sys.stdlib_module_names - _AT_HAND):
        yield _change("package-required", pair.path, package, None, package)


def _functions(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    """Changes of a function that is in both revisions under the same name: parameters, and whether its body changed."""
    yield from _signature(path, old, new)
    if old.meaning != new.meaning or old.decorators != new.decorators:
        yield _change("definition-changed", path, new.name)
    elif old.annotations != new.annotations and old.text == new.text:
        yield _change("annotations-changed", path, new.name)


def _signature(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    if old.parameters == new.parameters:
        return
    before = {parameter.name: parameter for parameter in old.parameters}
    after = {parameter.name: parameter for parameter in new.parameters}
    # A default for what had none takes no call away.
    given = {name: one.default for name, one in before.items() if one.default is not None}
    other = [name for name, default in given.items() if name in after and default != after[name].default]
    if other and list(before) == list(after) and all(before[name].kind == after[name].kind for name in before):
        defaults = [name for name in other if after[name].default is not None]
        if len(defaults) == len(other):
            attention = any(map(_ATTENTION_PARAMETER.search, defaults))
            kind = "attention-default-changed" if attention else "default-changed"
            yield _change(kind, path, new.name, _defaults(before, other), _defaults(after, other))
            return
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    # A configuration takes any name through **kwargs, and whoever makes one gives names.
    open_ended = "Config" in new.owner and any(parameter.kind == "**" for parameter in new.parameters)
    extends = open_ended or (not gone and not other and _only_extends(old, new))
    if open_ended and other:
        yield _change("default-changed", path, new.name, _defaults(before, other), _defaults(after, other))
    kind = "signature-extended" if extends else "signature-changed"
    words = [f"{verb} {', '.join(names[:_MAX_NAMES])}" for verb, names in (("without", gone), ("with", come)) if names]
    yield _change(kind, path, new.name, old.text, new.text, detail="; ".join(words) or "other order or defaults")


def _only_extends(old: Definition, new: Definition) -> bool:
    """Whether every call that the old signature accepts means the same to the new one."""
    known = {parameter.name for parameter in old.parameters}
    kept = [one for one in new.parameters if one.name in known]
    if [one[:2] for one in kept] != [one[:2] for one in old.parameters]:
        return False
    places = [parameter.name in known for parameter in new.parameters if parameter.kind in ("positional", "normal")]
    takes_rest = any(parameter.kind == "*" for parameter in old.parameters)
    # A new positional parameter before *args takes what used to be the first of those.
    return places == sorted(places, reverse=True) and all(
        parameter.kind in ("*", "**")
        or (parameter.default is not None and not (takes_rest and parameter.kind != "keyword"))
        for parameter in new.parameters
        if parameter.name not in known
    )


def _defaults(parameters: dict[str, Parameter], names: Sequence[str]) -> str:
    shown = [(name, parameters[name].default) for name in names[:_MAX_NAMES]]
    return ", ".join(name if default is None else f"{name}={default}" for name, default in shown)
