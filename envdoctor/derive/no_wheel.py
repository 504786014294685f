"""Releases that have no wheel for this Python, system, C library or torch, with the nearest ones that have."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import Installed, InstalledSet
from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.released_wheels import Gap, no_wheel, wanted_here, with_wheel
from envdoctor.versions.wheel_tags import TARGET_KEYS

INPUTS = ("dist", "pkg.*", "python.version", "torch.cuda", *TARGET_KEYS)
OUTPUTS = ("no_wheel",)

_INSTALLED = ("dist-info", "egg-info", "conda")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``no_wheel``: of packages that are known by their versions alone. Where a wheel is known, by its files or its
    name, its own tags say what it is for (``foreign_wheel``)."""
    installed, wanted = InstalledSet(value), wanted_here(value)
    versions = {name: value(f"pkg.{name}") for name in matrix.ledger.every() if not _tagged(installed.get(name))}
    asked = {name: version for name, version in versions.items() if isinstance(version, str)}
    if wanted is None:
        reason = Unknown("wheels are compared for CPython 3 on Linux with glibc, Windows and macOS")
        return {"no_wheel": Derived(reason if asked else Records(()), "")}
    items = []
    for name, version in asked.items():
        gap = no_wheel(matrix, name, version, wanted)
        if isinstance(gap, Gap):
            items.append(_told(name, version, gap, with_wheel(matrix, name, version, wanted)))
    unknown = next((name for name, version in versions.items() if isinstance(version, Unknown)), None)
    incomplete = f"the version of {unknown} is not known" if unknown is not None else None
    if asked and not wanted.target.known:
        incomplete = "the Python, the system or the C library is not known"
    origin = "the ledger, the table torch-wheels"
    return {"no_wheel": Derived(Records(tuple(items), incomplete), origin)}


def _tagged(found: list[Installed]) -> bool:
    return any(one.kind in _INSTALLED or not isinstance(one.tags, Unknown) for one in found)


def _told(name: str, version: str, gap: Gap, with_wheel: tuple[str | None, str | None]) -> Mapping[str, Value]:
    older, newer = with_wheel
    return {
        "package": name,
        "version": version,
        "lacks": gap.lacks,
        "source": gap.source,
        "older": older or ABSENT,
        "newer": newer or ABSENT,
        "nearest": ", ".join(filter(None, (older, newer))) or ABSENT,
    }
