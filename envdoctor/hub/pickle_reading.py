"""What a PyTorch pickle describes, its globals and its tensors, found in a bounded child.

Its bytes are somebody else's, and may be made to cost time.
"""

import time
from typing import Any, NamedTuple

from envdoctor.hub.pickle_scan import Call, Name, Scan, Stored, Table, scan_pickle
from envdoctor.sandbox.asking import Limits, Problem, ask_once
from envdoctor.text.message import Message

#: For all headers and pickles of a comparison, beyond what a child takes that has little to do.
_SECONDS = 8.0
_USUAL = 1.0
#: What is said of the files behind the end of that time.
TOO_LONG = Message("looking at headers and pickles took more than {} s", f"{_SECONDS:g}")
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
#: torch's storage classes and dtypes, in the spelling of safetensors where that has one.
_DTYPES = {
    **{"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"},
    **{"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8"},
    **{"BoolStorage": "BOOL", "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128"},
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "bool": "BOOL", "complex128": "C128"},
    **{"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "float4_e2m1fn_x2": "F4"},
    **{"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"},
    **{"float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"},
}
_REBUILD = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_tensor")
_WRAPPED = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_SUBCLASS = "torch._tensor._rebuild_from_type_v2"
_DEEPEST = 5
_MOST = 500_000
#: What torch can build: int64 lengths, 64 dimensions.
_LONGEST = 1 << 63
_MOST_DIMENSIONS = 64


class PickledTensor(NamedTuple):
    """A tensor of a pickle. ``dtype`` as in safetensors, or torch's name where the format has none (``qint8``).

    Tensors with one ``storage`` and shape are one tensor under several names (tied weights).
    """

    dtype: str
    shape: tuple[int, ...]
    storage: str


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
    problem = TOO_LONG
    if clock.left > 0:
        began = time.monotonic()
        limits = Limits(seconds=clock.left + _USUAL, mib=768, output=128 << 20)
        answer = ask_once("envdoctor.hub.pickle_reading:described", {"kind": kind}, limits, data)
        clock.left -= max(0.0, time.monotonic() - began - _USUAL)
        if not isinstance(answer, Problem):
            form, names, whole, tensors, reason, cut = answer
            built = None
            if tensors is not None:
                built = {name: PickledTensor(dtype, tuple(shape), key) for name, dtype, shape, key in tensors}
            return Checkpoint(form, tuple(names), whole, built, reason, cut)
        problem = TOO_LONG if answer.kind == "timeout" else Message("its pickle {}", answer.clause())
    return Checkpoint("pickle" if kind == "prefix" else kind, (), False, None, problem)


def described(data: bytes, kind: str) -> list[Any]:
    """The fields of a :class:`Checkpoint` as JSON: what the child answers."""
    kind, scan = _from_prefix(data) if kind == "prefix" else (kind, scan_pickle(data))
    names = list(scan.globals)
    if scan.problem is not None:
        return [kind, names, not (scan.cut or scan.limited), None, scan.problem, scan.cut]
    if kind == "torchscript":
        return [kind, names, False, None, Message("it is a TorchScript program"), False]
    return [kind, names, True, [[name, *tensor] for name, tensor in _tensors_of(scan.result).items()], None, False]


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


def _tensors_of(result: object) -> dict[str, PickledTensor]:
    """Tensors by name; those of nested dictionaries as ``model.embed.weight``. The order is that of the pickle."""
    found: dict[str, PickledTensor] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", result, 0)]
    while waiting and len(found) < _MOST:
        prefix, item, depth = waiting.pop()
        if not _is_table(item) or id(item) in seen or depth > _DEEPEST:
            continue
        seen.add(id(item))
        inner: list[tuple[str, object, int]] = []
        for key, value in item.items:  # type: ignore[attr-defined]
            if type(key) is not str:
                continue
            tensor = _tensor(value)
            if tensor is not None:
                found[prefix + key] = tensor
            elif _is_table(value):
                inner.append((f"{prefix}{key}.", value, depth + 1))
        waiting += reversed(inner)
    return found


def _is_table(item: object) -> bool:
    return isinstance(item, Table) or (isinstance(item, Call) and item.name == "collections.OrderedDict")


def _tensor(value: object) -> PickledTensor | None:
    for _ in range(4):  # parameter around subclass around tensor
        if not isinstance(value, Call) or not isinstance(value.arguments, tuple):
            return None
        arguments: tuple[Any, ...] = value.arguments
        if value.name in _REBUILD:
            return _plain(arguments)
        if value.name in _WRAPPED and arguments:
            value = arguments[0]
        elif value.name == _SUBCLASS and len(arguments) >= 3:
            value = Call(arguments[0], arguments[2])
        else:
            return None
    return None


def _plain(arguments: tuple[Any, ...]) -> PickledTensor | None:
    # (storage, offset, shape, stride, …[, dtype]), where storage is ("storage", class, key, device, length).
    match arguments:
        case [Stored(id=tuple((_, Name() as kind, _, _, *_) as storage)), offset, shape, _, *_]:
            pass
        case _:
            return None
    match shape:
        case Call(name="torch.Size", arguments=tuple((lengths,))):
            shape = lengths
    if not isinstance(shape, (tuple, list)) or len(shape) > _MOST_DIMENSIONS:
        return None
    if not all(type(length) is int and 0 <= length < _LONGEST for length in shape):
        return None
    if len(arguments) >= 7 and isinstance(arguments[6], Name):
        kind = arguments[6]
    name = kind.text.rpartition(".")[2]
    dtype = _DTYPES.get(name, name.removesuffix("Storage").lower())
    # Keys and offsets are text and numbers; anything else says nothing of what is shared.
    key = storage[2] if type(storage[2]) is str else "?"
    return PickledTensor(dtype, tuple(shape), f"{key}+{offset}" if type(offset) is int else key)
