"""Model descriptions (fixtures/models) as shards and headers: real names and shapes, sizes without the bytes."""

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.revision import DTYPE_BITS, FileEntry, Unread

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"
#: The safetensors writer sorts by this (alignment, largest first), then by name.
_ORDER = {name: place for place, name in enumerate(DTYPE_BITS)}

Tensors = dict[str, tuple[str, tuple[int, ...]]]


class Model(NamedTuple):
    """A described model: its text (repo, config, totals) and the tensors of each shard."""

    about: Mapping[str, Any]
    shards: dict[str, Tensors]

    @property
    def tensors(self) -> Tensors:
        return {name: spec for shard in self.shards.values() for name, spec in shard.items()}


def model(name: str) -> Model:
    """A description of fixtures/models, expanded."""
    about = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    sharding = about["sharding"]
    if sharding["algorithm"] == "max_bytes":
        shards = _by_bytes(_tensors(about["tensors"]), sharding["limit"])
    else:
        shards = _by_elements(_tensors(about["tensors"]), sharding["limit"], sharding["groups"])
    names = [about["file_pattern"].format(i=place + 1, n=len(shards)) for place in range(len(shards))]
    return Model(about, dict(zip(names, shards, strict=True)))


def _tensors(steps: Sequence[Any], **numbers: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for step in steps:
        if isinstance(step, list):
            yield step[0].format(**numbers), step[1], tuple(step[2])
        elif "range" in step:
            for i in range(*step["range"]):
                yield from _tensors(step["tensors"], i=str(i), **numbers)
        else:
            experts = step["experts"]
            for e in map(str, range(experts)) if isinstance(experts, int) else experts:
                yield from _tensors(step["tensors"], e=e, **numbers)


def size(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor."""
    return DTYPE_BITS[dtype] * math.prod(shape) // 8


def _by_bytes(tensors: Iterator[tuple[str, str, tuple[int, ...]]], limit: int) -> list[Tensors]:
    shards: list[Tensors] = [{}]
    filled = 0
    for name, dtype, shape in tensors:
        if shards[-1] and filled + size(dtype, shape) > limit:
            shards.append({})
            filled = 0
        shards[-1][name] = (dtype, shape)
        filled += size(dtype, shape)
    return shards


def _by_elements(
    tensors: Iterator[tuple[str, str, tuple[int, ...]]], limit: int, groups: Sequence[Sequence[str]]
) -> list[Tensors]:
    """A shard is closed when it holds ``limit`` elements, and where a group ends."""
    shards: list[Tensors] = []
    last, filled = -1, limit
    for name, dtype, shape in tensors:
        current = next(
            place
            for place, prefixes in enumerate(groups)
            if any(name == prefix or (prefix.endswith(".") and name.startswith(prefix)) for prefix in prefixes)
        )
        if filled >= limit or current != last:
            shards.append({})
            filled = 0
        shards[-1][name] = (dtype, shape)
        filled += math.prod(shape)
        last = current
    return shards


def header(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The header as the safetensors writer lays it out, and the length of the data behind it."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda item: (-_ORDER[item[1][0]], item[0])):
        end = position + size(dtype, shape)
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, position


def index(shards: Mapping[str, Tensors]) -> bytes:
    """The index file of a set of shards."""
    total = sum(size(*spec) for shard in shards.values() for spec in shard.values())
    table = {name: file for file, shard in shards.items() for name in shard}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": table}, indent=2).encode()


class Repository:
    """A snapshot of shards that exist as headers only, and of small files. It counts what is read.

    ``texts`` are bytes, texts, or what becomes JSON; ``unhashed`` ones have no object id, ``broken`` ones cannot be
    read. ``salt`` makes the (synthetic) digests of the shards: equal salts and headers, equal files.
    """

    def __init__(
        self,
        shards: Mapping[str, Tensors] | None = None,
        texts: Mapping[str, Any] | None = None,
        *,
        broken: Mapping[str, str] | None = None,
        unhashed: Sequence[str] = (),
        salt: str = "",
        salts: Mapping[str, str] | None = None,
        with_index: bool = True,
        hashed: bool = True,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.repo, self.asked, self.revision, self.complete = "org/model", "org/model", None, True
        self.label, self.lacking, self.card = "model", None, None
        self.refused: tuple[Unread, ...] = ()
        self.prefixes: dict[str, bytes] = {}
        self.read_paths: list[str] = []
        self.ranges: list[tuple[str, int, int]] = []
        self.broken = {**(broken or {})}
        self.files: dict[str, FileEntry] = {}
        for name, tensors in (shards or {}).items():
            head, data = header(tensors, metadata or {"format": "pt"})
            digest = hashlib.sha256(head + (salts or {}).get(name, salt).encode()).hexdigest()
            self.prefixes[name] = head
            self.files[name] = FileEntry(name, len(head) + data, f"sha256:{digest}" if hashed else None)
        if shards and len(shards) > 1 and with_index:
            texts = {"model.safetensors.index.json": index(shards), **(texts or {})}
        for name, text in (texts or {}).items():
            content = (
                text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
            )
            self.prefixes[name] = content
            oid = None if name in unhashed else "sha1:" + hashlib.sha1(content).hexdigest()
            self.files[name] = FileEntry(name, len(content), oid)

    def read(self, path: str, limit: int) -> bytes | Unread:
        self.read_paths.append(path)
        if path in self.broken:
            return Unread(path, self.broken[path])
        content = self.prefixes[path]
        return content if len(content) <= limit else Unread(path, f"it has {len(content)} bytes")

    def read_range(self, path: str, offset: int, length: int) -> bytes | Unread:
        if path in self.broken:
            return Unread(path, self.broken[path])
        assert offset >= 0 and offset + length <= self.files[path].size, "a range outside of the file"
        self.ranges.append((path, offset, length))
        return self.prefixes[path][offset : offset + length]

    def headers(self, paths: Sequence[str]) -> Mapping[str, bytes | Unread]:
        self.read_paths += paths
        return {path: Unread(path, self.broken[path]) if path in self.broken else self.prefixes[path] for path in paths}
