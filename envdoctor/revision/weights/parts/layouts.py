"""The tensors of weight files, read from their headers only, by the patterns of their names, and what they amount to.

In a pattern running numbers become {i}, experts {e}, so that a layer is one line instead of sixty.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from time import process_time
from typing import NamedTuple

from envdoctor.hub.pickle_reading import TOO_LONG, Clock
from envdoctor.hub.safetensors_header import DTYPE_BITS, HeaderError, parse_header
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.hub.torch_zip import read_checkpoint
from envdoctor.text.message import Message, said_by


class Spec(NamedTuple):
    """What a tensor is: dtype as safetensors spells it, and shape."""

    dtype: str
    shape: tuple[int, ...]


#: Equal dtypes and shapes are one object: DeepSeek-V3 has 91,991 tensors.
_spec = lru_cache(maxsize=1 << 16)(Spec)


@dataclass
class Layout:
    """Tensors of some files, ``files`` being those that were read and ``unread`` those that could not be.

    ``tensors`` maps names to their :class:`Spec`, ``where`` to their file. ``twins`` are names that share their data
    with an earlier name (tied weights in a pickle). ``twice`` are names that two files hold. ``raw`` are the headers'
    own bytes by file, to tell "the same header" from "the same tensors". ``remarks`` are odd things by file,
    ``metadata`` the texts that each header has beside its tensors, None without any. ``opaque`` are
    files of a pickle's name that are none.
    """

    files: set[str] = field(default_factory=set)
    tensors: dict[str, Spec] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    raw: dict[str, int] = field(default_factory=dict)
    remarks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: dict[str, dict[str, str] | None] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def add(self, path: str, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> None:
        """Add one file's tensors."""
        self.files.add(path)
        for name, dtype, shape in tensors:
            if name in self.tensors:
                self.twice.append(name)
            self.tensors[name] = _spec(dtype, shape)
            self.where[name] = path


def read_safetensors(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> Layout:
    """The layout of safetensors files. Files that could not be read are in ``unread`` and nowhere else."""
    layout = Layout()
    for path, raw in snapshot.headers(list(paths)).items():
        if isinstance(raw, Unread):
            layout.unread.append(raw)
            continue
        if clock.left <= 0:
            layout.unread.append(Unread(path, TOO_LONG))
            continue
        began = process_time()
        try:
            header = parse_header(raw, snapshot.files[path].size)
        except HeaderError as error:
            layout.unread.append(Unread(path, said_by(error)))
            continue
        finally:
            clock.left -= process_time() - began
        layout.add(path, ((name, tensor.dtype, tensor.shape) for name, tensor in header.tensors.items()))
        layout.raw[path] = hash(raw[: header.header_bytes])
        layout.metadata[path] = header.metadata
        if header.remarks:
            layout.remarks[path] = header.remarks
    return layout


def read_pickled(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> Layout:
    """The layout of PyTorch checkpoints, as far as their pickles name the tensors."""
    layout = Layout()
    for path in paths:
        checkpoint = read_checkpoint(snapshot, path, clock)
        if isinstance(checkpoint, Unread):
            layout.unread.append(checkpoint)
            continue
        if not checkpoint.is_pickle:
            layout.opaque.append(path)
            continue
        if checkpoint.tensors is None:
            reason = checkpoint.problem or Message("it is no table of tensors as torch.save writes one")
            layout.unread.append(Unread(path, Message("its tensors' names could not be read: {}", reason)))
            continue
        tensors = checkpoint.tensors
        layout.add(path, ((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()))
        first: dict[tuple[str, tuple[int, ...]], str] = {}
        for name, tensor in tensors.items():
            owner = first.setdefault((tensor.storage, tensor.shape), name)
            if owner != name:
                layout.twins[name] = owner
    return layout


#: Bits of dtypes that only pickles have.
_MORE_BITS = {"C128": 128, "qint8": 8, "quint8": 8, "qint32": 32, "quint4x2": 4, "quint2x4": 2}


class Group(NamedTuple):
    """Tensors of one pattern, in the order of their running numbers."""

    pattern: str
    numbers: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    specs: tuple[Spec, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return sum(size_of(spec)[1] for spec in self.specs)


def pattern_of(name: str) -> tuple[str, tuple[int, ...]]:
    """``model.layers.{i}.mlp.experts.{e}.up_proj.weight`` and the numbers that stood there."""
    parts = name.split(".")
    numbers: list[int] = []
    for place, part in enumerate(parts):
        # 19 digits are no running number; isdecimal alone would let other scripts' digits through.
        if part.isdecimal() and part.isascii() and len(part) < 19:
            numbers.append(int(part))
            parts[place] = "{e}" if place and parts[place - 1].endswith("experts") else "{i}"
    return (".".join(parts) if numbers else name), tuple(numbers)


def group(names: Iterable[str], tensors: Mapping[str, Spec]) -> dict[str, Group]:
    """Names by their pattern, patterns in the order of their first name."""
    found: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in names:
        pattern, numbers = pattern_of(name)
        found.setdefault(pattern, []).append((numbers, name))
    groups = {}
    for pattern, members in found.items():
        numbers_of, names_of = zip(*sorted(members), strict=True)
        groups[pattern] = Group(pattern, numbers_of, names_of, tuple(tensors[name] for name in names_of))
    return groups


def leaf(pattern: str) -> str:
    """The module's own name, as LoRA targets have it: ``q_proj`` of ``model.layers.{i}.self_attn.q_proj.weight``."""
    parts = [part for part in pattern.split(".") if part not in ("{i}", "{e}")]
    return parts[-2] if len(parts) > 1 else parts[-1] if parts else pattern


def module_of(pattern: str) -> str:
    """The part of the model a tensor belongs to: up to the component behind the last {i}, or all but the last one."""
    parts = pattern.split(".")
    places = [place for place, part in enumerate(parts) if part == "{i}"]
    end = min(places[0] + 2, len(parts) - 1) if places else len(parts) - 1
    return ".".join(parts[:end]) or pattern


def size_of(spec: Spec) -> tuple[int, int]:
    """Elements and bytes of a tensor; 0 bytes for a dtype of unknown width."""
    count = math.prod(spec.shape)
    bits = DTYPE_BITS.get(spec.dtype) or _MORE_BITS.get(spec.dtype, 0)
    return count, -(-count * bits // 8)


def spell_shape(shape: tuple[int, ...]) -> str:
    """``[4096, 2560]``; a scalar is ``[]``."""
    return "[" + ", ".join(map(str, shape[:6])) + (", …" if len(shape) > 6 else "") + "]"


class Amount(NamedTuple):
    """How many tensors, with how many parameters (elements) and bytes."""

    tensors: int
    parameters: int
    bytes: int


def amounts_of(tensors: Mapping[str, Spec]) -> dict[str, dict[str, Amount]]:
    """``dtype`` and ``module``: what the tensors of one snapshot amount to by dtype, and by module pattern
    (``model.layers.{i}.mlp``), the largest first."""
    counted: dict[str, dict[str, Amount]] = {"dtype": {}, "module": {}}
    sizes = {spec: size_of(spec) for spec in set(tensors.values())}
    for name, spec in tensors.items():
        elements, size = sizes[spec]
        for by, key in (("dtype", spec.dtype), ("module", module_of(pattern_of(name)[0]))):
            known = counted[by].get(key, Amount(0, 0, 0))
            counted[by][key] = Amount(known.tensors + 1, known.parameters + elements, known.bytes + size)
    return {by: dict(sorted(table.items(), key=lambda item: -item[1].bytes)) for by, table in counted.items()}


def gigabytes(size: int) -> str:
    """Bytes as people write them: ``12.5 GB``, ``4.2 MB`` (decimal, as the Hub shows sizes)."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
