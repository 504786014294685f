"""Tell which GPUs run code for which architectures, and which architectures a build of torch has."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, NamedTuple

from envdoctor.matrix.matrix import Matrix
from envdoctor.versions.pep440 import dotted, is_named_by

# GPUs by the names that drivers and people give them: ``NVIDIA A100-SXM4-80GB``, ``RTX 4090 24G``, ``4090``.

_SIZE = r"(?i)\b(\d{1,3})\s*(?:GB|GiB|G)[)\uff09]?(?: PCIe| HBM\w+)?\Z"
_LETTERS_THEN_DIGITS = r"(?i)\A(RTX|GTX|Quadro|Tesla)(?=[A-Z]?\d)"
#: Where people leave out a blank, or write something else for it: ``rtx-4090``, ``3090Ti``, ``RTXPRO6000``.
_JOINTS = (
    r"(?i)[\s_-]+|(?<=\d)(?=(?:(?:Ti)?Super|Ti|D|Ada)\b)|(?<=Ti)(?=Super\b)"
    r"|(?<=RTX)(?=PRO|\d)|(?<=PRO)(?=\d)|(?<=TITAN)(?=RTX|V\b)|(?<=DGX)(?=S)"
)
#: What people leave out in front; ``RTX 6000`` belongs to two series, and stays as it is.
_SERIES = ("", "RTX ", "GeForce ", "GeForce RTX ", "GeForce GTX ", "Tesla ")
_OTHERS = {
    "rocm": r"(?i)\b(?:AMD|Instinct|Radeon|MI\d{2,3}[AX]?)\b",
    "ascend": r"(?i)\bAscend|昇腾|\b910[ABC]\d?\b|\(NPU\)",
}
_COUNT = r"\A\d{1,3}\s*[x*]\s*"
#: A GPU with its count, as people write it: ``2x RTX 4090 24G``, ``8 * A100``, ``NVIDIA L4 x4``, ``single 3090``.
_COUNTED = re.compile(
    r"(?i)(?:(\d{1,3}) ?[x*×卡张块片] ?|((?:single|one|an?) |单卡 ?))?([^*×]{2,80}?)(?:(?<![a-z])\s?[x*×] ?(\d{1,3}))?"
)


class _NamedGpu(NamedTuple):
    """A GPU of the tables: its ``name`` and its ``row`` there. ``memory`` is the size in GB that the name tells, else
    the advertised one; None when the product comes in several sizes. Cards are sold with more memory than their maker
    gave them (``4090 48G``): a size that the table does not have stays in ``name``."""

    name: str
    row: Mapping[str, Any]
    memory: int | None


def gpu_named(name: str, matrix: Matrix) -> _NamedGpu | None:
    """Return the GPU of the tables that has a name; None if no table has it."""
    match = re.search(_SIZE, name)
    size = int(match[1]) if match else 0
    spellings = [*_spellings(name, name[: match.start()].rstrip(" \t_(\uff08-") if match else name)]
    for table, spelled in product(("gpus", "gpu-series"), spellings):
        row = next((row for row in matrix.rows(table) if is_one_of(spelled, row["names"])), None)
        if row is not None:
            sizes = tuple(row.get("memory_gb", ()))
            if size and spelled != name and sizes != (size,):
                spelled += f" {size}GB"
            return _NamedGpu(spelled, row, size or (sizes[0] if len(sizes) == 1 else None))
    return None


def counted(text: str) -> tuple[int, str] | None:
    """Return how many GPUs a text names (0 if it does not say), and their name; None for any other text."""
    match = _COUNTED.fullmatch(text)
    if match is None or (match[1] and match[4]):
        return None
    return int(match[1] or match[4] or bool(match[2])), match[3].strip()


def is_one_of(name: str, globs: Iterable[str]) -> bool:
    """Return whether one of the patterns names this GPU; case does not count."""
    return any(fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def other_accelerator(name: str) -> str | None:
    """Return the kind of accelerator, as in ``machine.accelerators``, for the name of one that is not NVIDIA's."""
    return next((kind for kind, words in _OTHERS.items() if re.search(words, name)), None)


def _spellings(name: str, without_size: str) -> Iterator[str]:
    yield name
    plain = " ".join(without_size.split())
    yield plain
    yield re.sub(_LETTERS_THEN_DIGITS, r"\1 ", plain)
    apart = re.sub(_JOINTS, " ", re.sub(_COUNT, "", plain))
    for words in dict.fromkeys((plain, apart)):
        yield from (f"{series}{words}" for series in _SERIES)


_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)\Z")
#: A release of torch, plain or with a local tag of the wheel index: other builds have lists of their own.
_RELEASE = re.compile(r"(\d+(?:\.\d+)+)(?:\+cu\d+)?\Z")
#: A nightly build of the wheel index.
_NIGHTLY = re.compile(r"\d+(?:\.\d+)+\.dev\d{8}\+cu\d+\Z")

Capability = tuple[int, int]


def capability(text: str) -> Capability | None:
    """Return ``8.6`` as numbers; None if it is not a compute capability."""
    numbers = dotted(text)
    return (numbers[0], (*numbers, 0)[1]) if numbers else None


def kernels(cc: str, archs: Sequence[str], cuda: str | None, matrix: Matrix) -> str | None:
    """Return the kind of code that a build with these architectures (``sm_86``, ``compute_90``) has for a GPU.

    ``sass`` is compiled code that runs there, ``ptx`` code that the driver compiles at first use; ``none`` is neither,
    and None is unknown. ``cuda`` is the CUDA version of the build: some exceptions of the table gpu-code end with one.
    """
    device = capability(cc)
    if device is None:
        return None
    exceptions = {row["key"]: row for row in matrix.rows("gpu-code")}
    first_ptx = capability(matrix.part("gpu-code", "ptx").get("since", "")) or (0, 0)
    kind = "none"
    for arch in archs:
        match = _ARCH.match(arch)
        if match is None:
            return None  # an unknown kind of code
        built = int(match[2]), int(match[3])
        suffix, of_family = match[4], device[0] == built[0] and device[1] >= built[1]
        if match[1] == "sm":
            if _runs(device, built, suffix, exceptions.get(f"{built[0]}.{built[1]}", {}), cuda):
                return "sass"
        # The driver compiles PTX for every later GPU, but PTX of one architecture or family only for its GPUs.
        elif built >= first_ptx and {"a": device == built, "f": of_family, "": device >= built}[suffix]:
            kind = "ptx"
    return kind


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


def arch_lists(
    torch: str | None, cuda: str, platform: str | None, machine: str | None, matrix: Matrix
) -> list[Mapping[str, Any]]:
    """Return the rows of the tables torch-archs and torch-archs-windows that this build can be; empty if they lack it.

    ``torch`` None stands for any release with this ``cuda``; ``platform`` and ``machine`` None for Linux on x86_64.
    """
    release = _RELEASE.match(torch) if torch is not None else None
    if (torch is not None and release is None) or platform not in (None, "linux", "windows"):
        return []
    rows = matrix.rows("torch-archs-windows" if platform == "windows" else "torch-archs")
    fitting = [row for row in rows if row["cuda"] == cuda and row.get("machine", "x86_64") == (machine or "x86_64")]
    return [row for row in fitting if release is None or is_named_by(release[1], row["key"])]


def is_nightly(torch: str | None) -> bool:
    """Return whether this is one of PyTorch's own nightly builds: no table lists them one by one."""
    return torch is not None and _NIGHTLY.match(torch) is not None


def compiler_range(cuda: str, matrix: Matrix) -> tuple[Capability | None, Capability | None]:
    """Return the lowest and the highest compute capability that the compiler of a CUDA version has code for, by the
    table cuda-drivers."""
    row = next((row for row in matrix.rows("cuda-drivers") if row["key"] == cuda), {})
    return capability(row.get("oldest_cc", "")), capability(row.get("newest_cc", ""))
