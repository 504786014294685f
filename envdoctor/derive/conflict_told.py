"""Requirements that are not met because a companion belongs to another torch: told there, not once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Records, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("conflict", "torch_companion")
OUTPUTS = ("conflict",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``conflict`` with its column ``told_as``; a given one stands."""
    found = value("conflict")
    if not isinstance(found, Records) or not len(found):
        return {}
    companions = value("torch_companion")
    strangers = {
        str(item.get("package"))
        for item in (companions if isinstance(companions, Records) else ())
        if item.get("same_release") is False
    }
    items = tuple({"told_as": _told(item, strangers), **item} for item in found)
    return {"conflict": Derived(Records(items, found.incomplete), "requirements of installed packages")}


def _told(item: Mapping[str, Value], strangers: set[str]) -> Value:
    askers = item.get("required_by")
    if item.get("package") != "torch" or not strangers or not isinstance(askers, tuple):
        return ABSENT
    return "torch_companion" if {asker.partition(" ")[0] for asker in askers} <= strangers else ABSENT
