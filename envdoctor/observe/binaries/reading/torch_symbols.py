"""Symbols of torch's C++ libraries: which names are theirs, their hash, and how a person would write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from envdoctor.observe.binaries.reading.elf_file import ElfFile
from envdoctor.text.message import Message

#: Names in the namespaces c10, at, torch and caffe2 by the Itanium ABI (virtual tables and guards too), the C functions
#: of the stable ABI (aoti_torch_..., torch_call_dispatcher), and what the Python binding exports (THPVariable_Wrap).
_OURS = re.compile(
    rb"_Z(?:T[VTIS]|G[VR])?N[KVrRO]*(?:3c10|2at|5torch|6caffe2)[\dA-Za-z]|(?:aoti_)?torch_[a-z]|_Z\d+THP|THP[A-Z]"
)
_PREFIX = re.compile(r"_Z(?:T[VTISC]|G[VR])?N[KVrRO]*")
_PART = re.compile(r"(\d{1,3})([A-Za-z_]\w*)")
_PRINTABLE = re.compile(r"[\w.$@]+\Z", re.ASCII)


def is_torch_symbol(name: bytes) -> bool:
    """Whether a library of torch has to define it."""
    return _OURS.match(name) is not None


def gnu_hash(name: bytes) -> int:
    """The hash of GNU hash tables (32 bits)."""
    value = 5381
    for letter in name:
        value = (value * 33 + letter) & 0xFFFFFFFF
    return value


def unresolved(
    names: Iterable[bytes], libraries: Sequence[ElfFile], known: dict[bytes, bool] | None = None
) -> list[bytes]:
    """The names that no library defines, in order. Raises ``ElfError`` and ``OSError`` of the libraries.

    ``known`` keeps the answers for these libraries: files of one package ask for the same names.
    """
    known = {} if known is None else known
    missing: list[bytes] = []
    for name in names:
        found = known.get(name)
        if found is None:
            hashed = gnu_hash(name)
            found = known[name] = any(library.exports(name, hashed) for library in libraries)
        if not found:
            missing.append(name)
    return missing


def spelled(name: bytes) -> str:
    """The qualified name inside a mangled one (``c10::cuda::SetDevice``), without its arguments; at most 100
    characters. What cannot be told apart is left as it is."""
    text = name[:400].decode("ascii", "replace")
    if not _PRINTABLE.match(text):
        return Message("a symbol with odd characters")
    match = _PREFIX.match(text)
    parts: list[str] = []
    rest = text[match.end() :] if match else ""
    while part := _PART.match(rest):
        length = int(part[1])
        if length == 0 or length > len(part[2]):
            break
        parts.append(part[2][:length])
        rest = part[2][length:] + rest[part.end() :]
    if rest[:2] in ("C1", "C2") and parts:
        parts.append(parts[-1])
    return "::".join(parts)[:100] if len(parts) > 1 else text[:100]
