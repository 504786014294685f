"""Compress texts of the ledger: what changed between releases, and the packages that share one file."""

from __future__ import annotations

import lzma
from collections.abc import Collection, Mapping
from pathlib import Path

from envdoctor.matrix.ledger import PACKED, shared_texts

__all__ = ["compressed", "write_packed"]

#: For plain text: without alignment.
_FILTER = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0, "nice_len": 273}


def compressed(text: bytes) -> bytes:
    """Return the text as a .xz file has it."""
    return lzma.compress(text, check=lzma.CHECK_CRC32, filters=[_FILTER])


def write_packed(folder: Path, new: Mapping[str, bytes], kept: Collection[str]) -> None:
    """Write the shared file of a ledger: the ``new`` texts by package, and those of ``kept`` that it has already. The
    packages have no file of their own any more."""
    path = folder / PACKED
    before = shared_texts(path.read_bytes()) if path.exists() else {}
    found = {**{name: text for name, text in before.items() if name in kept}, **new}
    names = sorted(found)
    data = "\t".join(names).encode() + b"\n" + compressed(b"".join(found[name] for name in names))
    path.write_bytes(data)
    for name in names:
        (folder / f"{name}.txt").unlink(missing_ok=True)
