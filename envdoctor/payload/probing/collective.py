"""Sums over processes whose results are known beforehand: one process of them, as a program of its own.

Whatever a collective does (it may hang, or bring its process down), the one that started it lives to tell. Everything
is exact in bf16: at most eight processes add to a number, and in the shares each number comes from one process alone,
so that a wrong one names who gave it. What a process is at goes to standard error before it begins, so that one that
hangs has said where.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

_STAGE = "stage: "
_SENDERS = 8
_SHARE = 4
#: Ranks that are named as senders of what was wrong.
_MOST_NAMED = 8
#: How long a process waits for the others, and what all of them may take to get there: importing torch from a network
#: disk, a context each, NCCL.
_SECONDS, _START = 60, 90
#: Exchanges of one size that are timed, of which the fastest counts; and how often the message goes over the bus, as
#: NCCL's tests count it (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
_TIMES, _BUS = 5, {"sum": 2, "reduce-scatter": 1, "all-gather": 1}


def together(request: dict[str, Any], emit: Any, case: dict[str, Any], program: str = "collective.py") -> list[Any]:
    """Return the answer of each process of a ``world`` that meets in a file of its own; the ``request`` is theirs. If
    torch lacks their ``backend``, or one fails, emit the case with the reason; return nothing."""
    from torch import distributed

    backend, world = request["backend"], request["world"]
    if not (distributed.is_available() and getattr(distributed, f"is_{backend}_available", lambda: True)()):
        emit({**case, "case": f"{world} processes", "skip": f"this torch has no {backend}"})
        return []
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        request = {**request, "file": os.path.join(folder, "meeting-point"), "seconds": _SECONDS}
        children = [start({**request, "rank": rank}, program) for rank in range(world)]
        ends = time.monotonic() + _SECONDS + _START
        answers = [finish(child, max(1.0, ends - time.monotonic())) for child in children]
    for rank, answer in enumerate(answers):
        if "error" in answer:
            emit({**case, **unfinished(f"rank {rank}", f"a process of {world} {answer['error']}")})
            return []
    return answers


def unfinished(case: str, text: str) -> dict[str, Any]:
    """Return why there is no result; slices of one card (MIG), which NCCL refuses, and bf16, which gloo does not add
    before torch 2.2, are not faults."""
    refused = any(part in text for part in ("Duplicate GPU", "Invalid scalar type"))
    return {"case": case, "skip" if refused else "error": text[:500]}


def start(request: dict[str, Any], program: str = "collective.py") -> Any:
    """Start the process of a ``program`` of this folder. The ``request`` of this one has ``rank`` and ``world``, the
    ``backend``, how many ``seconds`` it may wait for others, the ``sizes`` of what is summed, whether ``averages`` and,
    with the largest size, ``exchanges`` and float32 are tried; the bytes of messages that are ``timed`` in each of
    them; and where they meet: the ``file`` of a store, or ``address``, ``port`` and ``prefix`` of one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), program)
    command = [sys.executable, path, json.dumps(request)]
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(command, stdin=quiet, stdout=pipe, stderr=pipe, text=True)


def finish(child: Any, seconds: float) -> dict[str, Any]:
    """Return what it saw: ``sums``, pairs of a title and how many numbers are wrong, and ``givers``, the ranks whose
    share came out wrong, and ``speeds``, GB/s by title; or the ``error``, a clause."""
    try:
        output, trouble = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        stages = [line[len(_STAGE) :] for line in child.communicate()[1].splitlines() if line.startswith(_STAGE)]
        return {"error": f"did not finish in {seconds:.0f} s" + "".join(f", while {stage}" for stage in stages[-1:])}
    # Gloo writes there as well, with torch 2.9 for one: who is connected (https://github.com/pytorch/gloo/issues/462).
    answers = [line for line in output.splitlines() if line.startswith("{")]
    if child.returncode == 0 and answers:
        answer: dict[str, Any] = json.loads(answers[-1])
        return answer
    last = [line.strip() for line in trouble.splitlines() if line.strip() and not line.startswith(_STAGE)][-1:]
    return {"error": ": ".join([f"ended with {child.returncode}", *last])[:300]}


def main() -> None:
    """Take part, and print what :func:`finish` reads."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # names here shadow no library
    _at("importing torch")
    import datetime

    import torch
    import torch.distributed as dist

    request = json.loads(sys.argv[1])
    rank, world = request["rank"], request["world"]
    limit = datetime.timedelta(seconds=request["seconds"])
    device = "cpu"
    if request["backend"] == "nccl":
        device = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    _at("meeting the others")
    if "file" in request:
        store: Any = dist.FileStore(request["file"], world)
    else:
        store = dist.TCPStore(request["address"], request["port"], None, False, timeout=limit, wait_for_workers=False)
        store = dist.PrefixStore(request["prefix"], store)
    dist.init_process_group(request["backend"], store=store, rank=rank, world_size=world, timeout=limit)
    sums: list[list[Any]] = []
    speeds: dict[str, float] = {}
    for name, count, dtype, words, times in _exchanges(request):
        _at(f"computing the {words}")
        wrong, seconds = _exchanged(name, (rank, world), torch.arange(count, device=device), dtype, times)
        sums += [] if wrong is None else [[words, wrong]]
        if seconds:
            moved = _BUS[name] * count * torch.finfo(dtype).bits / 8 * (world - 1) / world
            speeds[words] = float(f"{moved / seconds / 1e9:.3g}")
    _at("computing the shares of each")
    places = torch.arange(_SHARE * world, device=device)
    pattern = (places % 7 + 1).to(torch.bfloat16)
    value = torch.where(places // _SHARE == rank, pattern, torch.zeros_like(pattern))
    dist.all_reduce(value)
    wrong = (value != pattern).nonzero().flatten()
    sums.append(["shares of each", int(wrong.numel())])
    givers = sorted({int(place) // _SHARE for place in wrong[: _MOST_NAMED * _SHARE].tolist()})[:_MOST_NAMED]
    print(json.dumps({"sums": sums, "givers": givers, "speeds": speeds}), flush=True)
    dist.destroy_process_group()


def _exchanges(request: dict[str, Any]) -> list[Any]:
    """Return exchanges to try: name, number of elements, dtype, words, and how often it is timed."""
    import torch

    bf16, fp32, world, sizes = torch.bfloat16, torch.float32, request["world"], request["sizes"]
    names = ["sum"] * (world > 1) + ["average"] * request["averages"]
    exchanges = [(name, size, bf16, f"{name} of {size} elements", 0) for size in sizes for name in names]
    if request.get("exchanges"):
        largest = max(sizes)
        exchanges += [(name, largest, fp32, f"{name} of {largest} elements in float32", 0) for name in names]
        count = largest // world * world
        parts = ["reduce-scatter", "all-gather"] if world > 1 else []
        exchanges += [(name, count, bf16, f"{name} of {count} elements", 0) for name in parts]
    for size, dtype in [(size, dtype) for size in request.get("timed", ()) for dtype in (bf16, fp32)]:
        words = f"of {size >> 10} KiB in {str(dtype).partition('.')[2]}"
        count = size * 8 // torch.finfo(dtype).bits // world * world
        exchanges += [(name, count, dtype, f"{name} {words}", _TIMES) for name in _BUS]
    return exchanges


def _exchanged(name: str, who: tuple[int, int], places: Any, dtype: Any, times: int) -> tuple[int | None, float | None]:
    """Return how many numbers of a sum or an average, of a sum of which every rank keeps its part, or of all of
    these parts together came out wrong; None where the backend has no such exchange. Then the least seconds."""
    import torch
    import torch.distributed as dist

    rank, world = who
    mine, terms, senders = _summands(rank, world, places)
    mine, terms = mine.to(dtype), (terms // senders if name == "average" else terms).to(dtype)
    part = slice(rank * (len(places) // world), (rank + 1) * (len(places) // world))
    share = terms[part].clone()
    expected = share if name == "reduce-scatter" else terms
    whole = name in ("sum", "average")
    out = mine.clone() if whole else torch.zeros_like(expected)

    def exchange() -> None:
        if whole:
            dist.all_reduce(out, op=dist.ReduceOp.SUM if name == "sum" else dist.ReduceOp.AVG)
        elif name == "reduce-scatter":
            dist.reduce_scatter_tensor(out, mine)
        else:
            dist.all_gather_into_tensor(out, share)

    try:
        exchange()
    except (AttributeError, NotImplementedError, RuntimeError) as error:
        if whole or places.device.type != "cpu":  # gloo has them from some releases on, NCCL always
            raise
        _at(f"leaving out {name}: {error}")
        return None, None
    wrong, durations = int((out != expected).sum()), []
    for _ in range(times):
        dist.barrier()
        started = time.perf_counter()
        exchange()
        if places.device.type != "cpu":
            torch.cuda.synchronize()
        durations.append(time.perf_counter() - started)
    return wrong, min(durations, default=None)


def _at(what: str) -> None:
    """Say what begins now."""
    print(_STAGE + what.replace("\n", " ")[:200], file=sys.stderr, flush=True)


def _summands(rank: int, world: int, places: Any) -> tuple[Any, Any, int]:
    """Return what this rank adds to each number, what comes out, and how many ranks add anything."""
    step = -(-world // _SENDERS)
    senders = -(-world // step)
    mine = (places % 8 + 2 * (rank // step)) * (rank % step == 0)
    return mine, places % 8 * senders + senders * (senders - 1), senders


if __name__ == "__main__":
    main()
