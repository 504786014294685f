"""CUDA or HIP version and vendor of the torch build, from its version, when no file told it.

The local tag of the version names the build. A release without a tag is taken for the build that PyPI has of it, which
is an assumption.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import InstalledSet
from envdoctor.facts.values import ABSENT, Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("pkg.torch", "pkg.*", "dist", "os.platform", "os.arch")
OUTPUTS = ("torch.cuda", "torch.hip", "torch.vendor")

# The tags of the wheel index: cu118 is CUDA 11.8, cu1210 would be 12.10 (one digit of major is never used).
_CUDA = re.compile(r"cu(\d\d)(\d{1,2})(?:\.|_|-|\Z)")
#: NVIDIA's containers: 2.5.0a0+872d972e41.nv24.08 (year and month of the container).
_NVIDIA = re.compile(r"(?:\A|\.)nv\d\d\.\d\d")
_ROCM = re.compile(r"rocm(\d+(?:\.\d+)*)")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``torch.cuda``, ``torch.hip`` and ``torch.vendor``."""
    torch = value("pkg.torch")
    if isinstance(torch, Unknown):
        return {}
    if isinstance(torch, Absent):
        reason = Unknown("torch is not installed")
        return {"torch.cuda": Derived(reason, ""), "torch.hip": Derived(reason, "")}
    text = str(torch)
    origin = f"the local tag of torch {text}"
    tag = text.partition("+")[2].lower()
    vendor = Derived("nvidia" if _NVIDIA.search(tag) else ABSENT, origin)
    builds = _builds(text, tag, origin) if tag else _of_pypi(text, value, matrix)
    return {**builds, "torch.vendor": vendor}


def _builds(text: str, tag: str, origin: str) -> dict[str, Derived]:
    if match := _CUDA.match(tag):
        return {
            "torch.cuda": Derived(f"{match[1]}.{match[2]}", origin),
            "torch.hip": Derived(ABSENT, origin),
        }
    if match := _ROCM.match(tag):
        return {"torch.cuda": Derived(ABSENT, origin), "torch.hip": Derived(match[1], origin)}
    if tag.startswith(("cpu", "xpu")):
        return {"torch.cuda": Derived(ABSENT, origin), "torch.hip": Derived(ABSENT, origin)}
    reason = Unknown(f"torch {text} has no local tag that names its CUDA")
    return {"torch.cuda": Derived(reason, ""), "torch.hip": Derived(reason, "")}


def _of_pypi(text: str, value: Callable[[str], Value], matrix: Matrix) -> dict[str, Derived]:
    """The build of PyPI, for Linux on x86_64 when nothing else is known. Not so in conda, whose versions never have
    tags, nor where a companion has one: then the packages came from another index. Where PyPI has no build for CUDA, a
    version that somebody wrote down may lack its tag: only a list of distributions tells that it has none."""
    row = next((row for row in matrix.rows("torch-builds") if row["key"] == text), None)
    companions = [value(f"pkg.{row['name']}") for row in matrix.rows("torch-companions", "package")]
    tagged = any("+" in version for version in companions if isinstance(version, str))
    reason = Unknown(f"torch {text} has no local tag that names its CUDA")
    installed, platform = InstalledSet(value), value("os.platform")
    if row is None or tagged or any(dist.kind == "conda" for dist in installed.get("torch")):
        return {"torch.cuda": Derived(reason, ""), "torch.hip": Derived(reason, "")}
    cuda: Value = row["pypi_cuda_aarch64" if value("os.arch") == "aarch64" else "pypi_cuda"]
    if cuda == "absent" or platform in ("windows", "darwin"):
        cuda = ABSENT
        if platform != "darwin" and not installed.known:
            return {"torch.cuda": Derived(reason, ""), "torch.hip": Derived(reason, "")}
    origin = f"torch {text} names no build, it is taken for PyPI's"
    return {"torch.cuda": Derived(cuda, origin, "assumed"), "torch.hip": Derived(ABSENT, origin, "assumed")}
