"""Reading compiled files of an environment: the extensions that packages built against torch, and torch's libraries.

Nothing is loaded. Files are read in bounded pieces, never mapped: a mapped file that shrinks would kill the process.
Only files of torch and of the packages in the table torch-extensions are opened: an environment without them costs
nothing. What was found is kept in envdoctor's
cache, when a folder for it is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.environment.layout import Layout

__all__ = ["arch_list_fact", "extension_fact", "library_shadow_fact", "libstdcxx_fact", "loading_facts"]


def extension_fact(
    facts: Sequence[Fact], layout: Layout, table: Mapping[str, Any], *, cache: str | None = None
) -> Fact:
    """The fact ``extension`` of an environment whose other facts were observed; ``table`` is torch-extensions and
    ``cache`` the folder of envdoctor's cache (None: neither read nor written)."""
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

    missing = known.get("torch.missing_files")
    return read_extensions(chosen, modules, layout, missing, dists.incomplete, cache=cache)


def libstdcxx_fact(extensions: Value, layout: Layout, environ: Mapping[str, str], *, cache: str | None = None) -> Fact:
    """The fact ``os.libstdcxx`` for an environment that runs on this machine; read only when an extension asks for a
    version of it."""
    wanted: list[str] = []
    if isinstance(extensions, Records):
        wanted = [needs for item in extensions if isinstance(needs := item.get("glibcxx_needs"), str)]
    if not wanted:
        return Fact("os.libstdcxx", Unknown("no extension asks for a version of it"), "", "machine")
    from envdoctor.observe.binaries.libstdcxx import find_libstdcxx

    return find_libstdcxx(wanted, layout, environ, cache=cache)


def arch_list_fact(facts: Sequence[Fact], gpus: Value, layout: Layout) -> Fact | None:
    """The fact ``torch.arch_list``, read from torch's library when it is a CUDA build and there may be a GPU to ask
    about; None otherwise."""
    cuda = next((fact.value for fact in facts if fact.key == "torch.cuda"), None)
    if not isinstance(cuda, str) or (isinstance(gpus, Records) and not len(gpus)):
        return None
    from envdoctor.observe.binaries.torch_archs import read_arch_list

    return read_arch_list(layout)


def loading_facts(facts: Sequence[Fact], layout: Layout, environ: Mapping[str, str]) -> list[Fact]:
    """The facts ``torch.damaged_files`` and ``torch.missing_libraries``, of an environment whose other facts were
    observed; none without torch."""
    known = {fact.key: fact.value for fact in facts if fact.key in ("pkg.torch", "torch.cuda")}
    if "pkg.torch" not in known:
        return []
    from envdoctor.observe.binaries.torch_loading import torch_loading_facts

    here = layout.live and sys.platform.startswith("linux")
    return torch_loading_facts(known["torch.cuda"], layout, environ, here=here)


def library_shadow_fact(facts: Sequence[Fact], layout: Layout, environ: Mapping[str, str]) -> Fact:
    """The fact ``library_shadow``. Nothing is read when no variable points the loader elsewhere, outside of conda."""
    key, origin = "library_shadow", "LD_LIBRARY_PATH, LD_PRELOAD"
    if not layout.live or not sys.platform.startswith("linux"):
        reason = "the loader's variables are those of the machine that it runs on"
        return Fact(key, Unknown(reason), "", "environment")
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if folder]
    preloaded = [path for path in environ.get("LD_PRELOAD", "").replace(":", " ").split() if "/" in path]
    conda = os.path.join(layout.prefix, "lib") if layout.kind == "conda" else None
    if not folders and not preloaded and conda is None:
        return Fact(key, Records(()), origin, "environment")
    files = layout.files
    home = next((place for place in layout.site_packages if files.is_folder(os.path.join(place, "torch", "lib"))), None)
    wheels: dict[str, str] = {}
    if home is not None:
        nvidia = os.path.join(home, "nvidia")
        for part in files.names_or_none(nvidia):
            folder = os.path.join(nvidia, part, "lib")
            wheels.update({name: os.path.join(folder, name) for name in files.names_or_none(folder) if ".so" in name})
    elsewhere = {name for place in (*folders, *([conda] if conda else ())) for name in files.names_or_none(place)}
    elsewhere.update(os.path.basename(path) for path in preloaded)
    if home is None or not elsewhere.intersection(wheels):
        return Fact(key, Records(()), origin, "environment")
    from envdoctor.observe.binaries.library_shadow import Elsewhere, shadows

    known = next((fact.value for fact in facts if fact.key == "cuda_library"), None)
    libraries = known.items if isinstance(known, Records) else ()
    return Fact(
        key, shadows(home, wheels, Elsewhere(folders, preloaded, conda), libraries, files), origin, "environment"
    )
