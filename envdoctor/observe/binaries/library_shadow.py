"""Libraries that the loader would take instead of those that torch's wheels brought."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.knowledge.cuda_wheels import component_of
from envdoctor.observe.request import Request

__all__ = ["KEYS", "NEEDS", "observe"]

KEYS = ("library_shadow",)
NEEDS = ("dist",)


def observe(request: Request) -> list[Fact]:
    """``library_shadow``. Nothing is read when no variable points the loader elsewhere, outside of conda."""
    layout, environ = request.place, request.environ
    if not layout.live or not sys.platform.startswith("linux"):
        return _fact(Unknown("the loader's variables are those of the machine that it runs on"))
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if folder]
    preloaded = [path for path in environ.get("LD_PRELOAD", "").replace(":", " ").split() if "/" in path]
    conda = os.path.join(layout.prefix, "lib") if layout.kind == "conda" else None
    if not folders and not preloaded and conda is None:
        return _fact(Records(()))
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
        return _fact(Records(()))
    from envdoctor.observe.binaries.reading.library_shadow import Elsewhere, shadows

    return _fact(shadows(home, wheels, Elsewhere(folders, preloaded, conda), _owners(request), files))


def _fact(value: Value) -> list[Fact]:
    return [Fact("library_shadow", value, "LD_LIBRARY_PATH, LD_PRELOAD", "environment")]


def _owners(request: Request) -> dict[str, Mapping[str, Value]]:
    """NVIDIA's wheels by component: of two for one component that of the later CUDA major."""
    found: dict[str, Mapping[str, Value]] = {}
    for item in sorted(request.items("dist"), key=lambda item: str(item["name"])):
        named = component_of(str(item["name"]))
        if named is not None:
            found[named[0]] = item
    return found
