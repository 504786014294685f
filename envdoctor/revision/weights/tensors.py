"""Comparing the weights of two revisions by object ids and headers; no weight is read unasked.

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

With ``--values`` how much the values of tensors differ, read in bounded pieces. ``tensor-values-changed``: symbol is
the pattern that differs most, after the largest difference, the relative one, and the rows of an embedding or head that
differ. ``values-not-finite``: NaN or infinity where the old revision had numbers. Floats are compared as numbers, in
another dtype too. Packed and whole numbers (quantised weights) have no size that a difference could have: their bytes
are compared. numpy measures; without it nothing is read.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from envdoctor.facts.values import Unknown, Value
from envdoctor.revision.comparer import Change, Compared, Revisions, parted
from envdoctor.revision.hub.online import HubSnapshot
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.revision.weights.parts import layouts
from envdoctor.revision.weights.parts.layout_changes import compare_layouts
from envdoctor.revision.weights.parts.layouts import Amount, Shared, WeightLayout, WeightSet, gigabytes, group
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
        values = _compare_values(revisions, before, after)
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


#: Elements of a tensor that are compared at a time, and bytes that are read at a time.
_PIECE, _WINDOW = 1 << 20, 8 << 20
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass
class _Difference:
    """The differences of one tensor. ``rows`` are the rows that differ, if whole rows fit into a piece."""

    name: str
    largest: float = 0.0
    squares: float = 0.0
    base: float = 0.0
    different: bool = False
    finite: bool = True
    packed: bool = False
    rows: tuple[int, ...] = ()

    @property
    def relative(self) -> float:
        """Return the norm of the difference by that of the old numbers, both of the pieces that differ."""
        return math.sqrt(self.squares / self.base) if self.base else math.inf if self.squares else 0.0


class _Piece(NamedTuple):
    """Some elements of a tensor: ``places`` are path, offset and bytes on either side. ``row`` is the number of the
    first row and ``length`` the elements of a row, 0 where rows are not told apart."""

    name: str
    dtypes: tuple[str, str]
    places: tuple[tuple[str, int, int], tuple[str, int, int]]
    row: int
    length: int


def _compare_values(revisions: Revisions, one: WeightLayout, two: WeightLayout) -> Compared:
    """Compare the tensors that both layouts hold in one shape, after saying how many bytes are read for it. What costs
    more than a Hub may be asked for, or cannot be read, is unread. Tensors of two shapes, or packed on one side alone,
    are left out of the number that ``equal`` gives."""
    sides, budget = (revisions.old, revisions.new), revisions.values or 0
    both = [name for name, path in one.where.items() if path in one.headers and two.where.get(name) in two.headers]
    pieces = [piece for name in both for piece in _pieces(name, one, two)]
    pickle = Message("its values were not compared: {}", Message("it is a pickle, which is never loaded"))
    unread = [Unread(path, pickle) for path in sorted((one.files | two.files) - one.raw.keys() - two.raw.keys())]
    try:
        import numpy  # noqa: F401 (whoever measures imports it)
    except ImportError:
        lacking = Message("its values were not compared: {}", Message("numpy is not installed beside envdoctor"))
        unread += [Unread(two.where[name], lacking) for name in both[:1]]
        both = []
    if not both:
        return Compared(unread=tuple(unread))
    pieces.sort(key=lambda piece: piece.places[0][:2])
    remote = [number for number, snapshot in enumerate(sides) if isinstance(snapshot, HubSnapshot)]
    costs = [sum(piece.places[number][2] for number in remote) for piece in pieces]
    fitting = [piece for piece, cost in zip(pieces, accumulate(costs), strict=True) if cost <= budget]
    total = sum(place[2] for piece in fitting for place in piece.places)
    fetched = gigabytes(sum(costs[: len(fitting)]))
    revisions.progress(Message("comparing values: {} are read, {} of it from the Hub", gigabytes(total), fetched))
    if left := pieces[len(fitting) :]:
        count = len({piece.name for piece in left})
        reason = Message("values of {} tensors lie beyond the {} that may be fetched", count, gigabytes(budget))
        unread.append(Unread(left[0].places[1][0], reason))
    differences: dict[str, _Difference] = {}
    done = 0
    for window in _windows(fitting):
        problem = _compare_window(revisions, window, differences)
        if problem is not None:
            unread.append(Unread(problem.path, Message("its values were not compared: {}", problem.reason)))
            break
        done += sum(place[2] for piece in window for place in piece.places)
        revisions.progress(Message("comparing values: {} of {}", gigabytes(done), gigabytes(total)))
    changes, patterns = _changes({item.name: item for item in differences.values() if item.different}, two)
    settled = Message("every value of {} of {} tensors", len({piece.name for piece in fitting}), len(two.where))
    equal = () if changes or unread else (settled,)
    return Compared(tuple(changes), tuple(unread), equal=equal, listing=tuple(patterns))


def _pieces(name: str, *layouts: WeightLayout) -> Iterator[_Piece]:
    """Cut a tensor of one shape on both sides; at whole rows where a row fits into a piece."""
    headers = [layout.headers[layout.where[name]] for layout in layouts]
    old, new = (header.tensors[name] for header in headers)
    dtypes, shape = (old.dtype, new.dtype), old.shape
    floats = all(dtype in _FLOATS for dtype in dtypes)
    if shape != new.shape or not (floats or old.dtype == new.dtype):
        return
    widths = [_FLOATS[dtype] if floats else 1 for dtype in dtypes]
    count = math.prod(shape) if floats else old.end - old.begin
    length = shape[1] if floats and len(shape) == 2 and shape[1] <= _PIECE else 0
    step = _PIECE // length * length if length else _PIECE
    for first in range(0, count, step):
        places = [
            (layout.where[name], header.header_bytes + begin + first * width, min(step, count - first) * width)
            for layout, header, begin, width in zip(layouts, headers, (old.begin, new.begin), widths, strict=True)
        ]
        yield _Piece(name, dtypes, (places[0], places[1]), first // length if length else 0, length)


def _windows(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Yield pieces that follow one another in the files of both sides, to be read at once."""
    window: list[_Piece] = []
    size = 0
    for piece in pieces:
        ends = [(path, start + length) for path, start, length in window[-1].places] if window else []
        follows = ends == [place[:2] for place in piece.places]
        size += piece.places[0][2]
        if window and (not follows or size > _WINDOW):
            yield window
            window, size = [], piece.places[0][2]
        window.append(piece)
    if window:
        yield window


def _compare_window(revisions: Revisions, window: list[_Piece], differences: dict[str, _Difference]) -> Unread | None:
    """Read a window on both sides and add what differs to ``differences``; return what could not be read."""
    contents: list[bytes] = []
    for side, snapshot in enumerate((revisions.old, revisions.new)):
        path, offset, _ = window[0].places[side]
        content = snapshot.read_range(path, offset, sum(piece.places[side][2] for piece in window))
        if isinstance(content, Unread):
            return content
        contents.append(content)
    ends = [0, 0]
    for piece in window:
        starts, ends = ends, [end + place[2] for end, place in zip(ends, piece.places, strict=True)]
        raws = [content[start:end] for content, start, end in zip(contents, starts, ends, strict=True)]
        item = differences.setdefault(piece.name, _Difference(piece.name))
        if piece.dtypes[0] != piece.dtypes[1] or raws[0] != raws[1]:
            _add(item, piece, raws)
    return None


def _add(item: _Difference, piece: _Piece, raws: list[bytes]) -> None:
    """Add a piece whose bytes or dtypes differ."""
    if piece.dtypes[0] not in _FLOATS:
        item.packed = item.different = True
        return
    largest, squares, base, finite = _measure(piece.dtypes, raws)
    item.largest, item.squares, item.base = max(item.largest, largest), item.squares + squares, item.base + base
    item.finite = item.finite and finite
    item.different = item.different or largest > 0 or not finite
    if piece.length and piece.dtypes[0] == piece.dtypes[1]:
        size = piece.length * _FLOATS[piece.dtypes[0]]
        starts = range(0, len(raws[0]), size)
        rows = [row for row, at in enumerate(starts) if raws[0][at : at + size] != raws[1][at : at + size]]
        item.rows += tuple(piece.row + row for row in rows)


def _measure(dtypes: tuple[str, str], raws: list[bytes]) -> tuple[float, float, float, bool]:
    """Return largest difference, squares of finite differences and old numbers, whether the new side stays finite.
    Bytes are little-endian floats; bfloat16 is the upper half of a float32."""
    import numpy

    sides = []
    for dtype, raw in zip(dtypes, raws, strict=True):
        if dtype == "BF16":
            numbers = (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            numbers = numpy.frombuffer(raw, f"<f{_FLOATS[dtype]}")
        sides.append(numbers.astype("f8" if "F64" in dtypes else "f4"))
    old_finite = numpy.isfinite(sides[0])
    both_finite = old_finite & numpy.isfinite(sides[1])
    old, new = (side[both_finite] for side in sides) if not both_finite.all() else sides
    change = new - old
    largest = float(numpy.abs(change).max()) if change.size else 0.0
    squares, base = (float(numpy.square(side).sum(dtype="f8")) for side in (change, old))
    return largest, squares, base, bool(both_finite.sum() == old_finite.sum())


def _changes(differences: dict[str, _Difference], layout: WeightLayout) -> tuple[list[Change], list[Change]]:
    """Return one change for all tensors that differ, and one for each pattern."""
    groups = group(differences, layout.tensors).items()
    members = [(pattern, [differences[name] for name in item.names]) for pattern, item in groups]
    members.sort(key=lambda entry: max(item.relative for item in entry[1]), reverse=True)
    patterns = [_told(pattern, items, layout) for pattern, items in members]
    others = [change.symbol for change in patterns[1:]]
    detail = Message("also {}", listed(others)) if others else None
    changes = [change._replace(count=len(differences), detail=detail) for change in patterns[:1]]
    if broken := [name for name, item in differences.items() if not item.finite]:
        path = layout.where[broken[0]]
        changes.append(Change("weights", "values-not-finite", path, listed(broken, 2), count=len(broken)))
    return changes, patterns


def _told(pattern: str, items: list[_Difference], layout: WeightLayout) -> Change:
    """Return the change of one pattern: its largest difference, and if it is one matrix the rows that differ."""
    worst = max(items, key=lambda item: item.relative)
    if worst.packed:
        after = Message("bytes of packed or whole numbers, whose differences have no size")
    else:
        largest = max(item.largest for item in items)
        relative = f"{worst.relative:.2%}" if math.isfinite(worst.relative) else "∞"
        after = Message("largest difference {}, relative {}", f"{largest:.3g}", relative)
    rows, shape = worst.rows, layout.tensors[worst.name].shape
    if len(items) == 1 and 0 < len(rows) < shape[0]:
        counts = f"{len(rows):,}", f"{shape[0]:,}"
        after = Message("{}, {} of {} rows ({} to {})", after, *counts, rows[0], rows[-1])
    return Change("weights", "tensor-values-changed", layout.where[worst.name], pattern, None, after, len(items))
