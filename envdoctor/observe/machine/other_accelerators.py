"""Which kinds of accelerators leave a sign on this machine: nvidia, ascend, rocm."""

from __future__ import annotations

import os

from envdoctor.facts.values import Fact
from envdoctor.observe.machine.reading.proc_driver import driver_traces
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

KEYS = ("machine.accelerators",)


def observe(request: Request) -> list[Fact]:
    """``machine.accelerators``, by device nodes and installation folders; nothing is opened or started.

    Huawei's Ascend and AMD's ROCm are recognised so that a report can say that they are not covered yet.
    """
    found: list[str] = []
    if driver_traces(request):
        found.append("nvidia")
    if request.platform == "linux":
        devices = request.names("/dev")
        if any(name.startswith("davinci") for name in devices) or os.path.exists(request.path("/usr/local/Ascend")):
            found.append("ascend")
        if "kfd" in devices or os.path.exists(request.path("/opt/rocm")):
            found.append("rocm")
    return [Fact("machine.accelerators", tuple(found), Message("/dev, /proc, installation folders"), "machine")]
