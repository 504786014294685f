"""Strict reading of safetensors headers: the official library's verdict on every file, and each rejection with a name.

A file is an unsigned 64-bit little-endian length N, N bytes of UTF-8 JSON, then the tensors' bytes without a hole.
https://github.com/huggingface/safetensors#format
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from envdoctor.hub.safetensors_errors import HeaderError
from envdoctor.hub.safetensors_json import Object, decode
from envdoctor.text.message import Message

#: Longest header that the library reads, in bytes.
LARGEST_HEADER = 100_000_000

#: Bits of one element; the names that safetensors 0.8.0 reads (``Dtype::bitsize`` of its source).
DTYPE_BITS = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6},
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
}

_U64 = (1 << 64) - 1
_FIELDS = ("dtype", "shape", "data_offsets")


class Tensor(NamedTuple):
    """One tensor: dtype as the format spells it, shape, and the range of its bytes behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """A header that is right.

    ``tensors`` in the order of the file's JSON. ``header_bytes`` is N + 8, ``data_bytes`` the length of what follows.
    ``remarks`` are odd things that the library accepts, as dashed words:
    leading-blanks, null-metadata, duplicate-metadata-key, duplicate-tensor, extra-fields, empty-name, entry-is-a-list,
    dtype-is-a-map, unaligned-data.
    """

    tensors: dict[str, Tensor]
    header_bytes: int
    data_bytes: int
    remarks: tuple[str, ...]


def parse_header(data: bytes, file_size: int | None) -> Header:
    """Read the header at the start of ``data``, which may go on behind it.

    ``file_size`` in bytes lets the header be checked against the file's length; None when it is not known. Raises
    :class:`HeaderError`.
    """
    length = _length(data, file_size)
    raw = bytes(data[8 : 8 + length])
    remarks: set[str] = set()
    top = decode(raw, remarks)
    tensors = _entries(top, remarks)
    data_bytes = _check_layout(tensors)
    if file_size is not None and file_size != 8 + length + data_bytes:
        reason = "trailing-data" if file_size > 8 + length + data_bytes else "truncated-data"
        raise HeaderError(reason, Message("{} bytes instead of {}", file_size, 8 + length + data_bytes))
    if length % 8:
        remarks.add("unaligned-data")
    return Header(tensors, 8 + length, data_bytes, tuple(sorted(remarks)))


def _length(data: bytes, file_size: int | None) -> int:
    if file_size is not None and file_size < 8:
        raise HeaderError("too-short", Message("{} bytes", file_size))
    if len(data) < 8:
        raise HeaderError("too-short" if file_size is None else "header-incomplete", Message("{} bytes", len(data)))
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER:
        start = bytes(data[:256]).lstrip().lower()
        if start.startswith(b"version "):
            raise HeaderError("lfs-pointer")
        if start.startswith(b"pk\x03\x04"):
            raise HeaderError("zip-archive")
        if start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
            raise HeaderError("html")
        raise HeaderError("header-too-large", Message("{} bytes", f"{length:,}"))
    if file_size is not None and 8 + length > file_size:
        raise HeaderError("header-beyond-file", Message("{} bytes in a file of {}", f"{length:,}", f"{file_size:,}"))
    if len(data) < 8 + length:
        raise HeaderError("header-incomplete", Message("{} of {} bytes", f"{len(data) - 8:,}", f"{length:,}"))
    return length


def _entries(top: Object, remarks: set[str]) -> dict[str, Tensor]:
    seen_metadata = False
    tensors: dict[str, Tensor] = {}
    sizes: dict[tuple[str, tuple[int, ...]], int] = {}
    count = 0
    for name, entry in top:
        if name == "__metadata__":
            if seen_metadata:
                raise HeaderError("duplicate-metadata")
            seen_metadata = True
            _check_metadata(entry, remarks)
            continue
        count += 1
        tensors[name] = _tensor(name, entry, remarks)
    if count != len(tensors):
        remarks.add("duplicate-tensor")  # the last one holds, as in the library
    if "" in tensors:
        remarks.add("empty-name")
    # Only those that hold are measured: the library forgets the others before it looks.
    for name, tensor in tensors.items():
        _check_size(name, tensor, sizes)
    return tensors


def _check_metadata(entry: Any, remarks: set[str]) -> None:
    if entry is None:
        remarks.add("null-metadata")
    elif type(entry) is not Object or not all(isinstance(value, str) for _, value in entry):
        raise HeaderError("bad-metadata")
    elif len(dict(entry)) != len(entry):
        remarks.add("duplicate-metadata-key")


def _tensor(name: str, entry: Any, remarks: set[str]) -> Tensor:
    if type(entry) is Object and len(entry) == 3 and (entry[0][0], entry[1][0], entry[2][0]) == _FIELDS:
        dtype, shape, offsets = entry[0][1], entry[1][1], entry[2][1]
    else:
        dtype, shape, offsets = _odd_entry(name, entry, remarks)
    if type(dtype) is not str:
        dtype = _odd_dtype(name, dtype, remarks)
    if dtype not in DTYPE_BITS:
        raise HeaderError("unknown-dtype", _short(f"{name}: {dtype}"))
    if type(shape) is not list or not _whole(shape):
        raise HeaderError("bad-shape", _short(name))
    if type(offsets) is not list or len(offsets) != 2 or not _whole(offsets):
        raise HeaderError("bad-offsets", _short(name))
    return Tensor(dtype, tuple(shape), offsets[0], offsets[1])


def _whole(numbers: Iterable[Any]) -> bool:
    for number in numbers:  # noqa: SIM110  (all() takes twice the time, and there are 400,000 numbers)
        # bool is an int to Python, and 1.0 equals 1: only the type tells.
        if type(number) is not int or not 0 <= number <= _U64:
            return False
    return True


def _odd_entry(name: str, entry: Any, remarks: set[str]) -> tuple[Any, Any, Any]:
    """Fields in another order, with more of them, or as a list: serde takes a struct from a sequence as well."""
    if type(entry) is list:
        if len(entry) != 3:
            raise HeaderError("bad-entry", _short(name))
        remarks.add("entry-is-a-list")
        return entry[0], entry[1], entry[2]
    if type(entry) is not Object:
        raise HeaderError("bad-entry", _short(name))
    fields: dict[str, Any] = {}
    for key, value in entry:
        if key not in _FIELDS:
            remarks.add("extra-fields")
        elif key in fields:
            raise HeaderError("duplicate-field", _short(f"{name}: {key}"))
        else:
            fields[key] = value
    if len(fields) != 3:
        raise HeaderError(
            "bad-entry", _short(Message("{} lacks {}", name, next(key for key in _FIELDS if key not in fields)))
        )
    return fields["dtype"], fields["shape"], fields["data_offsets"]


def _odd_dtype(name: str, dtype: Any, remarks: set[str]) -> str:
    # {"F32": null} is how serde spells the variant of an enumeration in full.
    if type(dtype) is Object and len(dtype) == 1 and dtype[0][1] is None:
        remarks.add("dtype-is-a-map")
        return dtype[0][0]
    raise HeaderError("unknown-dtype", _short(name))


def _check_size(name: str, tensor: Tensor, sizes: dict[tuple[str, tuple[int, ...]], int]) -> None:
    key = (tensor.dtype, tensor.shape)
    size = sizes.get(key)
    if size is None:
        size = sizes[key] = _size(name, tensor)
    if tensor.end - tensor.begin != size:
        reason = "end-before-begin" if tensor.end < tensor.begin else "size-mismatch"
        raise HeaderError(reason, _short(name))


def _size(name: str, tensor: Tensor) -> int:
    """Bytes of a tensor. A product that overflows on the way is refused, even when a later dimension is 0."""
    product = 1
    for dimension in (*tensor.shape, DTYPE_BITS[tensor.dtype]):
        product *= dimension
        if product > _U64:
            raise HeaderError("shape-overflow", _short(name))
    if product % 8:
        raise HeaderError("not-whole-bytes", _short(name))
    return product // 8


def _check_layout(tensors: dict[str, Tensor]) -> int:
    """Length of the data, when the tensors lie side by side from its start."""
    position = 0
    for begin, end in sorted([(tensor.begin, tensor.end) for tensor in tensors.values()]):
        if begin != position:
            name = next(name for name, tensor in tensors.items() if (tensor.begin, tensor.end) == (begin, end))
            raise HeaderError("hole" if begin > position else "overlap", _short(name))
        position = end
    return position


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
