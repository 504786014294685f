"""Which transformers releases a revision can run with, as far as its changed code and configuration tell:
``transformers-window`` (before and after are ranges such as ``>=4.36,<4.48``; detail says what sets the new bounds).

Conditions are necessary ones: names that must be importable, methods that must be there, the first release of a model
type. Names are looked up in the ledger of released packages. Files that did not change are not read: what they ask for
is the same on both sides.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.lookup import Asked, Lacking, answer
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.model_types import ModelTypes
from envdoctor.revision.code.parts.loaded import CodeSide, kind_of_file
from envdoctor.revision.code.parts.tree import FileCode
from envdoctor.revision.comparer import Change, Compared, Revisions, parted, read_json
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.system.message import Message, listed
from envdoctor.versions.releases import EVERY, Releases, intersect, parse_ranges, spell_ranges

_TABLE = "transformers-demands"
_CONFIGS = ("config.json", "tokenizer_config.json")


class _Demand(NamedTuple):
    """One condition: releases that meet it, and a clause that says what asks for them."""

    releases: str
    reason: Message
    path: str


def transformers_windows(revisions: Revisions, sides: list[CodeSide], unread: Mapping[str, Unread]) -> Compared:
    """Return the windows of both sides as facts, and a change if they differ; ``unread`` are files without code."""
    paths = [path for path in revisions.changed() if path in _CONFIGS or kind_of_file(path)]
    windows: list[str | Unknown] = [Unknown(Message("neither the code nor the configuration changed"))] * 2
    found = [parted(_demands(side, paths, unread, revisions.matrix)) for side in sides]
    for number, (demands, problems) in enumerate(found if paths else ()):
        window = EVERY
        for demand in demands:
            window = intersect(window, parse_ranges(demand.releases))
        problem = problems[0] if problems else None
        windows[number] = Unknown(Message("{}: {}", *problem)) if problem else spell_ranges(window)
    (before, old_problems), (after, new_problems) = found
    was, now = windows
    compared = Compared(facts={"revision.transformers_old": was, "revision.transformers_new": now})
    if old_problems or new_problems or was == now:
        return compared
    asked, asks = ({demand.reason for demand in demands} for demands in (before, after))
    news = [demand for demand in dict.fromkeys(after) if demand.reason not in asked]
    dropped = [Message("no longer: {}", one.reason) for one in dict.fromkeys(before) if one.reason not in asks]
    path = (news or after or before)[0].path
    detail = listed([*(demand.reason for demand in news), *dropped], 3)
    change = Change("code", "transformers-window", path, "transformers", str(was), str(now), 1, detail)
    return compared._replace(changes=(change,))


def _demands(
    side: CodeSide, paths: list[str], unread: Mapping[str, Unread], matrix: Matrix
) -> Iterator[_Demand | Unread]:
    """Yield what the given files ask for: first the demands of configurations, then those of code."""
    present = [path for path in paths if path in side.snapshot.files]
    for path in present:
        read = read_json(side.snapshot, path) if path in _CONFIGS else None
        if isinstance(read, Unread):
            yield read
            return
        elif read is not None:
            yield from _config_demands(path, read.data, matrix)
    for path in present:
        if path in side.codes:
            yield from _import_demands(path, side.codes[path], matrix.ledger)
            yield from _method_demands(path, side.codes[path], matrix)
        elif path in unread:
            yield unread[path]


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
