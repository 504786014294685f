"""Find what the matrix does not know: releases newer than it or never read by it, Pythons, drivers, GPUs, model types
and attention implementations."""

import re
from collections.abc import Iterator, Mapping

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Records, Unknown, Unlisted, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix.gpu_code import gpu_named
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import transformers_types
from envdoctor.observe.packages.link import required
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted, order
from envdoctor.versions.requirement import is_own_build

_Item = tuple[str, str, str | None]
_CPYTHON = re.compile(r"cp3(\d+)-")


@derives(
    "beyond",
    of="dist pkg.* python.minor driver.max_cuda torch.cuda gpu model.type model.family model.run_by recipe.attn",
)
def beyond(facts: View, matrix: Matrix) -> Answer:
    """Give ``beyond``: what the tables and the ledger do not reach. Facts that are unknown are left out."""
    items: tuple[Mapping[str, Value], ...] = tuple(
        {"what": kind, "value": version, "known_to": ABSENT if limit is None else limit}
        for part in (_packages, _listed, _machine, _run)
        for kind, version, limit in part(facts, matrix)
    )
    return Derived(Records(items), Message("the ledger and the tables"))


def _packages(facts: View, matrix: Matrix) -> Iterator[_Item]:
    for name in matrix.ledger.packages():
        installed = facts.text(f"pkg.{name}")
        if installed is None:
            continue
        released, place = matrix.ledger.package(name), order(public := installed.partition("+")[0])
        places = {entry.version: order(entry.version) for entry in released.releases} if released is not None else {}
        newest = next(reversed(places), None)
        if place is not None and newest is not None and (last := places[newest]) is not None and place > last:
            yield name, installed, newest
        elif place is None or not is_own_build(installed) or (public not in places and place not in places.values()):
            yield name, installed, None


def _listed(facts: View, matrix: Matrix) -> Iterator[_Item]:
    """Yield packages of an open list whose requirements neither the list nor the ledger has: they may refuse the chosen
    releases. Packages that known ones bring along are left out, like CUDA's libraries."""
    dists = facts.records("dist")
    items = dists.items if dists is not None and dists.incomplete else ()
    brought = {name for item in items for name in required(item)}
    for item in items:
        name, version = str(item.get("name")), View.of(item).text("version")
        unknown = isinstance(item.get("requires"), Unknown) and matrix.ledger.package(name) is None
        if unknown and name not in brought:
            yield name, version or "*", None


def _machine(facts: View, matrix: Matrix) -> Iterator[_Item]:
    torch, rows = matrix.ledger.package("torch"), matrix.rows("cuda-drivers")
    wheels = torch.items("wheels", "*", torch.releases[-1].version) if torch is not None and torch.releases else ()
    minors = map(int, _CPYTHON.findall(" ".join(wheels)) if isinstance(wheels, tuple) else ())
    newest_python = f"3.{max(minors, default=0)}" if torch is not None else None
    newest_cuda = rows[-1]["key"] if rows else None
    for kind, key, limit in (
        ("Python", "python.minor", newest_python),
        ("CUDA of the driver", "driver.max_cuda", newest_cuda),
        ("CUDA of torch", "torch.cuda", newest_cuda),
    ):
        version = facts.text(key)
        if version is not None and limit and (dotted(version) or ()) > (dotted(limit) or ()):
            yield kind, version, limit
    codes = {row["cc"] for table in ("gpus", "gpu-series") for row in matrix.rows(table)}
    for gpu in facts.each("gpu") if codes else ():
        name, cc = gpu.text("name"), gpu.text("cc")
        if cc is not None and cc not in codes:
            yield "GPU", f"{name} (compute capability {cc})" if name is not None else cc, None
        elif name is not None and cc is None and not gpu_named(name, matrix):
            yield "GPU", name, None


def _run(facts: View, matrix: Matrix) -> Iterator[_Item]:
    kind, types = facts.text("model.type"), transformers_types(matrix)
    by_name = facts.text("model.family") is not None or facts.value("model.run_by") in ("engine", "trainer")
    if kind is not None and not by_name and types.since(kind) is None and not types.is_never(kind):
        yield "model type", kind, None
    attn = facts.value("recipe.attn")
    if isinstance(attn, Unlisted):
        yield "attention", attn.word, None
