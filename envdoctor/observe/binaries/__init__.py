"""Reading compiled files of an environment: the extensions that packages built against torch, and torch's libraries.

Nothing is loaded. Files are read in bounded pieces, never mapped: a mapped file that shrinks would kill the process.
Only files of the packages in the table torch-extensions are opened, and of torch when there is one of those: an
environment without them costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.environment.layout import Layout

__all__ = ["arch_list_fact", "extension_fact"]


def extension_fact(facts: Sequence[Fact], layout: Layout, table: Mapping[str, Any]) -> Fact:
    """The fact ``extension`` of an environment whose other facts were observed; ``table`` is torch-extensions."""
    known = {fact.key: fact.value for fact in facts}
    dists = known.get("dist")
    if not isinstance(dists, Records):
        return Fact("extension", Unknown("the installed packages are not known"), "", "environment")
    modules = {row["name"]: row["modules"] for row in table.get("package", ())}
    chosen: dict[str, Mapping[str, Value]] = {}
    for dist in dists:
        if dist.get("name") in modules:
            chosen.setdefault(str(dist["name"]), dist)
    if not chosen:
        return Fact("extension", Records((), dists.incomplete), "installed packages", "environment")
    from envdoctor.observe.binaries.extensions import read_extensions

    return read_extensions(chosen, modules, layout, known.get("torch.missing_files"), dists.incomplete)


def arch_list_fact(facts: Sequence[Fact], gpus: Value, layout: Layout) -> Fact | None:
    """The fact ``torch.arch_list``, read from torch's library when it is a CUDA build and there may be a GPU to ask
    about; None otherwise."""
    cuda = next((fact.value for fact in facts if fact.key == "torch.cuda"), None)
    if not isinstance(cuda, str) or (isinstance(gpus, Records) and not len(gpus)):
        return None
    from envdoctor.observe.binaries.torch_archs import read_arch_list

    return read_arch_list(layout)
