"""The GPU architectures of the installed torch, where it is a CUDA build and there may be a GPU to ask about."""

from __future__ import annotations

from envdoctor.facts.values import Fact, Records
from envdoctor.observe.request import Request

__all__ = ["KEYS", "NEEDS", "observe"]

KEYS = ("torch.arch_list",)
NEEDS = ("torch.cuda", "gpu")


def observe(request: Request) -> list[Fact]:
    """``torch.arch_list`` as torch's library says."""
    gpus = request.value("gpu")
    if not isinstance(request.value("torch.cuda"), str) or (isinstance(gpus, Records) and not len(gpus)):
        return []
    from envdoctor.observe.binaries.reading.torch_archs import read_arch_list

    found = read_arch_list(request.place)
    return [] if found is None else [found]
