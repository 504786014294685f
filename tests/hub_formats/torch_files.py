"""PyTorch checkpoints written without PyTorch: the opcodes that torch.save writes, for tensors that need no data."""

import io
import math
import struct
import zipfile
from collections.abc import Mapping

_STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "I64": "LongStorage"}

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def state_pickle(tensors: Tensors, *, shared: Mapping[str, str] | None = None, extra: bytes = b"") -> bytes:
    """The pickle of a state dict. ``shared`` maps names to the name whose storage they use; ``extra`` are opcodes
    that run before anything else and leave nothing on the stack."""
    keys = {name: str(place) for place, name in enumerate(tensors)}
    out = [b"\x80\x02", extra, b"ccollections\nOrderedDict\n)R("]
    for name, (dtype, shape) in tensors.items():
        key = keys[(shared or {}).get(name, name)]
        out += [_text(name), b"ctorch._utils\n_rebuild_tensor_v2\n(("]
        out += [_text("storage"), b"ctorch\n", _STORAGES[dtype].encode(), b"\n"]
        out += [_text(key), _text("cpu"), _number(math.prod(shape))]
        out += [b"tQ", _number(0), _numbers(shape), _numbers(shape), b"\x89ccollections\nOrderedDict\n)RtR"]
    return b"".join([*out, b"u."])


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(number: int) -> bytes:
    return b"J" + struct.pack("<i", number) if number < 1 << 31 else b"\x8a\x08" + struct.pack("<q", number)


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_number(number) for number in numbers) + b"t"


def zip_checkpoint(pickle: bytes, *, data: int = 0, method: int = zipfile.ZIP_STORED, names: int = 1) -> bytes:
    """The archive that torch.save writes around a pickle, with ``data`` bytes of weights."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for number in range(names):
            archive.writestr(f"archive{number or ''}/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", bytes(data), zipfile.ZIP_STORED)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def legacy_checkpoint(pickle: bytes, *, data: int = 0, keys: bytes = b"\x80\x02]q\x00.") -> bytes:
    """The format before torch 1.6: a magic number, a protocol, the machine, the object, the keys, and raw storages."""
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    return magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}q\x00." + pickle + keys + bytes(data)
