"""What the metadata of a release says: requirements, and the modules that it installs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

__all__ = ["installed", "modules", "required"]

#: Folders beside the package that some releases install by mistake, and what an sdist has beside it.
_NOT_MODULES = {
    *("tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "scripts", "tools"),
    *("build", "dist", "setup", "conftest", "csrc", "ci", "assets", "bin", "src", "cmake", "requirements", "docker"),
}


def required(metadata: str) -> set[str]:
    """The requirements that hold without an extra, each written in one way: ``huggingface-hub<1.0,>=0.23``."""
    return set(_required(metadata))


def _required(metadata: str) -> Iterator[str]:
    for line in metadata.splitlines():
        if not line.startswith("Requires-Dist: ") or re.search(r";.*\bextra\b", line):
            continue
        try:
            requirement = Requirement(line.partition(": ")[2])
        except InvalidRequirement:
            continue
        requirement.name = canonicalize_name(requirement.name)
        yield str(requirement)


def installed(name: str) -> str:
    """Where a member of a wheel or an sdist lies when it is installed."""
    return re.sub(r"\A(?:[^/]+\.data/(?:purelib|platlib)|src)/", "", name)


def modules(names: Iterable[str]) -> set[str]:
    """The top-level import names among the members of a wheel or an sdist."""
    return set(_modules(names))


def _modules(names: Iterable[str]) -> Iterator[str]:
    for path in map(installed, names):
        top, slash, rest = path.partition("/")
        if slash and not rest.endswith((".py", ".so", ".pyd")):
            continue
        if not slash and not path.endswith((".py", ".so", ".pyd")):
            continue
        top = top if slash else top.partition(".")[0]
        if top.isidentifier() and top not in _NOT_MODULES and not top.startswith("__"):
            yield top
