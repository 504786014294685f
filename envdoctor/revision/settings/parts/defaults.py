"""What a key means that a configuration does not give: the class's default, or a value that follows from others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from envdoctor.revision.settings.parts.flat_keys import Setting


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: No default is known.
MISSING = _Missing()


def default_of(name: str, flat: Mapping[str, Setting], defaults: Mapping[str, Any]) -> Any:
    """The value that holds where ``flat`` lacks the canonical ``name``, or :data:`MISSING` when it is not known.

    ``defaults`` are those of the table config-defaults: what a model type's class had in every release looked at.
    """
    prefix, dot, leaf = name.rpartition(".")
    here = prefix + dot
    if leaf == "head_dim":
        hidden, heads = _number(flat, here + "hidden_size"), _number(flat, here + "num_attention_heads")
        return hidden // heads if hidden and heads and hidden % heads == 0 else MISSING
    if leaf == "num_key_value_heads":
        # The class's default of None means one key head for each query head.
        known = _known(here, leaf, flat, defaults)
        return known if known is not None else _number(flat, here + "num_attention_heads") or MISSING
    return _known(here, leaf, flat, defaults)


def _known(here: str, leaf: str, flat: Mapping[str, Setting], defaults: Mapping[str, Any]) -> Any:
    setting = flat.get(here + "model_type")
    for kind in (setting.value if setting is not None else None, "*"):
        values = defaults.get(kind) if isinstance(kind, str) else None
        if isinstance(values, Mapping) and leaf in values:
            # TOML has no null.
            return None if values[leaf] == "null" else values[leaf]
    return MISSING


def _number(flat: Mapping[str, Setting], name: str) -> int | None:
    setting = flat.get(name)
    value = setting.value if setting is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def same(one: Any, two: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are equal, 1 and true are not, NaN equals itself."""
    match one, two:
        case (bool(), _) | (_, bool()):
            return one is two
        case int() | float(), int() | float():
            return bool(one == two) or (math.isnan(one) and math.isnan(two))
        case list(), list():
            return len(one) == len(two) and all(map(same, one, two))
        case dict(), dict():
            return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    return bool(one == two)
