"""Eight devices that are the CPU, one of them bad, with a driver that answers for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from patches import FAULTS, Put

_BAD = 5
#: What a driver says of a card that is well, and how fast such a card is.
_WELL: dict[str, Any] = {
    **{"ecc": 1, "ecc_corrected": 0, "ecc_uncorrected": 0, "failed": 0, "pending": 0, "xid": [], "nvlinks": 18},
    **{"nvlink_errors": 0, "pcie_replays": 0, "pcie_lanes": 16, "sm_mhz": 1700, "sm_mhz_most": 1980, "mig": 0},
    **{"slowed": ["power cap"], "unknown": {"retiring": "this card does not count that"}},
}
_FAST = {"memory": 3000.0, "product": 700.0, "sent": 55.0, "received": 55.0, "pair": 380.0}


def _eight(name: str, spoil: Any = None, what: str = "compute", looks: Any = ()) -> None:
    """``spoil`` takes what one of the functions of the work gave, and what it was given; ``looks`` are what the driver
    says of the bad card at the first look, and at those after it."""

    def plant(put: Put) -> None:
        devices, work = import_module("payload.probes.devices"), import_module("payload.probing.card_work")
        put(devices, "visible", lambda kind: [torch.device("cpu")] * 8)
        put(devices, "_name", lambda place: "NVIDIA H100 80GB HBM3")
        put(devices, "computing", lambda uuids: [0] * 8)
        put(work, "direct", lambda source, target: True)
        put(work, "speed", lambda kind, places, number, other: _FAST[kind])
        if spoil is not None:
            module = work if hasattr(work, what) else devices
            real = getattr(module, what)
            put(module, what, lambda *given: spoil(real(*given), given))
        rest = list(looks)

        def counters(uuids: Any) -> Any:
            seen = {**_WELL, **(rest.pop(0) if len(rest) > 1 else rest[0] if rest else {})}
            return [seen if number == _BAD else _WELL for number in range(len(uuids))]

        put(devices, "counters", counters)

    FAULTS[name] = plant


def _bad(spoil: Any, at: int) -> Any:
    """Spoil it on the bad card, whose number is given at this place."""
    return lambda result, given: spoil(result) if given[at] == _BAD else result


def _bit(result: Any) -> Any:
    """One bit of one number: far below rounding of the whole."""
    result.view(torch.int16).view(-1)[7] ^= 1
    return result


_calls = [0]


def _now_and_then(result: Any, given: Any) -> Any:
    _calls[0] += given[2] == _BAD
    return _bit(result) if given[2] == _BAD and _calls[0] % 20 == 0 else result  # in the first 20 rounds


def _cell(values: Any) -> Any:
    """One bit of one number in memory."""
    values[77] ^= 4
    return values


def _head(values: Any) -> Any:
    """One head's output, far below rounding."""
    _bit(values[0, 2])
    return values


def _backward(values: Any) -> Any:
    """The gradient of the keys of the last head, in its last rows."""
    values[2, -1, -8:] *= 3
    return values


def _full(values: Any) -> Any:
    raise torch.cuda.OutOfMemoryError("out of memory")


def _one_flaky(put: Put) -> None:
    """A single device that errs in every 20th product: it has nobody to be compared with but itself."""
    work = import_module("payload.probing.card_work")
    real, calls = work.multiplied, [0]

    def multiplied(*given: Any) -> Any:
        calls[0] += 1
        return _bit(real(*given)) if calls[0] % 20 == 0 else real(*given)

    put(work, "multiplied", multiplied)


def _slow(what: str, share: float, at: int = 2, bad: int = _BAD) -> Any:
    return lambda value, given: value * share if given[0] == what and given[at] == bad else value


_eight("eight-cards")
_eight("bad-card", _bad(lambda result: result * 1.5, 2))
_eight("bad-bit", _bad(_bit, 2))
_eight("now-and-then", _now_and_then, "multiplied")
_eight("bad-memory", _bad(_cell, 1), "stored")
_eight("bad-copy", lambda result, given: result * 0, "copied")
FAULTS["one-card"] = _one_flaky
_eight("memory-errors", looks=[{}, {"ecc_uncorrected": 3}])
_eight("memory-unrepaired", looks=[{"failed": 1}])
_eight("memory-errors-before", looks=[{"ecc_uncorrected": 2}])
_eight("xid-before", looks=[{"xid": [79]}])
_eight("link-errors", looks=[{}, {"nvlink_errors": 9}])

_eight("bad-head", _bad(_head, 2), "attended")
_eight("bad-gradient", _bad(_backward, 2), "attended")
_eight("slow-host", _slow("sent", 0.02), "speed")
_eight("slow-memory", _slow("memory", 0.5), "speed")
_eight("slow-products", _slow("product", 0.6), "speed")
_eight("slow-pair", lambda rate, given: rate / 4 if given[0] == "pair" and given[2:] == (2, 3) else rate, "speed")
_eight("one-lane", looks=[{}, {"pcie_lanes": 1}])
_eight("lost-link", looks=[{"nvlinks": 16}])
_eight("low-clock", looks=[{}, {"sm_mhz": 300}])
_eight("hot-card", looks=[{}, {"slowed": ["heat (hardware)"]}])

_eight("ecc-off", looks=[{"ecc": 0}])
_eight("mig-on", looks=[{"mig": 1}])
_eight("refused-counter", looks=[{"pcie_replays": None, "unknown": {"pcie_replays": "the driver does not permit it"}}])
_eight("silent-driver", looks=[{**dict.fromkeys(_WELL), "unknown": {"driver": "the driver gave no answer in 20 s"}}])
_eight("other-tenant", lambda counts, given: [2 * (number == _BAD) for number in range(8)], "computing")
_eight("no-peer", lambda there, given: _BAD not in given, "direct")
_eight("full-memory", _bad(_full, 1), "stored")
_eight("unknown-card", lambda name, given: "NVIDIA X1", "_name")
_eight("a-slice", lambda name, given: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "_name")
