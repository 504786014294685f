"""The NVIDIA driver and the GPUs: NVML's answers, and ``/proc`` for what it cannot tell.

And which kinds of accelerators leave a sign on this machine: nvidia, ascend, rocm.
"""

import os

from envdoctor.facts.values import ABSENT, Fact, Unknown
from envdoctor.observe.machine.reading import proc_driver
from envdoctor.observe.request import Request
from envdoctor.system.message import Message

_LIBRARY_KEYS = ("driver.library", "driver.compat")
_NVIDIA = (*proc_driver.KEYS, *_LIBRARY_KEYS)
KEYS = (*_NVIDIA, "machine.accelerators")


def observe(request: Request) -> list[Fact]:
    """Driver, libraries and GPUs; without any trace of a driver NVML is not asked. Of other accelerators no more than
    that they are there, by device nodes and installation folders, so that a report can say that they are not covered
    yet."""
    found = ["nvidia"] if proc_driver.driver_traces(request) else []
    if not request.gpu:
        facts = [Fact(key, Unknown(Message("--no-gpu was given")), "--no-gpu", "machine") for key in _NVIDIA]
    elif not found and not request.nvml_library:
        none = [Fact(key, ABSENT, Message("no NVIDIA driver"), "machine") for key in _LIBRARY_KEYS]
        facts = proc_driver.observe(request) + none
    else:
        from envdoctor.observe.machine.reading import driver_files

        facts = _nvml_or_proc(request) + driver_files.observe(request)
    if request.platform == "linux":
        devices = request.names("/dev")
        if any(name.startswith("davinci") for name in devices) or os.path.exists(request.path("/usr/local/Ascend")):
            found.append("ascend")
        if "kfd" in devices or os.path.exists(request.path("/opt/rocm")):
            found.append("rocm")
    origin = Message("/dev, /proc, installation folders")
    return [*facts, Fact("machine.accelerators", tuple(found), origin, "machine")]


def _nvml_or_proc(request: Request) -> list[Fact]:
    try:
        from envdoctor.observe.machine.reading import nvml
    except ImportError as error:  # Python is built without ctypes where libffi was missing
        return proc_driver.observe(request, Message("NVML could not be used: {}", type(error).__name__))
    facts = nvml.observe(request)
    problems = {fact.key: fact.value.reason for fact in facts if isinstance(fact.value, Unknown)}
    if not problems:
        return facts
    problem = problems.get("gpu") or next(iter(problems.values()))
    instead = {fact.key: fact for fact in proc_driver.observe(request, problem)}
    return [
        fact if fact.key not in problems or isinstance(instead[fact.key].value, Unknown) else instead[fact.key]
        for fact in facts
    ]
