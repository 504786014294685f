"""The cuDNN that torch loads: the nvidia-cudnn-cu* wheel of torch's CUDA major."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("torch.cuda", "pkg.*")
OUTPUTS = ("torch.cudnn",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``torch.cudnn``; unknown when the libraries come from elsewhere (conda, the system)."""
    cuda = value("torch.cuda")
    if isinstance(cuda, Unknown):
        return {}
    if isinstance(cuda, Absent):
        return {"torch.cudnn": Derived(cuda, "torch is not a CUDA build")}
    name = f"nvidia-cudnn-cu{str(cuda).partition('.')[0]}"
    wheel = value(f"pkg.{name}")
    if isinstance(wheel, str):
        return {"torch.cudnn": Derived(wheel, name)}
    return {"torch.cudnn": Derived(Unknown(f"{name} is not installed as a wheel"), "")}
