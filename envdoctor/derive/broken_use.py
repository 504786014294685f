"""What the user's code uses and the installed releases do not have, by the ledger of released packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.ledger import Released
from envdoctor.knowledge.ledger_answers import Asked, Lacking, answer, range_of, releases_with, went_to
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("use", "pkg.*")
OUTPUTS = ("broken_use",)

#: From what runs for sure to what may never run.
_REACH = ("start", "branch", "call", "unused")
_MOST_PLACES = 5


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``broken_use``: one item for each thing that is missing, with all its places; the earliest reach counts.

    What cannot be told, of releases that the ledger does not know or of modules that make names up, is left out: the
    list says what is known to fail, and is complete when the uses are.
    """
    uses = value("use")
    if not isinstance(uses, Records):
        return {}
    judged = _Judged(value, matrix)
    for item in uses:
        if item.get("guarded") is not True:
            judged.add(item)
    return {"broken_use": Derived(Records(judged.records(), uses.incomplete), "the code and the ledger of releases")}


class _Broken(NamedTuple):
    """One thing that is missing, before its places are known. ``asked`` is what was asked for, for other releases."""

    package: str
    kind: str
    what: str
    installed: str | None
    asked: Asked
    call: str = ""


class _Judged:
    """The uses that fail, by what is missing."""

    def __init__(self, value: Callable[[str], Value], matrix: Matrix) -> None:
        self._value, self._matrix, self._ledger = value, matrix, matrix.ledger
        self._found: dict[tuple[str, str, str], tuple[_Broken, list[str], list[str]]] = {}

    def add(self, item: Mapping[str, Value]) -> None:
        """Judge one use."""
        module, kind = item.get("module"), item.get("kind")
        if not isinstance(module, str) or not isinstance(kind, str):
            return
        owner = self._ledger.owner(module)
        version = self._value(f"pkg.{owner}") if owner is not None else None
        if owner is None or version is None or isinstance(version, Unknown):
            return
        if isinstance(version, Absent):
            if kind in ("module", "name"):
                top = module.partition(".")[0]
                self._keep(_Broken(owner, "package", top, None, Asked(top)), item)
            return
        released = self._ledger.package(owner)
        if released is not None and released.by_names and isinstance(version, str):
            broken = self._broken(released, kind, _asked(module, kind, item), version)
            if broken is not None:
                self._keep(broken, item)

    def records(self) -> tuple[Mapping[str, Value], ...]:
        """One record for each thing, in the order in which the code uses them."""
        return tuple(self._record(*found) for found in self._found.values())

    def _broken(self, released: Released, kind: str, asked: Asked, version: str) -> _Broken | None:
        lacking = answer(self._ledger, released, asked, version, self._version)
        if not isinstance(lacking, Lacking):
            return None
        if asked.keyword and lacking.kind != "keyword":
            return None  # the name itself is missing, which is another use
        what = f"{lacking.what}({asked.keyword}=)" if lacking.kind == "keyword" else lacking.what
        if lacking.kind in ("module", "name"):
            module, _, name = lacking.what.rpartition(".")
            asked = Asked(lacking.what) if lacking.kind == "module" else Asked(module, name)
        return _Broken(released.name, lacking.kind, what, version, asked, lacking.call)

    def _keep(self, broken: _Broken, item: Mapping[str, Value]) -> None:
        _, places, reaches = self._found.setdefault((broken.package, broken.kind, broken.what), (broken, [], []))
        where, reach = item.get("place"), item.get("reach")
        places += where if isinstance(where, tuple) else ()
        reaches += [reach] if isinstance(reach, str) and reach in _REACH else ["start"]

    def _record(self, broken: _Broken, places: list[str], reaches: list[str]) -> Mapping[str, Value]:
        has, moved = self._elsewhere(broken)
        return {
            "package": broken.package,
            "kind": broken.kind,
            "what": broken.what,
            "installed": broken.installed or ABSENT,
            "has": has,
            "moved_to": moved,
            "call": _as_written(broken) if broken.call else ABSENT,
            "reach": min(reaches, key=_REACH.index),
            "place": tuple(dict.fromkeys(places))[:_MOST_PLACES],
            "cause": f"{has if isinstance(has, str) else 'none'} {moved if isinstance(moved, str) else ''}".strip(),
        }

    def _elsewhere(self, broken: _Broken) -> tuple[Value, Value]:
        """The releases that have it, and where it went."""
        released = self._ledger.package(broken.package)
        if released is None or broken.installed is None:
            return ABSENT, ABSENT
        row = releases_with(self._ledger, released, broken.asked, broken.installed, self._version)
        has: Value = row if isinstance(row, Unknown) else range_of(released, row) if row else ABSENT
        moved = went_to(released, broken.what, broken.installed) if broken.kind in ("module", "name") else None
        return has, moved or ABSENT

    def _version(self, package: str) -> str | None:
        version = self._value(f"pkg.{package}")
        return version if isinstance(version, str) else None


def _as_written(broken: _Broken) -> str:
    """``2 num_items_in_batch=`` as ``compute_loss(_, _, num_items_in_batch=_)``."""
    count, *keywords = broken.call.split(" ")
    words = [*["_"] * min(int(count), 9), *(f"{one}_" for one in keywords)]
    return f"{broken.what.rpartition('.')[2]}({', '.join(words)})"


def _asked(module: str, kind: str, item: Mapping[str, Value]) -> Asked:
    name, keyword, parameters = item.get("name"), item.get("keyword"), item.get("parameters")
    return Asked(
        module,
        name if isinstance(name, str) else "",
        keyword if kind == "keyword" and isinstance(keyword, str) else "",
        parameters if kind == "override" and isinstance(parameters, tuple) else None,
    )
