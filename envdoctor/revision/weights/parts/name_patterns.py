"""Tensors by the patterns of their names, and what they amount to.

Running numbers become {i}, experts {e}, so that a layer is one line instead of sixty.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from envdoctor.hub.safetensors_header import DTYPE_BITS
from envdoctor.revision.weights.parts.layouts import Spec

#: Bits of dtypes that only pickles have.
_MORE_BITS = {"C128": 128, "qint8": 8, "quint8": 8, "qint32": 32, "quint4x2": 4, "quint2x4": 2}


class Group(NamedTuple):
    """Tensors of one pattern: ``members`` are (running numbers, name), in the order of the numbers, with ``shapes``."""

    pattern: str
    members: tuple[tuple[tuple[int, ...], str], ...]
    shapes: tuple[tuple[int, ...], ...] = ()


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


def group(names: Iterable[str], tensors: Mapping[str, Spec] = {}) -> dict[str, Group]:
    """Names by their pattern, patterns in the order of their first name; ``tensors`` give the shapes."""
    found: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in names:
        pattern, numbers = pattern_of(name)
        found.setdefault(pattern, []).append((numbers, name))
    for members in found.values():
        members.sort()
    return {
        pattern: Group(pattern, tuple(members), tuple(tensors[name].shape for _, name in members if name in tensors))
        for pattern, members in found.items()
    }


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
