"""What a pickle describes, found in a bounded child: its bytes are somebody else's, and may be made to cost time."""

import time
from typing import Any, NamedTuple

from envdoctor.hub.pickle_scan import Scan, scan_pickle
from envdoctor.hub.pickled_tensors import PickledTensor, tensors_of
from envdoctor.sandbox.asking import Limits, Problem, ask_once
from envdoctor.text.message import Message

#: For all headers and pickles of a comparison, beyond what a child takes that has little to do.
_SECONDS = 8.0
_USUAL = 1.0
#: What is said of the files behind the end of that time.
TOO_LONG = Message("looking at headers and pickles took more than {} s", f"{_SECONDS:g}")
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    ``format`` is zip, torchscript, legacy or pickle. ``globals`` are ``module.name`` in the order of use;
    ``all_globals`` is False when there may be more behind what was looked at. ``tensors`` is None when the names could
    not be made out, and then ``problem`` says why; ``cut`` when that is because the bytes ended.
    """

    format: str
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
    """What the pickle describes; ``prefix`` is the beginning of a file that is no archive."""
    if clock.left <= 0:
        return _not_read(kind, TOO_LONG)
    began = time.monotonic()
    limits = Limits(seconds=clock.left + _USUAL, mib=768, output=128 << 20)
    answer = ask_once("envdoctor.hub.pickle_reading:described", {"kind": kind}, limits, data)
    clock.left -= max(0.0, time.monotonic() - began - _USUAL)
    if isinstance(answer, Problem):
        return _not_read(kind, TOO_LONG if answer.kind == "timeout" else Message("its pickle {}", answer.clause()))
    form, names, whole, tensors, problem, cut = answer
    built = None
    if tensors is not None:
        built = {name: PickledTensor(dtype, tuple(shape), storage) for name, dtype, shape, storage in tensors}
    return Checkpoint(form, tuple(names), whole, built, problem, cut)


def _not_read(kind: str, problem: str) -> Checkpoint:
    return Checkpoint("pickle" if kind == "prefix" else kind, (), False, None, problem)


def described(data: bytes, kind: str) -> list[Any]:
    """The fields of a :class:`Checkpoint` as JSON: what the child answers."""
    kind, scan = _from_prefix(data) if kind == "prefix" else (kind, scan_pickle(data))
    names = list(scan.globals)
    if scan.problem is not None:
        return [kind, names, not (scan.cut or scan.limited), None, scan.problem, scan.cut]
    if kind == "torchscript":
        return [kind, names, False, None, Message("it is a TorchScript program"), False]
    return [kind, names, True, [[name, *tensor] for name, tensor in tensors_of(scan.result).items()], None, False]


def _from_prefix(data: bytes) -> tuple[str, Scan]:
    first = scan_pickle(data)
    if first.problem is not None or first.result != _OLD_MAGIC:
        return "pickle", first
    found: dict[str, None] = {}
    scan, result = first, None
    for place in range(4):  # protocol version, machine, the object itself, and the keys of its storages
        scan = scan_pickle(data, scan.end)
        found.update(scan.globals)
        if scan.problem is not None:
            break
        if place == 2:
            result = scan.result
    scan.globals, scan.result = found, result
    return "legacy", scan
