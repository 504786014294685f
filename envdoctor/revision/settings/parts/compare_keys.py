"""Files of settings (JSON objects) of one area, compared key by key under canonical names."""

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Unread
from envdoctor.knowledge.matrix import Matrix
from envdoctor.models.json_object import JsonObject
from envdoctor.revision.comparer import Change, Compared, Revisions
from envdoctor.revision.json_files import read_json
from envdoctor.revision.settings.parts.defaults import MISSING, default_of, same
from envdoctor.revision.settings.parts.flat_keys import Setting, flatten
from envdoctor.revision.short_text import short
from envdoctor.text.message import Message

_MOST_FILES = 30
_MOST_KEYS = 5_000
#: The canonical key; compression_config is an older spelling of it.
_QUANTIZATION = "quantization_config"
#: Kinds that leave a file equal in meaning.
_HARMLESS = ("noise", "implicit", "without-effect", "key-renamed")


class Names(NamedTuple):
    """What the matrix knows of the keys of one file of an area.

    ``aliases`` maps every other spelling of a key to the canonical one, ``kinds`` are the groups of keys of the table
    config-keys, ``defaults`` what a missing key means, by model type (``*``: in every class).
    """

    area: str
    path: str
    aliases: Mapping[str, str]
    kinds: Sequence[Mapping[str, Any]]
    defaults: Mapping[str, Any]

    def kind(self, name: str) -> str | None:
        """The kind of a canonical key; patterns with a dot are held against the whole name, others against its end."""
        leaf = name.rpartition(".")[2]
        for entry in self.kinds:
            if entry.get("area", "config") != self.area:
                continue
            for pattern in entry["keys"]:
                whole = "." in pattern
                if fnmatch.fnmatchcase(name if whole else leaf, pattern):
                    return str(entry["kind"])
                if whole and fnmatch.fnmatchcase(name, f"*.{pattern}"):
                    return str(entry["kind"])
        return None

    def default(self, name: str, flat: Mapping[str, Setting]) -> Any:
        """What the missing key means, or MISSING."""
        return default_of(name, flat, self.defaults)

    def change(self, kind: str, name: str, before: str | None, after: str | None, detail: str | None = None) -> Change:
        """A change of a key of this file."""
        return Change(self.area, kind, self.path, name, before, after, detail=detail)


def names_of(area: str, path: str, matrix: Matrix) -> Names:
    """What is known of a file of an area. Only config.json has a model type to look defaults up with."""
    aliases = {name: row["key"] for row in matrix.rows("config-keys", "alias") for name in row["names"]}
    defaults = matrix.part("config-defaults", "defaults" if area == "config" else area)
    defaults = defaults if area == "config" else {"*": defaults}
    return Names(area, path, aliases, matrix.rows("config-keys", "kind"), defaults)


def compare_files(area: str, revisions: Revisions, *, main: str) -> Compared:
    """The changes of all files of an area. ``main`` is named in the summary when it is equal in meaning.

    A file that came or went is one change, ``<area>-added`` or ``<area>-removed``.
    """
    changed = revisions.changed()
    changes: list[Change] = []
    unread = [
        Unread(path, Message("only {} files of this kind are compared", _MOST_FILES)) for path in changed[_MOST_FILES:]
    ]
    for path in changed[:_MOST_FILES]:
        before, after = (read_json(side, path) for side in (revisions.old, revisions.new))
        if isinstance(before, Unread) or isinstance(after, Unread):
            unread += [side for side in (before, after) if isinstance(side, Unread)]
            continue
        match _changes(names_of(area, path, revisions.matrix), before, after):
            case Unread() as problem:
                unread.append(problem)
            case found:
                changes += found
    touched = any(change.path == main and change.kind not in _HARMLESS for change in changes)
    known = main in revisions.old.files and main in revisions.new.files and not any(one.path == main for one in unread)
    return Compared(tuple(changes), tuple(unread), equal=(main,) if known and not touched else ())


def _changes(names: Names, before: JsonObject | None, after: JsonObject | None) -> list[Change] | Unread:
    if before is None or after is None:
        given = after or before
        assert given is not None
        texts = (None, short(given.data)) if before is None else (short(given.data), None)
        kind = f"{names.area}-added" if before is None else f"{names.area}-removed"
        return [names.change(kind, posixpath.basename(names.path), *texts)]
    one, two = (flatten(side.data, names.aliases) for side in (before, after))
    if max(len(one), len(two)) > _MOST_KEYS:
        return Unread(
            names.path, Message("it has {} keys; at most {} are compared", max(len(one), len(two)), _MOST_KEYS)
        )
    return [*compare_settings(names, one, two), *repeated_keys(names, before, after)]


def repeated_keys(names: Names, before: JsonObject, after: JsonObject) -> Iterator[Change]:
    """``repeated-key``: keys that the new file alone gives twice."""
    for key in after.repeated:
        if key not in before.repeated:
            yield names.change("repeated-key", short(key), None, None)


def compare_settings(names: Names, one: Mapping[str, Setting], two: Mapping[str, Setting]) -> Iterator[Change]:
    """The changes between two flat configurations, in the order of the new file, what is gone at the end."""
    before_whole, after_whole = _quantization(one), _quantization(two)
    whole = (before_whole is None) != (after_whole is None)
    if whole:
        kind = "quantization-added" if before_whole is None else "quantization-removed"
        yield names.change(kind, _QUANTIZATION, before_whole, after_whole)
    for name in dict.fromkeys([*two, *one]):
        before, after = one.get(name), two.get(name)
        if whole and _is_of_quantization(name):
            continue
        if before is None or after is None:
            yield _one_sided(names, name, one, two)
        elif not same(before.value, after.value):
            kind = _without_effect(names, name, one, two) or names.kind(name) or "key-changed"
            yield names.change(kind, name, short(before.value), short(after.value))
        elif before.said != after.said:
            yield _renamed(names, name, before, after)


def _renamed(names: Names, name: str, before: Setting, after: Setting) -> Change:
    leaf = name.rpartition(".")[2]
    rope = leaf in ("rope_theta", "rope_local_base_freq", "partial_rotary_factor") or "rope_scaling." in name
    moved = rope and ("rope_parameters" in before.said) != ("rope_parameters" in after.said)
    detail = Message("the value stays {}", short(after.value))
    return names.change("rope-moved" if moved else "key-renamed", name, before.said, after.said, detail)


def _one_sided(names: Names, name: str, one: Mapping[str, Setting], two: Mapping[str, Setting]) -> Change:
    before, after = one.get(name), two.get(name)
    given = after if after is not None else before
    assert given is not None
    default = names.default(name, one if before is None else two)
    kind = names.kind(name)
    was, now = (None if side is None else short(side.value) for side in (before, after))
    if kind == "noise":
        return names.change(kind, name, was, now)
    if default is not MISSING and same(default, given.value):
        return names.change("implicit", name, was, now, Message("{} is what a missing key means", short(default)))
    if name.rpartition(".")[2] == "layer_types" and _all_full(given.value):
        return names.change("implicit", name, was, now, Message("every layer attends to everything"))
    if default is not MISSING:
        # The class's default held before (or holds now): that is a value like any other.
        shown = Message("{} (the class's default)", short(default))
        kind = _without_effect(names, name, one, two) or kind or "key-changed"
        return names.change(kind, name, was or shown, now or shown)
    # null is what most classes mean by a missing key, but nobody said so of this one: no kind of its own.
    plain = "key-added" if before is None else "key-removed"
    return names.change(plain if given.value is None else kind or plain, name, was, now)


def _all_full(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(item == "full_attention" for item in value)


def _without_effect(names: Names, name: str, one: Mapping[str, Setting], two: Mapping[str, Setting]) -> str | None:
    """A window that is switched off in both revisions."""
    prefix, dot, leaf = name.rpartition(".")
    if leaf not in ("sliding_window", "max_window_layers"):
        return None
    switch = f"{prefix}{dot}use_sliding_window"
    values = [flat[switch].value if switch in flat else names.default(switch, flat) for flat in (one, two)]
    return "without-effect" if all(value is False for value in values) else None


def _is_of_quantization(name: str) -> bool:
    """Whether a canonical dotted key lies in a quantisation configuration (at any depth)."""
    return f".{_QUANTIZATION}." in f".{name}"


def _quantization(flat: Mapping[str, Setting]) -> str | None:
    """Method, format, bits, group or block size (``fp8, e4m3, weight_block_size [128, 128]``); None without one."""
    inside = {}
    for name, setting in flat.items():
        if _is_of_quantization(name):
            inside[f".{name}".rpartition(f".{_QUANTIZATION}.")[2]] = setting.value
    if not inside:
        return None
    words = [short(inside.get("quant_method", "unnamed method"))]
    words += [short(inside[key]) for key in ("fmt", "format", "quant_algo") if isinstance(inside.get(key), str)]
    bits = inside.get("bits", inside.get("w_bit", 4 if inside.get("load_in_4bit") is True else None))
    words += [f"{bits} bits"] if isinstance(bits, int) else []
    sizes = [key for key in ("group_size", "weight_block_size") if inside.get(key) is not None]
    words += [f"{key} {short(inside[key])}" for key in sizes]
    return short(", ".join(words))
