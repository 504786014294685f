"""The names of what can be wrong with a safetensors file."""

from __future__ import annotations

#: Why a header is rejected. ``too-complex`` alone is ours: such a header would take too long to look at.
REASONS = {
    "too-short": "the file is shorter than the 8 bytes of the header's length",
    "lfs-pointer": "the file is a Git LFS pointer, not the weights themselves",
    "html": "the file is a web page",
    "zip-archive": "the file is a zip archive, which is what PyTorch checkpoints are",
    "header-too-large": "the header claims to be longer than 100,000,000 bytes",
    "header-beyond-file": "the header claims to be longer than the file",
    "header-incomplete": "not all of the header was there to be read",
    "not-utf-8": "the header is not UTF-8 text",
    "not-json": "the header is not JSON",
    "not-an-object": "the header is JSON but no object",
    "nested-too-deeply": "the header's JSON is nested deeper than 127 levels",
    "too-complex": "the header holds more than 1,000,000 lists, objects and values",
    "bad-metadata": "__metadata__ is not a mapping from text to text",
    "duplicate-metadata": "__metadata__ occurs more than once",
    "bad-entry": "a tensor's entry is not an object with dtype, shape and data_offsets",
    "duplicate-field": "a tensor's entry names a field more than once",
    "unknown-dtype": "a tensor's dtype is none of the format's",
    "bad-shape": "a tensor's shape is not a list of whole numbers from 0 to 2^64-1",
    "bad-offsets": "a tensor's data_offsets are not two whole numbers from 0 to 2^64-1",
    "shape-overflow": "a tensor's shape is larger than 2^64-1 elements or bits",
    "not-whole-bytes": "a tensor's bits are no whole number of bytes",
    "end-before-begin": "a tensor's data ends before it begins",
    "size-mismatch": "a tensor's data is not as long as its shape and dtype ask for",
    "hole": "the tensors leave bytes of the data out",
    "overlap": "tensors share bytes of the data",
    "trailing-data": "the file goes on behind the last tensor",
    "truncated-data": "the file ends before the last tensor does",
}


class HeaderError(ValueError):
    """The official library would not read this file either; ``reason`` is a key of :data:`REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(REASONS[reason] + (f" ({detail})" if detail else ""))
        self.reason = reason
