"""The names of what can be wrong with a safetensors file."""

from __future__ import annotations

from envdoctor.text.message import Message

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
    "unknown-dtype": Message("a tensor's dtype is none of the format's"),
    "bad-shape": Message("a tensor's shape is not a list of whole numbers from 0 to 2^64-1"),
    "bad-offsets": Message("a tensor's data_offsets are not two whole numbers from 0 to 2^64-1"),
    "shape-overflow": Message("a tensor's shape is larger than 2^64-1 elements or bits"),
    "not-whole-bytes": Message("a tensor's bits are no whole number of bytes"),
    "end-before-begin": Message("a tensor's data ends before it begins"),
    "size-mismatch": Message("a tensor's data is not as long as its shape and dtype ask for"),
    "hole": Message("the tensors leave bytes of the data out"),
    "overlap": Message("tensors share bytes of the data"),
    "trailing-data": Message("the file goes on behind the last tensor"),
    "truncated-data": Message("the file ends before the last tensor does"),
}


class HeaderError(ValueError):
    """The official library would not read this file either; ``reason`` is a key of :data:`REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(REASONS[reason] + (f" ({detail})" if detail else ""))
        self.reason = reason
