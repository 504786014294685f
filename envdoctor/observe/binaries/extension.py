"""The packages with files compiled against torch, and what these files ask for."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.facts.values import Fact, Records, Unknown, Value
from envdoctor.observe.request import Request
from envdoctor.text.message import Message

KEPT = True
KEYS = ("extension",)
NEEDS = ("dist", "torch.missing_files", "package_damage")


def observe(request: Request) -> list[Fact]:
    """``extension``, one item for each installed package of the table torch-extensions."""
    dists = request.value("dist")
    if not isinstance(dists, Records):
        return [Fact("extension", Unknown(Message("the installed packages are not known")), "", "environment")]
    modules = {row["name"]: row["modules"] for row in request.rows("torch-extensions", "package")}
    chosen: dict[str, Mapping[str, Value]] = {}
    for dist in dists:
        if dist.get("name") in modules:
            chosen.setdefault(str(dist["name"]), dist)
    if not chosen:
        return [Fact("extension", Records((), dists.incomplete), Message("installed packages"), "environment")]
    from envdoctor.observe.binaries.reading.extensions import read_extensions

    missing = request.value("torch.missing_files")
    if any(item["package"] == "torch" and item["fails"] is True for item in request.items("package_damage")):
        missing = ("torch/lib",)
    return [read_extensions(chosen, modules, request.place, missing, dists.incomplete)]
