"""What an observation of the machine is asked to look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["MachineRequest"]


class MachineRequest(NamedTuple):
    """What to look at.

    ``platform`` is ``linux``, ``windows`` or ``darwin``. ``root`` stands for ``/`` in every path that is read.
    ``gpu`` is False under ``--no-gpu``. ``nvml_library`` replaces the search for NVIDIA's library,
    ``nvml_timeout`` is in seconds. ``nvml_problem`` says why NVML did not answer, for those who stand in for it.
    """

    environ: Mapping[str, str]
    gpu: bool = True
    platform: str = ""
    root: str = "/"
    nvml_library: str = ""
    nvml_timeout: float = 10.0
    nvml_problem: str = ""

    def path(self, absolute: str) -> str:
        """``/proc/version`` below the request's root."""
        return absolute if self.root == "/" else os.path.join(self.root, absolute.lstrip("/"))
