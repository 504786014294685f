"""The NVIDIA driver and the GPUs: NVML's answers, and ``/proc`` for what it cannot tell."""

from __future__ import annotations

from envdoctor.facts.values import ABSENT, Fact, Unknown
from envdoctor.observe.machine.reading import proc_driver
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

_LIBRARY_KEYS = ("driver.library", "driver.compat")
KEYS = (*proc_driver.KEYS, *_LIBRARY_KEYS)


def observe(request: Request) -> list[Fact]:
    """Driver, libraries and GPUs; without any trace of a driver NVML is not asked."""
    if not request.gpu:
        return [Fact(key, Unknown(Message("--no-gpu was given")), "--no-gpu", "machine") for key in KEYS]
    if not proc_driver.driver_traces(request) and not request.nvml_library:
        none = [Fact(key, ABSENT, Message("no NVIDIA driver"), "machine") for key in _LIBRARY_KEYS]
        return proc_driver.observe(request) + none
    from envdoctor.observe.machine.reading import driver_files

    return _nvml_or_proc(request) + driver_files.observe(request)


def _nvml_or_proc(request: Request) -> list[Fact]:
    from envdoctor.observe.machine.reading import nvml

    facts = nvml.observe(request)
    problems = {fact.key: fact.value.reason for fact in facts if isinstance(fact.value, Unknown)}
    if not problems:
        return facts
    problem = problems.get("gpu") or next(iter(problems.values()))
    instead = {fact.key: fact for fact in proc_driver.observe(request._replace(nvml_problem=problem))}
    return [
        fact if fact.key not in problems or isinstance(instead[fact.key].value, Unknown) else instead[fact.key]
        for fact in facts
    ]
