"""The differences between two layouts of one set of weights, as changes: one line a cause, and one line a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.comparer import Change
from envdoctor.revision.short_text import listed
from envdoctor.revision.weights.parts.amounts import gigabytes
from envdoctor.revision.weights.parts.heads import compare_embeddings, head_changes, is_head
from envdoctor.revision.weights.parts.layouts import Layout, Spec
from envdoctor.revision.weights.parts.name_patterns import Group, group, leaf, size_of, spell_shape
from envdoctor.revision.weights.parts.renames import Rename, find_renames

__all__ = ["Differences", "compare_layouts"]

_MOST_RESHAPED = 12


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
    result = Differences(list(embedding), list(embedding))
    _retyped(result, names.retyped, old, new)
    _reshaped(result, [name for name in names.reshaped if name not in covered], old, new)
    gone, come = group(names.gone), group(names.come)
    renames = find_renames(gone, come, old.tensors, new.tensors)
    _renamed(result, renames, old, new)
    for rename in renames:
        for item in rename.before:
            gone.pop(item.pattern, None)
        for item in rename.after:
            come.pop(item.pattern, None)
    heads = [pattern for pattern in gone if is_head(pattern)], [pattern for pattern in come if is_head(pattern)]
    _add_both(result, head_changes(*heads, snapshots, (old, new)))
    for pattern in heads[0]:
        del gone[pattern]
    for pattern in heads[1]:
        del come[pattern]
    lost = relaid and bool(gone) and not come and not renames
    _one_sided(result, "resharded-with-loss" if lost else "tensor-removed", gone, old)
    _one_sided(result, "tensor-added", come, new)
    if new.twice and not old.twice:
        again = group(new.twice)
        first = next(iter(again))
        _add_both(
            result,
            [Change("weights", "tensor-twice", new.where[new.twice[0]], first, None, None, len(new.twice))],
        )
    return result


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


def _add_both(result: Differences, changes: Iterable[Change]) -> None:
    found = list(changes)
    result.changes.extend(found)
    result.patterns.extend(found)


def _retyped(result: Differences, names: Sequence[str], old: Layout, new: Layout) -> None:
    pairs: dict[tuple[str, str], list[str]] = {}
    for name in names:
        pairs.setdefault((old.tensors[name].dtype, new.tensors[name].dtype), []).append(name)
    for (before, after), members in pairs.items():
        groups = group(members)
        for pattern, item in groups.items():
            path = new.where[item.members[0][1]]
            result.patterns.append(Change("weights", "tensor-retyped", path, pattern, before, after, len(item.members)))
        was, now = (sum(size_of(layout.tensors[name])[1] for name in members) for layout in (old, new))
        detail = f"{gigabytes(was)} → {gigabytes(now)}"
        symbol = _common(groups)
        result.changes.append(
            Change("weights", "tensor-retyped", new.where[members[0]], symbol, before, after, len(members), detail)
        )


def _reshaped(result: Differences, names: Sequence[str], old: Layout, new: Layout) -> None:
    found: list[Change] = []
    for pattern, item in group(names).items():
        first = item.members[0][1]
        shapes = {(old.tensors[name].shape, new.tensors[name].shape) for _, name in item.members}
        detail = f"and {len(shapes) - 1} more pairs of shapes" if len(shapes) > 1 else None
        before, after = spell_shape(old.tensors[first].shape), spell_shape(new.tensors[first].shape)
        found.append(
            Change(
                *("weights", "tensor-reshaped", new.where[first], pattern),
                *(before, after, len(item.members), detail),
            )
        )
    result.patterns.extend(found)
    result.changes.extend(found[:_MOST_RESHAPED])
    rest = found[_MOST_RESHAPED:]
    if rest:
        total = sum(change.count for change in rest)
        detail = listed([change.symbol for change in rest], 3)
        result.changes.append(
            Change("weights", "tensor-reshaped", rest[0].path, f"{len(rest)} more patterns", None, None, total, detail)
        )


def _renamed(result: Differences, renames: Sequence[Rename], old: Layout, new: Layout) -> None:
    if not renames:
        return
    lines: list[str] = []
    largest, most = renames[0], -1
    for rename in renames:
        before = " + ".join(item.pattern for item in rename.before)
        after = " + ".join(item.pattern for item in rename.after)
        count = sum(len(item.members) for item in rename.before)
        path = new.where[rename.after[0].members[0][1]]
        result.patterns.append(Change("weights", "tensor-renamed", path, before, before, after, count))
        lines.append(f"{before} → {after}")
        size = sum(size_of(old.tensors[name])[1] for item in rename.before for _, name in item.members)
        if len(rename.before) != len(rename.after):
            size += 1 << 62  # a split or a fusion is what breaks most: it goes first
        if size > most:
            largest, most = rename, size
    total = sum(len(item.members) for rename in renames for item in rename.before)
    gone, come = _module_names([largest, *renames], old)
    example = largest.before[0].pattern
    same = " + ".join(item.pattern for item in largest.after)
    result.changes.append(
        Change(
            "weights",
            "tensor-renamed" if gone or come else "tensor-path-renamed",
            new.where[largest.after[0].members[0][1]],
            example,
            listed(gone, 6) if gone or come else example,
            listed(come, 6) if gone or come else same,
            total,
            listed(sorted(lines, key=lambda line: not line.startswith(example)), 3),
        )
    )


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


def _one_sided(result: Differences, kind: str, groups: Mapping[str, Group], layout: Layout) -> None:
    if not groups:
        return
    total, size = 0, 0
    for pattern, item in groups.items():
        first = item.members[0][1]
        shape = spell_shape(layout.tensors[first].shape)
        text = f"{layout.tensors[first].dtype} {shape}"
        before, after = (None, text) if kind == "tensor-added" else (text, None)
        count = len(item.members)
        total += count
        size += sum(size_of(layout.tensors[name])[1] for _, name in item.members)
        result.patterns.append(Change("weights", kind, layout.where[first], pattern, before, after, count))
    largest = max(groups.values(), key=lambda item: sum(size_of(layout.tensors[n])[1] for _, n in item.members))
    text = f"{total} tensor{'' if total == 1 else 's'}, {gigabytes(size)}"
    before, after = (None, text) if kind == "tensor-added" else (text, None)
    others = [pattern for pattern in groups if pattern != largest.pattern]
    result.changes.append(
        Change(
            *("weights", kind, layout.where[largest.members[0][1]], largest.pattern),
            *(before, after, total, f"also {listed(others)}" if others else None),
        )
    )


def _common(patterns: Iterable[str]) -> str:
    """The one pattern, or what all of them begin with and a star."""
    known = [pattern.split(".") for pattern in patterns]
    if len(known) == 1:
        return ".".join(known[0])
    shared: list[str] = []
    for parts in zip(*known, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join([*shared, "*"])
