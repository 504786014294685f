"""Headers that are nearly right: small real ones, changed at random places in ways that parsers disagree on."""

import json
import math
import random
import re
import struct
from collections.abc import Iterator

from envdoctor.revision import DTYPE_BITS

_TOKEN = re.compile(rb'"[^"]*"|\d+|[{}\[\],:]')
_PIECES = (
    *(b"{", b"}", b"[", b"]", b",", b",", b":", b'"', b"\\u0041", b"\\ud800", b"\\", b"-0", b"1e5", b"1.0", b"null"),
    *(b"true", b"false", b"NaN", b"Infinity", b"\x00", b"\xff", b" ", b"\n", b"18446744073709551616"),
    *(b"18446744073709551615", b"-1", b"0", b"00", b"F32", b"f32", b"U3", b"C64", b'"dtype"', b'"shape"', b'"x":1,'),
    *(b'"__metadata__":{"a":"b"},', b'"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},', b"\xef\xbb\xbf", b'"F32"'),
)
_EXTRAS = (b"1e400", b"-0", b"[[]]", b"9" * 310, b'{"a":1,"a":2}', b'"\\udc00"')


def mutated_files(count: int, seed: int) -> Iterator[bytes]:
    """Whole files, header and zeros behind it. The same seed gives the same files."""
    random_ = random.Random(seed)
    for _ in range(count):
        yield _mutated(random_)


def _mutated(rng: random.Random) -> bytes:
    table, data = _table(rng)
    text = bytearray(json.dumps(table, separators=rng.choice([(",", ":"), (", ", ": ")])).encode())
    if rng.random() < 0.3:
        text += b" " * (-len(text) % 8)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        data = max(0, data + _change(rng, text, table))
    length = len(text)
    if rng.random() < 0.05:
        length = max(0, length + rng.choice([-1, 1, 8, 1 << 40, 1 << 63]))
    return struct.pack("<Q", length) + bytes(text) + bytes(data)


def _table(rng: random.Random) -> tuple[dict[str, object], int]:
    table: dict[str, object] = {}
    if rng.random() < 0.5:
        table["__metadata__"] = {"format": "pt"}
    position = 0
    for number in range(rng.randint(0, 4)):
        dtype = rng.choice(["F32", "F16", "BF16", "U8", "F4", "I64", "F8_E4M3"])
        shape = [rng.choice([0, 1, 2, 4, 8]) for _ in range(rng.randint(0, 3))]
        if math.prod(shape) * DTYPE_BITS[dtype] % 8:
            shape = [2, *shape]
        end = position + math.prod(shape) * DTYPE_BITS[dtype] // 8
        table[f"model.layers.{number}.w"] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    return table, position


def _change(rng: random.Random, text: bytearray, table: dict[str, object]) -> int:
    """Change the header in place; returns by how much the data behind it grows."""
    at = rng.randint(0, len(text))
    until = min(len(text), at + rng.randint(1, 6))
    kind = rng.randint(0, 9)
    if kind == 0 and text:
        text[at % len(text)] = rng.randint(0, 255)
    elif kind == 1:
        del text[at:until]
    elif kind == 2:
        text[at:at] = rng.choice(_PIECES)
    elif kind == 3:
        text[at:at] = text[at:until]
    elif kind == 4:
        digits = [place for place, byte in enumerate(text) if 48 <= byte <= 57]
        if digits:
            text[rng.choice(digits)] = rng.choice(b"0123456789")
    elif kind == 5:
        return rng.choice([-1, 1, -4, 8])
    elif kind in (6, 7):
        tokens = [match.span() for match in _TOKEN.finditer(bytes(text))]
        if tokens:
            start, stop = rng.choice(tokens)
            other = rng.choice(tokens)
            text[start:stop] = rng.choice(_PIECES) if kind == 6 else text[other[0] : other[1]]
    elif kind == 8:
        place = text.find(b",")
        if place >= 0:
            text[place : place + 1] = b',"k":' + rng.choice(_EXTRAS) + b","
    else:
        names = [name for name in table if name != "__metadata__"]
        if names:  # one name twice, perhaps with the entry of another tensor
            entry = json.dumps({rng.choice(names): table[rng.choice(names)]})[1:-1].encode()
            text[1:1] = entry + b","
    return 0
