"""Read the file of packages which only lists ask for: a line of their names, and their texts, compressed."""

from __future__ import annotations

__all__ = ["texts"]

#: Bytes that the texts may have together.
_LONGEST = 32 << 20
_BEGIN = b"\nenvdoctor-ledger\t"


def texts(data: bytes) -> dict[str, bytes]:
    """Return the texts by package, each as other packages have it in their own file. Raises :class:`ValueError`."""
    try:
        from lzma import LZMADecompressor, LZMAError
    except ImportError:  # a Python that was built without it
        return {}
    names, _, stream = data.partition(b"\n")
    reader = LZMADecompressor()
    try:
        whole = reader.decompress(stream, _LONGEST)
    except (LZMAError, EOFError) as error:
        raise ValueError(str(error)) from None
    if not reader.eof or reader.unused_data:
        raise ValueError(f"it is cut off, or has more than {_LONGEST:,} bytes")
    _, *parts = (b"\n" + whole.removesuffix(b"\n")).split(_BEGIN)
    found = (_BEGIN[1:] + part + b"\n" for part in parts)
    return dict(zip(names.decode().split("\t"), found, strict=True))
