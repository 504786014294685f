"""Configurations as flat tables under canonical names, so that two spellings of one setting compare equal."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Tables that are data, not settings: compared as one value.
_WHOLE = ("id2label", "label2id", "task_specific_params", "pruned_heads", "added_tokens_decoder")
_QUANTIZATION = ("quantization_config", "compression_config")
_FULL, _SLIDING = "full_attention", "sliding_attention"


class Setting(NamedTuple):
    """A value and the dotted name under which the file gives it."""

    value: Any
    said: str


def flatten(config: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Setting]:
    """Canonical dotted name -> setting.

    ``aliases`` maps the last part of a name to its canonical spelling. Rotary embeddings come out as ``rope_theta`` and
    ``rope_scaling.*`` whichever of the four layouts the file uses; a value of null is kept (it can differ from the
    class's default), but a rope_scaling of null, or of type ``default`` and nothing else, is none.
    """
    flat: dict[str, Setting] = {}
    late: list[tuple[str, Setting]] = []
    for name, said, value in _walk(config, "", ""):
        prefix, dot, leaf = name.rpartition(".")
        canonical = aliases.get(leaf)
        if canonical is None:
            flat[name] = Setting(_plain(leaf, value), said)
        else:
            late.append((prefix + dot + canonical, Setting(_plain(canonical, value), said)))
    for name, setting in late:
        # A file may give both spellings. Where they agree one is enough; where not, both are kept apart.
        if name not in flat:
            flat[name] = setting
        elif flat[name].value != setting.value:
            flat[setting.said] = setting
    return flat


def _walk(table: Mapping[str, Any], prefix: str, said: str) -> Iterator[tuple[str, str, Any]]:
    """``(name, name in the file, value)`` of every leaf. Depth is bounded by whoever read the file."""
    rope = any(key in table for key in ("rope_theta", "rope_scaling", "rope_parameters"))
    for key, value in table.items():
        name = prefix + (_QUANTIZATION[0] if key in _QUANTIZATION else key)
        if rope and key in ("rope_theta", "rope_scaling", "rope_parameters"):
            continue
        if isinstance(value, Mapping) and value and key not in _WHOLE:
            yield from _walk(value, name + ".", said + key + ".")
        else:
            yield name, said + key, value
    if rope:
        for name, (where, value) in _rope(table).items():
            yield prefix + name, said + where, value


def _rope(table: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Name in the file and value of rotary settings, by their canonical names."""
    found: dict[str, tuple[str, Any]] = {}
    for key in ("rope_parameters", "rope_scaling"):
        value = table.get(key)
        inner = [*value.values()] if isinstance(value, Mapping) else []
        if isinstance(value, Mapping) and value and all(item is None or isinstance(item, Mapping) for item in inner):
            for layers, part in value.items():
                _rope_part(found, part or {}, f"{key}.{layers}.", "" if layers == _FULL else layers)
        elif isinstance(value, Mapping):
            _rope_part(found, value, f"{key}.", "")
        elif value is not None:
            found.setdefault(key, (key, value))
    if table.get("rope_theta") is not None:
        found["rope_theta"] = ("rope_theta", table["rope_theta"])
    theta, local = found.get("rope_theta"), found.get("rope_local_base_freq")
    if theta and local and theta[1] == local[1]:
        del found["rope_local_base_freq"]
    scaling = {name: value for name, (_, value) in found.items() if name.startswith("rope_scaling.")}
    if scaling == {"rope_scaling.rope_type": "default"}:
        del found["rope_scaling.rope_type"]
    return found


def _rope_part(found: dict[str, tuple[str, Any]], part: Mapping[str, Any], where: str, layers: str) -> None:
    """One table of rotary parameters. ``layers`` names the kind of layers when it is not the full attention."""
    for key, value in part.items():
        said = where + key
        if key == "rope_theta":
            name = {"": "rope_theta", _SLIDING: "rope_local_base_freq"}.get(layers, f"rope_theta.{layers}")
        elif key == "partial_rotary_factor" and not layers:
            name = key
        else:
            canonical = "rope_type" if key == "type" else key
            if layers and canonical == "rope_type" and value == "default":
                continue
            name = f"rope_scaling.{layers}.{canonical}" if layers else f"rope_scaling.{canonical}"
        found.setdefault(name, (said, value))


def _plain(leaf: str, value: Any) -> Any:
    if leaf == "dtype" and isinstance(value, str):
        return value.removeprefix("torch.")
    if leaf.endswith("token_id") and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value
