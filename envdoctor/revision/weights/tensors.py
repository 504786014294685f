"""Comparing the weights of two revisions by object ids and headers; no weight is read.

``symbol`` is the pattern of tensor names, before and after are dtypes, shapes, sizes or names. Of the kinds:

* ``tensor-renamed``: the same shapes under other module names, also split or fused: before and after are the module
  names that went and came; ``tensor-path-renamed``: the modules keep their own names;
* ``head-gone``, ``head-added``, ``tied-head-left-out``: before and after say what config.json does (tied, not tied, not
  given, not readable); ``rows-differ-from-config``: before are rows of the embedding, after its vocabulary;
* ``values-changed``: equal headers, other bytes; ``resharded``: nothing lost, else ``resharded-with-loss``;
  ``file-moved``: the same bytes under another name; ``unread-changed``: other bytes, and headers that were not read;
* ``format-lost``: a header no longer says which framework wrote the file; ``metadata-changed``: other texts of it;
* ``weights-gone``: nothing is loaded any more; ``set-replaced``: another format is loaded now; ``opaque-changed``:
  GGUF, ONNX, …
"""

from collections.abc import Iterable, Iterator, Mapping

from envdoctor.facts.values import Unknown, Value
from envdoctor.revision.comparer import Change, Compared, Revisions, parted
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.revision.weights.parts import layouts
from envdoctor.revision.weights.parts.layout_changes import compare_layouts
from envdoctor.revision.weights.parts.layouts import Amount, Shared, WeightLayout, WeightSet, gigabytes
from envdoctor.system.message import Message, listed
from envdoctor.versions.pep440 import rank

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_INDEX = (".safetensors.index.json", ".bin.index.json")
#: What the table safetensors-dtypes starts with: a need for it is no news.
_OLDEST = "0.4.0"
#: Kinds of changes of two sets that hold the same weights in other files.
_ABOUT_FILES = (*("resharded", "shard-missing", "index-missing", "index-mismatch", "metadata-changed", "format-lost"),)
#: Who may have written a file (transformers 4.57.6, modeling_utils.py, load_state_dict).
_FORMATS = ("pt", "tf", "flax", "mlx")
_READERS = {"safetensors": layouts.read_safetensors, "pickled": layouts.read_pickled}
_LEFT_ALONE = Unknown(Message("not every header was read: files that did not change are left alone"))
_NOT_READ = Unknown(Message("the weight files did not change, so their headers were not read"))


def wants(path: str) -> bool:
    """Return whether the file holds weights or the index of their shards."""
    return path.lower().endswith((*_WEIGHTS, *_INDEX))


def compare(revisions: Revisions) -> Compared:
    """Return the changes, every changed pattern, and the amounts of the loaded set if all headers were read."""
    old, new = layouts.weight_paths(revisions.old), layouts.weight_paths(revisions.new)
    if not old and not new:
        lacking = revisions.old.lacking or revisions.new.lacking
        return Compared(facts={"revision.weights": Unknown(lacking) if lacking else "none"})
    shared = layouts.shared_files(old, new)
    moved: tuple[Change, ...] = ()
    if shared.moved:  # one change for all files that have the same bytes under another name
        count, (before, after) = len(shared.moved), next(iter(shared.moved.items()))
        detail = Message("and {} more", count - 1) if count > 1 else None
        moved = (Change("weights", "file-moved", after, after, before, after, count, detail),)
    equal: tuple[str, ...] = ()
    if entries := [old[path] for path in (*shared.same, *shared.moved)]:
        size = gigabytes(sum(entry.size for entry in entries))
        digest = "sha256" if all((entry.oid or "").startswith("sha256:") for entry in entries) else Message("object id")
        equal = (Message("{} of {} weight files by {} ({})", len(entries), len(old), digest, size),)
    if len(entries) == len(old) == len(new):
        changes, unread = parted(_index_of_known(revisions, shared))
        keys = ("revision.parameters_old", "revision.parameters_new", "revision.safetensors_needs")
        facts: dict[str, Value] = {"revision.weights": "identical", **dict.fromkeys(keys, _NOT_READ)}
        return Compared((*moved, *changes), unread, facts, equal, moved)
    compared = _compare_sets(revisions, shared, moved)
    return compared._replace(equal=(*equal, *compared.equal))


def _compare_sets(revisions: Revisions, shared: Shared, moved: tuple[Change, ...]) -> Compared:
    old, new = revisions.old, revisions.new
    dtypes = {row["key"]: row["since"] for row in revisions.matrix.rows("safetensors-dtypes")}  # dtype to first release
    pairs, sets = layouts.plan(old, new, shared)
    changes: list[Change] = [*moved, *sets]
    patterns, unread = list(changes), list[Unread]()
    was, now = layouts.main_set(layouts.weight_sets(old)), layouts.main_set(layouts.weight_sets(new))
    # Other sets than the one that is loaded are copies for other programs.
    differ = (was is not None and now is None) or any(change.kind == "opaque-changed" for change in changes)
    amounts: dict[str, dict[str, dict[str, Amount]]] = {}
    used: set[str] = set()
    valued: list[str] = []
    read_all = not shared.same and not shared.moved
    for before, after in pairs:
        one = _READERS[before.key.format](old, before.read, revisions.clock)
        two = _READERS[after.key.format](new, after.read, revisions.clock)
        result = _compare_pair(revisions, before, after, one, two)
        changes += result.changes
        patterns += result.listing
        unread += result.unread
        valued += result.equal
        differ = differ or any(change.kind not in _ABOUT_FILES for change in result.changes)
        if after.key.format == "safetensors":
            used |= {spec.dtype for spec in two.tensors.values()}
        read_all = read_all and not result.unread
        for side, held, layout in (("old", before, one), ("new", after, two)):
            if after.key == now and not result.unread and held.read == held.files:
                amounts[side] = layouts.amounts_of(layout.tensors)
    unhashed = () if differ or len(valued) == len(pairs) else tuple(_unhashed(revisions, pairs))
    status: Value = "changed" if differ else "equal"
    if not layouts.weight_paths(old) or not layouts.weight_paths(new):
        status = "added" if layouts.weight_paths(new) else "removed"
    if unread or unhashed:
        paths = dict.fromkeys(item.path for item in (*unread, *unhashed))
        status = Unknown(Message("{} could not be read", listed(paths, 2)))
    facts: dict[str, Value] = {"revision.weights": status}
    for side in ("old", "new"):
        counts = [parameters for _, parameters, _ in amounts.get(side, {"dtype": {}})["dtype"].values()]
        facts[f"revision.parameters_{side}"] = sum(counts) if side in amounts else _LEFT_ALONE
    newest = max((dtypes[dtype] for dtype in used), key=rank, default=None)
    if newest is None:
        facts["revision.safetensors_needs"] = Unknown(Message("no safetensors header of the new revision was read"))
    else:  # unless all headers were read a lower bound, unknown if nothing is new
        facts["revision.safetensors_needs"] = newest if read_all or rank(newest) > rank(_OLDEST) else _LEFT_ALONE
    settled = not unread and not differ and bool(pairs)
    unsaid = Message("every tensor's name, dtype and shape; the values were not compared")
    equal = tuple(valued) if len(valued) == len(pairs) else (unsaid,) if settled else ()
    return Compared(tuple(changes), (*unread, *unhashed), facts, equal, tuple(patterns), amounts)


def _unhashed(revisions: Revisions, pairs: Iterable[tuple[WeightSet, WeightSet]]) -> Iterator[Unread]:
    """Yield large local files that were not read to the end: equal headers say nothing about their values."""
    for before, after in pairs:
        sides = ((revisions.old, before.read), (revisions.new, after.read))
        sizes = {path: side.files[path].size for side, paths in sides for path in paths if side.files[path].oid is None}
        reason = "its values were not compared, only its header: --hash or --values reads its {} bytes"
        yield from (Unread(path, Message(reason, f"{size:,}")) for path, size in sizes.items())


def _compare_pair(
    revisions: Revisions, one: WeightSet, two: WeightSet, before: WeightLayout, after: WeightLayout
) -> Compared:
    old, new = revisions.old, revisions.new
    unread = [*before.unread, *after.unread]
    elsewhere = any(after.where.get(name, path) != path for name, path in before.where.items())
    relaid = one.key == two.key and (one.files != two.files or elsewhere)
    changes, patterns = compare_layouts(before, after, (old, new), relaid=relaid)
    alike = [path for path, digest in after.raw.items() if before.raw.get(path) == digest]
    # One header and two object ids: the same tensors with other values.
    if paths := [path for path in alike if old.files[path].same_as(new.files[path]) is False]:
        size = gigabytes(sum(new.files[path].size for path in paths))
        changes.append(Change("weights", "values-changed", paths[0], listed(paths, 2), None, None, len(paths), size))
    changes += _metadata(before, after)
    for path in sorted({part.path for part in unread}):
        was, now = old.files.get(path), new.files.get(path)
        if was and now and was.same_as(now) is False:  # pointers of LFS
            sizes = gigabytes(was.size), gigabytes(now.size)
            changes.append(Change("weights", "unread-changed", path, path, *sizes))
    changes += [Change("weights", "opaque-changed", path, path) for path in sorted({*before.opaque, *after.opaque})]
    if relaid and not unread and not any(change.kind == "resharded-with-loss" for change in changes):
        counts = [len(names) for names in (one.files, two.files)]
        files = [Message("{} file{}", count, "" if count == 1 else "s") for count in counts]
        changes.append(Change("weights", "resharded", two.files[0], two.key.stem, files[0], files[1]))
    values = Compared()
    if revisions.values is not None:
        from envdoctor.revision.weights.values import compare_values

        values = compare_values(revisions, before, after)
        if values.changes and not values.unread:
            changes = [change for change in changes if change.kind != "values-changed"]
    index = layouts.index_path(two.key)
    # An unchanged index, of up to 9 MB, is not fetched for nothing.
    touched = not revisions.same(index) or one.files != two.files or before.where != after.where
    checks = touched and (len(two.files) > 1 or index in new.files)
    found = parted(layouts.check_index(new, two.key, two.files, after) if checks else ())
    unread += [*values.unread, *found[1]]
    listing = (*patterns, *values.listing)
    return Compared((*changes, *values.changes, *found[0]), tuple(unread), equal=values.equal, listing=listing)


def _index_of_known(revisions: Revisions, shared: Shared) -> Iterator[Change | Unread]:
    """Yield what an index lacks: it must know the names of renamed shards; if it changed, it must fit the shards."""
    for key, files in layouts.weight_sets(revisions.new).items():
        touched = bool(revisions.changed([layouts.index_path(key)]))
        if key.format == "safetensors" and touched:
            layout = _READERS[key.format](revisions.new, files, revisions.clock)
            yield from layout.unread
            yield from layouts.check_index(revisions.new, key, files, layout)
        elif key.format != "opaque" and len(files) > 1 and not set(files).isdisjoint(shared.moved.values()):
            yield from layouts.check_index(revisions.new, key, files, WeightLayout())


def _metadata(before: WeightLayout, after: WeightLayout) -> Iterator[Change]:
    """Yield ``format-lost`` and ``metadata-changed``, one change for all files of one kind."""
    if not before.headers:
        return
    usual = before.headers[min(before.headers)]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for path, header in after.headers.items():
        was, now = before.headers.get(path, usual).metadata, header.metadata
        if was != now:
            one, two = _format(was), _format(now)
            kind = "format-lost" if one in _FORMATS and two not in _FORMATS else "metadata-changed"
            groups.setdefault((kind, one, two), []).append(path)
    for (kind, one, two), paths in groups.items():
        yield Change("weights", kind, paths[0], "format", one, two, len(paths))


def _format(metadata: Mapping[str, str] | None) -> str:
    """Return the format that a header gives, else which of its parts is missing."""
    if metadata is None:
        return Message("no metadata")
    given = metadata.get("format")
    return Message("no format") if given is None else given if given in _FORMATS else Message("unknown format")
