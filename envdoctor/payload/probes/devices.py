"""Does each GPU compute what the others compute, as fast as they do, and do numbers arrive between them as they were
sent? The functions cite the bugs that they exist for, such as https://github.com/NVIDIA/nccl/issues/1950."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Callable, Dict, List  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..probing import card_work as work
from ..probing.attention_case import force
from ..probing.cards import GpuCard, slow, strange
from ..probing.kit import Emit, Job, Unavailable, attempt
from ..probing.nvml import NOT_COUNTED, computing, counters, identity, version

PROBES = {
    "devices": {
        "title": "each GPU against the others and itself, its memory, copies and speeds",
        "suites": {
            "full": [{"soak": 5, "devices": ["cuda"]}, {"devices": ["cpu"]}],
            "long": [{"soak": 120, "devices": ["cuda"]}, {"devices": ["cpu"]}],
            # The child has longer than its limit, so that it can say what it did not get to.
            "card": [
                {"soak": 60, "limit": 60, "seconds": 150, "devices": ["cuda"]},
                {"absent": True, "devices": ["cpu"]},
            ],
        },
        "seconds": {"cpu": 120, "cuda": 400},
        "memory_mib": 5000,
        # Of each of eight cards a result is on its way through the host.
        "cuda_memory_mib": 12000,
        "gpu_memory_mib": None,
    }
}

_ALONE = "not run: needs two GPUs, and --all-gpus shows all of them to the experiments"
_ABSENT = "torch sees no GPU here: the suite card tries nothing else"
#: Products that are begun on every card between two looks at the clock.
_ROUNDS = 20
#: Integers of what is copied, and of a block of what memory is filled with.
_COPIED, _BLOCK = {"cuda": 1 << 24, "cpu": 1 << 16}, {"cuda": 1 << 26, "cpu": 1 << 12}
#: Of the free memory, what is filled: nearly all of a card that nobody else uses, else a part. GiB that stay free.
_SHARES, _SPARE_GIB = (0.5, 0.95), 1
#: What the counters say of a card that is not well: (counter, its signature, whether it is an error or a warning).
_STATES = (
    ("failed", "memory-errors", True, "a repair of its memory failed"),
    ("pending", "memory-errors", True, "a repair of its memory waits for a reset"),
    ("retiring", "memory-errors", True, "a repair of its memory waits for a reset"),
    ("ecc_uncorrected", "memory-errors", False, "{} uncorrected memory errors since the driver was loaded"),
    ("xid", "memory-errors", False, "Xid {} in the kernel's log since boot"),
)
#: Counters that must stand still, and whether one that rises is an error or a warning.
_RISING = {"ecc_uncorrected": True, "ecc_corrected": False, "nvlink_errors": False, "pcie_replays": False}
#: Why clocks are low, where that is not the card's own limit of power, which a busy card reaches.
_COOLING = ("hardware", "heat", "heat (hardware)", "power brake")


def devices(job: Job, emit: Emit) -> None:
    """Does every GPU compute what the others compute, and itself again, and do its memory and copies keep numbers?

    One bad card of eight spoils every run that it takes part in, and each run looks like bad luck. The same numbers are
    computed on all visible GPUs at the same time, on all of their multiprocessors, and compared by content, with each
    other and with float64: a product by what it makes of a vector of random signs (Freivalds' check), which costs a
    square and not a cube. What adds in an order of its own (atomics, in the gradients of attention) is compared with
    float64 alone; else cards of one name must agree to the bit. All cards multiply for seconds (minutes in the suite
    ``long``), and each must agree with itself; memory is filled with patterns and read back; and copies from card to
    card and from the host, all at once, must arrive as they were sent
    (https://github.com/pytorch/pytorch/issues/132397: with some IOMMU settings they arrive wrong). The driver's
    counters are read before, under load and after.

    The suite ``card`` ends after a minute and says what was not tried or read: then its answer is one in part.
    """
    places = visible(job["device"])
    if job["options"].get("contents"):
        emit({"kind": "info", **_contents(places[0])})
        return
    if job["options"].get("absent") and len(places) < 2:
        emit({"case": "cards", "error": _ABSENT, "partial": True})
        return
    bench = _Bench(job, emit, places)
    before = counters(bench.uuids)
    under: List[Dict[str, Any]] = []  # noqa: UP006
    if len(places) < 2:
        emit({**bench.case, "case": "GPUs against each other", "skip": _ALONE})
    if bench.thorough:
        bench.step("speeds", lambda: _speeds(bench))
    bench.step("copies", lambda: emit({**bench.case, **_copies(bench)}))
    bench.step("memory", lambda: bench.compare("memory", lambda number: _memory(bench, number), dtype="int32"))
    for name in work.WORK:
        bench.step(name, partial(_computed, bench, name))
    for kernel in work.KERNELS if bench.thorough else ("default",):
        for size in work.HEAD_SIZES if bench.thorough else (128,):
            bench.step(f"{kernel} attention", partial(_attention, bench, kernel, size))
    soak = float(job["options"].get("soak") or 0)
    if soak:
        bench.step("products under load", lambda: under.extend(_soak(bench, soak)))
    _count(bench, before, under, counters(bench.uuids))
    if bench.gaps:
        emit({"case": "what was not tried", "error": bench.gap_text(), "partial": True})


class _Bench:
    """The cards that are tried, until when, and what could not be told of them (``gaps``, of a ``thorough`` test)."""

    def __init__(self, job: Job, emit: Emit, places: list[Any]) -> None:
        self.emit, self.places, self.cuda = emit, places, places[0].type == "cuda"
        self.case: dict[str, Any] = {"judge": "exact", "dtype": "bf16", "tensors": ["o"]}
        self.names = [_name(place) for place in places]
        self.labels = [f"GPU {number} ({name})" for number, name in enumerate(self.names)]
        self.uuids = [_uuid(place, number) for number, place in enumerate(places)]
        self.thorough = job["suite"] == "card"
        self.limit = float(job["options"].get("limit") or "inf")
        self.ends = time.monotonic() + self.limit
        for place in places:
            torch.zeros(1, device=place)  # now this process is one that computes there
        self.tenants = computing(self.uuids)
        #: What is published of a card, of those that are known: the first row whose patterns its name fits.
        self.published: dict[str, Any] = {}
        for label, name in zip(self.labels, self.names):
            for row in job.get("speeds") or ():
                if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in row["names"]):
                    self.published.setdefault(label, row)
        self.gaps: Dict[str, List[str]] = {}  # noqa: UP006
        for number, (name, others) in enumerate(zip(self.names, self.tenants)):
            if "MIG" in name:
                self.gap("a slice: the rest of its card was not tried", number)
            if others is None:
                self.gap("whether others compute on it is not known", number)
            elif others > self.cuda:
                self.gap(f"{others - self.cuda} other processes compute on it, and may have slowed it down", number)

    def gap(self, text: str, number: int | None = None) -> None:
        """Note what could not be told, of the card of this number or of all; who asked for less is not told."""
        cards = self.gaps.setdefault(text[:300], []) if self.thorough else []
        cards += [] if number is None else [f"GPU {number}"]

    def gap_text(self) -> str:
        """Return all gaps, each with the cards that it is about."""
        count = len(self.places)
        texts = []
        for text, cards in self.gaps.items():
            names = f"all {count} GPUs" if 1 < count == len(cards) else ", ".join(cards)
            texts.append(f"{names}: {text}" if cards else text)
        return "; ".join(texts)

    def step(self, title: str, work: Callable[[], Any]) -> None:
        """Do what still begins before the end."""
        if time.monotonic() < self.ends:
            work()
        else:
            self.gap(f"{title}: not begun after {self.limit:g} s")

    def compare(self, title: str, measure: Callable[..., Any], **more: Any) -> None:
        """Let all cards do it at the same time, and say which of them is at fault. ``measure`` takes the number of a
        card and gives the rest of a :class:`GpuCard`."""

        def ask(number: int) -> dict[str, Any]:
            return attempt(lambda: {"card": measure(number)}, self.places[number].type)

        with ThreadPoolExecutor(len(self.places)) as pool:
            answers = list(pool.map(ask, range(len(self.places))))
        cards = []
        for label, name, part in zip(self.labels, self.names, answers):
            if "card" in part:
                cards.append(GpuCard(label, name, **part["card"]))
            elif "error" in part:
                self.emit({**self.case, **more, "case": f"{title} on {label}", **part})
        if cards:
            result = strange(cards)
            self.emit({**self.case, **more, **result, "case": f"{title} on {len(cards)}: {result['detail']}"})
        elif "skip" in answers[0]:
            self.emit({**self.case, **more, "case": title, **answers[0]})


def visible(kind: str) -> List[Any]:  # noqa: UP006
    """Return the visible devices."""
    count = torch.cuda.device_count() if kind == "cuda" else 1
    return [torch.device(kind, number) for number in range(count)]


def _uuid(place: Any, number: int) -> str | None:
    return identity(number, torch.cuda.get_device_properties(place)) if place.type == "cuda" else None


def _name(place: Any) -> str:
    return str(torch.cuda.get_device_properties(place).name) if place.type == "cuda" else "cpu"


def _contents(place: Any) -> dict[str, Any]:
    """Return what one device gives, to be compared with those of other processes: of each computation a digest of the
    result and the error. Devices with the same words under ``alike`` must agree to the bit."""
    own = _name(place) if place.type == "cuda" else _processor()
    results = {}
    for name in work.WORK:
        result = work.compute(name, place, 0)
        error = work.error(name, result, work.truth(name, work.ROWS[place.type]))
        results[name] = [work.digest(result), round(error, 3)]
    card = work.attention_card(work.attended(128, place, 0), work.attention_truth(work.LENGTH[place.type], 128))
    results["attention"] = [card["alike"], float("inf") if card["words"] else round(card["error"], 3)]
    alike = [own, f"torch {torch.__version__}", *(_libraries() if place.type == "cuda" else ())]
    return {"case": "contents", "name": own, "alike": ", ".join(alike), "results": results}


def _libraries() -> List[str]:  # noqa: UP006
    """Return the libraries that choose and hold the kernels, with their versions: another one may round otherwise."""
    libraries = [f"cuDNN {torch.backends.cudnn.version()}", f"driver {version()}"]
    try:
        cublas = ctypes.CDLL(f"libcublas.so.{str(torch.version.cuda).split('.')[0]}")  # torch has loaded it
        parts = [ctypes.c_int() for _ in range(3)]
        if not any(cublas.cublasGetProperty(kind, ctypes.byref(part)) for kind, part in enumerate(parts)):
            libraries.append("cuBLAS " + ".".join(str(part.value) for part in parts))
    except (OSError, AttributeError):
        pass
    return libraries


def _processor() -> str:
    """Return the processor and the instructions that torch takes of it, which decide how it rounds."""
    takes = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()
    name = "cpu"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name} {takes}".strip()


def _computed(bench: _Bench, name: str) -> None:
    """Compare the same computation on each card with float64 and with the other cards."""
    truth = work.truth(name, work.ROWS[bench.places[0].type])

    def measure(number: int) -> dict[str, Any]:
        result = work.compute(name, bench.places[number], number)
        return {"alike": work.digest(result), "error": work.error(name, result, truth)}

    bench.compare(name, measure)


def _attention(bench: _Bench, kernel: str, size: int) -> None:
    """Compare causal attention and its gradients by this kernel, forced for all threads, with heads of this size."""
    truth = work.attention_truth(work.LENGTH[bench.places[0].type], size)

    def measure(number: int) -> dict[str, Any]:
        return work.attention_card(work.attended(size, bench.places[number], number), truth)

    with force(kernel):
        bench.compare(f"{kernel} attention with heads of {size}", measure)


def _speeds(bench: _Bench) -> None:
    """Measure how fast each card is in its memory, in products, and to and from the host, one after the other: two that
    share a way to the host would halve each other."""
    count = len(bench.places)
    ways = {what: [(number, number) for number in range(count)] for what in ("memory", "product", "sent", "received")}
    everyone = [(i, j) for i in range(count) for j in range(count) if i != j]
    ways["pair"] = [pair for pair in everyone if work.direct(*pair)]
    if len(ways["pair"]) < len(everyone):
        bench.gap(f"{len(everyone) - len(ways['pair'])} of {len(everyone)} pairs of GPUs have no way but by the host")
    measured: Dict[str, Dict[str, float]] = {}  # noqa: UP006
    for what, pairs in ways.items():
        for i, j in pairs:
            label = bench.labels[i] if i == j else f"GPU {i} to {j}"
            rate = attempt(lambda: {"speed": work.speed(what, bench.places, i, j)}, bench.places[i].type)  # noqa: B023
            if "speed" in rate:
                measured.setdefault(what, {})[label] = float(f"{rate['speed']:.4g}")
            else:
                bench.gap(f"{what} from {i} to {j} was not measured: {rate.get('error') or rate.get('skip')}")
    published = {}
    for number, label in enumerate(bench.labels):
        row = bench.published.get(label)
        if row is None:
            bench.gap(f"no published speeds of {bench.names[number]} are known", number)
        else:
            host = 0.25 * 2 ** (row["pcie_generation"] - 1) * row["pcie_lanes"]  # GB/s in each direction
            published[label] = {"memory": row["memory_gb_s"], "sent": host, "received": host}
            links = {"pair": row["nvlink_gb_s"] / 2} if "nvlink_gb_s" in row else {}  # in one direction
            published.update({f"GPU {number} to {other}": links for other in range(count)})
    _slower(bench, "speeds", measured, published)


def _slower(bench: _Bench, title: str, measured: Any, published: Any, more: Any = ()) -> None:
    names = {**dict.fromkeys(measured.get("pair", ()), ""), **dict(zip(bench.labels, bench.names))}
    clauses = [*slow(names, measured, published), *more]
    bench.emit({"kind": "info", "case": title, "measured": measured})
    words = f"{title} of {len(bench.places)}: " + ("; ".join(clauses[:8]) or "as published, or as others of their name")
    bench.emit({**bench.case, "case": words, "equal": not clauses, "soft": True, "signature": "slow", "backend": title})


def _copies(bench: _Bench) -> dict[str, Any]:
    """Copy from each card to each, from the host to each and back: all cards send and receive at once."""
    places, count = bench.places, len(bench.places)
    sent = torch.arange(_COPIED[places[0].type], dtype=torch.int32)
    host = sent.pin_memory() if bench.cuda else sent
    there = [host.to(place, non_blocking=True) for place in places]
    back = [value.to("cpu", non_blocking=True) for value in there]
    work.wait(places)
    lost = [(number, number) for number, value in enumerate(back) if not torch.equal(value, sent)]
    for step in range(1, count):
        pairs = [(number, (number + step) % count) for number in range(count)]
        copies = [work.copied(there[source], places[source], places[target]) for source, target in pairs]
        work.wait(places)
        lost += [pair for pair, value in zip(pairs, copies) if not torch.equal(value.cpu(), sent)]
    ways = ", ".join(f"{i} to {j}" if i != j else f"{i} to the host and back" for i, j in sorted(lost)[:20])
    title = f"copies between {count} devices" if count > 1 else "copies to the device and back"
    if bench.cuda and count > 1:
        pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
        title += (
            f", {sum(work.direct(*pair) for pair in pairs)} of {len(pairs)} pairs directly, the others through the host"
        )
    title += f": not what was sent from GPU {ways}" if lost else ""
    return {"equal": not lost, "signature": "copy-differs", "case": title}


def _memory(bench: _Bench, number: int) -> dict[str, Any]:
    """Fill what is free with a pattern and its complement, and count what is not read back as it was written."""
    place, wrong = bench.places[number], 0
    size, held = _BLOCK[place.type], 0
    if bench.cuda:
        torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(place)[0] if bench.cuda else 16 * size
    share = _SHARES[bench.tenants[number] == 1]
    count = int(free * share - (_SPARE_GIB << 30) * bench.cuda) // (4 * size) - 3 * bench.cuda  # patterns, comparisons
    if count < 1:
        raise Unavailable(f"only {free >> 20} MiB of it are free")
    for flip in (0, -1):
        blocks: List[Any] = []  # noqa: UP006
        try:
            while len(blocks) < count and time.monotonic() < bench.ends:
                blocks.append(work.stored(_pattern(size, len(blocks), place) ^ flip, number))
        except torch.cuda.OutOfMemoryError:
            pass  # somebody else took it: what was had is told
        for block, value in enumerate(blocks):
            wrong += int((value != _pattern(size, block, place) ^ flip).sum())
        held = len(blocks)
        if held < count:
            bench.gap(f"of its memory {_gib(held, size)} were filled, not {_gib(count, size)}", number)
            break
    return {"words": f"{wrong} numbers of {_gib(held, size)} come back changed" if wrong else ""}


def _gib(blocks: int, size: int) -> str:
    return f"{blocks * size * 4 / (1 << 30):.3g} GiB"


def _pattern(size: int, block: int, place: Any) -> Any:
    """Return numbers that differ within a block, and from those of other blocks."""
    return torch.arange(size, dtype=torch.int32, device=place).mul_(2 * block + 40503)


def _soak(bench: _Bench, seconds: float) -> list[dict[str, Any]]:
    """Compute the same product again and again, on all cards at the same time: the first is compared with float64, and
    a card must agree with itself. What the driver says of each meanwhile, of the last look."""
    places, size = bench.places, work.SOAK_ROWS[bench.places[0].type]
    a, b = work.drawn(size)
    pairs = [(a.to(place), b.to(place)) for place in places]
    first = [work.multiplied(*pair, number) for number, pair in enumerate(pairs)]
    changed = [torch.zeros((), dtype=torch.int64, device=place) for place in places]
    truth = work.truth("matmul", size)

    def measure(number: int) -> dict[str, Any]:
        result = first[number].cpu()
        return {"alike": work.digest(result), "error": work.error("matmul", result, truth)}

    bench.compare(f"products of {size} x {size}", measure)
    until, rounds, under = min(time.monotonic() + seconds, bench.ends), 0, counters(bench.uuids)
    while time.monotonic() < until and not any(map(int, changed)):
        for _ in range(_ROUNDS):
            rounds += 1
            for number, pair in enumerate(pairs):  # calls return at once: the cards work side by side
                changed[number] += (work.multiplied(*pair, number) != first[number]).any()
        under = counters(bench.uuids)
    again = [{"words": "another result than before" if int(count) else ""} for count in changed]
    bench.compare(f"{rounds} rounds of matmul, all at once,", again.__getitem__)
    return under


def _count(bench: _Bench, before: list[Any], under: list[Any], after: list[Any]) -> None:
    """Emit what the driver says of each card, and whether errors came up in between or before."""
    case: dict[str, Any] = {"judge": "exact", "backend": "driver"}
    for number, (then, now) in enumerate(zip(before, after)):
        emit, who, load = bench.emit, f"GPU {number}", under[number:][:1]
        emit({"kind": "info", "case": who, "before": then, "under_load": load, "after": now})
        for key, signature, error, words in _STATES:
            if then.get(key) is not None:
                title = f"{who}: {words.format(then[key])}" if then[key] else f"{who}: {key}"
                emit({**case, "signature": signature, "case": title, "equal": not then[key], "soft": not error})
        for key, error in _RISING.items():
            if then.get(key) is not None and now.get(key) is not None:
                more = now[key] - then[key]
                measures = {"difference": float(max(0, more)), "limit": 0.0, "soft": not error}
                emit({**case, "signature": "memory-errors", "case": f"{who}: {key} rose by {more}", **measures})
        reasons: Dict[str, List[str]] = {}  # noqa: UP006
        for key, why in {**then.get("unknown", {}), **now.get("unknown", {})}.items():
            reasons.setdefault(why, []).append(key)
        for why, keys in reasons.items():
            if why == NOT_COUNTED or keys == ["xid"]:
                emit({**case, "case": f"{who}: {', '.join(keys)}", "skip": f"{', '.join(keys)}: {why}"})
            else:
                bench.gap(f"{', '.join(keys)}: {why}", number)
        if then.get("ecc") == 0:
            bench.gap("ECC is switched off: nobody counts errors of its memory", number)
        if then.get("mig") == 1:
            bench.gap("MIG is on: what the driver counts is of the whole card", number)
    if under and bench.thorough:
        loads = list(zip(bench.labels, under))
        measured = {
            what: {label: load[key] for label, load in loads if load.get(key) is not None}
            for what, key in (("lanes", "pcie_lanes"), ("nvlinks", "nvlinks"), ("sm_mhz", "sm_mhz"))
        }
        published = {
            label: {"lanes": bench.published.get(label, {}).get("pcie_lanes"), "sm_mhz": load.get("sm_mhz_most")}
            for label, load in loads
        }
        cooling = [
            (label, [reason for reason in load.get("slowed") or () if reason in _COOLING]) for label, load in loads
        ]
        hot = [f"{label}: slowed down by {', '.join(reasons)}" for label, reasons in cooling if reasons]
        _slower(bench, "clocks and links", measured, published, hot)
