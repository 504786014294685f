"""How much the values of two revisions' tensors differ: read in bounded pieces, and only when somebody asked for it.

``tensor-values-changed``: symbol is the pattern that differs most, after the largest difference, the relative one, and
the rows of an embedding or head that differ. ``values-not-finite``: NaN or infinity where the old revision had numbers.

Floats are compared as numbers, in another dtype too. Packed and whole numbers (quantised weights) have no size that a
difference could have: their bytes are compared. numpy measures; without it nothing is read.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from envdoctor.revision.comparer import Change, Compared, Revisions
from envdoctor.revision.hub.online import HubSnapshot
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.revision.weights.parts.layouts import WeightLayout, gigabytes, group
from envdoctor.system.message import Message, listed

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


def compare_values(revisions: Revisions, one: WeightLayout, two: WeightLayout) -> Compared:
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
