"""Do numbers come out right that several processes compute, add up and exchange?

The functions cite the bugs that they exist for, such as https://github.com/NVIDIA/nccl/issues/2001.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch

from ..probing.cards import GpuCard, accused, strange
from ..probing.collective import finish, start, together
from ..probing.kit import Emit, Job
from ..ranks import collect, documents, hand_over, meet, send, waited

PROBES = {
    "all-reduce": {
        "title": "sums and exchanges between processes",
        "suites": {"quick": [{"devices": ["cpu"]}], "full": [{}], "card": [{"bandwidth": True, "devices": ["cuda"]}]},
        "seconds": {"cpu": 90, "cuda": 240},
        "memory_mib": 2000,
        # Eight processes, each with torch, a context and the buffers of NCCL.
        "cuda_memory_mib": 16000,
    },
    "ranks": {
        "title": "each rank of a job against the others, and an all-reduce over all",
        "suites": {"full": [{}]},
        "memory_mib": 3000,
        "gpu_memory_mib": None,
    },
}

#: Elements of what is summed. NCCL sends small messages, middle ones and those of 32 MiB in different ways; gloo has a
#: path of its own from 262,144 elements on.
_ELEMENTS = {"cpu": (1, 7, 8, 513, 1000, 4097, 300_001, 1 << 21), "cuda": (1, 7, 8, 1000, 4097, 300_001, 1 << 24)}
#: Bytes of the messages that are timed, and how much more than one of them a process needs: integers of 64 bits to say
#: what must come out, and their comparisons.
_TIMED, _ROOM = tuple(1 << power for power in range(10, 29, 2)), 40
_ALONE = "not run: compares the processes of a job: torchrun, srun or mpirun, with --all-ranks"
#: How long a process of the all-reduce waits for the others, and what its start may take.
_SECONDS = 60
_START = 30
#: The last is 2 MiB: small messages and large ones take different ways.
_SIZES = (1, 7, 8, 1000, 4097, 1 << 20)
#: Gloo connects every process with every other one.
_MOST_GLOO = 512
#: Ranks that are named in a sentence, and in the report's data.
_MOST_NAMED, _MOST_LISTED = 3, 200


class Rank:
    """A rank that came: its number, ``label`` and what it says of its device (``own``)."""

    def __init__(self, number: int, host: str, own: dict[str, Any]) -> None:
        self.number = number
        self.own = own
        self.label = f"rank {number} on {host} ({own.get('name') or own.get('device') or 'unknown'})"


def all_reduce(job: Job, emit: Emit) -> None:
    """Do numbers that processes add up and exchange come out as they must, and how fast?

    NCCL 2.27.5 lost the last eight bf16 values of an average over one rank (https://github.com/NVIDIA/nccl/issues/1950,
    fixed in 2.29.7), newer ones gave wrong sums on some fabrics (https://github.com/NVIDIA/nccl/issues/2001).
    All-reduce in bf16 and float32, and what sharded training uses (reduce-scatter, all-gather), over two processes with
    gloo on the CPU; with NCCL over the visible GPUs, at most eight, averages as well; with one visible GPU only the
    average over one rank. Small integers are exact, so that the results of every rank must be equal.
    """
    cuda = job["device"] == "cuda"
    backend = "nccl" if cuda else "gloo"
    world = min(8, torch.cuda.device_count()) if cuda else 2
    case = {"judge": "exact", "signature": "wrong-sum", "tensors": ["o"], "dtype": "bf16", "limit": 0.0}
    case["backend"] = backend
    free = min((torch.cuda.mem_get_info(number)[0] for number in range(world)), default=0) if cuda else 1 << 34
    sizes = _TIMED if job["options"].get("bandwidth") and world > 1 else ()
    timed = [size for size in sizes if size * _ROOM <= free]
    request = {"world": world, "backend": backend, "sizes": _ELEMENTS[job["device"]], "averages": cuda}
    results = together({**request, "exchanges": True, "timed": timed}, emit, case)
    if not results:
        return
    # What one rank got wrong is wrong, whatever the others say.
    worst: dict[str, int] = {}
    for result in results:
        for title, wrong in result["sums"]:
            worst[title] = max(worst.get(title, 0), wrong)
    for title, wrong in worst.items():
        words = f"{title} over {world} process{'es' if world > 1 else ''}"
        measures = {"difference": float(wrong), "detail": f"{wrong} elements are wrong"}
        emit({**case, "case": words, "params": {"world_size": world, "what": title}, **measures})
    if timed:
        # All wait for the slowest.
        speeds = {title: min(result["speeds"][title] for result in results) for title in results[0]["speeds"]}
        emit({"kind": "info", "case": "bus bandwidth in GB/s", "world_size": world, "measured": speeds})
    if len(timed) < len(sizes):
        text = f"messages of more than {max(timed, default=0) >> 10} KiB were not tried: too little memory is free"
        emit({"case": "large messages", "error": text, "partial": True})


def ranks(job: Job, emit: Emit) -> None:
    """Does every rank of a job compute what the others compute, and does an all-reduce over all of them add up?

    One bad card of thousands spoils the run that it takes part in, and some fabrics gave wrong sums
    (https://github.com/NVIDIA/nccl/issues/2001). Each rank has computed the same numbers on its own device
    (``devices``); their digests are compared with each other, and their errors with what rounding costs. Then all that
    came take part in one all-reduce, with NCCL where every one of them has a GPU and with gloo on CPUs, each in a
    process of its own: the child that started it tells that it died or hangs.

    Send results, computed numbers and a sum; on rank 0 hand over what came, and one observation on the numbers and one
    on the sums, for the judge ``exact``.
    """
    case: dict[str, Any] = {"judge": "exact", "dtype": "bf16", "tensors": ["o"]}
    if "rank" not in job:
        emit({**case, "case": "ranks against each other", "skip": _ALONE})
        return
    ends = time.monotonic() + job["seconds"]
    store = meet(job)
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    send(store, job, json.dumps({"device": job["device"], "nccl": nccl, **job["own"]}))
    if job["rank"] != 0:
        # Rank 0 may come as late as it waits for others, and then waits for others.
        text = waited(store, "plan", time.monotonic() + 2 * job["seconds"] + _START)
        if text is None:
            raise TimeoutError("rank 0 did not say how to go on")
        plan = json.loads(text)
        if plan["backend"] and job["rank"] not in plan["absent"]:
            store.set(f"reduced/{job['rank']}", json.dumps(_reduced(job, plan, store)))
        return
    arrivals, missing = collect(store, job["world"], ends)
    hand_over(arrivals, documents(store, arrivals, ends), missing, emit)
    present = [Rank(number, host, _read(rest)) for number, host, _, *rest in arrivals]
    plan = planned([rank for rank in present if not rank.own.get("refused")], job["world"])
    store.set("plan", json.dumps(plan))
    for observation in compared([rank for rank in present if rank.own.get("results")]):
        emit({**case, **observation})
    case["backend"] = plan["backend"] or None
    if not plan["backend"]:
        emit({**case, "case": "all-reduce", "skip": plan["why"]})
        return
    results = {0: _reduced(job, plan, store)}
    ends = time.monotonic() + _SECONDS + _START  # who began later has as long as this rank had
    for rank in present:
        if rank.number and rank.number not in plan["absent"]:
            text = waited(store, f"reduced/{rank.number}", ends)
            results[rank.number] = json.loads(text) if text else {"error": f"gave no answer in {_SECONDS + _START} s"}
    emit({**case, **added(results, {rank.number: rank.label for rank in present}, plan["backend"])})


def planned(ranks: list[Rank], world: int) -> dict[str, Any]:
    """Return which ranks take no part in the all-reduce, and its ``backend``; "" and ``why`` if there is none."""
    here = {rank.number for rank in ranks}
    plan: dict[str, Any] = {"absent": [number for number in range(world) if number not in here], "backend": ""}
    if len(ranks) < 2 or 0 not in here:
        return {**plan, "why": "fewer than two ranks came to it"}
    if all(rank.own.get("device") == "cuda" and rank.own.get("nccl") for rank in ranks):
        return {**plan, "backend": "nccl"}
    if len(ranks) > _MOST_GLOO:
        why = f"gloo connects each of {len(ranks)} ranks with every other: not tried above {_MOST_GLOO}"
        return {**plan, "why": why}
    return {**plan, "backend": "gloo"}


def compared(ranks: list[Rank]) -> list[dict[str, Any]]:
    """Return the observation about what was computed, which names the ranks at fault by all computations; more of them,
    if there are more, are in a second one."""
    if len(ranks) < 2:
        return [{"case": "ranks against each other", "skip": "fewer than two ranks sent what they computed"}]
    faults: dict[str, dict[str, list[str]]] = {}
    unclear = []
    for work in sorted({name for rank in ranks for name in rank.own["results"]}):
        measured = [(rank, rank.own["results"][work]) for rank in ranks if work in rank.own["results"]]
        cards = [GpuCard(rank.label, rank.own["alike"], digest, float(error)) for rank, (digest, error) in measured]
        for card, words in accused(cards):
            faults.setdefault(card.label, {}).setdefault(words, []).append(work)
        observation = strange(cards)
        unclear += [f"{work}: {observation['detail']}"] if observation.get("soft") else []
    title = f"{len(ranks)} ranks"
    if faults:
        names = [
            f"{label}: " + ", ".join(f"{' and '.join(works)} {words}" for words, works in wrong.items())
            for label, wrong in faults.items()
        ]
        observation = {"case": f"{title}: {_listed(names)}", "equal": False, "signature": "card-differs"}
        return [observation, {"kind": "info", "case": "ranks at fault", "named": names[:_MOST_LISTED]}]
    if unclear:
        return [{"case": f"{title}: {unclear[0]}", "equal": False, "signature": "cards-disagree", "soft": True}]
    return [{"case": f"{title} alike", "equal": True}]


def added(results: dict[int, dict[str, Any]], labels: dict[int, str], backend: str) -> dict[str, Any]:
    """Return the observation about the sums: who failed, else whose share arrived wrong, or who got a wrong sum."""
    title = f"all-reduce over {len(results)} ranks"
    failed = {rank: result for rank, result in results.items() if "error" in result}
    if failed:
        # Who failed first may be why the others did.
        first = sorted(failed, key=lambda rank: failed[rank].get("order", len(results)))
        reasons = _listed([f"{labels[rank]} {failed[rank]['error']}" for rank in first])
        return {"case": title, "error": f"{title} ({backend}): {reasons}"}
    wrong = {rank: [what for what, count in result["sums"] if count] for rank, result in results.items()}
    worst = max((count for result in results.values() for _, count in result["sums"]), default=0)
    givers = [set(result["givers"]) for result in results.values()]
    present = sorted(results)
    blamed = [labels[present[giver]] for giver in sorted(set.intersection(*givers)) if giver < len(present)]
    if blamed:
        title += f": what is given arrives wrong everywhere from {_listed(blamed)}"
    elif any(wrong.values()):
        got = [f"{labels[rank]} ({', '.join(sums)})" for rank, sums in wrong.items() if sums]
        title += f": wrong on {_listed(got)}"
    return {"case": title, "difference": float(worst), "limit": 0.0, "signature": "wrong-sum"}


def _reduced(job: Job, plan: dict[str, Any], store: Any) -> dict[str, Any]:
    """Return what this rank's part of the all-reduce saw; ``order`` counts those that failed as they did."""
    absent = plan["absent"]
    request = {
        "rank": job["rank"] - sum(number < job["rank"] for number in absent),
        "world": job["world"] - len(absent),
        "backend": plan["backend"],
        "seconds": _SECONDS,
        "sizes": _SIZES,
        "averages": False,
        "prefix": f"envdoctor/{job['attempt']}/group",
        **{name: job[name] for name in ("address", "port")},
    }
    answer = finish(start(request), _SECONDS + _START)
    return {**answer, "order": store.add("failed", 1)} if "error" in answer else answer


def _read(own: list[str]) -> dict[str, Any]:
    """Return what a rank says of itself; empty if this release of envdoctor does not say it so."""
    try:
        answer = json.loads(own[0])
    except (ValueError, IndexError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _listed(names: list[str]) -> str:
    more = [f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return "; ".join(names[:_MOST_NAMED] + more)
