"""CUDA or HIP version and vendor of the torch build, from the local tag of its version, when no file told it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("pkg.torch",)
OUTPUTS = ("torch.cuda", "torch.hip", "torch.vendor")

# The tags of the wheel index: cu118 is CUDA 11.8, cu1210 would be 12.10 (one digit of major is never used).
_CUDA = re.compile(r"cu(\d\d)(\d{1,2})(?:\.|_|-|\Z)")
#: NVIDIA's containers: 2.5.0a0+872d972e41.nv24.08 (year and month of the container).
_NVIDIA = re.compile(r"(?:\A|\.)nv\d\d\.\d\d")
_ROCM = re.compile(r"rocm(\d+(?:\.\d+)*)")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``torch.cuda``, ``torch.hip`` and ``torch.vendor``; a version without a tag tells no CUDA."""
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
    return {**_builds(text, tag, origin), "torch.vendor": vendor}


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
