"""The machine: operating system, variables, NVIDIA driver, GPUs and CUDA toolkit, as facts.

The contract of a module here: ``KEYS`` lists the facts it supplies, and ``observe(request)`` returns each of them once,
as a list of :class:`Fact` with source ``"machine"``. What cannot be read is :class:`Unknown` with its reason; what is
known not to exist is ``ABSENT``. A module opens files and, for the toolkit, may start ``nvcc``; it never judges, and it
reads only what the request names: a test points ``root`` at a tree of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from envdoctor.facts.values import Fact, Unknown
from envdoctor.observe.machine.request import MachineRequest

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["MachineRequest", "observe", "observe_machine"]


def observe_machine(*, environ: Mapping[str, str], gpu: bool) -> list[Fact]:
    """Every fact of this machine. ``gpu=False`` leaves the driver and the GPUs unread (``--no-gpu``). Never raises."""
    return observe(MachineRequest(environ=environ, gpu=gpu, platform=_platform()))


def observe(request: MachineRequest) -> list[Fact]:
    """Every fact that the request's machine gives, one fact a key."""
    from envdoctor.observe.machine import compilers, cuda_toolkit, limits, other_accelerators, system, variables

    facts: list[Fact] = []
    for module in (system, limits, variables, cuda_toolkit, compilers, other_accelerators):
        facts += _guarded(module, request)
    return facts + _driver_facts(request)


def _driver_facts(request: MachineRequest) -> list[Fact]:
    """NVML's answers, and ``/proc`` for what it cannot tell; without any trace of a driver it is not asked."""
    from envdoctor.observe.machine import proc_driver

    if not request.gpu:
        return [Fact(key, Unknown("--no-gpu was given"), "--no-gpu", "machine") for key in proc_driver.KEYS]
    if not proc_driver.driver_traces(request) and not request.nvml_library:
        return _guarded(proc_driver, request)
    from envdoctor.observe.machine import nvml

    facts = _guarded(nvml, request)
    problems = {fact.key: fact.value.reason for fact in facts if isinstance(fact.value, Unknown)}
    if not problems:
        return facts
    problem = problems.get("gpu") or next(iter(problems.values()))
    instead = {fact.key: fact for fact in _guarded(proc_driver, request._replace(nvml_problem=problem))}
    return [
        fact if fact.key not in problems or isinstance(instead[fact.key].value, Unknown) else instead[fact.key]
        for fact in facts
    ]


def _guarded(module: ModuleType, request: MachineRequest) -> list[Fact]:
    """The module's facts; a mistake of ours, or a file system that behaves oddly, costs these facts and no others."""
    try:
        facts: list[Fact] = module.observe(request)
        return facts
    except Exception as error:
        name = module.__name__.rpartition(".")[2]
        reason = f"reading the machine failed in {name}: {type(error).__name__}"
        return [Fact(key, Unknown(reason), name, "machine") for key in module.KEYS]


def _platform() -> str:
    if sys.platform.startswith("win") or sys.platform == "cygwin":
        return "windows"
    return "darwin" if sys.platform == "darwin" else "linux" if sys.platform.startswith("linux") else sys.platform
