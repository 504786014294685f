"""From allocated bytes to what nvidia-smi shows, and whether that is free on the GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envdoctor.facts.view import View

GIB = float(1 << 30)
#: What later steps hold more than the one whose tensors were replayed: up to 7 % where three steps were, at full depth.
_LATER = 1.07
#: What a process has on a GPU beside torch's allocator, in GiB: 0.3 with CUDA's lazy loading and few kernels, more than
#: 1 with all of torch's (https://github.com/pytorch/pytorch/issues/107667); 1.3 is in the documentation of transformers
#: (https://huggingface.co/docs/transformers/v4.48.0/model_memory_anatomy).
_CONTEXT = (0.3, 1.3)


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


def need_of(allocated: float, most: float | None = None, held: float = 1.0) -> Need:
    """What a process with so many live bytes takes, or with up to ``most``, of which torch's allocator holds ``held``
    times as much."""
    low, high = allocated, _LATER * held * (most or allocated)
    return Need((low, high), (low + _CONTEXT[0] * GIB, high + _CONTEXT[1] * GIB))


def gpu_of(gpus: Iterable[View], processes: int) -> Gpu | None:
    """The GPU that decides: the first for one process, the one with the least free memory for several; None where no
    memory is known. Free is all of it where nobody knows what others take."""
    known = [gpu for gpu in map(_gpu, gpus) if gpu is not None]
    return min(known, key=lambda gpu: gpu.free) if processes > 1 and known else known[0] if known else None


def _gpu(item: View) -> Gpu | None:
    total, free = item.number("memory_gib"), item.number("free_gib")
    total, free = free if total is None else total, total if free is None else free
    return None if total is None or free is None else Gpu(item.text("name") or "GPU", total * GIB, free * GIB)
