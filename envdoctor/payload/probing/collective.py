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
from typing import Any

_STAGE = "stage: "
_SENDERS = 8
_SHARE = 4
#: Ranks that are named as senders of what was wrong.
_MOST_NAMED = 8


def start(given: dict[str, Any]) -> Any:
    """The process. ``given``: ``rank`` and ``world``, the ``backend``, how many ``seconds`` it may wait for others, the
    ``sizes`` of what is summed, whether ``averages`` and, with the largest size, ``exchanges`` and float32 are tried;
    and where they meet: the ``file`` of a store, or ``address``, ``port`` and ``prefix`` of one."""
    command = [sys.executable, os.path.abspath(__file__), json.dumps(given)]
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(command, stdin=quiet, stdout=pipe, stderr=pipe, text=True)


def finish(child: Any, seconds: float) -> dict[str, Any]:
    """What it saw: ``sums``, pairs of a title and how many numbers are wrong, and ``givers``, the ranks whose share
    came out wrong; or the ``error``, a clause."""
    try:
        said, trouble = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        stages = [line[len(_STAGE) :] for line in child.communicate()[1].splitlines() if line.startswith(_STAGE)]
        return {"error": f"did not finish in {seconds:.0f} s" + "".join(f", while {stage}" for stage in stages[-1:])}
    if child.returncode == 0 and said.startswith("{"):
        found: dict[str, Any] = json.loads(said)
        return found
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

    given = json.loads(sys.argv[1])
    rank, world = given["rank"], given["world"]
    limit = datetime.timedelta(seconds=given["seconds"])
    device = "cpu"
    if given["backend"] == "nccl":
        device = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    _at("meeting the others")
    if "file" in given:
        store: Any = dist.FileStore(given["file"], world)
    else:
        store = dist.TCPStore(given["address"], given["port"], None, False, timeout=limit, wait_for_workers=False)
        store = dist.PrefixStore(given["prefix"], store)
    dist.init_process_group(given["backend"], store=store, rank=rank, world_size=world, timeout=limit)
    sums = []
    largest = max(given["sizes"]) if given.get("exchanges") else None
    for size in given["sizes"]:
        for name in ["sum"] * (world > 1) + ["average"] * given["averages"]:
            for dtype in (torch.bfloat16, torch.float32) if size == largest else (torch.bfloat16,):
                words = f"{name} of {size} elements" + (" in float32" if dtype == torch.float32 else "")
                _at(f"computing the {words}")
                mine, terms, senders = _summands(rank, world, torch.arange(size, device=device))
                value = mine.to(dtype)
                dist.all_reduce(value, op=dist.ReduceOp.SUM if name == "sum" else dist.ReduceOp.AVG)
                expected = (terms if name == "sum" else terms // senders).to(dtype)
                sums.append([words, int((value != expected).sum())])
    sums += _exchanged(rank, world, largest // world * world, device) if largest and world > 1 else []
    _at("computing the shares of each")
    places = torch.arange(_SHARE * world, device=device)
    pattern = (places % 7 + 1).to(torch.bfloat16)
    value = torch.where(places // _SHARE == rank, pattern, torch.zeros_like(pattern))
    dist.all_reduce(value)
    wrong = (value != pattern).nonzero().flatten()
    sums.append(["shares of each", int(wrong.numel())])
    givers = sorted({int(place) // _SHARE for place in wrong[: _MOST_NAMED * _SHARE].tolist()})[:_MOST_NAMED]
    print(json.dumps({"sums": sums, "givers": givers}), flush=True)
    dist.destroy_process_group()


def _exchanged(rank: int, world: int, size: int, device: str) -> list[list[Any]]:
    """What each sum, of which every rank keeps its part, and what all of these parts together came out as: the two that
    sharded training takes. A backend that has no such exchange is left out."""
    import torch
    import torch.distributed as dist

    mine, terms, _ = _summands(rank, world, torch.arange(size, device=device))
    part = slice(rank * (size // world), (rank + 1) * (size // world))
    told = []
    for name, given, out, expected, exchange in (
        ("reduce-scatter", mine, mine[part], terms[part], "reduce_scatter_tensor"),
        ("all-gather", terms[part], terms, terms, "all_gather_into_tensor"),
    ):
        _at(f"computing the {name} of {size} elements")
        value = torch.zeros_like(out, dtype=torch.bfloat16)
        try:
            getattr(dist, exchange)(value, given.to(torch.bfloat16).contiguous())
        except (AttributeError, NotImplementedError, RuntimeError) as error:
            if device != "cpu":  # gloo has them from some releases on, NCCL always
                raise
            _at(f"leaving out {name}: {error}")
            continue
        told.append([f"{name} of {size} elements", int((value != expected.to(torch.bfloat16)).sum())])
    return told


def _at(what: str) -> None:
    """Say what begins now."""
    print(_STAGE + what.replace("\n", " ")[:200], file=sys.stderr, flush=True)


def _summands(rank: int, world: int, places: Any) -> tuple[Any, Any, int]:
    """What this rank adds to each number, what comes out, and how many ranks add anything."""
    step = -(-world // _SENDERS)
    senders = -(-world // step)
    mine = (places % 8 + 2 * (rank // step)) * (rank % step == 0)
    return mine, places % 8 * senders + senders * (senders - 1), senders


if __name__ == "__main__":
    main()
