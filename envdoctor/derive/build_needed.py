"""Which of DeepSpeed's ops the recipe uses and this machine would compile at their first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = (
    "pkg.deepspeed",
    "recipe.framework",
    "recipe.zero_stage",
    "recipe.optimizer",
    "recipe.offload_optimizer",
    "build.compiled",
)
OUTPUTS = ("build.needed",)

#: Names of DeepSpeed's own optimizers in its configuration, and the ops behind them. Other names (adamw_torch) are
#: optimizers of torch or of another package.
_FUSED = {"adam": "fused_adam", "adamw": "fused_adam", "fusedadam": "fused_adam", "lamb": "fused_lamb"}
_FUSED["lion"] = "fused_lion"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``build.needed``; unknown as long as one of the facts that decide is not given.

    An offloaded optimizer becomes DeepSpeedCPUAdam (or Adagrad, Lion); accelerate replaces torch's optimizers alike.
    OpenRLHF takes DeepSpeed's FusedAdam whatever the optimizer is called. Ops are not in DeepSpeed's package unless
    it was built with DS_BUILD_OPS, so one that is not known to be compiled counts as not compiled.
    """
    installed, stage = value("pkg.deepspeed"), value("recipe.zero_stage")
    if isinstance(installed, Absent) or isinstance(stage, Absent):
        return {"build.needed": Derived((), "the run does not use DeepSpeed")}
    for fact in (installed, stage):
        if isinstance(fact, Unknown):
            return {"build.needed": Derived(fact, "")}
    op = _op(value)
    if isinstance(op, Unknown):
        return {"build.needed": Derived(op, "")}
    compiled = value("build.compiled")
    if op is None or (isinstance(compiled, tuple) and op in compiled):
        return {"build.needed": Derived((), "recipe, build.compiled")}
    return {"build.needed": Derived((op,), "recipe.zero_stage, recipe.offload_optimizer, recipe.optimizer")}


def _op(value: Callable[[str], Value]) -> str | Unknown | None:
    """The op behind the optimizer, None when it is not one of DeepSpeed's."""
    offload, optimizer = value("recipe.offload_optimizer"), value("recipe.optimizer")
    name = optimizer.lower() if isinstance(optimizer, str) else ""
    if isinstance(offload, Unknown):
        return offload
    if isinstance(offload, str) and offload.lower() not in ("none", ""):
        return "cpu_adagrad" if "adagrad" in name else "cpu_lion" if "lion" in name else "cpu_adam"
    if value("recipe.framework") == "openrlhf":
        return "fused_adam"
    if isinstance(optimizer, Unknown):
        return optimizer
    return _FUSED.get(name)
