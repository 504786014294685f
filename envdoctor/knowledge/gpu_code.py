"""Which GPUs run code that was compiled for which architectures, and which architectures a build of torch has."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted
from envdoctor.versions.pep440 import is_named_by

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)\Z")
#: A release of torch, with the local tag of the wheel index or none: other builds have lists of their own.
_RELEASE = re.compile(r"(\d+(?:\.\d+)+)(?:\+cu\d+)?\Z")
#: A nightly build of the wheel index.
_NIGHTLY = re.compile(r"\d+(?:\.\d+)+\.dev\d{8}\+cu\d+\Z")

Capability = tuple[int, int]


def capability(text: str) -> Capability | None:
    """``8.6`` as numbers; None for what is no compute capability."""
    numbers = dotted(text)
    return (numbers[0], (*numbers, 0)[1]) if numbers else None


def kernels(cc: str, archs: Sequence[str], cuda: str | None, matrix: Matrix) -> str | None:
    """What a build with these architectures (``sm_86``, ``compute_90``) has for a GPU.

    ``sass`` is compiled code that runs there, ``ptx`` code that the driver compiles at first use; ``none`` is neither,
    and None that it cannot be told.
    ``cuda`` is the CUDA version of the build: some exceptions of the table gpu-code end with one.
    """
    device = capability(cc)
    if device is None:
        return None
    exceptions = {row["key"]: row for row in matrix.rows("gpu-code")}
    first_ptx = capability(matrix.part("gpu-code", "ptx").get("since", "")) or (0, 0)
    found = "none"
    for arch in archs:
        match = _ARCH.match(arch)
        if match is None:
            return None  # a kind of code that this reading does not know
        built = int(match[2]), int(match[3])
        if match[1] == "sm":
            if _runs(device, built, match[4], exceptions.get(f"{built[0]}.{built[1]}", {}), cuda):
                return "sass"
        elif built >= first_ptx and _compiles(device, built, match[4]):
            found = "ptx"
    return found


def _runs(device: Capability, built: Capability, suffix: str, row: Mapping[str, Any], cuda: str | None) -> bool:
    if suffix == "a":  # architecture-specific: this GPU and no other
        return device == built
    if "only" in row:
        return f"{device[0]}.{device[1]}" in row["only"]
    if device[0] != built[0] or device[1] < built[1]:
        return False
    if f"{device[0]}.{device[1]}" not in row.get("except", ()):
        return True
    ends, version = dotted(row.get("until_cuda", "")), dotted(cuda or "")
    return ends is not None and version is not None and version >= ends


def _compiles(device: Capability, built: Capability, suffix: str) -> bool:
    """PTX is compiled for every later GPU, that of one architecture or family only for these."""
    if suffix:
        return device == built if suffix == "a" else device[0] == built[0] and device[1] >= built[1]
    return device >= built


def arch_lists(
    torch: str | None, cuda: str, platform: str | None, machine: str | None, matrix: Matrix
) -> list[Mapping[str, Any]]:
    """Rows of the tables torch-archs and torch-archs-windows that this build can be; none when they do not know it.

    ``torch`` None stands for any release with this ``cuda``; ``platform`` and ``machine`` None for Linux on x86_64.
    """
    release = _RELEASE.match(torch) if torch is not None else None
    if (torch is not None and release is None) or platform not in (None, "linux", "windows"):
        return []
    rows = matrix.rows("torch-archs-windows" if platform == "windows" else "torch-archs")
    fitting = [row for row in rows if row["cuda"] == cuda and row.get("machine", "x86_64") == (machine or "x86_64")]
    return [row for row in fitting if release is None or is_named_by(release[1], row["key"])]


def is_nightly(torch: str | None) -> bool:
    """Whether this is a nightly build of PyTorch's own: no table lists those one by one."""
    return torch is not None and _NIGHTLY.match(torch) is not None


def compiler_range(cuda: str, matrix: Matrix) -> tuple[Capability | None, Capability | None]:
    """The lowest and the highest compute capability that the compiler of a CUDA version has code for, by the table
    cuda-drivers."""
    row = next((row for row in matrix.rows("cuda-drivers") if row["key"] == cuda), {})
    return capability(row.get("oldest_cc", "")), capability(row.get("newest_cc", ""))
