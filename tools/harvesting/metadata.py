"""What the metadata of a release says: requirements, and the modules that it installs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

__all__ = ["installed", "modules", "required"]

#: Folders beside the package that some releases install by mistake, and what an sdist has beside it.
_NOT_MODULES = {
    *("tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "scripts", "tools"),
    *("accelerator", "blackwell", "cicd", "hopper", "op_builder", "studio", "unsloth_compiled_cache"),
    *("build", "dist", "setup", "conftest", "csrc", "ci", "assets", "bin", "src", "cmake", "requirements", "docker"),
}


def required(metadata: str, extras: Iterable[str] = ()) -> dict[str, set[str]]:
    """Return the requirements that hold without an extra (``*``), and those of these ``extras``, each written in one
    way: ``huggingface-hub<1.0,>=0.23``."""
    found: dict[str, set[str]] = {"*": set(), **{extra: set() for extra in extras}}
    for line in metadata.splitlines():
        if not line.startswith("Requires-Dist: "):
            continue
        text, _, marker = line.partition(": ")[2].partition(";")
        of_extra = re.fullmatch(r"""\s*\(?extra == ['"]([\w.-]+)['"]\)?\s*""", marker)
        extra = of_extra[1] if of_extra else "*" if not re.search(r"\bextra\b", marker) else ""
        if extra in found:
            with suppress(InvalidRequirement):
                requirement = Requirement(text if of_extra else f"{text};{marker}" if marker else text)
                requirement.name = canonicalize_name(requirement.name)
                found[extra].add(str(requirement))
    return found


def installed(name: str) -> str:
    """Return the path of a member of a wheel or an sdist when it is installed."""
    return re.sub(r"\A(?:[^/]+\.data/(?:purelib|platlib)|src)/", "", name)


def modules(names: Iterable[str]) -> set[str]:
    """Return the top-level import names among the members of a wheel or an sdist."""
    code = (path for path in map(installed, names) if path.rpartition("/")[2].endswith((".py", ".so", ".pyd")))
    tops = {path.partition("/")[0] if "/" in path else path.partition(".")[0] for path in code}
    return {top for top in tops if top.isidentifier() and top not in _NOT_MODULES and not top.startswith("__")}
