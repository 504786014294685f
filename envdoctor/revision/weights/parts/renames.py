"""Which removed tensors live on under other names: by shape and running numbers, whole, split or fused."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from envdoctor.revision.weights.parts.layouts import Group, leaf

#: Comparisons of names for likeness, some 50 µs each; beyond that patterns are paired in their order.
_MOST_LIKENESSES = 20_000
_MOST_PARTS = 12
_FUSED = re.compile(r"qkv|query_key_value|w_?pack|c_attn|in_proj|kv_proj|gate_up|up_gate|h_to_4h|w13", re.I)
_ENDINGS = re.compile(r"[_.]?(?:proj|projs|linear|lin|layer|weight|attn|net)\Z", re.I)
#: Names of the parts of a fused matrix, in the order in which they are stacked.
_PARTS = [names.split() for names in ("q k v", "query key value", "wq wk wv", "k v", "key value", "gate up", "w1 w3")]


class Rename(NamedTuple):
    """Patterns of one side and what they became on the other: one to one, one to many (split) or many to one (fused).

    The shapes fit; whether the values do is not known.
    """

    before: tuple[Group, ...]
    after: tuple[Group, ...]


class _Module(NamedTuple):
    """Groups that belong together, as one thing to find again."""

    pattern: str
    groups: tuple[Group, ...]


def find_renames(removed: Mapping[str, Group], added: Mapping[str, Group]) -> list[Rename]:
    """Pair the groups; what is in no rename was really removed or added."""
    gone, come = dict(removed), dict(added)
    found = [Rename((whole,), parts) for whole, parts in _splits(gone, come)]
    found += [Rename(parts, (whole,)) for whole, parts in _splits(come, gone)]
    budget = _MOST_LIKENESSES
    # Whole modules first: a norm's bias has the shape of many biases, a norm's weight and bias together have not.
    for split_off in (True, False):
        buckets: dict[object, tuple[list[_Module], list[_Module]]] = {}
        for side, groups in enumerate((gone, come)):
            for module in _modules(groups, split_off=split_off):
                buckets.setdefault(_signature(module), ([], []))[side].append(module)
        for before, after in buckets.values():
            budget -= len(before) * len(after)
            for one, other in _pairs(before, after, likeness=budget >= 0):
                for was, now in zip(one.groups, other.groups, strict=True):
                    found.append(Rename((was,), (now,)))
                    del gone[was.pattern], come[now.pattern]
    return sorted(found, key=lambda rename: rename.before[0].pattern)


def _modules(groups: Mapping[str, Group], *, split_off: bool) -> list[_Module]:
    """Patterns put together by all but their last component (weight, bias), or each for itself."""
    found: dict[str, list[Group]] = {}
    for pattern in sorted(groups):
        parent = pattern.rpartition(".")[0] if split_off else pattern
        found.setdefault(parent or pattern, []).append(groups[pattern])
    return [_Module(parent, tuple(items)) for parent, items in found.items()]


def _signature(module: _Module) -> object:
    """What a module must have in common with what it became: endings, running numbers and shapes."""
    parts = [(_ending(item), _numbers(item), tuple(spec.shape for spec in item.specs)) for item in module.groups]
    return hash(tuple(parts)), len(parts)


def _ending(item: Group) -> str:
    return item.pattern.rpartition(".")[2]


def _numbers(item: Group) -> tuple[tuple[int, ...], ...]:
    """The running numbers, counted from the smallest: layers 1 to 32 may have become 0 to 31."""
    lowest = [min(column) for column in zip(*item.numbers, strict=False)]
    return tuple(tuple(n - low for n, low in zip(entry, lowest, strict=False)) for entry in item.numbers)


def _pairs(before: list[_Module], after: list[_Module], *, likeness: bool) -> list[tuple[_Module, _Module]]:
    if not likeness or len(before) * len(after) <= 1:
        return list(zip(before, after, strict=False))
    from difflib import SequenceMatcher

    scored: list[tuple[float, int, int]] = []
    for i, one in enumerate(before):
        matcher = SequenceMatcher(None, b=one.pattern, autojunk=False)
        for j, other in enumerate(after):
            matcher.set_seq1(other.pattern)
            # The module's own name says more than the path to it, which a rename often changes as a whole.
            own = leaf(one.groups[0].pattern) == leaf(other.groups[0].pattern)
            scored.append((-(matcher.ratio() + (1.0 if own else 0.0)), i, j))
    left, right = dict(enumerate(before)), dict(enumerate(after))
    return [(left.pop(i), right.pop(j)) for _, i, j in sorted(scored) if i in left and j in right]


def _splits(wholes: dict[str, Group], parts: dict[str, Group]) -> Iterator[tuple[Group, tuple[Group, ...]]]:
    """Fused groups whose first dimension is the sum of others'. What was found is taken out of both tables."""
    candidates: dict[object, list[Group]] = {}
    for item in parts.values():
        candidates.setdefault(_tail(item), []).append(item)
    for pattern, whole in list(wholes.items()):
        if _FUSED.search(pattern):
            chosen = _choose(whole, [item for item in candidates.get(_tail(whole), ()) if item.pattern in parts])
            if chosen:
                yield whole, chosen
                del wholes[pattern]
                for item in chosen:
                    del parts[item.pattern]


def _tail(item: Group) -> object:
    """What a fused matrix and its parts have in common: running numbers, all dimensions but the first, the ending."""
    return hash((_numbers(item), tuple(spec.shape[1:] for spec in item.specs))), _ending(item)


def _choose(whole: Group, near: list[Group]) -> tuple[Group, ...] | None:
    parents: dict[str, dict[str, Group]] = {}
    for item in near:
        role = _ENDINGS.sub("", leaf(item.pattern)).lower()
        parents.setdefault(item.pattern.rsplit(".", 2)[0], {})[role] = item
    # A vision tower has a q, k and v of its own: the path that shares most components comes first.
    components = set(whole.pattern.split("."))
    for _, roles in sorted(parents.items(), key=lambda entry: -len(components.intersection(entry[0].split(".")))):
        for names in _PARTS:
            chosen = tuple(roles[name] for name in names if name in roles)
            if len(chosen) == len(names) and _adds_up(whole, chosen):
                return chosen
    if len(near) > _MOST_PARTS:
        return None
    fitting = [chosen for count in (2, 3) for chosen in combinations(near, count) if _adds_up(whole, chosen)]
    return fitting[0] if len(fitting) == 1 else None


def _adds_up(whole: Group, parts: Iterable[Group]) -> bool:
    """Whether the rows of the parts are together those of the whole, tensor by tensor."""
    sides = zip(whole.specs, *(item.specs for item in parts), strict=True)
    return all(
        all(spec.shape for spec in specs) and sum(spec.shape[0] for spec in specs[1:]) == specs[0].shape[0]
        for specs in sides
    )
