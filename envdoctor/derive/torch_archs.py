"""GPU architectures compiled into torch, by its release and CUDA version, where its libraries were not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.gpu_code import arch_lists
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("pkg.torch", "torch.cuda", "torch.hip", "os.platform", "os.arch")
OUTPUTS = ("torch.arch_list",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``torch.arch_list`` when the tables have one list for this build; an empty one for a CPU build."""
    torch, cuda = value("pkg.torch"), value("torch.cuda")
    if isinstance(cuda, Absent) and isinstance(value("torch.hip"), Absent):
        return {"torch.arch_list": Derived((), "torch is a build without CUDA")}
    if not isinstance(torch, str) or not isinstance(cuda, str) or not isinstance(value("torch.arch_list"), Unknown):
        return {}
    platform, machine = value("os.platform"), value("os.arch")
    lists = arch_lists(torch, cuda, _text(platform), _text(machine), matrix)
    if len(lists) != 1:
        return {"torch.arch_list": Derived(Unknown(f"no table has the build of torch {torch} for CUDA {cuda}"), "")}
    table = "torch-archs-windows" if platform == "windows" else "torch-archs"
    origin = f"table {table} ({lists[0].get('level', 'declared')})"
    return {"torch.arch_list": Derived(tuple(lists[0]["archs"]), origin)}


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
