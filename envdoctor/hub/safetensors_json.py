"""The JSON of a safetensors header, taken as serde_json takes it, which is not quite as Python's json does."""

from __future__ import annotations

import json
import math
from typing import Any

from envdoctor.hub.safetensors_errors import HeaderError
from envdoctor.text.message import Message

_DEEPEST = 127  # serde_json's recursion limit of 128 is reached by the level after it
#: Lists, objects, and what they hold: of 100,000 tensors in one file. The largest models have 140,000 in 64 files.
_MOST_PARTS = 1_000_000


class Object(list[tuple[str, Any]]):
    """A JSON object with every one of its pairs, also where keys repeat."""

    __slots__ = ()


def decode(raw: bytes, remarks: set[str]) -> Object:
    """The header's JSON as serde_json would take it: no NaN, no lone surrogate, no number that overflows."""
    if sum(map(raw.count, (b"[", b"{", b","))) > _MOST_PARTS:
        raise HeaderError("too-complex")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise HeaderError("not-utf-8", Message("byte {}", error.start)) from None
    if text[:1] in (" ", "\n", "\r", "\t"):
        remarks.add("leading-blanks")
    # "-0" is a float to serde_json; any other odd integer is out of the range that shapes and offsets may have.
    top = _loads(text, strict_numbers=b"-0" in raw)
    if type(top) is not Object:
        raise HeaderError("not-an-object")
    extra = any(type(entry) is Object and len(entry) != 3 for name, entry in top if name != "__metadata__")
    if extra:
        _loads(text, strict_numbers=True)
    if extra or b"\\u" in raw:
        _check_strings_and_depth(top)
    return top


def _loads(text: str, strict_numbers: bool) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=Object,
            parse_float=_float,
            parse_int=_integer if strict_numbers else None,
            parse_constant=_no_constant,
        )
    except RecursionError:
        raise HeaderError("nested-too-deeply") from None
    except HeaderError:
        raise
    except ValueError as error:
        raise HeaderError("not-json", str(error)[:120]) from None


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise HeaderError("not-json", Message("a number is out of range"))
    return number


def _integer(text: str) -> int | float:
    if text == "-0":
        return -0.0
    if len(text) <= 300:
        return int(text)
    return _float(text)


def _no_constant(name: str) -> None:
    raise HeaderError("not-json", Message("{} is no JSON", name))


def _check_strings_and_depth(top: Object) -> None:
    waiting: list[tuple[Any, int]] = [(top, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise HeaderError("not-json", Message("half of a surrogate pair")) from None
        elif isinstance(item, list):
            if depth > _DEEPEST:
                raise HeaderError("nested-too-deeply")
            if type(item) is Object:
                for key, value in item:
                    waiting.append((key, depth))
                    waiting.append((value, depth + 1))
            else:
                waiting += [(value, depth + 1) for value in item]
