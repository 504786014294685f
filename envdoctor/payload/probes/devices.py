"""Does each GPU compute what the others compute, and do numbers arrive between them as they were sent? The functions
cite the bugs that they exist for, such as https://github.com/NVIDIA/nccl/issues/1950."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import time
from functools import lru_cache
from typing import Any, Callable, Dict, List, Tuple  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..probing.cards import Card, strange
from ..probing.collective import finish, start
from ..probing.kit import Emit, Job, judged, rms
from ..probing.nvml import computing, counters, identity, version

PROBES = {
    "all-reduce": {
        "title": "sums and exchanges between processes",
        "suites": {"full": [{}]},
        "seconds": {"cpu": 90, "cuda": 240},
        "memory_mib": 3000,
        # Eight processes, each with torch, a context and the buffers of NCCL.
        "cuda_memory_mib": 16000,
    },
    "devices": {
        "title": "each GPU against the others and itself, its memory, and copies",
        "suites": {
            "full": [{"soak": 5, "devices": ["cuda"]}, {"devices": ["cpu"]}],
            "long": [{"soak": 120, "devices": ["cuda"]}, {"devices": ["cpu"]}],
        },
        "seconds": {"cpu": 120, "cuda": 400},
        "memory_mib": 5000,
        "gpu_memory_mib": None,
    },
}

#: Elements of what is summed. NCCL sends small messages, middle ones and those of 32 MiB in different ways; gloo has a
#: path of its own from 262,144 elements on.
_SIZES = {"cpu": (1, 7, 8, 1000, 4097, 300_001), "cuda": (1, 7, 8, 1000, 4097, 300_001, 1 << 24)}
#: How long a process of an all-reduce waits for the others, and what all of them may take to get there: importing
#: torch from a network disk, a context each, NCCL.
_SECONDS, _START = 60, 90
_ALONE = "not run: needs two GPUs, and --all-gpus shows all of them to the experiments"
_UNIT = torch.finfo(torch.bfloat16).eps
#: Rows of the matrices. 4,096 make 1,024 tiles of 128 x 128, eight for each multiprocessor of the largest cards, and
#: more than their caches hold; 8,192 keep a card busy while the others get their work.
_ROWS, _SOAK_ROWS = {"cuda": 4096, "cpu": 64}, {"cuda": 8192, "cpu": 64}
#: Products that are begun on every card between two looks at the clock.
_ROUNDS = 20
#: Integers of what is copied, and of a block of what memory is filled with.
_COPIED, _BLOCK = {"cuda": 1 << 24, "cpu": 1 << 16}, {"cuda": 1 << 26, "cpu": 1 << 12}
#: Of the free memory, what is filled: nearly all of a card that nobody else uses, else a part. GiB that stay free.
_SHARES, _SPARE_GIB = (0.5, 0.95), 1
#: What the counters say of a card that is not well: (counter, whether it is an error or a warning, in words).
_STATES = (
    ("failed", True, "a repair of its memory failed"),
    ("pending", True, "a repair of its memory waits for a reset"),
    ("ecc_uncorrected", False, "{} uncorrected memory errors since the driver was loaded"),
)
#: Counters that must stand still, and whether one that rises is an error or a warning.
_RISING = {"ecc_uncorrected": True, "ecc_corrected": False, "nvlink_errors": False, "pcie_replays": False}


def _attention(a: Any, b: Any) -> Any:
    """The matrices as heads of 128 and sequences of 256, as training has them: flash and cuDNN take heads up to 256."""
    depth, length = min(128, a.shape[0]), min(256, a.shape[0] // 4)
    return torch.nn.functional.scaled_dot_product_attention(*(x.reshape(-1, 4, length, depth) for x in (a, b, a)))


#: What is computed, of the two bf16 matrices.
_WORK: Dict[str, Callable[[Any, Any], Any]] = {  # noqa: UP006
    "matmul": lambda a, b: a @ b,
    "softmax": lambda a, b: torch.softmax(a, -1),
    "layer norm": lambda a, b: torch.nn.functional.layer_norm(a, a.shape[-1:]),
    "attention": _attention,
}


def all_reduce(job: Job, emit: Emit) -> None:
    """Do numbers that processes add up and exchange come out as they must?

    NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
    fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001).
    All-reduce in bf16 and float32, and what sharded training uses (reduce-scatter, all-gather), over two processes with
    gloo on the CPU; with NCCL over the visible GPUs, at most eight, averages as well; with one visible GPU only the
    average over one rank. Small integers are exact, so that the results of every rank must be equal.
    """
    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(8, torch.cuda.device_count()) if cuda else 2
    case = judged("exact", "wrong-sum", ["o"], dtype="bf16", backend=backend, limit=0.0)
    available = getattr(torch.distributed, "is_" + backend + "_available", lambda: True)
    if not torch.distributed.is_available() or not available():
        emit({**case, "case": "all-reduce", "skip": f"this torch has no {backend}"})
        return
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        given = {"world": world, "backend": backend, "file": os.path.join(folder, "meeting-point"), "seconds": _SECONDS}
        given.update(sizes=_SIZES[job["device"]], averages=cuda, exchanges=True)
        children = [start({**given, "rank": rank}) for rank in range(world)]
        ends = time.monotonic() + _SECONDS + _START
        results = [finish(child, max(1.0, ends - time.monotonic())) for child in children]
    for rank, result in enumerate(results):
        if "error" in result:
            emit({**case, **_unfinished(f"rank {rank}", f"a process of {world} {result['error']}")})
            return
    # What one rank got wrong is wrong, whatever the others say.
    worst: dict[str, int] = {}
    for result in results:
        for title, wrong in result["sums"]:
            worst[title] = max(worst.get(title, 0), wrong)
    for title, wrong in worst.items():
        words = f"{title} over {world} process{'es' if world > 1 else ''}"
        found = {"difference": float(wrong), "detail": f"{wrong} elements are wrong"}
        emit({**case, "case": words, "params": {"world_size": world, "what": title}, **found})


def _unfinished(case: str, text: str) -> dict[str, Any]:
    """Why there is no result; slices of one card (MIG), which NCCL refuses, are nothing that is broken."""
    return {"case": case, "skip" if "Duplicate GPU" in text else "error": text[:500]}


def devices(job: Job, emit: Emit) -> None:
    """Does every GPU compute what the others compute, and itself again, and do its memory and copies keep numbers?

    One bad card of eight spoils every run that it takes part in, and each run looks like bad luck. The same numbers are
    computed on each visible GPU, on all of its multiprocessors, and compared by content, with each other and with
    float64: a product by what it makes of a vector of random signs (Freivalds' check), which costs a square and not a
    cube. Nothing in it adds in an order of its own (no atomics), so that cards of one name must agree to the bit. Then
    all cards multiply at the same time, for seconds in the suite ``full`` and two minutes in ``long``, and each must
    agree with itself; memory is filled with patterns and read back; and copies from card to card and from the host, all
    at once, must arrive as they were sent (https://github.com/pytorch/pytorch/issues/132397: with some IOMMU settings
    they arrive wrong). The driver's counters of errors are read before and after, clocks and heat under load.
    """
    places = visible(job["device"])
    case: dict[str, Any] = {"judge": "exact", "dtype": "bf16", "tensors": ["o"]}
    if job["options"].get("contents"):
        emit({"kind": "info", **_contents(places[0])})
        return
    uuids = [_uuid(place, number) for number, place in enumerate(places)]
    before, limit = counters(uuids), float(job["options"].get("soak") or 0)
    if len(places) < 2:
        emit({**case, "case": "GPUs against each other", "skip": _ALONE})
    for name in _WORK:
        found = strange(_cards(places, name))
        emit({**case, **found, "case": f"{name} on {len(places)}: {found['detail']}"})
    emit({**case, **_copies(places)})
    for number, place in enumerate(places):
        emit({**case, **_memory(place, number, computing([uuids[number]])[0] == 1)})
    under = _soak(places, limit, case, emit, uuids) if limit else []
    _count(before, counters(uuids), under, emit)


def visible(kind: str) -> List[Any]:  # noqa: UP006
    """The visible devices."""
    count = torch.cuda.device_count() if kind == "cuda" else 1
    return [torch.device(kind, number) for number in range(count)]


def compute(name: str, place: Any, number: int) -> Any:
    """The result on a device, on the CPU; ``number`` is its place among them."""
    a, b = _inputs(place)
    return _WORK[name](a.to(place), b.to(place)).cpu()


def multiplied(a: Any, b: Any, number: int) -> Any:
    """The product on the device of both, which is the one of this number."""
    return a @ b


def copied(value: Any, source: Any, target: Any) -> Any:
    """What arrives on ``target`` of a value on ``source``, as soon as both are synchronised."""
    return value.to(target, non_blocking=True) if source != target else value.clone()


def stored(pattern: Any, number: int) -> Any:
    """The pattern in memory of its own on the device of this number."""
    return pattern.clone()


@lru_cache(maxsize=1)
def _drawn(size: int) -> Tuple[Any, Any]:  # noqa: UP006
    generator = torch.Generator().manual_seed(11)
    a, b = (torch.randn(size, size, generator=generator).to(torch.bfloat16) for _ in range(2))
    return a, b


def _inputs(place: Any) -> Any:
    return _drawn(_ROWS[place.type])


def _uuid(place: Any, number: int) -> str | None:
    return identity(number, torch.cuda.get_device_properties(place)) if place.type == "cuda" else None


def _label(place: Any, number: int) -> str:
    return f"GPU {number} ({_name(place)})"


def _name(place: Any) -> str:
    return str(torch.cuda.get_device_properties(place).name) if place.type == "cuda" else "cpu"


def _contents(place: Any) -> dict[str, Any]:
    """What one device gives, to be compared with those of other processes: of each computation a digest of the result
    and the error. Devices with the same words under ``alike`` must agree to the bit."""
    name = _name(place) if place.type == "cuda" else _processor()
    results = {}
    for work in _WORK:
        result = compute(work, place, 0).contiguous()
        data = ctypes.string_at(result.data_ptr(), result.numel() * result.element_size())
        error = _error(work, result, _truth(work, place))
        results[work] = [hashlib.sha256(data).hexdigest()[:16], round(error, 3)]
    alike = [name, f"torch {torch.__version__}", *(_libraries() if place.type == "cuda" else ())]
    return {"case": "contents", "name": name, "alike": ", ".join(alike), "results": results}


def _libraries() -> List[str]:  # noqa: UP006
    """The libraries that choose and hold the kernels, with their versions: another one may round otherwise."""
    found = [f"cuDNN {torch.backends.cudnn.version()}", f"driver {version()}"]
    try:
        cublas = ctypes.CDLL(f"libcublas.so.{str(torch.version.cuda).split('.')[0]}")  # torch has loaded it
        parts = [ctypes.c_int() for _ in range(3)]
        if not any(cublas.cublasGetProperty(kind, ctypes.byref(part)) for kind, part in enumerate(parts)):
            found.append("cuBLAS " + ".".join(str(part.value) for part in parts))
    except (OSError, AttributeError):
        pass
    return found


def _processor() -> str:
    """The processor and the instructions that torch takes of it, which decide how it rounds."""
    takes = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()
    name = "cpu"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name} {takes}".strip()


def _seen(result: Any, name: str) -> Any:
    """The part of a result that is compared with float64, on the CPU: all of it, of a product what it makes of a vector
    of signs."""
    if name != "matmul":
        return result.double()
    return result.double() @ _signs(result.shape[-1])


def _signs(size: int) -> Any:
    return torch.randint(0, 2, (size, 1), generator=torch.Generator().manual_seed(12)).double() * 2 - 1


def _truth(name: str, place: Any) -> Any:
    """What :func:`_seen` must give, in float64."""
    a, b = (x.double() for x in _inputs(place))
    return a @ (b @ _signs(b.shape[-1])) if name == "matmul" else _WORK[name](a, b)


def _error(name: str, result: Any, truth: Any) -> float:
    """The error of the worst row, in units of the dtype's epsilon: 2 at most where only rounding is at work."""
    rows = (_seen(result, name) - truth).square().mean(-1).sqrt()
    return float(rows.max() / rms(truth) / _UNIT)


def _cards(places: list[Any], name: str) -> list[Card]:
    truth = _truth(name, places[0])
    cards: List[Card] = []  # noqa: UP006
    kinds: List[Any] = []  # noqa: UP006
    for number, place in enumerate(places):
        result = compute(name, place, number)
        alike = next((at for at, one in enumerate(kinds) if torch.equal(one, result)), len(kinds))
        kinds += [result] if alike == len(kinds) else []
        error = _error(name, result, truth)
        cards.append(Card(_label(place, number), _name(place), alike, error))
    return cards


def _copies(places: list[Any]) -> dict[str, Any]:
    """From each card to each, and from the host to each and back: every card sends and receives at the same time."""
    cuda, count = places[0].type == "cuda", len(places)
    sent = torch.arange(_COPIED[places[0].type], dtype=torch.int32)
    host = sent.pin_memory() if cuda else sent
    there = [host.to(place, non_blocking=True) for place in places]
    back = [value.to("cpu", non_blocking=True) for value in there]
    _wait(places)
    lost = [(number, number) for number, value in enumerate(back) if not torch.equal(value, sent)]
    for step in range(1, count):
        pairs = [(number, (number + step) % count) for number in range(count)]
        arrived = [copied(there[source], places[source], places[target]) for source, target in pairs]
        _wait(places)
        lost += [pair for pair, value in zip(pairs, arrived) if not torch.equal(value.cpu(), sent)]
    told = ", ".join(f"{i} to {j}" if i != j else f"{i} to the host and back" for i, j in sorted(lost)[:20])
    title = f"copies between {count} devices" if count > 1 else "copies to the device and back"
    if cuda and count > 1:
        pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
        direct = sum(torch.cuda.can_device_access_peer(i, j) for i, j in pairs)
        title += f", {direct} of {len(pairs)} pairs directly, the others through the host"
    title += f": not what was sent from GPU {told}" if lost else ""
    return {"equal": not lost, "signature": "copy-differs", "case": title}


def _wait(places: list[Any]) -> None:
    for place in places if places[0].type == "cuda" else ():
        torch.cuda.synchronize(place)


def _memory(place: Any, number: int, alone: bool) -> dict[str, Any]:
    """Fill what is free with a pattern and its complement, and count what is not read back as it was written."""
    cuda, wrong, size = place.type == "cuda", 0, _BLOCK[place.type]
    if cuda:
        torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(place)[0] if cuda else 16 * size
    count = int(free * _SHARES[alone] - (_SPARE_GIB << 30) * cuda) // (4 * size) - 3 * cuda  # patterns, comparisons
    if count < 1:
        return {"case": f"memory of {_label(place, number)}", "skip": f"only {free >> 20} MiB of it are free"}
    for flip in (0, -1):
        blocks = []
        try:
            for block in range(count):
                blocks.append(stored(_pattern(size, block, place) ^ flip, number))
        except torch.cuda.OutOfMemoryError:
            pass  # somebody else took it: what was had is told
        for block, value in enumerate(blocks):
            wrong += int((value != _pattern(size, block, place) ^ flip).sum())
        held = len(blocks) * size * 4
        del blocks
    title = f"memory of {_label(place, number)}, {held / (1 << 30):.3g} GiB"
    title += f": {wrong} numbers come back changed" if wrong else ""
    return {"equal": not wrong, "signature": "card-differs", "dtype": "int32", "case": title}


def _pattern(size: int, block: int, place: Any) -> Any:
    """Numbers of which no two of a block are alike, and other ones in each block."""
    return torch.arange(size, dtype=torch.int32, device=place).mul_(2 * block + 40503)


def _soak(places: list[Any], limit: float, case: dict[str, Any], emit: Emit, uuids: list[Any]) -> list[dict[str, Any]]:
    """The same product again and again, on all cards at the same time: a card must agree with itself. What the driver
    says of each meanwhile, of the last look."""
    a, b = _drawn(_SOAK_ROWS[places[0].type])
    held = [(a.to(place), b.to(place)) for place in places]
    first = [multiplied(*given, number) for number, given in enumerate(held)]
    changed = [torch.zeros((), dtype=torch.int64, device=place) for place in places]
    until, rounds = time.monotonic() + limit, 0
    under: List[Dict[str, Any]] = []  # noqa: UP006
    while time.monotonic() < until and not any(map(int, changed)):
        for _ in range(_ROUNDS):
            rounds += 1
            for number, given in enumerate(held):  # calls return at once: the cards work side by side
                changed[number] += (multiplied(*given, number) != first[number]).any()
        under = counters(uuids)
    title = f"{rounds} rounds of matmul, all at once"
    wrong = [number for number, count in enumerate(changed) if int(count)]
    title += "".join(f", {_label(places[at], at)}: another result than before" for at in wrong)
    emit({**case, "case": title, "equal": not wrong, "signature": "card-differs"})
    return under


def _count(before: list[Any], after: list[Any], under: list[Any], emit: Emit) -> None:
    """What the driver says of each card, and whether errors came up in between or before."""
    case: dict[str, Any] = {"judge": "exact", "signature": "memory-errors", "backend": "driver"}
    for number, (then, now) in enumerate(zip(before, after)):
        emit({"kind": "info", "case": f"GPU {number}", "before": then, "under_load": under[number:][:1], "after": now})
        for key, error, words in _STATES:
            if then.get(key) is not None:
                title = f"GPU {number}: {words.format(then[key])}" if then[key] else f"GPU {number}: {key}"
                emit({**case, "case": title, "equal": not then[key], "soft": not error})
        for key, error in _RISING.items():
            if then.get(key) is not None and now.get(key) is not None:
                more = now[key] - then[key]
                found = {"difference": float(max(0, more)), "limit": 0.0, "soft": not error}
                emit({**case, "case": f"GPU {number}: {key} rose by {more}", **found})
