"""Which transformers releases a revision can run with, as far as its changed code and configuration tell.

Kind of change, in the area ``code``: ``transformers-window`` (before and after are ranges of releases such as
``>=4.36,<4.48``, ``any`` or ``none``; detail says what sets the new bounds).

Conditions are necessary ones: names that must be importable, methods that must be there, the first release of a model
type. Names are looked up in the ledger of released packages. Files that did not change are not read: what they ask for
is the same on both sides.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown, Value
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.knowledge.ledger import Ledger
from envdoctor.knowledge.lookup import Asked, Lacking, answer
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.model_types import ModelTypes
from envdoctor.revision.code.parts.reading import parse, read_sources
from envdoctor.revision.code.parts.records import FileCode
from envdoctor.revision.comparer import Change, Compared, Revisions, read_json
from envdoctor.source.uses import Use
from envdoctor.text.listed import listed
from envdoctor.text.message import Message
from envdoctor.versions.releases import EVERY, Range, Releases, intersect, parse_ranges, spell_ranges

AREA = "code"
_TABLE = "transformers-demands"
_CONFIGS = ("config.json", "tokenizer_config.json")
#: Files that transformers loads by an auto_map are called so; others (web_demo.py, convert.py) are only there.
_LOADED = re.compile(
    r"(?:modeling|configuration|tokenization|processing|image_processing|video_processing|feature_extraction"
    r"|quantization|cache|modular|generation)\w*\.py\Z"
)


class _Demand(NamedTuple):
    """One condition: releases that meet it, and a clause that says what asks for them."""

    releases: tuple[Range, ...]
    reason: Message
    path: str


def wants(path: str) -> bool:
    """The configurations, and Python files that transformers loads by their name."""
    return path in _CONFIGS or _LOADED.match(posixpath.basename(path)) is not None


def compare(revisions: Revisions) -> Compared:
    """The windows as facts, and a change when they differ."""
    changed = revisions.changed()
    if not changed:
        reason = Unknown(Message("neither the code nor the configuration changed"))
        return _facts(reason, reason)
    before, after = (_demands(side, changed, revisions.matrix) for side in (revisions.old, revisions.new))
    was, now = (
        Unknown(Message("{}: {}", found.path, found.reason))
        if isinstance(found, Unread)
        else spell_ranges(_window(found))
        for found in (before, after)
    )
    compared = _facts(was, now)
    if isinstance(before, Unread) or isinstance(after, Unread) or was == now:
        return compared
    asked, asks = ({demand.reason for demand in demands} for demands in (before, after))
    news = [demand for demand in after if demand.reason not in asked]
    dropped = [Message("no longer: {}", demand.reason) for demand in before if demand.reason not in asks]
    path = (news or after or before)[0].path
    detail = listed([*(demand.reason for demand in news), *dropped], 3)
    change = Change(AREA, "transformers-window", path, "transformers", str(was), str(now), 1, detail)
    return compared._replace(changes=(change,))


def _facts(old: Value, new: Value) -> Compared:
    return Compared(facts={"revision.transformers_old": old, "revision.transformers_new": new})


def _window(demands: Sequence[_Demand]) -> tuple[Range, ...]:
    """The releases that meet every demand."""
    window = EVERY
    for demand in demands:
        window = intersect(window, demand.releases)
    return window


def _demands(snapshot: Snapshot, paths: Sequence[str], matrix: Matrix) -> list[_Demand] | Unread:
    """What the given files ask for, the tightest demands first; unread when one of them could not be understood."""
    present = [path for path in paths if path in snapshot.files]
    found: list[_Demand] = []
    for path in present:
        if path in _CONFIGS:
            read = read_json(snapshot, path)
            if isinstance(read, Unread):
                return read
            found += _config_demands(path, read.data, matrix) if read is not None else ()
    sources, unread = read_sources(snapshot, [path for path in present if path not in _CONFIGS])
    if unread:
        return unread[0]
    known = _Releases(matrix.ledger)
    for source, code in zip(sources, parse(sources), strict=True):
        if isinstance(code, Unread):
            return code
        for what, releases in known.needed(code.uses).items():
            found.append(_Demand(parse_ranges(releases), Message("{} is in {}", what, releases), source.path))
        found += _method_demands(source.path, code, matrix)
    return [demand for demand in dict.fromkeys(found) if demand.releases != EVERY]


def _config_demands(path: str, data: Mapping[str, Any], matrix: Matrix) -> Iterator[_Demand]:
    own_code = isinstance(data.get("auto_map"), dict) and bool(data["auto_map"])
    kind = data.get("model_type")
    if path == "config.json" and isinstance(kind, str) and not own_code:
        releases = ModelTypes(matrix).releases(kind)
        if releases is not None:
            yield _Demand(
                parse_ranges(releases), Message("model type {} is registered in {}", kind[:60], releases or "all"), path
            )
    for row in matrix.rows(_TABLE, "config"):
        value = data.get(row["key"])
        if row["file"] != path or value is None or row.get("without") in data or (own_code and path == "config.json"):
            continue
        if "values" not in row or value in row["values"]:
            what = f"{row['key']} = {value}" if "values" in row else row["key"]
            yield _Demand(parse_ranges(row["releases"]), Message("{} is understood by {}", what, row["releases"]), path)


def _method_demands(path: str, code: FileCode, matrix: Matrix) -> Iterator[_Demand]:
    for definition in code.definitions:
        owner, _, method = definition.name.rpartition(".")
        taken = {parameter.name for parameter in definition.parameters}
        open_ended = any(parameter.kind == "**" for parameter in definition.parameters)
        for row in matrix.rows(_TABLE, "method"):
            fits = method == row["name"] and fnmatchcase(owner.rpartition(".")[2], row["class"])
            if fits and row["lacks"] not in taken and not open_ended:
                what = Message("{} takes no {}", definition.name, row["lacks"])
                yield _Demand(
                    parse_ranges(row["releases"]), Message("{}, which works with {}", what, row["releases"]), path
                )
    if any(site.is_gate for site in code.sites):
        return
    defined = {definition.name.rpartition(".")[2] for definition in code.definitions}
    for call in (call for definition in code.definitions for call in definition.calls):
        called = call.name.rpartition(".")[2]
        keywords = {keyword.partition("=")[0] for keyword in call.keywords}
        for row in matrix.rows(_TABLE, "call"):
            wanted = row.get("keyword")
            if called == row["name"] and called not in defined and (wanted is None or wanted in keywords):
                call_text = f"{called}({wanted}=…)" if wanted else called
                yield _Demand(parse_ranges(row["releases"]), Message("{} is in {}", call_text, row["releases"]), path)


class _Releases:
    """The transformers releases by the ledger: of each minor (``4.36``) the last one that was read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._released = ledger, ledger.package("transformers")
        read = self._released.read if self._released is not None else ()
        self._last = {".".join(version.split(".")[:2]): version for version in read}

    def needed(self, uses: Iterable[Use]) -> dict[str, str]:
        """What a file takes whenever it is loaded, where not all releases have it, with those that do, such as
        ``>=4.36,<5.0``. What none has may be newer: its module counts."""
        found: dict[str, str] = {}
        for use in uses:
            if use.module.partition(".")[0] != "transformers" or use.guarded or use.within or use.branch:
                continue
            having = self._having(Asked(use.module, use.name, use.keyword))
            having = having if any(having) else self._having(Asked(use.module))
            what = f"{use.dotted}({use.keyword}=)" if use.keyword else use.dotted
            found[what] = Releases.of(list(self._last), having).specifier or ""
        return {what: releases for what, releases in found.items() if releases}

    def _having(self, asked: Asked) -> list[bool]:
        """Whether each of the releases has it. One that cannot tell is like the one before it."""
        known: list[bool] = []
        for version in self._last.values():
            assert self._released is not None
            lacking = answer(self._ledger, self._released, asked, version, lambda _: None)
            unsure = isinstance(lacking, Unknown)
            known.append(known[-1] if unsure and known else not isinstance(lacking, Lacking))
        return known
