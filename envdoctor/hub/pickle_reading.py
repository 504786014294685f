"""What a PyTorch pickle describes, its globals and its tensors, found in a bounded child.

Its bytes are somebody else's, and may be made to cost time.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

from envdoctor.hub.pickle_scan import PickledTensor, Scan, Table, scan_pickle
from envdoctor.sandbox.asking import Limits, Problem, ask_once
from envdoctor.text.message import Message

#: For all headers and pickles of a comparison, beyond what a child takes that has little to do.
_SECONDS = 8.0
_USUAL = 1.0
#: What is said of the files behind the end of that time.
TOO_LONG = Message("looking at headers and pickles took more than {} s", f"{_SECONDS:g}")
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_DEEPEST = 5
_MOST = 500_000


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    ``globals`` are ``module.name`` in the order of use; ``all_globals`` is False when there may be more behind what was
    looked at. ``tensors`` is None when the names could not be made out: ``problem`` says why, ``cut`` that the bytes
    ended.
    """

    globals: tuple[str, ...]
    all_globals: bool
    tensors: dict[str, PickledTensor] | None
    problem: str | None
    cut: bool = False


class Clock:
    """The seconds that are left for looking at what weight files say of themselves, however many they are."""

    def __init__(self) -> None:
        self.left = _SECONDS


def read_pickle(kind: str, data: bytes, clock: Clock) -> Checkpoint:
    """What the pickle of an archive describes (``zip`` or ``torchscript``); ``prefix`` is the beginning of a file that
    is no archive."""
    problem = TOO_LONG
    if clock.left > 0:
        began = time.monotonic()
        limits = Limits(seconds=clock.left + _USUAL, mib=768, output=128 << 20)
        answer = ask_once("envdoctor.hub.pickle_reading:described", {"kind": kind}, limits, data)
        clock.left -= max(0.0, time.monotonic() - began - _USUAL)
        if not isinstance(answer, Problem):
            names, whole, tensors, reason, cut = answer
            built = None
            if tensors is not None:
                built = {name: PickledTensor(dtype, tuple(shape), key) for name, dtype, shape, key in tensors}
            return Checkpoint(tuple(names), whole, built, reason, cut)
        problem = TOO_LONG if answer.kind == "timeout" else Message("its pickle {}", answer.clause())
    return Checkpoint((), False, None, problem)


def described(data: bytes, kind: str) -> list[Any]:
    """The fields of a :class:`Checkpoint` as JSON: what the child answers."""
    scan = _of_prefix(data) if kind == "prefix" else scan_pickle(data)
    problem, whole, tensors = scan.problem, not (scan.cut or scan.limited), None
    if problem is None and kind == "torchscript":
        problem, whole = Message("it is a TorchScript program"), False
    if problem is None:
        tensors = [[name, *tensor] for name, tensor in _tensors_of(scan.result).items()]
    return [list(scan.globals), whole, tensors, problem, scan.cut]


def _of_prefix(data: bytes) -> Scan:
    """Read a pickle, or all five of torch's old format: number, protocol, machine, the object, keys of its storages."""
    scans = [scan_pickle(data)]
    while scans[0].result == _OLD_MAGIC and scans[-1].problem is None and len(scans) < 5:
        scans.append(scan_pickle(data, scans[-1].end))
    names = {name: None for scan in scans for name in scan.globals}
    return replace(scans[-1], globals=names, result=scans[3 if len(scans) == 5 else -1].result)


def _tensors_of(result: object) -> dict[str, PickledTensor]:
    """Tensors by name; those of nested dictionaries as ``model.embed.weight``. The order is that of the pickle."""
    found: dict[str, PickledTensor] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", result, 0)]
    while waiting and len(found) < _MOST:
        prefix, table, depth = waiting.pop()
        if not isinstance(table, Table) or id(table) in seen or depth > _DEEPEST:
            continue
        seen.add(id(table))
        named = [(key, value) for key, value in table.items if type(key) is str]
        found |= {prefix + key: value for key, value in named if isinstance(value, PickledTensor)}
        waiting += [(f"{prefix}{key}.", value, depth + 1) for key, value in reversed(named) if isinstance(value, Table)]
    return found
