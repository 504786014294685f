"""Which transformers releases a revision can run with, as far as its changed code and configuration tell.

Kind of change, in the area ``code``: ``transformers-window`` (before and after are ranges of releases such as
``>=4.36,<4.48``, ``any`` or ``none``; detail says what sets the new bounds).

Conditions are necessary ones: names that must be importable, methods that must be there, the first release of a model
type. Files that did not change are not read: what they ask for is the same on both sides.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.revision.change import Change, Compared
from envdoctor.revision.code_file import FileCode
from envdoctor.revision.code_reading import parse, read_sources
from envdoctor.revision.json_file import read_object
from envdoctor.revision.pairs import differing
from envdoctor.revision.tensor_groups import listed
from envdoctor.revision.transformers_symbols import Symbols
from envdoctor.versions.ranges import EVERY, Range, intersect, parse_ranges, spell_ranges

__all__ = ["Demand", "compare", "demands_of", "window_of"]

_CONFIGS = ("config.json", "tokenizer_config.json")
_LARGEST_CONFIG = 8 << 20
#: Files that transformers loads by an auto_map are called so; others (web_demo.py, convert.py) are only there.
_LOADED = re.compile(
    r"(?:modeling|configuration|tokenization|processing|image_processing|video_processing|feature_extraction"
    r"|quantization|cache|modular|generation)\w*\.py\Z"
)


class Demand(NamedTuple):
    """One condition: releases that meet it, and a clause that says what asks for them."""

    releases: tuple[Range, ...]
    reason: str
    path: str


def compare(old: Snapshot, new: Snapshot, *, table: Callable[[str], Mapping[str, Any]] | None = None) -> Compared:
    """The windows as facts, and a change when they differ. ``table`` gives a table by its name."""
    everything = {**old.files, **new.files}
    paths = [path for path in everything if path in _CONFIGS or _LOADED.match(posixpath.basename(path))]
    changed = differing(old, new, paths)
    if not changed or table is None:
        reason = Unknown("neither the code nor the configuration changed" if table else "no table was given")
        return _facts(reason, reason)
    symbols = Symbols(table("transformers-symbols"), table("transformers-model-types"))
    before, after = demands_of(old, changed, symbols), demands_of(new, changed, symbols)
    windows = [
        Unknown(f"{found.path}: {found.reason}") if isinstance(found, Unread) else spell_ranges(window_of(found))
        for found in (before, after)
    ]
    compared = _facts(*windows)
    if isinstance(before, Unread) or isinstance(after, Unread) or windows[0] == windows[1]:
        return compared
    asked = {demand.reason for demand in before}
    news = [demand for demand in after if demand.reason not in asked]
    dropped = [f"no longer: {demand.reason}" for demand in before if demand.reason not in {d.reason for d in after}]
    path = (news or after or before)[0].path
    detail = listed([*(demand.reason for demand in news), *dropped], 3)
    change = Change("code", "transformers-window", path, "transformers", str(windows[0]), str(windows[1]), 1, detail)
    return compared._replace(changes=(change,))


def _facts(old: object, new: object) -> Compared:
    return Compared(facts=(("revision.transformers_old", old), ("revision.transformers_new", new)))


def window_of(demands: Sequence[Demand]) -> tuple[Range, ...]:
    """The releases that meet every demand."""
    window = EVERY
    for demand in demands:
        window = intersect(window, demand.releases)
    return window


def demands_of(snapshot: Snapshot, paths: Sequence[str], symbols: Symbols) -> list[Demand] | Unread:
    """What the given files ask for, the tightest demands first; unread when one of them could not be understood."""
    present = [path for path in paths if path in snapshot.files]
    found: list[Demand] = []
    for path in present:
        if path in _CONFIGS:
            read = read_object(snapshot, path, _LARGEST_CONFIG)
            if isinstance(read, Unread):
                return read
            found += _config_demands(path, read.data, symbols) if read is not None else ()
    sources, unread = read_sources(snapshot, [path for path in present if path not in _CONFIGS])
    if unread:
        return unread[0]
    for source, code in zip(sources, parse(sources), strict=True):
        if not isinstance(code, FileCode):
            return Unread(source.path, code.reason)
        found += _code_demands(source.path, code, symbols)
    return [demand for demand in dict.fromkeys(found) if demand.releases != EVERY]


def _config_demands(path: str, data: Mapping[str, Any], symbols: Symbols) -> Iterator[Demand]:
    own_code = isinstance(data.get("auto_map"), dict) and bool(data["auto_map"])
    kind = data.get("model_type")
    if path == "config.json" and isinstance(kind, str) and not own_code:
        releases = symbols.releases_of_type(kind)
        if releases is not None:
            yield Demand(parse_ranges(releases), f"model type {kind[:60]} is registered in {releases or 'all'}", path)
    for row in symbols.config:
        value = data.get(row["key"])
        if row["file"] != path or value is None or row.get("without") in data or (own_code and path == "config.json"):
            continue
        if "values" not in row or value in row["values"]:
            what = f"{row['key']} = {value}" if "values" in row else row["key"]
            yield Demand(parse_ranges(row["releases"]), f"{what} is understood by {row['releases']}", path)


def _code_demands(path: str, code: FileCode, symbols: Symbols) -> Iterator[Demand]:
    for name in sorted({one.name for one in code.imports if one.required}):
        releases = symbols.releases_of_name(name)
        if releases:
            yield Demand(parse_ranges(releases), f"{name} is in {releases.replace('|', 'or')}", path)
    gated = any(site.kind.endswith("-gate") for site in code.sites)
    defined = {definition.name.rpartition(".")[2] for definition in code.definitions}
    for definition in code.definitions:
        owner, _, method = definition.name.rpartition(".")
        for row in symbols.methods:
            names = {parameter.name for parameter in definition.parameters}
            open_ended = any(parameter.kind == "**" for parameter in definition.parameters)
            fits = method == row["name"] and fnmatchcase(owner.rpartition(".")[2], row["class"])
            if fits and row["lacks"] not in names and not open_ended:
                what = f"{definition.name} takes no {row['lacks']}"
                yield Demand(parse_ranges(row["releases"]), f"{what}, which works with {row['releases']}", path)
        if gated:
            continue
        for call in definition.calls:
            called = call.name.rpartition(".")[2]
            keywords = {keyword.partition("=")[0] for keyword in call.keywords}
            for row in symbols.calls:
                wanted = row.get("keyword")
                if called == row["name"] and called not in defined and (wanted is None or wanted in keywords):
                    what = f"{called}({wanted}=…)" if wanted else called
                    yield Demand(parse_ranges(row["releases"]), f"{what} is in {row['releases']}", path)
