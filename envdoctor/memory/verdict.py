"""From allocated bytes to what nvidia-smi shows, and whether that is free on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import Records, Value

__all__ = ["GIB", "Gpu", "Need", "gpu_of", "need_of", "room"]

GIB = float(1 << 30)
#: What torch's caching allocator holds beside live tensors, as a factor: measured 1.00 to 1.06.
_RESERVED = (1.0, 1.06)
#: What a process has on a GPU beside torch's allocator (CUDA context, libraries), in GiB.
_CONTEXT = (0.4, 0.6)


class Need(NamedTuple):
    """Bytes from and to: what torch reserves, and what the process takes."""

    reserved: tuple[float, float]
    process: tuple[float, float]

    def verdict(self, free: float) -> str:
        """fits when the most is free, does-not-fit when not even the least is, tight between."""
        return "fits" if self.process[1] <= free else "does-not-fit" if self.process[0] > free else "tight"


class Gpu(NamedTuple):
    """``total`` and ``free`` in bytes."""

    name: str
    total: float
    free: float


def need_of(allocated: float) -> Need:
    """What a process with so many live bytes takes."""
    low, high = (allocated * factor for factor in _RESERVED)
    return Need((low, high), (low + _CONTEXT[0] * GIB, high + _CONTEXT[1] * GIB))


def gpu_of(gpus: Value, processes: int) -> Gpu | None:
    """The GPU that decides: the first for one process, the one with the least free memory for several; None where no
    memory is known. Free is all of it where nobody knows what others take."""
    known = [gpu for gpu in map(_gpu, gpus.items if isinstance(gpus, Records) else ()) if gpu is not None]
    return min(known, key=lambda gpu: gpu.free) if processes > 1 and known else known[0] if known else None


def _gpu(item: Mapping[str, Value]) -> Gpu | None:
    total, free, name = item.get("memory_gib"), item.get("free_gib"), item.get("name")
    total = total if isinstance(total, (int, float)) else free
    free = free if isinstance(free, (int, float)) else total
    if not isinstance(total, (int, float)) or not isinstance(free, (int, float)):
        return None
    return Gpu(name if isinstance(name, str) else "GPU", total * GIB, free * GIB)


def room(free: float) -> float:
    """The live bytes that surely fit into so many free ones."""
    return (free - _CONTEXT[1] * GIB) / _RESERVED[1]
