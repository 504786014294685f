"""Whether extensions can be built here for the installed torch, and which of DeepSpeed's ops would be."""

import re
from collections.abc import Mapping

from envdoctor.facts.values import Unknown
from envdoctor.facts.view import View
from envdoctor.judge.derivations.running import Answer, Derived, derives
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted
from envdoctor.versions.releases import lies_in

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
    toolkit, cuda = facts.text("cuda.toolkit"), facts.text("torch.cuda")
    if toolkit is None:
        return None
    if facts.absent("torch.cuda"):
        return Unknown(Message("torch is not a CUDA build"))
    mine, its = dotted(toolkit), dotted(cuda or "")
    if mine is None or its is None:
        return facts.unknown("torch.cuda") or Unknown(Message("a version that cannot be read"))
    fits = "major" if mine[0] != its[0] else "same" if mine[:2] == its[:2] else "minor"
    return Derived(fits, Message("nvcc {}, torch for CUDA {}", toolkit, cuda))


@derives("torch.cxx_standard build.gcc_min", of="pkg.torch")
def headers(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Give the C++ standard of torch's headers and the oldest gcc that has it, by the table cxx-standards; a
    pre-release may be from before a change of its release."""
    torch = facts.text("pkg.torch")
    if torch is None:
        return {}
    release = _RELEASE.match(torch)
    row = next((row for row in matrix.rows("cxx-standards") if release and lies_in(release[0], row["key"])), None)
    if row is not None:
        origin = f"cxx-standards: {row['key']}"
        return {
            "torch.cxx_standard": Derived(row["cxx_standard"], origin),
            "build.gcc_min": Derived(row["gcc"], origin),
        }
    unlisted = Message("the headers of torch {} are not in the table cxx-standards", torch)
    why = unlisted if release else Message("torch {} is not a release", torch)
    return dict.fromkeys(("torch.cxx_standard", "build.gcc_min"), Derived(Unknown(why), ""))


@derives("build.gcc_max", of="cuda.toolkit")
def gcc_max(facts: View, matrix: Matrix) -> Answer:
    """Give the newest gcc that this nvcc takes."""
    toolkit = facts.text("cuda.toolkit")
    if toolkit is None:
        return None
    minor = ".".join(toolkit.split(".")[:2])
    newest = next((row["max_gcc"] for row in matrix.rows("cuda-compilers") if row["key"] == minor), None)
    unlisted = Unknown(Message("CUDA {} is not in the table cuda-compilers", minor))
    return unlisted if newest is None else Derived(newest, f"cuda-compilers: {minor}")


@derives("build.gcc_fits", of="build.gcc build.gcc_max build.gcc_min cuda.toolkit")
def gcc_fits(facts: View, matrix: Matrix) -> Answer:
    """Compare gcc with both bounds: ``too-old`` and ``too-new`` each stand on one that is known; ``yes`` needs both, or
    the news that there is no nvcc."""
    gcc = facts.text("build.gcc")
    if gcc is None:
        return None
    have = dotted(gcc)
    if have is None:
        return Unknown(Message("gcc {} is not a version", gcc))
    low, high = (dotted(facts.text(key) or "") for key in ("build.gcc_min", "build.gcc_max"))
    if low is not None and have[0] < low[0]:
        fits = "too-old"
    elif high is not None and have[0] > high[0]:
        fits = "too-new"
    elif low is None:
        unknown = Unknown(Message("the oldest gcc for torch's headers is not known"))
        return facts.unknown("build.gcc_min") or unknown
    elif high is None and not facts.absent("cuda.toolkit"):
        return facts.unknown("build.gcc_max") or Unknown(Message("the newest gcc for nvcc is not known"))
    else:
        fits = "yes"
    return Derived(fits, "build.gcc, build.gcc_max, build.gcc_min")
