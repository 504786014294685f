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


def _counted(put: Put) -> None:
    FAULTS["eight-cards"](put)
    answers = iter([0, 3])  # before, after

    def counters() -> Any:
        seen = next(answers)
        return [{"ecc_uncorrected": seen if number == _BAD else 0} for number in range(8)]

    put(import_module("payload.probes.devices"), "counters", counters)


_eight("eight-cards", lambda result, given: result)
_eight("bad-card", lambda result, given: result * 1.5 if given[2] == _BAD else result)
_eight("bad-bit", _bad_bit)
_eight("now-and-then", _now_and_then)
_eight("bad-copy", lambda result, given: result * 0, "copied")
FAULTS["memory-errors"] = _counted
