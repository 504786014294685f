"""The GPU architectures of the installed torch: what torch.cuda.get_arch_list() gives, from libtorch_python.so."""

import os
import re
import struct
from collections.abc import Iterator

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

KEYS = ("torch.arch_list",)
NEEDS = ("torch.cuda", "gpu")
_ORIGIN = "torch/lib/libtorch_python.so"
_LIBRARY = os.path.join(*_ORIGIN.split("/"))
# The constants of libtorch_python.so are 1.0 MB in torch 2.14.1; a reading of more would not be quick.
_MOST_CONSTANTS = 24 << 20
_MOST_SECTIONS = 256
_MOST_NAMES = 1 << 16
_LONGEST_LIST = 400
_LIST = re.compile(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?){0,40}\Z")


def observe(request: Request) -> list[Fact]:
    """``torch.arch_list`` as torch's library says; nothing when there is no such library (Windows, macOS)."""
    gpus = request.value("gpu")
    if not isinstance(request.value("torch.cuda"), str) or (isinstance(gpus, Records) and not len(gpus)):
        return []
    files = request.place.files
    paths = (os.path.join(folder, _LIBRARY) for folder in request.place.site_packages)
    path = next(filter(files.is_file, paths), None)
    return [] if path is None else [Fact("torch.arch_list", _read(path, files), _ORIGIN, "environment")]


def _read(path: str, files: Files) -> Value:
    try:
        found = set(_lists(_constants(path, files)))
    except (OSError, ValueError) as error:
        return Unknown(Message("libtorch_python.so cannot be read: {}", because_of(error)))
    # A build for one architecture only has a list of one word, which other constants may look like.
    several = {text for text in found if b" " in text} or found
    if len(several) != 1:
        return Unknown(Message("libtorch_python.so names no list of architectures, or several"))
    return tuple(several.pop().decode("ascii").split())


def _lists(constants: bytes) -> Iterator[bytes]:
    at = constants.find(b"sm_")
    while at >= 0:
        start = constants.rfind(b"\0", max(0, at - _LONGEST_LIST), at) + 1
        end = constants.find(b"\0", at, at + _LONGEST_LIST)
        if start and end > 0 and _LIST.match(constants[start:end]):
            yield constants[start:end]
        at = constants.find(b"sm_", end if end > 0 else at + _LONGEST_LIST)


def _constants(path: str, files: Files) -> bytes:
    """The section .rodata of a 64-bit little-endian ELF file. Raises ValueError for any other file, and OSError."""

    def part(offset: int, length: int) -> bytes:
        if offset + length >= 1 << 63:
            raise ValueError(Message("it is cut off"))
        return files.ranges(path, [(offset, length)])[0]

    head = part(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError(Message("it is no 64-bit little-endian ELF file"))
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, named = struct.unpack_from("<HHH", head, 58)
    if size != 64 or not named < count <= _MOST_SECTIONS:
        raise ValueError(Message("it has no table of sections"))
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", part(table, 64 * count)))
    names = part(sections[named][4], min(sections[named][5], _MOST_NAMES))
    for name, kind, _, _, offset, length, *_ in sections:
        if names[name : name + 8] == b".rodata\0" and kind == 1:
            if length > _MOST_CONSTANTS:
                raise ValueError(Message("its constants are too large"))
            return part(offset, length)
    raise ValueError(Message("it has no constants"))
