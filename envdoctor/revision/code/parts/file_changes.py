"""What changed in one Python file, from what is known of it before and after."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from envdoctor.revision.code.parts.function_changes import compare_functions
from envdoctor.revision.code.parts.moved import FilePair
from envdoctor.revision.code.parts.records import MODULE_LEVEL, Definition, FileCode
from envdoctor.revision.comparer import Change
from envdoctor.text.message import Message

GRADIENT_HOOK = "_set_gradient_checkpointing"
_GRADIENT_FLAG = "supports_gradient_checkpointing"
_GRADIENT_SWITCH = "gradient_checkpointing_enable"
_ATTENTION_CLASS = re.compile(r"attention|attn|sdpa", re.IGNORECASE)
_NO_ATTENTION_CLASS = re.compile(r"mask|config|output|pool", re.IGNORECASE)
_ATTENTION_VALUE = re.compile(r"^_supports_(sdpa|flash)|attention_classes$", re.IGNORECASE)
_ACCESSOR = re.compile(r"\.(setter|deleter|getter)$")
#: Packages that whoever loads a model with transformers and torch has.
_AT_HAND = frozenset(
    {"torch", "transformers", "numpy", "huggingface_hub", "tokenizers", "safetensors", "packaging", "yaml", "regex"}
    | {"requests", "tqdm", "filelock", "typing_extensions"}
)

#: Names that several definitions of a file share are told apart by their order.
Named = dict[tuple[str, int], Definition]


def compare_file(pair: FilePair, moved_from: set[tuple[str, str]], moved_to: set[tuple[str, str]]) -> Iterator[Change]:
    """Changes of a file that is in both revisions; what was moved is left out."""
    assert pair.old is not None and pair.new is not None
    before, after = _named(pair.old), _named(pair.new)
    gates = {site.scope for site in pair.new.sites if site.is_gate}
    for key, new in after.items():
        old = before.get(key)
        if old is not None:
            yield from _in_both(pair.path, old, new)
        elif (pair.path, new.name) not in moved_to and not _inside(new, before, after):
            yield from _added(pair.path, new, is_gate=new.kind == "value" and new.name in gates)
    for key, old in before.items():
        gone = key not in after and (pair.old_path or "", old.name) not in moved_from
        if gone and not _inside(old, after, before):
            stays = _class_of(old) in {name for name, _ in after} and not _may_inherit(old, before, after)
            yield from _removed(pair.path, old, class_stays=stays)
    yield from _statements(pair)
    yield from _imports(pair.path, pair.old, pair.new)


def one_sided(pair: FilePair) -> Iterator[Change]:
    """Changes of a file that came or went as a whole."""
    code = pair.new or pair.old
    assert code is not None
    kind = "file-added" if pair.new else "file-removed"
    yield Change("code", kind, pair.path, pair.path, count=max(1, len(code.definitions)))
    attention = "attention-class-added" if pair.new else "attention-class-removed"
    for one in code.definitions:
        if _is_attention_class(one):
            yield Change("code", attention, pair.path, one.name)
        elif pair.new and one.is_idle and _is_gradient_switch(one):
            yield _idle(pair.path, one, None)
    if pair.new:
        yield from _imports(pair.path, FileCode("", (), (), (), ()), pair.new, only_packages=True)


def lone_definitions(one: FileCode | None, other: FileCode | None) -> list[Definition]:
    """Definitions of the first that the second lacks, whole classes only."""
    if one is None:
        return []
    mine, theirs = _named(one), _named(other) if other else {}
    return [new for key, new in mine.items() if key not in theirs and not _inside(new, theirs, mine)]


def _named(code: FileCode) -> Named:
    found: Named = {}
    seen: Counter[str] = Counter()
    for one in code.definitions:
        found[one.name, seen[one.name]] = one
        seen[one.name] += 1
    return found


def _class_of(definition: Definition) -> str:
    return _ACCESSOR.sub("", definition.name).rpartition(".")[0]


def _inside(definition: Definition, there: Named, here: Named) -> bool:
    """Whether the definition is in a class that itself is not there: the class stands for it."""
    scope = _class_of(definition)
    while scope:
        if (scope, 0) in here and (scope, 0) not in there:
            return True
        scope = scope.rpartition(".")[0]
    return False


def _may_inherit(value: Definition, before: Named, after: Named) -> bool:
    """Whether a base may give the flag that a class no longer sets: its bases are others, or another class sets it."""
    if not value.name.endswith(f".{_GRADIENT_FLAG}"):
        return False
    scope = _class_of(value), 0
    return before[scope].text != after[scope].text or any(
        name.endswith(f".{_GRADIENT_FLAG}") and name != value.name for name, _ in after
    )


def _is_attention_class(one: Definition) -> bool:
    leaf = one.name.rpartition(".")[2]
    return one.kind == "class" and bool(_ATTENTION_CLASS.search(leaf)) and not _NO_ATTENTION_CLASS.search(leaf)


def _is_gradient_switch(one: Definition) -> bool:
    return "." in one.name and one.name.rpartition(".")[2] in (_GRADIENT_SWITCH, GRADIENT_HOOK)


def _idle(path: str, new: Definition, old: Definition | None) -> Change:
    before = old and old.text
    return Change(
        "code", "gradient-checkpointing-noop", path, new.name, before, new.text, detail=Message("nothing is set")
    )


def _in_both(path: str, old: Definition, new: Definition) -> Iterator[Change]:
    if old.sense == new.sense and old.annotations == new.annotations and old.attention == new.attention:
        return
    if old.kind != new.kind:
        yield Change(
            "code", "definition-changed", path, new.name, old.kind, new.kind, detail=Message("another kind of thing")
        )
    elif new.kind == "function":
        if new.is_idle and not old.is_idle and _is_gradient_switch(new):
            yield _idle(path, new, old)
        else:
            yield from compare_functions(path, old, new)
    elif new.kind == "value":
        if old.meaning != new.meaning:
            yield Change("code", _value_kind(new), path, new.name, old.text, new.text)
    else:
        if old.text != new.text:
            yield Change("code", "definition-changed", path, new.name, old.text, new.text, detail="bases")
        if old.decorators != new.decorators:
            before, after = (", ".join(one.decorators) or None for one in (old, new))
            yield Change("code", "definition-changed", path, new.name, before, after, detail="decorators")


def _value_kind(value: Definition, otherwise: str = "definition-changed") -> str:
    leaf = value.name.rpartition(".")[2]
    if leaf == _GRADIENT_FLAG:
        return "gradient-checkpointing-flag-changed"
    return "attention-default-changed" if _ATTENTION_VALUE.search(leaf) else otherwise


def _added(path: str, new: Definition, *, is_gate: bool) -> Iterator[Change]:
    if is_gate:
        return
    if new.is_idle and _is_gradient_switch(new):
        yield _idle(path, new, None)
    elif _is_attention_class(new):
        yield Change("code", "attention-class-added", path, new.name, None, new.text)
    else:
        kind = _value_kind(new, "definition-added") if new.kind == "value" and "." in new.name else "definition-added"
        yield Change("code", kind, path, new.name, None, new.text)


def _removed(path: str, old: Definition, *, class_stays: bool) -> Iterator[Change]:
    kind = "definition-removed"
    if old.name.rpartition(".")[2] == GRADIENT_HOOK and class_stays:
        kind = "gradient-checkpointing-hook-removed"
    elif _is_attention_class(old):
        kind = "attention-class-removed"
    elif old.kind == "value" and class_stays:
        kind = _value_kind(old, kind)
    yield Change("code", kind, path, old.name, old.text, None)


def _statements(pair: FilePair) -> Iterator[Change]:
    """Statements of a module or class body that define nothing, one change a body."""
    assert pair.old is not None and pair.new is not None
    classes = {one.name for one in pair.old.definitions} & {one.name for one in pair.new.definitions}
    before = Counter((one.scope, one.meaning) for one in pair.old.statements)
    after = Counter((one.scope, one.meaning) for one in pair.new.statements)
    texts = {(one.scope, one.meaning): one.text for code in (pair.old, pair.new) for one in code.statements}
    gone, come = before - after, after - before
    for scope in dict.fromkeys(scope for scope, _ in [*gone, *come]):
        if scope != MODULE_LEVEL and scope not in classes:
            continue
        removed, added = ([texts[key] for key in part if key[0] == scope] for part in (gone, come))
        yield Change(
            "code",
            "definition-changed",
            pair.path,
            scope,
            "; ".join(removed)[:400] or None,
            "; ".join(added)[:400] or None,
            detail=Message("statements outside functions"),
        )


def _imports(path: str, old: FileCode, new: FileCode, *, only_packages: bool = False) -> Iterator[Change]:
    before = {one.name: one.required for one in old.imports}
    after = {one.name: one.required for one in new.imports}
    if not only_packages:
        for name, required in after.items():
            if name not in before:
                detail = Message("needed to load the file") if required else None
                yield Change("code", "import-added", path, name, None, name, detail=detail)
        for name in before:
            if name not in after:
                yield Change("code", "import-removed", path, name, name, None)
    known = _packages(one.name for one in old.imports if one.demanded)
    for package in sorted(_packages(one.name for one in new.imports if one.demanded) - known):
        yield Change("code", "package-required", path, package, None, package)


def _packages(names: Iterable[str]) -> set[str]:
    """Packages that have to be installed for these imports, beside those that everybody has."""
    found = {name.partition(".")[0] for name in names}
    return {name for name in found if name not in sys.stdlib_module_names and name not in _AT_HAND}
