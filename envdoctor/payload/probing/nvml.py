"""What the driver says of the GPUs that torch sees: memory in use, errors since it was loaded, links, clocks and heat.

The driver may lack an answer, refuse it, or hang: each is told apart, and none is taken for a zero.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

#: Seconds that the driver has for an answer. One that hangs (a card that is falling off the bus) is asked no more.
_PATIENCE = 20.0
#: nvml.h, nvmlReturn_t: there was not enough room for the list that was asked for.
_NO_ROOM = 7
#: Of the same: why there is no number. The first are of the card, and nothing that is missing here.
NOT_COUNTED = "this card does not count that"
_REFUSED = {
    2: NOT_COUNTED,  # there are fewer links than that
    3: NOT_COUNTED,
    4: "the driver does not permit it",
    6: "the driver does not know this device",
    9: "the driver is not loaded",
    13: "this driver does not know the question",
    15: "the driver has lost the GPU",
    16: "the GPU must be reset first",
}
_ERRORS, _LINKS, _LINK_ERRORS = "nvmlDeviceGetTotalEccErrors", 18, 4
_UINT, _LONG = ctypes.c_uint, ctypes.c_ulonglong
#: What is asked of a card: names of the numbers that come out, the function, what it is given, and their type.
_QUESTIONS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
    ("ecc ecc_later", "nvmlDeviceGetEccMode", (), _UINT),
    ("ecc_corrected", _ERRORS, (0, 0), _LONG),
    ("ecc_uncorrected", _ERRORS, (1, 0), _LONG),
    ("rows_corrected rows_uncorrected pending failed", "nvmlDeviceGetRemappedRows", (), _UINT),
    ("retiring", "nvmlDeviceGetRetiredPagesPendingStatus", (), _UINT),
    ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", (), _UINT),
    ("pcie_lanes", "nvmlDeviceGetCurrPcieLinkWidth", (), _UINT),
    ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (), _UINT),
    ("sm_mhz", "nvmlDeviceGetClockInfo", (1,), _UINT),
    ("sm_mhz_most", "nvmlDeviceGetMaxClockInfo", (1,), _UINT),
    ("celsius", "nvmlDeviceGetTemperature", (0,), _UINT),
    ("milliwatts", "nvmlDeviceGetPowerUsage", (), _UINT),
    ("slowed", "nvmlDeviceGetCurrentClocksThrottleReasons", (), _LONG),
    ("mig mig_later", "nvmlDeviceGetMigMode", (), _UINT),
    *(("nvlinks", "nvmlDeviceGetNvLinkState", (link,), _UINT) for link in range(_LINKS)),
    *(
        ("nvlink_errors", "nvmlDeviceGetNvLinkErrorCounter", (link, kind), _LONG)
        for link in range(_LINKS)
        for kind in range(_LINK_ERRORS)
    ),
)
#: Bits of the reasons for lower clocks, of a card that is busy.
_SLOWED = {0x4: "power cap", 0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
#: Xid errors of the card and its links, none of which a program causes (https://docs.nvidia.com/deploy/xid-errors/):
#: memory, failed repairs, NVLink, lost from the bus, bursts of corrected errors, contained and not contained errors.
_XIDS = {48, 64, 74, 79, 92, 94, 95}
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_PLACE, _KERNEL_LOG, _LONGEST_LOG = "nvmlDeviceGetPciInfo_v3", "/dev/kmsg", 8 << 20
_hanging: list[threading.Thread] = []


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Place(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "kind", "subsystem")),
        ("name", ctypes.c_char * 32),
    ]


def identity(number: int, properties: Any) -> str | None:
    """Return the driver's UUID of the device that torch calls by this number: torch's own word (2.5 has it), else that
    of CUDA_VISIBLE_DEVICES; None where neither says."""
    own = getattr(properties, "uuid", None)
    if own is not None:
        return f"GPU-{own}"
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    entry = entries[number].strip() if number < len(entries) else ""
    return entry if entry.startswith("GPU-") else None


def counters(uuids: Sequence[str | None]) -> list[dict[str, Any]]:
    """Return one entry for each GPU, in this order: ``ecc`` (1 is on), ``ecc_corrected`` and ``ecc_uncorrected`` since
    the driver was loaded, ``rows_corrected`` and ``rows_uncorrected`` that were remapped, whether a repair of its
    memory is ``pending``, ``retiring`` or ``failed``, ``nvlink_errors`` and how many ``nvlinks`` are up,
    ``pcie_replays``, ``pcie_lanes``, ``pcie_generation``, ``xid`` (errors of the card in the kernel's log since boot),
    ``sm_mhz`` and ``sm_mhz_most``, ``celsius``, ``milliwatts``, what it is ``slowed`` by, and ``mig`` (1 is on). Why
    one is missing stands under its name in ``unknown``; where nothing is known of a card, under ``driver``."""
    return _each(uuids, _counted, lambda why: {"unknown": {"driver": why}})


def used_mib(uuids: Sequence[str | None]) -> list[int | None]:
    """Return MiB in use on each of these GPUs; None where the driver does not say."""
    return _each(uuids, _used, lambda why: None)


def computing(uuids: Sequence[str | None]) -> list[int | None]:
    """Return how many processes compute on each of these GPUs; None where the driver does not say."""
    return _each(uuids, _processes, lambda why: None)


def version() -> str | None:
    """Return the driver's version; None where it does not say."""
    text = ctypes.create_string_buffer(80)
    failed = _opened(lambda nvml: nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))), lambda why: True)
    return None if failed else text.value.decode("ascii", "replace")


def _each(uuids: Sequence[str | None], question: Callable[[Any, Any], Any], unknown: Callable[[str], Any]) -> list[Any]:
    def ask(nvml: Any) -> list[Any]:
        results = []
        for uuid in uuids:
            handle = ctypes.c_void_p()
            name = (uuid or "").encode("ascii", "replace")
            code = nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)) if name else 6
            results.append(unknown(_why(code)) if code else question(nvml, handle))
        return results

    answers: list[Any] = _opened(ask, lambda why: [unknown(why) for _ in uuids])
    return answers


def _opened(ask: Callable[[Any], Any], unknown: Callable[[str], Any]) -> Any:
    """Ask the driver's library; return ``unknown`` of the reason if it is missing, lacks a function or hangs."""
    answers: list[Any] = []

    def work() -> None:
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            code = nvml.nvmlInit_v2()
            answers.append(unknown(_why(code)) if code else ask(nvml))
            if not code:
                nvml.nvmlShutdown()
        except OSError:
            answers.append(unknown("the driver's library is missing"))
        except AttributeError:
            answers.append(unknown(_REFUSED[13]))

    if not _hanging:
        asking = threading.Thread(target=work, daemon=True)
        asking.start()
        asking.join(_PATIENCE)
        if answers:
            return answers[0]
        _hanging.append(asking)
    return unknown(f"the driver gave no answer in {_PATIENCE:.0f} s")


def _why(code: int) -> str:
    return _REFUSED.get(code, f"the driver answers with error {code}")


def _used(nvml: Any, handle: Any) -> int | None:
    memory = _Memory()
    failed = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    return None if failed else memory.used >> 20


def _processes(nvml: Any, handle: Any) -> int | None:
    count = ctypes.c_uint(0)
    code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    return count.value if code in (0, _NO_ROOM) else None


def _counted(nvml: Any, handle: Any) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for names, name, arguments, kind in _QUESTIONS:
        keys, outs = names.split(), [kind() for _ in names.split()]
        function = getattr(nvml, name, None)
        code = 13 if function is None else function(handle, *arguments, *map(ctypes.byref, outs))
        for key, out in zip(keys, outs):
            if code:
                unknown.setdefault(key, _why(code))
            else:
                counts[key] = counts.get(key, 0) + out.value  # over all links
    place = _Place()
    code = 13 if not hasattr(nvml, _PLACE) else getattr(nvml, _PLACE)(handle, ctypes.byref(place))
    xids, why = ([], _why(code)) if code else _logged(f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}")
    if why:
        unknown["xid"] = why
    else:
        counts["xid"] = xids
    if "slowed" in counts:
        counts["slowed"] = [word for bit, word in _SLOWED.items() if counts["slowed"] & bit]
    return {**counts, "unknown": {key: why for key, why in unknown.items() if key not in counts}}


def _logged(place: str) -> tuple[list[int], str]:
    """Return the Xid errors since boot of the card at this place of the bus, and "" or why they are unknown."""
    xids: set[int] = set()
    size, until = 0, time.monotonic() + 2.0
    try:
        log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while size < _LONGEST_LOG and time.monotonic() < until:
                record = os.read(log, 8192)  # one line of it
                if not record:
                    return sorted(xids), ""
                size += len(record)
                matches = _XID.findall(record.decode("utf-8", "replace"))
                xids |= {int(number) for where, number in matches if where.lower().startswith(place)} & _XIDS
            return [], "the kernel's log is too long"
        finally:
            os.close(log)
    except BlockingIOError:
        return sorted(xids), ""
    except (OSError, AttributeError) as error:
        return [], f"the kernel's log cannot be read ({type(error).__name__})"
