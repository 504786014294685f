"""Eight devices that are the CPU, one of them bad."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from patches import FAULTS, Put

_BAD = 5


def _eight(name: str, spoil: Any, what: str = "compute") -> None:
    def plant(put: Put) -> None:
        devices = import_module("payload.probes.devices")
        real = getattr(devices, what)
        put(devices, "visible", lambda kind: [torch.device("cpu")] * 8)
        put(devices, what, lambda *given: spoil(real(*given), given))

    FAULTS[name] = plant


def _bad_bit(result: Any, given: Any) -> Any:
    """One bit of one number on one card: far below rounding of the whole."""
    if given[2] == _BAD:
        result.view(torch.int16).view(-1)[7] ^= 1
    return result


_calls = [0]


def _now_and_then(result: Any, given: Any) -> Any:
    _calls[0] += given[2] == _BAD
    return _bad_bit(result, given) if _calls[0] % 20 == 0 else result  # in the first 20 rounds


def _bad_cell(values: Any, given: Any) -> Any:
    """One bit of one number in the memory of one card."""
    if given[1] == _BAD:
        values[77] ^= 4
    return values


def _counted(before: dict[str, Any], after: dict[str, Any]) -> Any:
    """What the driver says of one card of eight before and after, and of the others always that nothing happened."""

    def plant(put: Put) -> None:
        FAULTS["eight-cards"](put)
        looks = iter([before])

        def counters(uuids: Any) -> Any:
            seen, well = next(looks, after), dict.fromkeys(before, 0)
            return [seen if number == _BAD else well for number in range(len(uuids))]

        put(import_module("payload.probes.devices"), "counters", counters)

    return plant


def _one_flaky(put: Put) -> None:
    """A single device that errs in every 20th product: it has nobody to be compared with but itself."""
    devices = import_module("payload.probes.devices")
    real, calls = devices.multiplied, [0]

    def multiplied(*given: Any) -> Any:
        calls[0] += 1
        return _bad_bit(real(*given), (0, 0, _BAD)) if calls[0] % 20 == 0 else real(*given)

    put(devices, "multiplied", multiplied)


_eight("eight-cards", lambda result, given: result)
_eight("bad-card", lambda result, given: result * 1.5 if given[2] == _BAD else result)
_eight("bad-bit", _bad_bit)
_eight("now-and-then", _now_and_then, "multiplied")
_eight("bad-memory", _bad_cell, "stored")
_eight("bad-copy", lambda result, given: result * 0, "copied")
FAULTS["one-card"] = _one_flaky
FAULTS["memory-errors"] = _counted({"ecc_uncorrected": 0}, {"ecc_uncorrected": 3})
FAULTS["memory-unrepaired"] = _counted({"failed": True, "pending": False}, {})
FAULTS["memory-errors-before"] = _counted({"ecc_uncorrected": 2}, {"ecc_uncorrected": 2})
FAULTS["link-errors"] = _counted({"nvlink_errors": 0, "pcie_replays": None}, {"nvlink_errors": 9, "pcie_replays": 1})
