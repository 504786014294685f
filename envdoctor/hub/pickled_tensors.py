"""The tensors that a scanned PyTorch pickle would build: name, dtype, shape and storage."""

from typing import Any, NamedTuple

from envdoctor.hub.pickle_machine import Call, Name, Stored, Table

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


def tensors_of(result: object) -> dict[str, PickledTensor]:
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
