"""Whether torch's own libraries can be loaded."""

from __future__ import annotations

import sys

from envdoctor.facts.values import Fact
from envdoctor.observe.request import Request

__all__ = ["KEYS", "NEEDS", "observe"]

KEYS = ("torch.damaged_files", "torch.missing_libraries")
NEEDS = ("pkg.*", "torch.cuda")


def observe(request: Request) -> list[Fact]:
    """The facts of ``KEYS``; none without torch."""
    if "pkg.torch" not in request.facts:
        return []
    from envdoctor.observe.binaries.reading.torch_loading import torch_loading_facts

    here = request.place.live and sys.platform.startswith("linux")
    return torch_loading_facts(request.value("torch.cuda"), request.place, request.environ, here=here)
