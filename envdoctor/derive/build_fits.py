"""Whether nvcc and the host compiler can build an extension for the installed torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted

INPUTS = ("cuda.toolkit", "torch.cuda", "pkg.torch", "build.gcc")
OUTPUTS = ("cuda.toolkit_fits", "torch.cxx_standard", "build.gcc_max", "build.gcc_min", "build.gcc_fits")

_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}(?=\+|\.post|\Z)")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """The toolkit against torch's CUDA, and gcc against the toolkit and torch's headers."""
    found: dict[str, Derived] = {}
    toolkit, torch, gcc = value("cuda.toolkit"), value("pkg.torch"), value("build.gcc")
    if isinstance(toolkit, str):
        found["cuda.toolkit_fits"] = _toolkit_fits(toolkit, value("torch.cuda"))
    if isinstance(torch, str):
        row = _headers(torch, matrix)
        if isinstance(row, Unknown):
            found["torch.cxx_standard"] = found["build.gcc_min"] = Derived(row, "")
        else:
            origin = f"cxx-standards: {row['key']}"
            found["torch.cxx_standard"] = Derived(row["cxx_standard"], origin)
            found["build.gcc_min"] = Derived(row["gcc"], origin)
    if isinstance(toolkit, str):
        found["build.gcc_max"] = _gcc_max(toolkit, matrix)
    if isinstance(gcc, str):
        known = {key: value(key) for key in ("build.gcc_max", "build.gcc_min")}
        for key, fact in known.items():
            if isinstance(fact, Unknown) and key in found:
                known[key] = found[key].value
        fits = _gcc_fits(gcc, known["build.gcc_max"], known["build.gcc_min"], toolkit)
        found["build.gcc_fits"] = Derived(fits, "build.gcc, build.gcc_max, build.gcc_min")
    return found


def _toolkit_fits(toolkit: str, cuda: Value) -> Derived:
    if isinstance(cuda, Absent):
        return Derived(Unknown("torch is not a CUDA build"), "")
    mine, its = dotted(toolkit), None if isinstance(cuda, Unknown) else dotted(str(cuda))
    if mine is None or its is None:
        return Derived(cuda if isinstance(cuda, Unknown) else Unknown("a version that cannot be read"), "")
    fits = "major" if mine[0] != its[0] else "same" if mine[:2] == its[:2] else "minor"
    return Derived(fits, f"nvcc {toolkit}, torch for CUDA {cuda}")


def _headers(torch: str, matrix: Matrix) -> Mapping[str, Any] | Unknown:
    """The row of the table cxx-standards; a pre-release may be from before a change of its release."""
    from envdoctor.versions.ranges import contains, parse_ranges, plain_release

    match = _RELEASE.match(torch)
    if match is None:
        return Unknown(f"torch {torch} is not a release")
    release = plain_release(match[0])
    for row in matrix.rows("cxx-standards"):
        if contains(parse_ranges(row["key"]), release):
            found: Mapping[str, Any] = row
            return found
    return Unknown(f"the headers of torch {torch} are not in the table cxx-standards")


def _gcc_max(toolkit: str, matrix: Matrix) -> Derived:
    minor = ".".join(toolkit.split(".")[:2])
    for row in matrix.rows("cuda-compilers"):
        if row["key"] == minor:
            return Derived(row["max_gcc"], f"cuda-compilers: {minor}")
    return Derived(Unknown(f"CUDA {minor} is not in the table cuda-compilers"), "")


def _gcc_fits(gcc: str, newest: Value, oldest: Value, toolkit: Value) -> Value:
    """``too-old`` and ``too-new`` each stand on one known bound; ``yes`` needs both, or the news that there is no
    nvcc."""
    have = dotted(gcc)
    if have is None:
        return Unknown(f"gcc {gcc} is not a version")
    low, high = (None if isinstance(bound, (Unknown, Absent)) else dotted(str(bound)) for bound in (oldest, newest))
    if low is not None and have[0] < low[0]:
        return "too-old"
    if high is not None and have[0] > high[0]:
        return "too-new"
    if low is None:
        return oldest if isinstance(oldest, Unknown) else Unknown("the oldest gcc for torch's headers is not known")
    if high is None and not isinstance(toolkit, Absent):
        return newest if isinstance(newest, Unknown) else Unknown("the newest gcc for nvcc is not known")
    return "yes"
