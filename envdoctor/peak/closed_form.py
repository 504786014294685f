"""From a few traces to every depth, batch and length: the bytes of each segment of a step, by what they hold.

Within a segment the bytes are affine in the number of layers, because the traces lie on a line of equally made depths,
and at most quadratic in the length; so two depths give the full one, and three lengths every other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.factset import View
from envdoctor.peak.tracing import Trace

GIB = float(1 << 30)
#: What later steps hold more than the one whose tensors were replayed: up to 7 % where three steps were, at full depth.
_LATER = 1.07
#: What a process has on a GPU beside torch's allocator, in GiB: 0.3 with CUDA's lazy loading and few kernels, more than
#: 1 with all of torch's (https://github.com/pytorch/pytorch/issues/107667); 1.3 is in the documentation of transformers
#: (https://huggingface.co/docs/transformers/v4.48.0/model_memory_anatomy).
CONTEXT = (0.3, 0.6, 1.3)
Span = tuple[float, float, float]


class Residual(NamedTuple):
    """Published readings by the predicted live bytes: each is a share of them, and bytes beside it. A twentieth of the
    readings are below ``low``, a fifth below ``mostly``, half below ``point``, a tenth above ``high``."""

    low: tuple[float, float]
    mostly: tuple[float, float]
    point: tuple[float, float]
    high: tuple[float, float]

    def if_emptied(self, allocated: "Residual") -> "Residual":
        """Return the residual where the allocator's cache is emptied every few steps; ``allocated`` is of the tensors
        alone."""
        ends = zip(self._fields, allocated, self, strict=True)
        goes = (((1 - _STAYS[name]) * max(end[0] - alone[0], 0.0), end) for name, alone, end in ends)
        return Residual(*((share - gone, beside) for gone, (share, beside) in goes))

    def span(self, least: float, size: float, most: float) -> Span:
        """Return the least, the likely and the most bytes that such a reading shows."""
        ends = (self.low, least), (self.point, size), (self.high, most)
        low, point, high = (share * live + beside for (share, beside), live in ends)
        return low, point, high


#: How much of what the allocator holds beside live tensors stays where its cache is emptied every few steps: from
#: nothing to all of it.
_STAYS = {"low": 0.0, "mostly": 0.0, "point": 0.5, "high": 1.0}


class Need(NamedTuple):
    """The least, the likely and the most bytes of live tensors, of what torch reserves, and of what a process takes.
    Four of five processes take more than ``mostly`` bytes."""

    allocated: Span
    reserved: Span
    process: Span
    mostly: float

    def verdict(self, free: float) -> str:
        """Return fits if the most is free, does-not-fit if four of five take more, else tight. A run that dies costs
        more than a needless change: one in ten may be taken to fit wrongly, and one in five not."""
        return "fits" if self.process[2] <= free else "does-not-fit" if self.mostly > free else "tight"

    def up_to(self, other: "Need") -> "Need":
        """Return the need of a run that may be the other one instead, if that takes more."""
        spans = (
            (low, likely, max(high, top)) for (low, likely, high), (*_, top) in zip(self[:3], other[:3], strict=True)
        )
        return Need._make((*spans, self.mostly))

    def beside(self, other: Span) -> "Need":
        """Return the need beside something that takes so many bytes: the least, the likely and the most."""
        least, likely, most = other
        spans = ((span[0] + least, span[1] + likely, span[2] + most) for span in self[:3])
        return Need._make((*spans, self.mostly + least))

    def down_to(self, other: "Need") -> "Need":
        """Return the need of a run that may be the other one instead, which takes less."""
        spans = ((bottom, likely, high) for (_, likely, high), (bottom, *_) in zip(self[:3], other[:3], strict=True))
        return Need._make((*spans, other.mostly))


class Gpu(NamedTuple):
    """``total`` and ``free`` in bytes."""

    name: str
    total: float
    free: float


def need_of(least: float, size: float, most: float, held: float, residuals: Mapping[str, Residual]) -> Need:
    """Return what a process with so many live bytes takes: by the ``residuals`` of published readings, as shares of the
    live bytes; without them, if the step ran here, ``held`` times as much, as torch's allocator holds."""
    if residuals:
        measures = map(residuals.__getitem__, Need._fields[:3])
        # An allocator that was not replayed may hold more, or not (``held`` is 1 where nothing tells).
        spans = ((least, size, most), *2 * [(least, (1 + held) / 2 * size, held * most)])
        share, beside = residuals["process"].mostly
        readings = (residual.span(*span) for residual, span in zip(measures, spans, strict=True))
        return Need._make((*readings, share * least + beside))
    low, likely, high = least, held * size, _LATER * held * most
    process = (low + CONTEXT[0] * GIB, likely + CONTEXT[1] * GIB, high + CONTEXT[2] * GIB)
    return Need((least, size, _LATER * most), (low, likely, high), process, process[0])


def gpu_of(gpus: Iterable[View], processes: int) -> Gpu | None:
    """Return the GPU that decides: the first for one process, the one with the least free memory for several; None if
    no memory is known. All memory counts as free if its use is unknown."""
    known: list[Gpu] = []
    for item in gpus:
        total, free = item.number("memory_gib"), item.number("free_gib")
        total, free = free if total is None else total, total if free is None else free
        if total is not None and free is not None:
            known.append(Gpu(item.text("name") or "GPU", total * GIB, free * GIB))
    return min(known, key=lambda gpu: gpu.free) if processes > 1 and known else known[0] if known else None


def with_readings(
    trace: Trace, context: Iterable[Mapping[str, Any]], given: Mapping[str, Any], gpu: Gpu | None
) -> Trace:
    """Return the trace with the readings of such runs as they are on this card, in a group of processes, and where the
    allocator's cache is emptied every few steps."""
    residuals, known = trace.residuals, {row["name"]: row["gib"] * GIB for row in context}
    words = (gpu.name if gpu is not None else "").lower().replace("-", " ").split()
    # Where somebody measured what a process has on such a card beside what torch reserves.
    own = next((known[word] for word in words if word in known), None)
    if own is not None and residuals:
        process = Residual(*((share, beside + own) for share, beside in residuals["reserved"]))
        residuals = {**residuals, "process": process}
    if residuals and (given.get("world_size") or 1) > 1:
        share, beside = residuals["process"].high
        process = residuals["process"]._replace(high=(share, beside + known["group"]))
        residuals = {**residuals, "process": process}
    if given.get("empty_cache_steps") and residuals:
        residuals = {name: residual.if_emptied(residuals["allocated"]) for name, residual in residuals.items()}
    return trace._replace(residuals=residuals)


#: Bytes by what they hold.
Terms = Mapping[str, float]
LOGITS = "logits and loss"
#: An engine that generates on the same GPU.
GENERATING = "engine that generates"
#: What is there of the model and its training, whatever the batch, and of models beside it.
OTHER_MODELS = ("reference model", "value model", "reward model")
OF_THE_MODEL = (
    "weights",
    "adapters",
    *OTHER_MODELS,
    "gradients",
    "optimizer states",
    "temporary values of the optimizer",
)
#: What does not depend on the batch.
_STATIC = (*OF_THE_MODEL, GENERATING, "communication buffers", "gathered layers")
#: The lengths beside that of the longest sample, as shares of it, from which every other follows.
LENGTHS = (0.5, 0.25)


class Peak(NamedTuple):
    """The most memory of a step: the segment and the operation where it is reached, and what the bytes hold."""

    segment: str
    operation: str
    terms: Terms

    @property
    def size(self) -> float:
        """Return the size in bytes."""
        return sum(self.terms.values())

    def without(self, *names: str) -> "Peak":
        """Return the peak without the bytes of these names."""
        return self._replace(terms={name: size for name, size in self.terms.items() if name not in names})

    def most(self, margin: float) -> float:
        """Return the bytes if what depends on the batch takes more by the share ``margin``."""
        return self.size + margin * sum(size for name, size in self.terms.items() if name not in _STATIC)

    def held(self, kept: Terms) -> float:
        """Return the most bytes that an allocator holds which has seen many lengths and a GPU that was never full: what
        depends on the batch is there once more, or as often as ``kept`` says by its name."""
        return self.size + sum(kept.get(name, 1.0) * size for name, size in self.terms.items() if name not in _STATIC)


class ClosedForm:
    """The peak for any batch and length. ``shared`` turns the bytes of one process into those of one of many. ``held``
    is what torch's allocator holds at the longest traced length, as a share of the peak."""

    def __init__(self, trace: Trace, batch: int, shared: Callable[[Terms], Terms] = lambda terms: terms) -> None:
        self.depth = int(trace.model["depth"])
        self.batch = batch
        self._shared = shared
        self._tokens = sorted({int(point["tokens"]) for point in trace.points})
        self._segments: dict[str, list[Terms]] = {}
        self._operations: dict[str, str] = {}
        by_length = [{int(p["layers"]): p["segments"] for p in trace.points if p["tokens"] == n} for n in self._tokens]
        for segment, (_, operation, _) in by_length[-1][max(by_length[-1])].items():
            if not all(segment in depths for points in by_length for depths in points.values()):
                continue
            self._operations[segment] = str(operation)
            self._segments[segment] = []
            for points in by_length:
                by_layers = {layers: segments[segment][2] for layers, segments in points.items()}
                # In their order, each time the same.
                names = dict.fromkeys(name for terms in by_layers.values() for name in terms)
                values = {name: {n: terms.get(name, 0.0) for n, terms in by_layers.items()} for name in names}
                self._segments[segment].append({name: _extended(values[name], self.depth) for name in names})
        self.held = self._share(trace)

    def at(self, batch: int, tokens: int, without: Sequence[str] = (), kept: Terms | None = None) -> Peak:
        """Return the peak of ``batch`` samples of ``tokens`` tokens, without the bytes of the names in ``without``;
        with ``kept`` that of what the allocator holds where lengths differ (:meth:`Peak.held`)."""
        peaks = []
        for segment, operation in self._operations.items():
            terms = {name: size for name, size in self._terms(segment, batch, tokens).items() if name not in without}
            peaks.append(Peak(segment, operation, self._shared(terms)))
        return max(peaks, key=lambda peak: peak.size if kept is None else peak.held(kept))

    def _terms(self, segment: str, batch: int, tokens: int) -> Terms:
        lengths = self._segments[segment]
        scaled = {}
        for name in lengths[-1]:
            values = [terms.get(name, 0.0) for terms in lengths]
            size = self._value(values, tokens)
            # What is there at no length does not grow with the batch either: copies of weights under autocast.
            fixed = size if name in _STATIC else min(max(self._value(values, 0), 0.0), size)
            if size > 0:
                scaled[name] = fixed + (size - fixed) * batch / self.batch
        return scaled

    def _share(self, trace: Trace) -> float:
        longest = self._tokens[-1]
        points = [p for p in trace.points if p["tokens"] == longest and "held_bytes" in p]
        peak = max(sum(self._terms(segment, self.batch, longest).values()) for segment in self._segments)
        if not points:  # nobody replayed it: readings tell
            return 1.0
        full = _extended({int(p["layers"]): float(p["held_bytes"]) for p in points}, self.depth) / peak
        # Where a block more or less at a traced depth would be a share of its own at the full one.
        most: float = max(float(p["held_bytes"]) / max(size for size, *_ in p["segments"].values()) for p in points)
        return max(min(full, most), 1.0)

    def _value(self, values: Sequence[float], tokens: int) -> float:
        """Return the value at a length, by Lagrange's polynomial through the values at the traced lengths."""
        total = 0.0
        for i, (x, y) in enumerate(zip(self._tokens, values, strict=True)):
            for j, other in enumerate(self._tokens):
                if i != j:
                    y *= (tokens - other) / (x - other)
            total += y
        return total


def at_full_depth(trace: Trace, name: str) -> float:
    """Return what the longest traced sample has of ``name``: ``trained`` parameters, or ``cache_bytes``, those of the
    keys and values of a prompt."""
    longest = max(point["tokens"] for point in trace.points)
    sizes = {int(p["layers"]): float(p[name]) for p in trace.points if p["tokens"] == longest}
    return _extended(sizes, int(trace.model["depth"]))


def _extended(by_layers: Mapping[int, float], depth: int) -> float:
    """Return the value at full depth, on the line through the traced depths."""
    low, high = min(by_layers), max(by_layers)
    if low == high:
        return by_layers[low]
    return by_layers[low] + (by_layers[high] - by_layers[low]) / (high - low) * (depth - low)
