"""The minor release of Python: what packages are compiled for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.pep440 import base_release

INPUTS = ("python.version",)
OUTPUTS = ("python.minor",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``python.minor`` of the full version, where it was not read from a folder's name."""
    version = value("python.version")
    release = base_release(version) if isinstance(version, str) else None
    if release is None or "." not in release:
        return {}
    return {"python.minor": Derived(".".join(release.split(".")[:2]), "python.version")}
