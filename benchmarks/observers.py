"""How long do single observers of `check` take? Times them alone, in a process of its own.

    PYTHON -I benchmarks/observers.py PREFIX CACHE OBSERVER…

PYTHON has envdoctor, PREFIX is the interpreter of the environment to be read, CACHE the folder of envdoctor's cache
(``-`` is none) and OBSERVER its module below envdoctor.observe and its name (``packages.link:link``). Prints ``{"ms":
…, "cpu": …, "packages": …, "files": …, "symbols": …}``: wall and processor time in ms, the imports of what reads in
it, because every ``envdoctor check`` pays them; processor time is that of this process and its children. The counts
are of the files that ask for symbols of torch, taken after the clock was stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

from envdoctor.app import Sources, collect_facts
from envdoctor.matrix import load_matrix


def main() -> int:
    """Read, then count."""
    python, cache, *names = sys.argv[1:]
    if cache != "-":
        os.environ["XDG_CACHE_HOME"] = cache
    spent = [0.0, 0.0]
    matrix = load_matrix()
    sources = Sources(python=python, gpu=False, cache=cache != "-")
    if names == ["packages.link:link"]:  # kept facts come without any observer: what links add to all of it
        for sign, links in ((0, False), (1, True), (-1, False)):
            started, before = time.perf_counter(), os.times()
            collect_facts(sources, matrix, links=links)
            spent[0] += sign * (time.perf_counter() - started)
            spent[1] += sign * (sum(os.times()[:4]) - sum(before[:4]))
        print(json.dumps({"ms": 1000 * spent[0], "cpu": 1000 * spent[1]}))
        return 0
    kept = [timed(name, spent) for name in names]
    facts = collect_facts(sources, matrix, links=True).facts
    counts = (
        counted(facts, kept[0], matrix)
        if names == ["binaries.extension:extension", "binaries.loading:libstdcxx"]
        else {}
    )
    print(json.dumps({"ms": 1000 * spent[0], "cpu": 1000 * spent[1], **counts}))
    return 0


def timed(name: str, spent: list[float]) -> list[Any]:
    """Let the observer add what it takes to ``spent``; its requests are kept."""
    module = import_module(f"envdoctor.observe.{name.partition(':')[0]}")
    observer: Any = getattr(module, name.partition(":")[2])
    requests: list[Any] = []

    def measured(request: Any) -> Any:
        requests.append(request)
        started, before = time.perf_counter(), os.times()
        try:
            return observer.find(request)
        finally:
            after = os.times()
            spent[0] += time.perf_counter() - started
            spent[1] += sum(after[:4]) - sum(before[:4])

    setattr(module, observer.name, observer._replace(find=measured))
    return requests


def counted(facts: Any, requests: list[Any], matrix: Any) -> dict[str, int]:
    """The packages with extensions of torch, their files, and the undefined symbols of torch that these name."""
    from envdoctor.observe.binaries.extension import compiled_files, read_package

    place = requests[0].place
    dists = {item["name"]: item for item in facts.value("dist")}
    modules = {row["name"]: row["modules"] for row in matrix.rows("torch-extensions", "package")}
    packages = []
    for item in facts.value("extension"):
        dist = dists[item["package"]]
        found, _ = compiled_files(dist["path"], dist["kind"], modules[dist["name"]], place.site_packages, place.files)
        packages.append(read_package(found, place.files))
    files = [file for package in packages for file in package.files]
    return {"packages": len(packages), "files": len(files), "symbols": sum(len(file.symbols) for file in files)}


if __name__ == "__main__":
    sys.exit(main())
