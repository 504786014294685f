"""What the driver says of the GPUs that torch sees: memory in use, errors since it was loaded, clocks and heat."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

_SM, _VOLATILE, _CORRECTED, _UNCORRECTED, _LINKS, _LINK_ERRORS = 1, 0, 0, 1, 18, 4
#: nvml.h: there was not enough room for the list that was asked for.
_NO_ROOM = 7
#: Bits of nvmlDeviceGetCurrentClocksThrottleReasons that slow a busy card down.
_SLOWED = {0x4: "power cap", 0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def identity(number: int, properties: Any) -> str | None:
    """The driver's UUID of the device that torch calls by this number: torch's own word (2.5 has it), else that of
    CUDA_VISIBLE_DEVICES; None where neither says."""
    own = getattr(properties, "uuid", None)
    if own is not None:
        return f"GPU-{own}"
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    said = entries[number].strip() if number < len(entries) else ""
    return said if said.startswith("GPU-") else None


def counters(uuids: Sequence[str | None]) -> list[dict[str, Any]]:
    """One entry a GPU, in this order: ``ecc_corrected`` and ``ecc_uncorrected`` since the driver was loaded, whether a
    repair of its memory is ``pending`` or ``failed``, ``nvlink_errors``, ``pcie_replays``, ``sm_mhz``, ``celsius``,
    ``watts`` and what it is ``slowed`` by; None where the driver does not say, nothing without its library."""
    return _each(uuids, _counted, {})


def used_mib(uuids: Sequence[str | None]) -> list[int | None]:
    """MiB in use on each of these GPUs; None where the driver does not say."""
    return _each(uuids, _used, None)


def computing(uuids: Sequence[str | None]) -> list[int | None]:
    """How many processes compute on each of these GPUs; None where the driver does not say."""
    return _each(uuids, _processes, None)


def version() -> str | None:
    """The driver's version; None where it does not say."""
    text = ctypes.create_string_buffer(80)
    failed = _opened(lambda nvml: nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))), True)
    return None if failed else text.value.decode("ascii", "replace")


def _each(uuids: Sequence[str | None], asked: Callable[[Any, Any], Any], unknown: Any) -> list[Any]:
    def ask(nvml: Any) -> list[Any]:
        found = []
        for uuid in uuids:
            handle = ctypes.c_void_p()
            name = (uuid or "").encode("ascii", "replace")
            failed = not name or nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle))
            found.append(unknown if failed else asked(nvml, handle))
        return found

    answers: list[Any] = _opened(ask, [unknown for _ in uuids])
    return answers


def _opened(ask: Callable[[Any], Any], unknown: Any) -> Any:
    """What is asked of the driver's library; ``unknown`` where it is missing, does not begin or lacks a function."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return unknown
        answer = ask(nvml)
        nvml.nvmlShutdown()
        return answer
    except (OSError, AttributeError):
        return unknown


def _used(nvml: Any, handle: Any) -> int | None:
    memory = _Memory()
    failed = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return None if failed else memory.used >> 20


def _processes(nvml: Any, handle: Any) -> int | None:
    count = ctypes.c_uint(0)
    code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    return count.value if code in (0, _NO_ROOM) else None


def _counted(nvml: Any, handle: Any) -> dict[str, Any]:
    def asked(name: str, *question: Any, kind: Any = ctypes.c_uint) -> Any:
        function, answer = getattr(nvml, name, None), kind()
        return None if function is None or function(handle, *question, ctypes.byref(answer)) else answer.value

    errors, long = "nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong
    links = [
        asked("nvmlDeviceGetNvLinkErrorCounter", link, kind, kind=long)
        for link in range(_LINKS)
        for kind in range(_LINK_ERRORS)
    ]
    rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
    remapped = getattr(nvml, "nvmlDeviceGetRemappedRows", None)
    told = remapped is not None and not remapped(handle, *map(ctypes.byref, rows))
    retired = asked("nvmlDeviceGetRetiredPagesPendingStatus")
    pending = (rows[2].value if told else None, retired)
    slowed = asked("nvmlDeviceGetCurrentClocksThrottleReasons", kind=long)
    power = asked("nvmlDeviceGetPowerUsage")  # in milliwatts
    return {
        "ecc_corrected": asked(errors, _CORRECTED, _VOLATILE, kind=long),
        "ecc_uncorrected": asked(errors, _UNCORRECTED, _VOLATILE, kind=long),
        "pending": None if pending == (None, None) else any(pending),
        "failed": bool(rows[3].value) if told else None,
        "nvlink_errors": None if set(links) == {None} else sum(link or 0 for link in links),
        "pcie_replays": asked("nvmlDeviceGetPcieReplayCounter"),
        "sm_mhz": asked("nvmlDeviceGetClockInfo", _SM),
        "celsius": asked("nvmlDeviceGetTemperature", 0),
        "watts": None if power is None else power // 1000,
        "slowed": None if slowed is None else [word for bit, word in _SLOWED.items() if slowed & bit],
    }
