"""NVIDIA's CUDA wheels against the versions that torch pins: older, newer, or of another major release."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("cuda_library",)
OUTPUTS = ("cuda_library",)

_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,7}\Z")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``cuda_library`` without what the table cuda-wheels does not list, and with its column ``order``."""
    found = value("cuda_library")
    if not isinstance(found, Records) or not len(found):
        return {}
    components = {row["name"] for row in matrix.table("cuda-wheels").get("component", ())}
    if not components:
        return {}
    items = tuple(
        {"order": _order(item.get("installed"), item.get("pinned")), **item}
        for item in found
        if item.get("component") in components
    )
    return {"cuda_library": Derived(Records(items, found.incomplete), "installed packages")}


def _order(installed: Value | None, pinned: Value | None) -> Value:
    if isinstance(pinned, Absent):
        return ABSENT
    one, other = (_numbers(version) for version in (installed, pinned))
    if one is None or other is None:
        return Unknown("the versions cannot be compared")
    if one == other:
        return "same"
    if one[:1] != other[:1]:
        return "other-major"
    if one < other:
        return "older"
    return "newer-patch" if one[:2] == other[:2] else "newer"


def _numbers(version: Value | None) -> tuple[int, ...] | None:
    """Numbers without trailing zeros."""
    if not isinstance(version, str) or not _NUMBERS.match(version):
        return None
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
