"""Do several GPUs compute the same, and do numbers arrive between them as they were sent? The functions cite the bugs
that they exist for, such as https://github.com/NVIDIA/nccl/issues/1950."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from typing import Any, Callable, Dict, List, Set  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

from ..probing.cards import Card, strange
from ..probing.collective import finish, start
from ..probing.kit import Emit, Job, judged, rms
from ..probing.nvml import counters

PROBES = {
    "all-reduce": {
        "title": "bf16 all-reduce between processes",
        "suites": {"full": [{}]},
        "seconds": {"cpu": 90, "cuda": 180},
        "memory_mib": 3000,
    },
    "devices": {
        "title": "each GPU against the others, and copies between them",
        "suites": {"full": [{}], "long": [{"soak": 120}]},
        "seconds": {"cpu": 120, "cuda": 400},
    },
}

#: Elements of what is summed.
_SIZES = (1, 7, 8, 1000, 4097)
#: Each process of an all-reduce must give up before the probe's own time is over.
_SECONDS = 60
_ALONE = "not run: needs two GPUs, and --all-gpus shows all of them to the experiments"
_UNIT = torch.finfo(torch.bfloat16).eps
#: Seconds of a GPU's time between two looks at the clock.
_ROUNDS = 20

#: What is computed, of the two bf16 matrices.
_WORK: Dict[str, Callable[[Any, Any], Any]] = {  # noqa: UP006
    "matmul": lambda a, b: a @ b,
    "softmax": lambda a, b: torch.softmax(a, -1),
    "layer norm": lambda a, b: torch.nn.functional.layer_norm(a, a.shape[-1:]),
    "attention": lambda a, b: torch.nn.functional.scaled_dot_product_attention(
        *(x.reshape(1, 8, x.shape[0] // 8, -1) for x in (a, b, a))
    ),
}


def all_reduce(job: Job, emit: Emit) -> None:
    """Does a bf16 all-reduce give the sum and the average of what the processes gave?

    NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
    fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001). Sums over
    two processes with gloo on the CPU, sums and averages with NCCL over the visible GPUs, at most eight; with one
    visible GPU only the average over one rank. Small integers are exact in bf16, so that the results of every rank must
    be equal.
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
        given.update(sizes=_SIZES, averages=cuda)
        children = [start({**given, "rank": rank}) for rank in range(world)]
        results = [finish(child, _SECONDS) for child in children]
    for rank, result in enumerate(results):
        if "error" in result:
            emit({**case, "case": f"rank {rank}", "error": f"a process of {world} {result['error']}"[:500]})
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


def devices(job: Job, emit: Emit) -> None:
    """Does every GPU compute what the others compute, and do copies between them arrive as they were sent?

    One bad card of eight spoils every run that it takes part in, and each run looks like bad luck. The same numbers are
    computed on each visible GPU and compared by content, with each other and with float64. Nothing in it adds in an
    order of its own (no atomics), so that cards of one name must agree to the bit. Copies from card to card are read
    back (https://github.com/pytorch/pytorch/issues/132397: with some IOMMU settings they arrive wrong). The suite
    ``long`` goes on for two minutes, with the driver's ECC counters and clocks before and after.
    """
    places = visible(job["device"])
    before, limit = counters(), float(job["options"].get("soak") or 0)
    case: dict[str, Any] = {"judge": "exact", "dtype": "bf16", "tensors": ["o"]}
    if job["options"].get("contents"):
        emit({"kind": "info", **_contents(places[0])})
        return
    if len(places) < 2:
        emit({**case, "case": "GPUs against each other", "skip": _ALONE})
    else:
        for name in _WORK:
            found = strange(_cards(places, name))
            emit({**case, **found, "case": f"{name} on {len(places)}: {found['detail']}"})
        emit({**case, **_copies(places)})
    if limit:
        _soak(places, limit, case, emit)
        _count(before, counters(), emit)


def visible(kind: str) -> List[Any]:  # noqa: UP006
    """The visible devices."""
    count = torch.cuda.device_count() if kind == "cuda" else 1
    return [torch.device(kind, number) for number in range(count)]


def compute(name: str, place: Any, number: int) -> Any:
    """The result on a device, on the CPU; ``number`` is its place among them."""
    a, b = _inputs(place)
    return _WORK[name](a.to(place), b.to(place)).cpu()


def copied(value: Any, source: Any, target: Any) -> Any:
    """What arrives on ``target`` of a value on ``source``, on the CPU."""
    return value.to(source).to(target).cpu()


def _inputs(place: Any) -> Any:
    size = 512 if place.type == "cuda" else 64
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(size, size, generator=generator).to(torch.bfloat16) for _ in range(2)]


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
        result = compute(work, place, 0)
        data = bytes(result.contiguous().view(torch.uint8).flatten().tolist())
        error = _error(result, _truth(work, place))
        results[work] = [hashlib.sha256(data).hexdigest()[:16], round(error, 3)]
    return {"case": "contents", "name": name, "alike": f"{name}, torch {torch.__version__}", "results": results}


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


def _truth(name: str, place: Any) -> Any:
    return _WORK[name](*(x.double() for x in _inputs(place)))


def _error(result: Any, truth: Any) -> float:
    return float(rms(result.double() - truth) / rms(truth) / _UNIT)


def _cards(places: list[Any], name: str) -> list[Card]:
    truth = _truth(name, places[0])
    cards: List[Card] = []  # noqa: UP006
    kinds: List[Any] = []  # noqa: UP006
    for number, place in enumerate(places):
        result = compute(name, place, number)
        alike = next((at for at, one in enumerate(kinds) if torch.equal(one, result)), len(kinds))
        kinds += [result] if alike == len(kinds) else []
        error = _error(result, truth)
        cards.append(Card(_label(place, number), _name(place), alike, error))
    return cards


def _copies(places: list[Any]) -> dict[str, Any]:
    sent = torch.arange(1 << 20, dtype=torch.int32)
    pairs = [(i, j) for i in range(len(places)) for j in range(len(places)) if i != j]
    lost = [(i, j) for i, j in pairs if not torch.equal(copied(sent, places[i], places[j]), sent)]
    told = ", ".join(f"{i} to {j}" for i, j in lost[:20])
    title = f"copies between {len(places)} devices"
    title += f": not what was sent from GPU {told}" if lost else ""
    return {"equal": not lost, "signature": "copy-differs", "case": title}


def _soak(places: list[Any], limit: float, case: dict[str, Any], emit: Emit) -> None:
    """The same again and again: a card must agree with itself."""
    first = [compute("matmul", place, number) for number, place in enumerate(places)]
    until, rounds = time.monotonic() + limit, 0
    changed: Set[int] = set()  # noqa: UP006
    while time.monotonic() < until and not changed:
        for _ in range(_ROUNDS):
            rounds += 1
            results = [compute("matmul", place, number) for number, place in enumerate(places)]
            changed |= {at for at, result in enumerate(results) if not torch.equal(result, first[at])}
    title = f"{rounds} rounds of matmul"
    title += "".join(f", {_label(places[at], at)}: another result than before" for at in sorted(changed))
    emit({**case, "case": title, "equal": not changed, "signature": "card-differs"})


def _count(before: list[Any], after: list[Any], emit: Emit) -> None:
    """The driver's counters before and after, and whether errors of memory came up in between."""
    for number, (then, now) in enumerate(zip(before, after)):
        emit({"kind": "info", "case": f"GPU {number} before and after", "before": then, "after": now})
        for key in ("ecc_uncorrected", "ecc_corrected"):
            if then.get(key) is not None and now.get(key) is not None:
                more = now[key] - then[key]
                case = {"case": f"{key} of GPU {number} (the driver's number): {more} more", "judge": "exact"}
                found = {"difference": float(max(0, more)), "limit": 0.0, "soft": key == "ecc_corrected"}
                emit({**case, "signature": "memory-errors", **found})
