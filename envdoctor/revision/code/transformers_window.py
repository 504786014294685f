"""Which transformers releases a revision can run with, as far as its changed code and configuration tell.

Kind of change, in the area ``code``: ``transformers-window`` (before and after are ranges of releases such as
``>=4.36,<4.48``, ``any`` or ``none``; detail says what sets the new bounds).

Conditions are necessary ones: names that must be importable, methods that must be there, the first release of a model
type. Names are looked up in the ledger of released packages. Files that did not change are not read: what they ask for
is the same on both sides.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown, Value
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.lookup import Asked, Lacking, answer
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.model_types import ModelTypes
from envdoctor.revision.code.parts.loaded import kind_of_file, parse, read_sources
from envdoctor.revision.code.parts.tree import FileCode
from envdoctor.revision.comparer import Change, Compared, Revisions, parted, read_json
from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.message import Message, listed
from envdoctor.versions.releases import EVERY, Range, Releases, intersect, parse_ranges, spell_ranges

_TABLE = "transformers-demands"
_CONFIGS = ("config.json", "tokenizer_config.json")


class _Demand(NamedTuple):
    """One condition: releases that meet it, and a clause that says what asks for them."""

    releases: str
    reason: Message
    path: str


def wants(path: str) -> bool:
    """Return whether it is a configuration, or a Python file that transformers loads by its name."""
    return path in _CONFIGS or kind_of_file(path) is not None


def compare(revisions: Revisions) -> Compared:
    """Return the windows as facts, and a change if they differ."""
    changed = revisions.changed()
    if not changed:
        reason = Unknown(Message("neither the code nor the configuration changed"))
        return _facts(reason, reason)
    before, after = (parted(_demands(side, changed, revisions.matrix)) for side in (revisions.old, revisions.new))
    was, now = (_window(*found) for found in (before, after))
    compared = _facts(was, now)
    if before[1] or after[1] or was == now:
        return compared
    asked, asks = ({demand.reason for demand in demands} for demands, _ in (before, after))
    news = [demand for demand in dict.fromkeys(after[0]) if demand.reason not in asked]
    gone = [demand for demand in dict.fromkeys(before[0]) if demand.reason not in asks]
    path = (news or after[0] or before[0])[0].path
    dropped = [Message("no longer: {}", demand.reason) for demand in gone]
    detail = listed([*(demand.reason for demand in news), *dropped], 3)
    change = Change("code", "transformers-window", path, "transformers", str(was), str(now), 1, detail)
    return compared._replace(changes=(change,))


def _facts(old: Value, new: Value) -> Compared:
    return Compared(facts={"revision.transformers_old": old, "revision.transformers_new": new})


def _window(demands: Sequence[_Demand], unread: Sequence[Unread]) -> str | Unknown:
    """Return the releases that meet every demand; unknown if a file could not be understood."""
    if unread:
        return Unknown(Message("{}: {}", unread[0].path, unread[0].reason))
    window: tuple[Range, ...] = EVERY
    for demand in demands:
        window = intersect(window, parse_ranges(demand.releases))
    return spell_ranges(window)


def _demands(snapshot: Snapshot, paths: Sequence[str], matrix: Matrix) -> Iterator[_Demand | Unread]:
    """Yield what the given files ask for: first the demands of configurations, then those of code."""
    present = [path for path in paths if path in snapshot.files]
    for path in present:
        read = read_json(snapshot, path) if path in _CONFIGS else None
        if isinstance(read, Unread):
            yield read
            return
        elif read is not None:
            yield from _config_demands(path, read.data, matrix)
    sources, unread = read_sources(snapshot, [path for path in present if path not in _CONFIGS])
    yield from unread
    for source, code in zip(sources, parse(sources), strict=True):
        if isinstance(code, Unread):
            yield code
        else:
            yield from _import_demands(source.path, code, matrix.ledger)
            yield from _method_demands(source.path, code, matrix)


def _config_demands(path: str, data: Mapping[str, Any], matrix: Matrix) -> Iterator[_Demand]:
    own_code = path == "config.json" and isinstance(data.get("auto_map"), dict) and bool(data["auto_map"])
    kind = data.get("model_type")
    releases = ModelTypes(matrix).releases(kind) if path == "config.json" and isinstance(kind, str) else None
    if releases and not own_code:
        yield _Demand(releases, Message("model type {} is registered in {}", str(kind)[:60], releases), path)
    for row in matrix.rows(_TABLE, "config"):
        value = data.get(row["key"])
        if row["file"] != path or value is None or row.get("without") in data or own_code:
            continue
        if "values" not in row or value in row["values"]:
            what = f"{row['key']} = {value}" if "values" in row else row["key"]
            yield _Demand(row["releases"], Message("{} is understood by {}", what, row["releases"]), path)


def _method_demands(path: str, code: FileCode, matrix: Matrix) -> Iterator[_Demand]:
    for definition in code.definitions:
        owner, _, method = definition.name.rpartition(".")
        taken = {parameter.name for parameter in definition.parameters}
        open_ended = any(parameter.kind == "**" for parameter in definition.parameters)
        for row in matrix.rows(_TABLE, "method"):
            fits = method == row["name"] and fnmatchcase(owner.rpartition(".")[2], row["class"])
            if fits and row["lacks"] not in taken and not open_ended:
                what = Message("{} takes no {}", definition.name, row["lacks"])
                yield _Demand(row["releases"], Message("{}, which works with {}", what, row["releases"]), path)
    if any(site.is_gate for site in code.sites):
        return
    defined = {definition.leaf for definition in code.definitions}
    for call in (call for definition in code.definitions for call in definition.calls):
        called = call.name.rpartition(".")[2]
        keywords = {keyword.partition("=")[0] for keyword in call.keywords}
        for row in matrix.rows(_TABLE, "call"):
            wanted = row.get("keyword")
            if called == row["name"] and called not in defined and (wanted is None or wanted in keywords):
                shown = f"{called}({wanted}=…)" if wanted else called
                yield _Demand(row["releases"], Message("{} is in {}", shown, row["releases"]), path)


def _import_demands(path: str, code: FileCode, ledger: Ledger) -> Iterator[_Demand]:
    """Yield what a file imports whenever it is loaded, unless all releases have it. A name that no release has may be
    newer: then its module counts. The last release that was read of each minor (``4.36``) stands for all."""
    released = ledger.package("transformers")
    if released is None:
        return
    minors = {".".join(version.split(".")[:2]): version for version in released.read}
    demands: dict[str, str | None] = {}
    for use in code.uses:
        if use.module.partition(".")[0] != "transformers" or use.guarded or use.within or use.branch:
            continue
        asked = Asked(use.module, use.name, use.keyword)
        having = _having(ledger, released, asked, minors)
        having = having if having.yes else _having(ledger, released, Asked(use.module), minors)
        what = f"{use.dotted}({use.keyword}=)" if use.keyword else use.dotted
        demands[what] = having.specifier
    for what, releases in demands.items():
        if releases:
            yield _Demand(releases, Message("{} is in {}", what, releases), path)


def _having(ledger: Ledger, released: Released, asked: Asked, minors: Mapping[str, str]) -> Releases:
    """Return the releases that have it. A release that cannot tell is like the one before it."""
    known: list[bool] = []
    for version in minors.values():
        lacking = answer(ledger, released, asked, version, lambda _: None)
        unsure = isinstance(lacking, Unknown)
        known.append(known[-1] if unsure and known else not isinstance(lacking, Lacking))
    return Releases.of(list(minors), known)
