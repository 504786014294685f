"""What the driver counts on each of the machine's NVIDIA GPUs: memory errors, clock, temperature."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = ["counters"]

_MOST = 64
_SM, _VOLATILE, _CORRECTED, _UNCORRECTED = 1, 0, 0, 1


def counters() -> list[dict[str, Any]]:
    """One entry a GPU, as the driver numbers them: ``ecc_corrected`` and ``ecc_uncorrected`` since the driver was
    loaded, ``sm_mhz``, ``celsius``; None where it does not say. Empty without the driver's library."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return []
        number = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
        found = [_of(nvml, index) for index in range(min(number.value, _MOST))]
        nvml.nvmlShutdown()
        return found
    except (OSError, AttributeError):
        return []


def _of(nvml: Any, index: int) -> dict[str, Any]:
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        return {}
    return {
        "ecc_corrected": _asked(nvml.nvmlDeviceGetTotalEccErrors, ctypes.c_ulonglong(), handle, _CORRECTED, _VOLATILE),
        "ecc_uncorrected": _asked(
            nvml.nvmlDeviceGetTotalEccErrors, ctypes.c_ulonglong(), handle, _UNCORRECTED, _VOLATILE
        ),
        "sm_mhz": _asked(nvml.nvmlDeviceGetClockInfo, ctypes.c_uint(), handle, _SM),
        "celsius": _asked(nvml.nvmlDeviceGetTemperature, ctypes.c_uint(), handle, 0),
    }


def _asked(function: Any, answer: Any, *question: Any) -> Any:
    return None if function(*question, ctypes.byref(answer)) else answer.value
