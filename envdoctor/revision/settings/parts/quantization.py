"""What the quantisation of a configuration is, in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.revision.settings.parts.flat_keys import Setting
from envdoctor.revision.short_text import short

__all__ = ["KEY", "is_part", "summary"]

#: The canonical key; compression_config is an older spelling of it.
KEY = "quantization_config"


def is_part(name: str) -> bool:
    """Whether a canonical dotted key lies in a quantisation configuration (at any depth)."""
    return f".{KEY}." in f".{name}"


def summary(flat: Mapping[str, Setting]) -> str | None:
    """Method, format, bits, group or block size (``fp8, e4m3, weight_block_size [128, 128]``); None without one."""
    inside = {}
    for name, setting in flat.items():
        if is_part(name):
            inside[f".{name}".rpartition(f".{KEY}.")[2]] = setting.value
    if not inside:
        return None
    words = [short(inside.get("quant_method", "unnamed method"))]
    words += [short(inside[key]) for key in ("fmt", "format", "quant_algo") if isinstance(inside.get(key), str)]
    bits = inside.get("bits", inside.get("w_bit", 4 if inside.get("load_in_4bit") is True else None))
    words += [f"{bits} bits"] if isinstance(bits, int) else []
    sizes = [key for key in ("group_size", "weight_block_size") if inside.get(key) is not None]
    words += [f"{key} {short(inside[key])}" for key in sizes]
    return short(", ".join(words))
