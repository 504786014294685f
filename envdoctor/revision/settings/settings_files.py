"""Files of settings (JSON objects), compared key by key under canonical names: by meaning, not by spelling.

``symbol`` is the canonical dotted key, ``text_config.rope_theta``. A key has the kind of its group in config-keys.toml,
else ``key-added``, ``key-removed`` or ``key-changed``. Of the others:

* ``unread-key``: no file of the model's own code names such a key; ``noise``: nothing reads it (transformers_version);
* ``rope-moved``: the same rotary settings under the name of another transformers generation (rope_parameters);
  ``key-renamed``: the same value under another name (torch_dtype -> dtype);
* ``implicit``: a key came or went whose value is what its absence means; ``without-effect``: a sliding window that
  use_sliding_window switches off in both; ``repeated-key``: the new file gives a key twice, and readers disagree;
* ``<area>-added``, ``<area>-removed``: the file as a whole.
"""

import fnmatch
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.files import JsonObject
from envdoctor.revision.comparer import Change, Compared, Revisions, parted, read_json, same, short
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.system.message import Message

#: The files of each area, also in folders of their own. The first is named in the summary when it is equal in meaning.
_FILES = {
    "config": ("config.json", "adapter_config.json"),
    "generation": ("generation_config.json",),
    "preprocessor": (
        *("preprocessor_config.json", "processor_config.json", "image_processor_config.json"),
        *("video_preprocessor_config.json", "feature_extractor_config.json"),
    ),
}
_MOST_FILES = 30
_MOST_KEYS = 5_000
#: Tables that are data, not settings: compared as one value.
_WHOLE = ("id2label", "label2id", "task_specific_params", "pruned_heads", "added_tokens_decoder")
_FULL, _SLIDING = "full_attention", "sliding_attention"
_WINDOWS = ("sliding_window", "max_window_layers")
_ROPE = ("rope_theta", "rope_local_base_freq", "partial_rotary_factor")
#: The canonical key, and an older spelling of it.
_QUANTIZATION, _FORMER_QUANTIZATION = "quantization_config", "compression_config"
#: Kinds that leave a file equal in meaning.
_HARMLESS = ("noise", "implicit", "without-effect", "unread-key", "key-renamed")
#: Kinds that take effect through the code of the model alone: other keys are read by transformers or by trainers.
_READ_BY_MODEL = (
    *("rope-changed", "sliding-window-changed", "activation-changed", "attention-implementation-changed"),
    *("norm-changed", "dropout-changed", "size-changed", "position-limit-changed", "computation-changed"),
)
#: No default is known.
_MISSING = object()


class _Setting(NamedTuple):
    """A value and the dotted name under which the file gives it."""

    value: Any
    said: str


_Flat = Mapping[str, _Setting]


def flatten(config: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, _Setting]:
    """Return the settings of a configuration by their canonical dotted names. ``aliases`` maps the last part of a name
    to its canonical spelling. Rotary embeddings come out as ``rope_theta`` and ``rope_scaling.*`` whichever of the four
    layouts the file uses; a value of null is kept (it can differ from the class's default), but a rope_scaling of null,
    or of type ``default`` and nothing else, is none."""
    flat: dict[str, _Setting] = {}
    late: list[tuple[str, _Setting]] = []
    for name, spelling, value in _walk(config, "", ""):
        prefix, dot, leaf = name.rpartition(".")
        if leaf in aliases:
            late.append((prefix + dot + aliases[leaf], _Setting(_plain(aliases[leaf], value), spelling)))
        else:
            flat[name] = _Setting(_plain(leaf, value), spelling)
    for name, setting in late:
        # A file may give both spellings. Where they agree one is enough; where not, both are kept apart.
        if name not in flat:
            flat[name] = setting
        elif flat[name].value != setting.value:
            flat[setting.said] = setting
    return flat


def _walk(table: Mapping[str, Any], prefix: str, spelling: str) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(name, name in the file, value)`` of every leaf. Whoever read the file bounded its depth."""
    for key, value in table.items():
        # A dot inside a key is not a step down: {"a.b": 1} is not {"a": {"b": 1}}.
        name = prefix + (_QUANTIZATION if key == _FORMER_QUANTIZATION else json.dumps(key) if "." in key else key)
        if key in ("rope_theta", "rope_scaling", "rope_parameters"):
            continue
        if isinstance(value, Mapping) and value and key not in _WHOLE:
            yield from _walk(value, name + ".", spelling + key + ".")
        else:
            yield name, spelling + key, value
    for name, (where, value) in _rope(table).items():
        yield prefix + name, spelling + where, value


def _rope(table: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Name in the file and value of rotary settings, by their canonical names."""
    settings: dict[str, tuple[str, Any]] = {}
    for key in ("rope_parameters", "rope_scaling"):
        value = table.get(key)
        if not isinstance(value, Mapping):
            settings |= {} if value is None else {key: (key, value)}
            continue
        nested = bool(value) and all(item is None or isinstance(item, Mapping) for item in value.values())
        for layers, part in value.items() if nested else [(_FULL, value)]:
            for leaf, item in (part or {}).items():
                spelling = f"{key}.{layers}.{leaf}" if nested else f"{key}.{leaf}"
                if name := _rope_name(leaf, item, "" if layers == _FULL else layers):
                    settings.setdefault(name, (spelling, item))
    if table.get("rope_theta") is not None:
        settings["rope_theta"] = ("rope_theta", table["rope_theta"])
    theta, local = settings.get("rope_theta"), settings.get("rope_local_base_freq")
    if theta and local and theta[1] == local[1]:
        del settings["rope_local_base_freq"]
    scaling = {name: value for name, (_, value) in settings.items() if name.startswith("rope_scaling.")}
    if scaling == {"rope_scaling.rope_type": "default"}:
        del settings["rope_scaling.rope_type"]
    return settings


def _rope_name(key: str, value: Any, layers: str) -> str | None:
    """Return the canonical name of a rotary parameter, if it says something; ``layers`` but full attention."""
    if key == "rope_theta":
        return {"": "rope_theta", _SLIDING: "rope_local_base_freq"}.get(layers, f"rope_theta.{layers}")
    if key == "partial_rotary_factor" and not layers:
        return key
    canonical = "rope_type" if key == "type" else key
    if layers and canonical == "rope_type" and value == "default":
        return None
    return f"rope_scaling.{layers}.{canonical}" if layers else f"rope_scaling.{canonical}"


def _plain(leaf: str, value: Any) -> Any:
    match value:
        case str() if leaf == "dtype":
            return value.removeprefix("torch.")
        case [item] if leaf.endswith("token_id"):
            return item
    return value


class _SettingNames(NamedTuple):
    """What the matrix knows of the keys of one file of an area. ``aliases`` maps other spellings of a key to the
    canonical one, ``kinds`` are the groups of keys of the table config-keys, ``defaults`` what a missing key means in
    every release, by model type (``*``: in every class). ``code`` gives the words of the model's own code and of
    its configurations where they lie in the repository."""

    area: str
    path: str
    aliases: Mapping[str, str]
    kinds: Sequence[Mapping[str, Any]]
    defaults: Mapping[str, Any]
    code: Callable[[], Sequence[frozenset[str]]] = tuple

    def kind(self, name: str) -> str | None:
        """Return the kind of a canonical key; patterns with a dot match its whole name, others match its end."""
        leaf = name.rpartition(".")[2]
        for entry in self.kinds:
            for pattern in entry["keys"] if entry.get("area", "config") == self.area else ():
                whole = "." in pattern
                if fnmatch.fnmatchcase(f".{name}" if whole else leaf, f"*.{pattern}" if whole else pattern):
                    return str(entry["kind"])
        return None

    def default(self, name: str, flat: _Flat) -> Any:
        """Return what a missing key means: the class's default, or one by other keys; :data:`_MISSING` if unknown."""
        prefix, dot, leaf = name.rpartition(".")
        here = prefix + dot
        heads = _number(flat, here + "num_attention_heads")
        if leaf == "head_dim":
            hidden = _number(flat, here + "hidden_size")
            return hidden // heads if hidden and heads and hidden % heads == 0 else _MISSING
        kinds = [flat[here + "model_type"].value if here + "model_type" in flat else None, "*"]
        kinds = kinds if self.area == "config" or not dot else []
        tables = [self.defaults.get(kind) for kind in kinds if isinstance(kind, str)]
        default = next((table[leaf] for table in tables if isinstance(table, Mapping) and leaf in table), _MISSING)
        if default != "null":  # TOML has none of its own
            return default
        # The class's default of None means one key head for each query head.
        return heads or _MISSING if leaf == "num_key_value_heads" else None

    def value(self, name: str, flat: _Flat) -> Any:
        """Return the value of a key, or what a missing key means."""
        return flat[name].value if name in flat else self.default(name, flat)

    def change(self, kind: str, name: str, before: str | None, after: str | None, detail: str | None = None) -> Change:
        """Return a change of a key of this file."""
        return Change(self.area, kind, self.path, name, before, after, detail=detail)


def names_of(area: str, path: str, matrix: Matrix) -> _SettingNames:
    """Return what is known of a file of an area. Only config.json has a model type to look defaults up with."""
    aliases = {name: row["key"] for row in matrix.rows("config-keys", "alias") for name in row["names"]}
    defaults = matrix.part("config-defaults", "defaults" if area == "config" else area)
    defaults = defaults if area == "config" else {"*": defaults}
    return _SettingNames(area, path, aliases, matrix.rows("config-keys", "kind"), defaults)


def wants(area: str, path: str) -> bool:
    """Return whether the file belongs to the area."""
    return posixpath.basename(path).lower() in _FILES[area]


def compare(area: str, revisions: Revisions) -> Compared:
    """Return the changes of all files of an area."""
    changes, unread = parted(_compare(area, revisions))
    main = _FILES[area][0]
    touched = any(change.path == main and change.kind not in _HARMLESS for change in changes)
    is_whole = (
        main in revisions.old.files and main in revisions.new.files and not any(part.path == main for part in unread)
    )
    return Compared(changes, unread, equal=(main,) if is_whole and not touched else ())


def _compare(area: str, revisions: Revisions) -> Iterator[Change | Unread]:
    for number, path in enumerate(revisions.changed()):
        if number >= _MOST_FILES:
            yield Unread(path, Message("only {} files of this kind are compared", _MOST_FILES))
            continue
        sides = [read_json(snapshot, path) for snapshot in (revisions.old, revisions.new)]
        (before, after), broken = [None if isinstance(side, Unread) else side for side in sides], parted(sides)[1]
        names = names_of(area, path, revisions.matrix)
        if broken:
            yield from broken
        elif before is None or after is None:
            kind = f"{area}-added" if before is None else f"{area}-removed"
            yield names.change(kind, posixpath.basename(path), *(side and short(side.data) for side in (before, after)))
        else:
            old, new = (flatten(side.data, names.aliases) for side in (before, after))
            most = max(len(old), len(new))
            if most > _MOST_KEYS:
                yield Unread(path, Message("it has {} keys; at most {} are compared", most, _MOST_KEYS))
                continue
            if area == "config" and all(map(_brings_its_code, (before.data, after.data))):
                names = names._replace(code=cache(partial(_words, revisions)))
            yield from compare_settings(names, old, new)
            yield from repeated_keys(names, before, after)


def _words(revisions: Revisions) -> Sequence[frozenset[str]]:
    code = revisions.code()
    return [frozenset(re.findall(r"\w+", text)) for text in code] if type(code) is tuple else ()


def _brings_its_code(config: Mapping[str, Any]) -> bool:
    """Return whether the classes of the configuration and of the model lie in the repository itself."""
    match config.get("auto_map"):
        case {"AutoConfig": str(), **classes}:
            return len(classes) > 0 and not any("--" in str(name) for name in config["auto_map"].values())
    return False


def repeated_keys(names: _SettingNames, before: JsonObject, after: JsonObject) -> Iterator[Change]:
    """Yield ``repeated-key`` for each key that only the new file gives twice."""
    for key in after.repeated:
        if key not in before.repeated:
            yield names.change("repeated-key", short(key), None, None)


def compare_settings(names: _SettingNames, old: _Flat, new: _Flat) -> Iterator[Change]:
    """Yield the changes between two flat configurations, in the order of the new file, removed keys last."""
    methods = _quantization(old), _quantization(new)
    whole = (methods[0] is None) != (methods[1] is None)
    if whole:
        yield names.change(f"quantization-{'removed' if methods[0] else 'added'}", _QUANTIZATION, *methods)
    for name in dict.fromkeys([*new, *old]):
        before, after = old.get(name), new.get(name)
        if whole and f".{_QUANTIZATION}." in f".{name}":
            continue
        if before is None or after is None:
            yield _one_sided(names, name, old, new)
        elif not same(*(_unordered(name, side.value) for side in (before, after))):
            kind = _kind(names, name, old, new) or ("computation-changed" if _is_read(names, name) else "key-changed")
            yield names.change(kind, name, short(before.value), short(after.value))
        elif before.said != after.said:
            rope = name.rpartition(".")[2] in _ROPE or "rope_scaling." in name
            moved = rope and ("rope_parameters" in before.said) != ("rope_parameters" in after.said)
            detail = Message("the value stays {}", short(after.value))
            yield names.change("rope-moved" if moved else "key-renamed", name, before.said, after.said, detail)


def _unordered(name: str, value: Any) -> Any:
    """Return the value; token ids, each of which ends a text, in ascending order and once."""
    ids = name.endswith(("token_id", "token_ids")) and type(value) is list
    return sorted(set(value)) if ids and all(type(item) is int for item in value) else value


def _is_read(names: _SettingNames, name: str, *, anywhere: bool = False) -> bool | None:
    """Return whether the model's own code speaks of a key, or only its configuration does (``anywhere``); else None."""
    words_of_key = re.findall(r"\w+", name.rpartition(".")[2])
    hits = [words.issuperset(words_of_key) for words in names.code()]
    return any(hits if anywhere else hits[:1]) if hits else None


def _kind(names: _SettingNames, name: str, old: _Flat, new: _Flat) -> str | None:
    """Return the kind of a key whose value changed; None for a key of no group."""
    prefix, dot, leaf = name.rpartition(".")
    switch = f"{prefix}{dot}use_sliding_window"
    if leaf in _WINDOWS and all(names.value(switch, side) is False for side in (old, new)):
        return "without-effect"
    kind = names.kind(name)
    keys = [side[name].said for side in (old, new) if name in side]
    if kind in _READ_BY_MODEL and not any(_is_read(names, key, anywhere=True) is not False for key in keys):
        return "unread-key"
    before, after = (names.value(name, side) for side in (old, new))
    numbers = type(before) in (int, float) and type(after) in (int, float)
    lowered = kind == "position-limit-changed" and numbers and after < before
    return "position-limit-lowered" if lowered else kind


def _one_sided(names: _SettingNames, name: str, old: _Flat, new: _Flat) -> Change:
    flat, other, plain = (new, old, "key-added") if name in new else (old, new, "key-removed")
    value, default, kind = flat[name].value, names.default(name, other), names.kind(name)
    was, now = (short(value) if name in side else None for side in (old, new))
    if kind == "noise":
        return names.change(kind, name, was, now)
    if default is not _MISSING and same(default, value):
        return names.change("implicit", name, was, now, Message("{} is what a missing key means", short(default)))
    if name.rpartition(".")[2] == "layer_types" and type(value) is list and set(map(str, value)) == {_FULL}:
        return names.change("implicit", name, was, now, Message("every layer attends to everything"))
    kind = _kind(names, name, old, new)
    if default is not _MISSING:
        # The class's default held before (or holds now): that is a value like any other.
        shown = Message("{} (the class's default)", short(default))
        return names.change(kind or "key-changed", name, was or shown, now or shown)
    # Most classes mean null by a missing key, but no table says so of this one: the kind stays plain.
    # A type or class that is given where there was none is that of the same model.
    is_named = was is None and kind in ("model-type-changed", "architecture-changed")
    return names.change(plain if value is None or is_named else kind or plain, name, was, now)


def _quantization(flat: _Flat) -> str | None:
    """Return method, format, bits, group or block size (``fp8, e4m3, weight_block_size [128, 128]``), if any."""
    parts = [(f".{name}".rpartition(f".{_QUANTIZATION}."), setting.value) for name, setting in flat.items()]
    inside = {key: value for (_, separator, key), value in parts if separator}
    if not inside:
        return None
    words = [short(inside.get("quant_method", "unnamed method"))]
    words += [short(inside[key]) for key in ("fmt", "format", "quant_algo") if isinstance(inside.get(key), str)]
    bits = inside.get("bits", inside.get("w_bit", 4 if inside.get("load_in_4bit") is True else None))
    words += [f"{bits} bits"] if isinstance(bits, int) else []
    sizes = [key for key in ("group_size", "weight_block_size") if inside.get(key) is not None]
    words += [f"{key} {short(inside[key])}" for key in sizes]
    return short(", ".join(words))


def _number(flat: _Flat, name: str) -> int | None:
    """Return a positive whole number of the configuration; else None."""
    value = flat[name].value if name in flat else None
    return value if type(value) is int and value > 0 else None
