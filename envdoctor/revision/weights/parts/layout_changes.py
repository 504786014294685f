"""The differences between two layouts of one set of weights, as changes: one line a cause, and one line a pattern."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.comparer import Change
from envdoctor.revision.weights.parts.amounts import gigabytes
from envdoctor.revision.weights.parts.heads import compare_embeddings, head_changes, is_head
from envdoctor.revision.weights.parts.layouts import Layout, Spec
from envdoctor.revision.weights.parts.name_patterns import Group, group, leaf, size_of, spell_shape
from envdoctor.revision.weights.parts.renames import Rename, find_renames
from envdoctor.text.listed import listed
from envdoctor.text.message import Message

_MOST_RESHAPED = 12
_change = partial(Change, "weights")


class Differences(NamedTuple):
    """``changes`` have one item a cause, ``patterns`` one for every name pattern (``--tensors``)."""

    changes: list[Change]
    patterns: list[Change]


class _Names(NamedTuple):
    gone: list[str]
    come: list[str]
    retyped: list[str]
    reshaped: list[str]


def compare_layouts(
    old: Layout, new: Layout, snapshots: tuple[Snapshot, Snapshot], *, relaid: bool, whole: bool
) -> Differences:
    """Compare what was read of one set.

    ``relaid`` says that the set's files are cut differently. Unless ``whole``, parts could not be read: then only
    tensors that are in both are compared.
    """
    names = _sort(old, new, whole)
    embedding, covered = compare_embeddings(old, new, snapshots[1])
    gone, come = group(names.gone), group(names.come)
    renames = find_renames(gone, come, old.tensors, new.tensors)
    for rename in renames:
        for side, items in ((gone, rename.before), (come, rename.after)):
            for item in items:
                side.pop(item.pattern, None)
    heads_gone, heads_come = ([pattern for pattern in side if is_head(pattern)] for side in (gone, come))
    heads = head_changes(heads_gone, heads_come, snapshots, (old, new))
    gone = {pattern: item for pattern, item in gone.items() if pattern not in heads_gone}
    come = {pattern: item for pattern, item in come.items() if pattern not in heads_come}
    lost = relaid and bool(gone) and not come and not renames
    parts = [
        Differences(embedding, embedding),
        _retyped(names.retyped, old, new),
        _reshaped([name for name in names.reshaped if name not in covered], old, new),
        _renamed(renames, old, new),
        Differences(heads, heads),
        _one_sided("resharded-with-loss" if lost else "tensor-removed", gone, old),
        _one_sided("tensor-added", come, new),
    ]
    if new.twice and not old.twice:
        again = [_change("tensor-twice", new.where[new.twice[0]], next(iter(group(new.twice))), count=len(new.twice))]
        parts.append(Differences(again, again))
    return Differences(*([change for part in side for change in part] for side in zip(*parts, strict=True)))


def _sort(old: Layout, new: Layout, whole: bool) -> _Names:
    names = _Names([], [], [], [])
    others = new.tensors
    for name, spec in old.tensors.items():
        other = others.get(name)
        if other is None:
            if whole and not _lives_on(name, old, others):
                names.gone.append(name)
        elif other is not spec and other != spec:
            (names.retyped if other.shape == spec.shape else names.reshaped).append(name)
            if other.shape != spec.shape and other.dtype != spec.dtype:
                names.retyped.append(name)
    if whole:
        names.come.extend(name for name in others if name not in old.tensors and not _lives_on(name, new, old.tensors))
    return names


def _lives_on(name: str, layout: Layout, others: Mapping[str, Spec]) -> bool:
    """Whether the tensor is one with another that both sides have: pickles name a tied head, safetensors does not."""
    owner = layout.twins.get(name, name)
    if owner in others:
        return owner != name
    return any(other in others for other, first in layout.twins.items() if first == owner) if layout.twins else False


def _retyped(names: Sequence[str], old: Layout, new: Layout) -> Differences:
    found = Differences([], [])
    pairs: dict[tuple[str, str], list[str]] = {}
    for name in names:
        pairs.setdefault((old.tensors[name].dtype, new.tensors[name].dtype), []).append(name)
    for dtypes, members in pairs.items():
        groups = group(members)
        for pattern, item in groups.items():
            path = new.where[item.members[0][1]]
            found.patterns.append(_change("tensor-retyped", path, pattern, *dtypes, len(item.members)))
        was, now = (gigabytes(_bytes(members, layout)) for layout in (old, new))
        path, count = new.where[members[0]], len(members)
        found.changes.append(_change("tensor-retyped", path, _common(groups), *dtypes, count, f"{was} → {now}"))
    return found


def _reshaped(names: Sequence[str], old: Layout, new: Layout) -> Differences:
    found: list[Change] = []
    for pattern, item in group(names).items():
        first = item.members[0][1]
        shapes = {(old.tensors[name].shape, new.tensors[name].shape) for _, name in item.members}
        detail = Message("and {} more pairs of shapes", len(shapes) - 1) if len(shapes) > 1 else None
        was, now = (spell_shape(layout.tensors[first].shape) for layout in (old, new))
        found.append(_change("tensor-reshaped", new.where[first], pattern, was, now, len(item.members), detail))
    rest = found[_MOST_RESHAPED:]
    if not rest:
        return Differences(found, found)
    total, detail = sum(change.count for change in rest), listed([change.symbol for change in rest], 3)
    more = _change("tensor-reshaped", rest[0].path, Message("{} more patterns", len(rest)), None, None, total, detail)
    return Differences([*found[:_MOST_RESHAPED], more], found)


def _renamed(renames: Sequence[Rename], old: Layout, new: Layout) -> Differences:
    if not renames:
        return Differences([], [])
    patterns: list[Change] = []
    sizes: list[int] = []
    for rename in renames:
        before, after = (" + ".join(item.pattern for item in side) for side in rename)
        members = [name for item in rename.before for _, name in item.members]
        path = new.where[rename.after[0].members[0][1]]
        patterns.append(_change("tensor-renamed", path, before, before, after, len(members)))
        # A split or a fusion is what breaks most: it goes first.
        sizes.append(_bytes(members, old) + (1 << 62 if len(rename.before) != len(rename.after) else 0))
    largest = sizes.index(max(sizes))
    first = patterns[largest]
    gone, come = _module_names([renames[largest], *renames], old)
    example = renames[largest].before[0].pattern
    lines = sorted((f"{one.before} → {one.after}" for one in patterns), key=lambda line: not line.startswith(example))
    total, detail = sum(change.count for change in patterns), listed(lines, 3)
    if gone or come:
        told = _change("tensor-renamed", first.path, example, listed(gone, 6), listed(come, 6), total, detail)
    else:
        told = _change("tensor-path-renamed", first.path, example, example, first.after, total, detail)
    return Differences([told], patterns)


def _module_names(renames: Sequence[Rename], old: Layout) -> tuple[list[str], list[str]]:
    """Module names that went and came: those of matrices in layers, which LoRA targets, or else all."""
    inner = [
        rename
        for rename in renames
        if "{i}" in rename.before[0].pattern and len(old.tensors[rename.before[0].members[0][1]].shape) == 2
    ]
    for chosen in (inner, renames):
        was = {leaf(item.pattern): None for rename in chosen for item in rename.before}
        now = {leaf(item.pattern): None for rename in chosen for item in rename.after}
        gone, come = [name for name in was if name not in now], [name for name in now if name not in was]
        if gone or come:
            return gone, come
    return [], []


def _one_sided(kind: str, groups: Mapping[str, Group], layout: Layout) -> Differences:
    if not groups:
        return Differences([], [])

    def told(item: Group, text: str, count: int, detail: str | None = None) -> Change:
        before, after = (None, text) if kind == "tensor-added" else (text, None)
        return _change(kind, layout.where[item.members[0][1]], item.pattern, before, after, count, detail)

    patterns: list[Change] = []
    sizes: dict[str, int] = {}
    for pattern, item in groups.items():
        spec = layout.tensors[item.members[0][1]]
        sizes[pattern] = _bytes([name for _, name in item.members], layout)
        patterns.append(told(item, f"{spec.dtype} {spell_shape(spec.shape)}", len(item.members)))
    total = sum(change.count for change in patterns)
    text = f"{total} tensor{'' if total == 1 else 's'}, {gigabytes(sum(sizes.values()))}"
    largest = max(groups, key=lambda pattern: sizes[pattern])
    others = [pattern for pattern in groups if pattern != largest]
    return Differences([told(groups[largest], text, total, f"also {listed(others)}" if others else None)], patterns)


def _bytes(names: Iterable[str], layout: Layout) -> int:
    return sum(size_of(layout.tensors[name])[1] for name in names)


def _common(patterns: Iterable[str]) -> str:
    """The one pattern, or what all of them begin with and a star."""
    known = [pattern.split(".") for pattern in patterns]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*known, strict=False))
    return ".".join(known[0] if len(known) == 1 else [*(parts[0] for parts in shared), "*"])
