"""The differences between two layouts of one set of weights, as changes: one line a cause, and one line a pattern."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, takewhile
from typing import Any

from envdoctor.revision.comparer import Change, read_json
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.revision.weights.parts import layouts
from envdoctor.system.message import Message, listed

# Which removed tensors live on under other names: by shape and running numbers, whole, split or fused.

#: Comparisons of names for likeness, some 50 µs each; beyond that patterns are paired in their order.
_MOST_LIKENESSES = 20_000
_MOST_PARTS = 12
_FUSED = re.compile(r"qkv|query_key_value|w_?pack|c_attn|in_proj|kv_proj|gate_up|up_gate|h_to_4h|w13", re.I)
_ENDINGS = re.compile(r"[_.]?(?:proj|projs|linear|lin|layer|weight|attn|net)\Z", re.I)
#: Names of the parts of a fused matrix, in the order in which they are stacked.
_PARTS = [names.split() for names in ("q k v", "query key value", "wq wk wv", "k v", "key value", "gate up", "w1 w3")]


#: Patterns of one side and what they became on the other: one to one, one to many (split) or many to one (fused). The
#: shapes fit; whether the values do is not known.
_Rename = tuple[tuple[layouts.TensorGroup, ...], tuple[layouts.TensorGroup, ...]]
#: A name, and the groups that belong together under it, as one thing to find again.
_Module = tuple[str, list[layouts.TensorGroup]]


def _take_renames(gone: dict[str, layouts.TensorGroup], come: dict[str, layouts.TensorGroup]) -> list[_Rename]:
    """Take the groups that belong together out of both tables; what stays was really removed or added."""
    renames: list[_Rename] = [((whole,), parts) for whole, parts in _splits(gone, come)]
    renames += [(parts, (whole,)) for whole, parts in _splits(come, gone)]
    budget = _MOST_LIKENESSES
    # Whole modules first: a norm's bias has the shape of many biases, a norm's weight and bias together have not.
    for split_off in (True, False):
        buckets: dict[object, tuple[list[_Module], list[_Module]]] = {}
        for side, groups in enumerate((gone, come)):
            modules: dict[str, list[layouts.TensorGroup]] = {}
            for pattern in sorted(groups):
                parent = pattern.rpartition(".")[0] if split_off else pattern
                modules.setdefault(parent or pattern, []).append(groups[pattern])
            for module in modules.items():
                buckets.setdefault(tuple(map(_likeness, module[1])), ([], []))[side].append(module)
        for before, after in buckets.values():
            budget -= len(before) * len(after)
            for pair, other in _pairs(before, after, likeness=budget >= 0):
                for was, now in zip(pair[1], other[1], strict=True):
                    renames.append(((was,), (now,)))
                    del gone[was.pattern], come[now.pattern]
    return sorted(renames, key=lambda rename: rename[0][0].pattern)


def _likeness(item: layouts.TensorGroup, dimension: int = 0) -> object:
    """Return what tensors share with what they became, or were made of: ending, running numbers, and shapes from a
    dimension on. Numbers count from the smallest: layers 1 to 32 may have become 0 to 31."""
    lowest = [min(column) for column in zip(*item.numbers, strict=False)]
    numbers = tuple(tuple(n - low for n, low in zip(entry, lowest, strict=False)) for entry in item.numbers)
    return hash((numbers, tuple(spec.shape[dimension:] for spec in item.specs))), item.pattern.rpartition(".")[2]


def _pairs(before: list[_Module], after: list[_Module], *, likeness: bool) -> list[tuple[_Module, _Module]]:
    if not likeness or len(before) * len(after) <= 1:
        return list(zip(before, after, strict=False))
    from difflib import SequenceMatcher

    scored: list[tuple[float, int, int]] = []
    for i, (name, groups) in enumerate(before):
        matcher = SequenceMatcher(None, b=name, autojunk=False)
        for j, (other, others) in enumerate(after):
            matcher.set_seq1(other)
            # The module's own name says more than the path to it, which a rename often changes as a whole.
            own = layouts.leaf(groups[0].pattern) == layouts.leaf(others[0].pattern)
            scored.append((-(matcher.ratio() + (1.0 if own else 0.0)), i, j))
    left, right = dict(enumerate(before)), dict(enumerate(after))
    return [(left.pop(i), right.pop(j)) for _, i, j in sorted(scored) if i in left and j in right]


def _splits(
    wholes: dict[str, layouts.TensorGroup], parts: dict[str, layouts.TensorGroup]
) -> Iterator[tuple[layouts.TensorGroup, tuple[layouts.TensorGroup, ...]]]:
    """Yield fused groups whose first dimension is the sum of others', and take both out of the tables."""
    candidates: dict[object, list[layouts.TensorGroup]] = {}
    for item in parts.values():
        candidates.setdefault(_likeness(item, 1), []).append(item)
    for pattern, whole in list(wholes.items()):
        if _FUSED.search(pattern):
            near = candidates.get(_likeness(whole, 1), ())
            chosen = _choose(whole, [item for item in near if item.pattern in parts])
            if chosen:
                yield whole, chosen
                del wholes[pattern]
                for item in chosen:
                    del parts[item.pattern]


def _choose(whole: layouts.TensorGroup, near: list[layouts.TensorGroup]) -> tuple[layouts.TensorGroup, ...] | None:
    parents: dict[str, dict[str, layouts.TensorGroup]] = {}
    for item in near:
        role = _ENDINGS.sub("", layouts.leaf(item.pattern)).lower()
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


def _adds_up(whole: layouts.TensorGroup, parts: Iterable[layouts.TensorGroup]) -> bool:
    """Return whether the parts have together as many rows as the whole, tensor by tensor."""
    for one, *specs in zip(whole.specs, *(item.specs for item in parts), strict=True):
        if not all(spec.shape for spec in (one, *specs)) or sum(spec.shape[0] for spec in specs) != one.shape[0]:
            return False
    return True


_MOST_RESHAPED = 12
#: What turns hidden states into logits.
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|output_layer|embed_out|output)\.weight\Z")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|embeddings|tokens_embed|shared)\.weight\Z"
)
_change = partial(Change, "weights")


#: Heads with the files that hold them.
_Heads = list[tuple[str, layouts.TensorGroup]]
#: Changes, one a cause, and those of every name pattern (``--tensors``).
_Differences = tuple[list[Change], list[Change]]


def compare_layouts(
    old: layouts.WeightLayout, new: layouts.WeightLayout, snapshots: tuple[Snapshot, Snapshot], *, relaid: bool
) -> _Differences:
    """Compare what was read of one set; ``relaid`` says that its files are cut differently."""
    whole = not old.unread and not new.unread
    both = [(name, spec, new.tensors[name]) for name, spec in old.tensors.items() if name in new.tensors]
    retyped = [name for name, spec, other in both if spec.dtype != other.dtype]
    reshaped = [name for name, spec, other in both if spec.shape != other.shape]
    embedding, covered = _embeddings(old, new, snapshots[1])
    gone, come = (
        layouts.group((name for name in one.tensors if whole and not _lives_on(name, one, other.tensors)), one.tensors)
        for one, other in ((old, new), (new, old))
    )
    renames = _take_renames(gone, come)
    heads_gone, heads_come = (
        [(layout.where[side[pattern].names[0]], side.pop(pattern)) for pattern in list(side) if _HEAD.search(pattern)]
        for side, layout in ((gone, old), (come, new))
    )
    heads = [*_heads(heads_gone, heads_come, snapshots)]
    lost = relaid and bool(gone) and not come and not renames
    parts = [(embedding, embedding), _retyped(retyped, old, new)]
    parts.append(_reshaped([name for name in reshaped if name not in covered], old, new))
    parts += [_renamed(renames, new), (heads, heads)]
    parts.append(_one_sided("resharded-with-loss" if lost else "tensor-removed", gone, old))
    parts.append(_one_sided("tensor-added", come, new))
    if new.twice and not old.twice:
        first = new.twice[0]
        again = [_change("tensor-twice", new.where[first], layouts.pattern_of(first)[0], count=len(new.twice))]
        parts.append((again, again))
    return [change for part in parts for change in part[0]], [change for part in parts for change in part[1]]


def _lives_on(name: str, layout: layouts.WeightLayout, others: Collection[str]) -> bool:
    """Return whether it shares its storage with a tensor that the other side has: pickles name a tied head."""
    owner = layout.twins.get(name, name)
    return owner in others or any(other in others for other, first in layout.twins.items() if first == owner)


def _tying(snapshot: Snapshot) -> str:
    """Return ``tied``, ``not tied``, ``not readable``, or ``not given``: then the class decides."""
    if (config := _config(snapshot)) is None:
        return "not readable"
    for table in (config, config.get("text_config"), config.get("llm_config")):
        match table:
            case {"tie_word_embeddings": bool(is_tied)}:
                return "tied" if is_tied else "not tied"
    return Message("not given")


def _config(snapshot: Snapshot) -> dict[str, Any] | None:
    document = read_json(snapshot, "config.json")
    return None if document is None or isinstance(document, Unread) else document.data


def _heads(removed: _Heads, added: _Heads, snapshots: tuple[Snapshot, Snapshot]) -> Iterator[Change]:
    """Yield ``head-gone`` and ``head-added``, with the tying of each configuration as before and after; a head that
    the new configuration ties, and the old one did not untie, is ``tied-head-left-out``."""
    if removed or added:
        before, after = map(_tying, snapshots)
        kind_of_loss = "tied-head-left-out" if after == "tied" and before != "not tied" else "head-gone"
        for kind, heads in ((kind_of_loss, removed), ("head-added", added)):
            for path, head in heads:
                yield _change(kind, path, head.pattern, before, after, len(head.names))


def _embeddings(
    old: layouts.WeightLayout, new: layouts.WeightLayout, new_snapshot: Snapshot
) -> tuple[list[Change], set[str]]:
    """Return the changes ``embedding-rows`` and ``rows-differ-from-config``, and the tensor names that they cover."""
    changes: list[Change] = []
    covered: set[str] = set()
    # Of the matrices with such a name, the token embedding has the most rows.
    embeddings = [name for name, spec in new.tensors.items() if len(spec.shape) == 2 and _EMBEDDING.search(name)]
    name = max(embeddings, key=lambda name: (new.tensors[name].shape[0], name), default=None)
    if name is None:
        return changes, covered
    shape = new.tensors[name].shape
    before = old.tensors.get(name)
    grown = before is not None and len(before.shape) == 2 and before.shape[0] != shape[0]
    if before is not None and grown and before.shape[1:] == shape[1:]:
        heads = [other for other in new.tensors if other in old.tensors and _HEAD.search(other)]
        shapes = {other: (old.tensors[other].shape, new.tensors[other].shape) for other in heads}
        covered = {name, *(other for other, (was, now) in shapes.items() if was != now and was[1:] == now[1:])}
        detail = Message("fewer") if shape[0] < before.shape[0] else Message("more")
        sizes = str(before.shape[0]), str(shape[0])
        changes.append(_change("embedding-rows", new.where[name], name, *sizes, len(covered), detail))
    config = _config(new_snapshot) or {}
    tables = [table for table in (config, config.get("text_config")) if isinstance(table, dict)]
    sizes_given = (table.get(key) for table in tables for key in ("vocab_size", "padded_vocab_size"))
    tokens = next((size for size in sizes_given if type(size) is int), None)
    if tokens is not None and tokens != shape[0] and (before is None or grown):
        which = Message("fewer rows than tokens") if shape[0] < tokens else Message("more rows than tokens")
        sizes = str(shape[0]), str(tokens)
        changes.append(_change("rows-differ-from-config", new.where[name], name, *sizes, 1, which))
    return changes, covered


def _retyped(names: Sequence[str], old: layouts.WeightLayout, new: layouts.WeightLayout) -> _Differences:
    changes: list[Change] = []
    patterns: list[Change] = []
    pairs: dict[tuple[str, str], list[str]] = {}
    for name in names:
        pairs.setdefault((old.tensors[name].dtype, new.tensors[name].dtype), []).append(name)
    for dtypes, members in pairs.items():
        groups = layouts.group(members, new.tensors)
        for pattern, item in groups.items():
            path, count = new.where[item.names[0]], len(item.names)
            patterns.append(_change("tensor-retyped", path, pattern, *dtypes, count))
        was, now = (sum(layouts.size_of(layout.tensors[name])[1] for name in members) for layout in (old, new))
        sizes, path, count = f"{layouts.gigabytes(was)} → {layouts.gigabytes(now)}", new.where[members[0]], len(members)
        parts = [pattern.split(".") for pattern in groups]
        shared = takewhile(lambda part: len(set(part)) == 1, zip(*parts, strict=False))
        common = ".".join(parts[0] if len(parts) == 1 else [*(part[0] for part in shared), "*"])
        changes.append(_change("tensor-retyped", path, common, *dtypes, count, sizes))
    return changes, patterns


def _reshaped(names: Sequence[str], old: layouts.WeightLayout, new: layouts.WeightLayout) -> _Differences:
    changes: list[Change] = []
    for pattern, item in layouts.group(names, new.tensors).items():
        shapes = [(old.tensors[name].shape, spec.shape) for name, spec in zip(item.names, item.specs, strict=True)]
        more = len(set(shapes)) - 1
        detail = Message("and {} more pairs of shapes", more) if more else None
        was, now = map(layouts.spell_shape, shapes[0])
        changes.append(_change("tensor-reshaped", new.where[item.names[0]], pattern, was, now, len(shapes), detail))
    rest = changes[_MOST_RESHAPED:]
    if not rest:
        return changes, changes
    total, detail = sum(change.count for change in rest), listed([change.symbol for change in rest], 3)
    last = _change("tensor-reshaped", rest[0].path, Message("{} more patterns", len(rest)), None, None, total, detail)
    return [*changes[:_MOST_RESHAPED], last], changes


def _renamed(renames: Sequence[_Rename], new: layouts.WeightLayout) -> _Differences:
    if not renames:
        return [], []
    patterns: list[Change] = []
    for was, now in renames:
        before, after = (" + ".join(item.pattern for item in side) for side in (was, now))
        path, count = new.where[now[0].names[0]], sum(len(item.names) for item in was)
        patterns.append(_change("tensor-renamed", path, before, before, after, count))
    # A split or a fusion is what breaks most: it goes first, then what has the most bytes.
    weights = [(len(was) != len(now), sum(item.bytes for item in was)) for was, now in renames]
    largest = weights.index(max(weights))
    first = patterns[largest]
    gone, come = _module_names([renames[largest], *renames])
    example = renames[largest][0][0].pattern
    lines = sorted((f"{one.before} → {one.after}" for one in patterns), key=lambda line: not line.startswith(example))
    total, detail = sum(change.count for change in patterns), listed(lines, 3)
    names = (example, first.after) if not (gone or come) else (listed(gone, 6), listed(come, 6))
    kind = "tensor-renamed" if gone or come else "tensor-path-renamed"
    return [_change(kind, first.path, example, *names, total, detail)], patterns


def _module_names(renames: Sequence[_Rename]) -> tuple[list[str], list[str]]:
    """Return removed and added module names: of matrices in layers, which LoRA targets, or else all."""
    firsts = [(rename, rename[0][0]) for rename in renames]
    inner = [rename for rename, item in firsts if "{i}" in item.pattern and len(item.specs[0].shape) == 2]
    for chosen in (inner, renames):
        was, now = ({layouts.leaf(item.pattern): None for rename in chosen for item in rename[side]} for side in (0, 1))
        gone, come = [name for name in was if name not in now], [name for name in now if name not in was]
        if gone or come:
            return gone, come
    return [], []


def _one_sided(kind: str, groups: Mapping[str, layouts.TensorGroup], layout: layouts.WeightLayout) -> _Differences:
    if not groups:
        return [], []

    def sides(text: str) -> tuple[str | None, str | None]:
        return (None, text) if kind == "tensor-added" else (text, None)

    patterns = []
    for item in groups.values():
        spec = f"{item.specs[0].dtype} {layouts.spell_shape(item.specs[0].shape)}"
        patterns.append(_change(kind, layout.where[item.names[0]], item.pattern, *sides(spec), len(item.names)))
    sizes, total = [item.bytes for item in groups.values()], sum(change.count for change in patterns)
    largest = patterns[sizes.index(max(sizes))]
    amount = sides(Message("{} tensor{}, {}", total, "" if total == 1 else "s", layouts.gigabytes(sum(sizes))))
    others = [pattern for pattern in groups if pattern != largest.symbol]
    detail = Message("also {}", listed(others)) if others else None
    return [_change(kind, largest.path, largest.symbol, *amount, total, detail)], patterns
