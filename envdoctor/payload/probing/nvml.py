"""What the driver says of each of the machine's NVIDIA GPUs: memory in use, memory errors, clock, temperature."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_MOST = 64
_SM, _VOLATILE, _CORRECTED, _UNCORRECTED = 1, 0, 0, 1


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def counters() -> list[dict[str, Any]]:
    """One entry a GPU, as the driver numbers them: ``ecc_corrected`` and ``ecc_uncorrected`` since the driver was
    loaded, ``sm_mhz``, ``celsius``; None where it does not say. Empty without the driver's library."""
    return _each(_counted)


def used_mib() -> list[int]:
    """MiB in use on each GPU, 0 where the driver does not say; empty without its library."""
    return _each(_used)


def _each(asked: Callable[[Any, Any], Any]) -> list[Any]:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return []
        number = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
        found = []
        for index in range(min(number.value, _MOST)):
            handle = ctypes.c_void_p()
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            found.append(asked(nvml, None if failed else handle))
        nvml.nvmlShutdown()
        return found
    except (OSError, AttributeError):
        return []


def _used(nvml: Any, handle: Any) -> int:
    memory = _Memory()
    failed = handle is None or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return 0 if failed else memory.used >> 20


def _counted(nvml: Any, handle: Any) -> dict[str, Any]:
    if handle is None:
        return {}
    errors = nvml.nvmlDeviceGetTotalEccErrors
    return {
        "ecc_corrected": _asked(errors, ctypes.c_ulonglong(), handle, _CORRECTED, _VOLATILE),
        "ecc_uncorrected": _asked(errors, ctypes.c_ulonglong(), handle, _UNCORRECTED, _VOLATILE),
        "sm_mhz": _asked(nvml.nvmlDeviceGetClockInfo, ctypes.c_uint(), handle, _SM),
        "celsius": _asked(nvml.nvmlDeviceGetTemperature, ctypes.c_uint(), handle, 0),
    }


def _asked(function: Any, answer: Any, *question: Any) -> Any:
    return None if function(*question, ctypes.byref(answer)) else answer.value
