"""Files of settings (JSON objects) of one area, compared key by key under canonical names."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.areas import area_of
from envdoctor.revision.change import Change, Compared
from envdoctor.revision.config_defaults import MISSING, default_of, same
from envdoctor.revision.config_keys import Setting, flatten
from envdoctor.revision.json_file import JsonFile, read_object
from envdoctor.revision.pairs import differing
from envdoctor.revision.quantization import KEY, is_part, summary
from envdoctor.revision.spelling import short

__all__ = ["Names", "Table", "compare_files", "compare_settings", "names_of", "shipped_table"]

#: Reads a table of the matrix by its name.
Table = Callable[[str], Mapping[str, Any]]
_LIMIT = 16 << 20
_MOST_FILES = 30
_MOST_KEYS = 5_000
#: Kinds that leave a file equal in meaning.
_HARMLESS = ("noise", "implicit", "without-effect", "key-renamed")


class Names(NamedTuple):
    """What the matrix knows of the keys of one file: the area and path, the tables config-keys and config-defaults."""

    area: str
    path: str
    keys: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def aliases(self) -> dict[str, str]:
        """Every other spelling of a key -> the canonical one."""
        return {name: entry["key"] for entry in self.keys.get("alias", []) for name in entry["names"]}

    def kind(self, name: str) -> str | None:
        """The kind of a canonical key; patterns with a dot are held against the whole name, others against its end."""
        leaf = name.rpartition(".")[2]
        for entry in self.keys.get("kind", []):
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


def names_of(area: str, path: str, table: Table) -> Names:
    """The tables for a file of an area. Only config.json has a model type to look defaults up with."""
    defaults = table("config-defaults")
    if area != "config":
        defaults = {"defaults": {"*": defaults.get(area, {})}}
    return Names(area, path, table("config-keys"), defaults)


def shipped_table() -> Table:
    """The tables of the shipped matrix, for callers that have none open."""
    from envdoctor.knowledge.matrix import load_matrix

    return load_matrix().table


def compare_files(area: str, old: Snapshot, new: Snapshot, table: Table | None, *, main: str) -> Compared:
    """The changes of all files of an area. ``main`` is named in the summary when it is equal in meaning.

    A file that came or went is one change, ``<area>-added`` or ``<area>-removed``.
    """
    paths = [path for path in {**old.files, **new.files} if area_of(path) == area]
    changed = differing(old, new, paths)
    if changed and table is None:
        table = shipped_table()
    changes: list[Change] = []
    unread = [Unread(path, f"only {_MOST_FILES} files of this kind are compared") for path in changed[_MOST_FILES:]]
    for path in changed[:_MOST_FILES]:
        before, after = read_object(old, path, _LIMIT), read_object(new, path, _LIMIT)
        if isinstance(before, Unread) or isinstance(after, Unread):
            unread += [side for side in (before, after) if isinstance(side, Unread)]
            continue
        assert table is not None
        found = _changes(area, path, before, after, table)
        unread += [found] if isinstance(found, Unread) else []
        changes += found if isinstance(found, list) else []
    touched = any(change.path == main and change.kind not in _HARMLESS for change in changes)
    known = main in old.files and main in new.files and not any(part.path == main for part in unread)
    return Compared(tuple(changes), tuple(unread), equal=(main,) if known and not touched else ())


def _changes(
    area: str, path: str, before: JsonFile | None, after: JsonFile | None, table: Table
) -> list[Change] | Unread:
    if before is None or after is None:
        given = after or before
        assert given is not None
        shown = short(given.data)
        texts = (None, shown) if before is None else (shown, None)
        name = f"{area}-added" if before is None else f"{area}-removed"
        return [Change(area, name, path, posixpath.basename(path), *texts)]
    names = names_of(area, path, table)
    one, two = (flatten(side.data, names.aliases()) for side in (before, after))
    if max(len(one), len(two)) > _MOST_KEYS:
        return Unread(path, f"it has {max(len(one), len(two))} keys; at most {_MOST_KEYS} are compared")
    changes = list(compare_settings(names, one, two))
    for key in after.repeated:
        if key not in before.repeated:
            changes.append(Change(area, "repeated-key", path, short(key)))
    return changes


def compare_settings(names: Names, one: Mapping[str, Setting], two: Mapping[str, Setting]) -> Iterator[Change]:
    """The changes between two flat configurations, in the order of the new file, what is gone at the end."""
    before_whole, after_whole = summary(one), summary(two)
    whole = (before_whole is None) != (after_whole is None)
    if whole:
        kind = "quantization-added" if before_whole is None else "quantization-removed"
        yield names.change(kind, KEY, before_whole, after_whole)
    for name in dict.fromkeys([*two, *one]):
        before, after = one.get(name), two.get(name)
        if whole and is_part(name):
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
    detail = f"the value stays {short(after.value)}"
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
        return names.change("implicit", name, was, now, f"{short(default)} is what a missing key means")
    if name.rpartition(".")[2] == "layer_types" and _all_full(given.value):
        return names.change("implicit", name, was, now, "every layer attends to everything")
    if default is not MISSING:
        # The class's default held before (or holds now): that is a value like any other.
        shown = f"{short(default)} (the class's default)"
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
