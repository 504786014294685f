"""Whether extensions can be built here for the installed torch, and which of DeepSpeed's ops would be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from envdoctor.derive.running import Answer, Derived, derives
from envdoctor.facts.values import Absent, Unknown
from envdoctor.facts.view import View
from envdoctor.knowledge.matrix import Matrix
from envdoctor.text.message import Message
from envdoctor.versions.dotted import dotted

_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}(?=\+|\.post|\Z)")
#: Names of DeepSpeed's own optimizers in its configuration, and the ops behind them. Other names (adamw_torch) are
#: optimizers of torch or of another package.
_FUSED = {"adam": "fused_adam", "adamw": "fused_adam", "fusedadam": "fused_adam", "lamb": "fused_lamb"}
_FUSED["lion"] = "fused_lion"


@derives(
    "build.needed",
    of="pkg.deepspeed recipe.framework recipe.zero_stage recipe.optimizer recipe.offload_optimizer build.compiled",
)
def build_needed(facts: View, matrix: Matrix) -> Answer:
    """List which of DeepSpeed's ops the recipe uses and this machine would compile at their first use.

    An offloaded optimizer becomes DeepSpeedCPUAdam (or Adagrad, Lion); accelerate replaces torch's optimizers alike.
    OpenRLHF takes DeepSpeed's FusedAdam whatever the optimizer is called. Ops are not in DeepSpeed's package unless
    it was built with DS_BUILD_OPS, so one that is not known to be compiled counts as not compiled.
    """
    if facts.absent("pkg.deepspeed") or facts.absent("recipe.zero_stage"):
        return Derived((), Message("the run does not use DeepSpeed"))
    if reason := facts.unknown("pkg.deepspeed", "recipe.zero_stage", "recipe.offload_optimizer"):
        return reason
    offload, name = facts.text("recipe.offload_optimizer") or "", (facts.text("recipe.optimizer") or "").lower()
    if offload.lower() not in ("none", ""):
        op: str | None = "cpu_adagrad" if "adagrad" in name else "cpu_lion" if "lion" in name else "cpu_adam"
    elif facts.value("recipe.framework") == "openrlhf":
        op = "fused_adam"
    elif reason := facts.unknown("recipe.optimizer"):
        return reason
    else:
        op = _FUSED.get(name)
    if op is None or op in (facts.words("build.compiled") or ()):
        return Derived((), Message("recipe, build.compiled"))
    return Derived((op,), "recipe.zero_stage, recipe.offload_optimizer, recipe.optimizer")


@derives("cuda.toolkit_fits", of="cuda.toolkit torch.cuda")
def toolkit_fits(facts: View, matrix: Matrix) -> Answer:
    """Compare nvcc with torch's CUDA: of the same, of another minor or of another major release."""
    toolkit, cuda = facts.text("cuda.toolkit"), facts.value("torch.cuda")
    if toolkit is None:
        return None
    if isinstance(cuda, Absent):
        return Unknown(Message("torch is not a CUDA build"))
    mine, its = dotted(toolkit), None if isinstance(cuda, Unknown) else dotted(str(cuda))
    if mine is None or its is None:
        return cuda if isinstance(cuda, Unknown) else Unknown(Message("a version that cannot be read"))
    fits = "major" if mine[0] != its[0] else "same" if mine[:2] == its[:2] else "minor"
    return Derived(fits, Message("nvcc {}, torch for CUDA {}", toolkit, cuda))


@derives("torch.cxx_standard build.gcc_min", of="pkg.torch")
def headers(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Give the C++ standard of torch's headers and the oldest gcc that has it."""
    torch = facts.text("pkg.torch")
    row = None if torch is None else _headers(torch, matrix)
    if row is None:
        return {}
    if isinstance(row, Unknown):
        return {"torch.cxx_standard": Derived(row, ""), "build.gcc_min": Derived(row, "")}
    origin = f"cxx-standards: {row['key']}"
    return {"torch.cxx_standard": Derived(row["cxx_standard"], origin), "build.gcc_min": Derived(row["gcc"], origin)}


def _headers(torch: str, matrix: Matrix) -> Mapping[str, Any] | Unknown:
    """The row of the table cxx-standards; a pre-release may be from before a change of its release."""
    from envdoctor.versions.releases import lies_in

    match = _RELEASE.match(torch)
    if match is None:
        return Unknown(Message("torch {} is not a release", torch))
    for row in matrix.rows("cxx-standards"):
        if lies_in(match[0], row["key"]):
            found: Mapping[str, Any] = row
            return found
    return Unknown(Message("the headers of torch {} are not in the table cxx-standards", torch))


@derives("build.gcc_max", of="cuda.toolkit")
def gcc_max(facts: View, matrix: Matrix) -> Answer:
    """Give the newest gcc that this nvcc takes."""
    toolkit = facts.text("cuda.toolkit")
    if toolkit is None:
        return None
    minor = ".".join(toolkit.split(".")[:2])
    for row in matrix.rows("cuda-compilers"):
        if row["key"] == minor:
            return Derived(row["max_gcc"], f"cuda-compilers: {minor}")
    return Unknown(Message("CUDA {} is not in the table cuda-compilers", minor))


@derives("build.gcc_fits", of="build.gcc build.gcc_max build.gcc_min cuda.toolkit")
def gcc_fits(facts: View, matrix: Matrix) -> Answer:
    """Compare gcc with both bounds: ``too-old`` and ``too-new`` each stand on one that is known; ``yes`` needs both, or
    the news that there is no nvcc."""
    gcc, newest, oldest = facts.text("build.gcc"), facts.value("build.gcc_max"), facts.value("build.gcc_min")
    if gcc is None:
        return None
    have = dotted(gcc)
    if have is None:
        return Unknown(Message("gcc {} is not a version", gcc))
    low, high = (None if isinstance(bound, (Unknown, Absent)) else dotted(str(bound)) for bound in (oldest, newest))
    if low is not None and have[0] < low[0]:
        fits = "too-old"
    elif high is not None and have[0] > high[0]:
        fits = "too-new"
    elif low is None:
        return (
            oldest
            if isinstance(oldest, Unknown)
            else Unknown(Message("the oldest gcc for torch's headers is not known"))
        )
    elif high is None and not facts.absent("cuda.toolkit"):
        return newest if isinstance(newest, Unknown) else Unknown(Message("the newest gcc for nvcc is not known"))
    else:
        fits = "yes"
    return Derived(fits, "build.gcc, build.gcc_max, build.gcc_min")
