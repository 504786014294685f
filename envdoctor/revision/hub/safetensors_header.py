"""Strict reading of safetensors headers: the official library's verdict on every file, and each rejection with a name.

Their JSON is taken as serde_json takes it, which is not quite as Python's json does.

A file is an unsigned 64-bit little-endian length N, N bytes of UTF-8 JSON, then the tensors' bytes without a hole.
https://github.com/huggingface/safetensors#format
"""

import json
import math
import re
from typing import Any, NamedTuple

from envdoctor.system.message import Message

#: Why a header is rejected. ``too-complex`` alone is ours: such a header would take too long to look at.
REASONS = {
    "too-short": Message("the file is shorter than the 8 bytes of the header's length"),
    "lfs-pointer": Message("the file is a Git LFS pointer, not the weights themselves"),
    "html": Message("the file is a web page"),
    "zip-archive": Message("the file is a zip archive, which is what PyTorch checkpoints are"),
    "header-too-large": Message("the header claims to be longer than 100,000,000 bytes"),
    "header-beyond-file": Message("the header claims to be longer than the file"),
    "header-incomplete": Message("not all of the header was there to be read"),
    "not-utf-8": Message("the header is not UTF-8 text"),
    "not-json": Message("the header is not JSON"),
    "not-an-object": Message("the header is JSON but no object"),
    "nested-too-deeply": Message("the header's JSON is nested deeper than 127 levels"),
    "too-complex": Message("the header holds more than 1,000,000 lists, objects and values"),
    "bad-metadata": Message("__metadata__ is not a mapping from text to text"),
    "duplicate-metadata": Message("__metadata__ occurs more than once"),
    "bad-entry": Message("a tensor's entry is not an object with dtype, shape and data_offsets"),
    "duplicate-field": Message("a tensor's entry names a field more than once"),
    "unknown-dtype": Message("a tensor's dtype is invalid"),
    "bad-shape": Message("a tensor's shape is not a list of whole numbers from 0 to 2^64-1"),
    "bad-offsets": Message("a tensor's data_offsets are not two whole numbers from 0 to 2^64-1"),
    "shape-overflow": Message("a tensor's shape is larger than 2^64-1 elements or bits"),
    "not-whole-bytes": Message("a tensor's bits do not fill whole bytes"),
    "end-before-begin": Message("a tensor's data ends before it begins"),
    "size-mismatch": Message("a tensor's data is not as long as its shape and dtype ask for"),
    "hole": Message("the tensors leave bytes of the data out"),
    "overlap": Message("tensors share bytes of the data"),
    "trailing-data": Message("the file goes on behind the last tensor"),
    "truncated-data": Message("the file ends before the last tensor does"),
}
_METADATA = "__metadata__"
_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{300}")
_DEEPEST = 127  # serde_json's recursion limit of 128 is reached by the level after it
#: Lists, objects, and what they hold: of 100,000 tensors in one file. The largest models have 140,000 in 64 files.
_MOST_PARTS = 1_000_000
#: How other files begin.
_OTHERS = {
    **{"lfs-pointer": (b"version ",), "zip-archive": (b"pk\x03\x04",)},
    "html": (b"<!doctype", b"<html", b"<head", b"<?xml"),
}
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
_NAMES = frozenset(_FIELDS)


class HeaderError(Exception):
    """The official library would not read this file either; ``reason`` is a key of :data:`REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        detail = detail if len(detail) <= 100 else detail[:97] + "..."
        super().__init__(Message("{} ({})", REASONS[reason], detail) if detail else REASONS[reason])
        self.reason = reason


class _Object(list[tuple[str, Any]]):
    """A JSON object with every one of its pairs, also where keys repeat."""

    __slots__ = ()


def _decode(raw: bytes) -> _Object:
    """Return the header's JSON as serde_json would take it: no NaN, no lone surrogate, no number that overflows."""
    if sum(map(raw.count, (b"[", b"{", b","))) > _MOST_PARTS:
        raise HeaderError("too-complex")
    number = _number if b"-0" in raw or _LONG_NUMBER.search(raw) else None
    try:
        text = raw.decode()
        top = json.loads(text, object_pairs_hook=_Object, parse_float=_number, parse_int=number, parse_constant=_number)
    except UnicodeDecodeError as error:
        raise HeaderError("not-utf-8", Message("byte {}", error.start)) from None
    except RecursionError:
        raise HeaderError("nested-too-deeply") from None
    except ValueError as error:
        raise HeaderError("not-json", str(error)) from None
    if type(top) is not _Object:
        raise HeaderError("not-an-object")
    if b"\\u" in raw or any(type(entry) is _Object and len(entry) != 3 for name, entry in top if name != _METADATA):
        _check_strings_and_depth(top)
    return top


def _number(text: str) -> int | float:
    """Return a number, which must be finite; "-0" is a float to serde_json, and what is too long for an integer."""
    number = float(text)
    if not math.isfinite(number):
        raise HeaderError("not-json", Message("a number is out of range"))
    return int(text) if text != "-0" and text.removeprefix("-").isdecimal() else number


def _check_strings_and_depth(top: _Object) -> None:
    waiting: list[tuple[Any, int]] = [(top, 1)]
    while waiting:
        item, depth = waiting.pop()
        if type(item) is str:
            try:
                item.encode()
            except UnicodeEncodeError:
                raise HeaderError("not-json", Message("half of a surrogate pair")) from None
        elif type(item) is _Object or type(item) is list:
            if depth > _DEEPEST:
                raise HeaderError("nested-too-deeply")
            pairs = item if type(item) is _Object else [("", value) for value in item]
            waiting += [child for key, value in pairs for child in ((key, depth), (value, depth + 1))]


class Tensor(NamedTuple):
    """One tensor: dtype as the format spells it, shape, and the range of its bytes behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """A header that is right. ``tensors`` in the order of the file's JSON. ``header_bytes`` is N + 8, ``data_bytes``
    the length of what follows. ``metadata`` are the texts of ``__metadata__``, None where the file has none."""

    tensors: dict[str, Tensor]
    header_bytes: int
    data_bytes: int
    metadata: dict[str, str] | None = None


def parse_header(data: bytes, file_size: int) -> Header:
    """Read the header that ``data`` begins with, and check it with the file's size. Raises :class:`HeaderError`."""
    length = _length(data, file_size)
    raw = bytes(data[8 : 8 + length])
    top = _decode(raw)
    tensors = _entries(top)
    data_bytes = _check_layout(tensors)
    if file_size != 8 + length + data_bytes:
        reason = "trailing-data" if file_size > 8 + length + data_bytes else "truncated-data"
        raise HeaderError(reason, Message("{} bytes instead of {}", file_size, 8 + length + data_bytes))
    metadata = next((entry for name, entry in top if name == _METADATA), None)
    return Header(tensors, 8 + length, data_bytes, None if metadata is None else dict(metadata))


def _length(data: bytes, file_size: int) -> int:
    if min(file_size, len(data)) < 8:
        count, reason = (file_size, "too-short") if file_size < 8 else (len(data), "header-incomplete")
        raise HeaderError(reason, Message("{} bytes", count))
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER:
        start = bytes(data[:256]).lstrip().lower()
        if other := next((reason for reason, begins in _OTHERS.items() if start.startswith(begins)), None):
            raise HeaderError(other)
        raise HeaderError("header-too-large", Message("{} bytes", f"{length:,}"))
    if 8 + length > file_size:
        raise HeaderError("header-beyond-file", Message("{} bytes in a file of {}", f"{length:,}", f"{file_size:,}"))
    if len(data) < 8 + length:
        raise HeaderError("header-incomplete", Message("{} of {} bytes", f"{len(data) - 8:,}", f"{length:,}"))
    return length


def _entries(top: _Object) -> dict[str, Tensor]:
    seen_metadata = False
    tensors: dict[str, Tensor] = {}
    sizes: dict[tuple[str, tuple[int, ...]], int] = {}
    for name, entry in top:
        if name == _METADATA:
            if seen_metadata:
                raise HeaderError("duplicate-metadata")
            seen_metadata = True
            if entry is not None and not (type(entry) is _Object and all(isinstance(text, str) for _, text in entry)):
                raise HeaderError("bad-metadata")
        else:
            tensors[name] = _tensor(name, entry)  # of two of a name the last one holds, as in the library
    # Of two tensors of one name only the last is measured: the library has forgotten the first.
    for name, tensor in tensors.items():
        key = (tensor.dtype, tensor.shape)
        if key not in sizes:
            sizes[key] = _size(name, tensor)
        if tensor.end - tensor.begin != sizes[key]:
            raise HeaderError("end-before-begin" if tensor.end < tensor.begin else "size-mismatch", name)
    return tensors


def _tensor(name: str, entry: Any) -> Tensor:
    if type(entry) is list and len(entry) == 3:  # serde takes a struct from a sequence as well
        dtype, shape, offsets = entry
    elif type(entry) is _Object:
        fields = dict(entry)
        if len(entry) != 3 or fields.keys() != _NAMES:  # one is missing or named twice; others than these are ignored
            names = [key for key, _ in entry if key in _FIELDS]
            if len(set(names)) < len(names):
                raise HeaderError("duplicate-field", f"{name}: {next(key for key in names if names.count(key) > 1)}")
            if lacking := [key for key in _FIELDS if key not in names]:
                raise HeaderError("bad-entry", Message("{} lacks {}", name, lacking[0]))
        dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    else:
        raise HeaderError("bad-entry", name)
    if type(dtype) is _Object and len(dtype) == 1 and dtype[0][1] is None:
        # {"F32": null} is how serde spells the variant of an enumeration in full.
        dtype = dtype[0][0]
    if type(dtype) is not str or dtype not in DTYPE_BITS:
        raise HeaderError("unknown-dtype", f"{name}: {dtype}" if type(dtype) is str else name)
    for reason, numbers in (("bad-shape", shape), ("bad-offsets", offsets)):
        # bool is an int to Python, and 1.0 equals 1: only the type tells.
        whole = type(numbers) is list and all(type(number) is int and 0 <= number <= _U64 for number in numbers)
        if not whole or (numbers is offsets and len(offsets) != 2):
            raise HeaderError(reason, name)
    return Tensor(dtype, tuple(shape), offsets[0], offsets[1])


def _size(name: str, tensor: Tensor) -> int:
    """Return the bytes of a tensor. A product that overflows on the way is refused, even if a later dimension is 0."""
    product = 1
    for dimension in (*tensor.shape, DTYPE_BITS[tensor.dtype]):
        product *= dimension
        if product > _U64:
            raise HeaderError("shape-overflow", name)
    if product % 8:
        raise HeaderError("not-whole-bytes", name)
    return product // 8


def _check_layout(tensors: dict[str, Tensor]) -> int:
    """Return the length of the data in bytes, if the tensors lie side by side from its start; else raise."""
    position = 0
    for begin, end in sorted([(tensor.begin, tensor.end) for tensor in tensors.values()]):
        if begin != position:
            name = next(name for name, tensor in tensors.items() if (tensor.begin, tensor.end) == (begin, end))
            raise HeaderError("hole" if begin > position else "overlap", name)
        position = end
    return position
