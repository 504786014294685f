"""Write matrices/tables/torch-wheels.toml anew: python tools/refresh_torch_wheels.py CLONES [TABLE]

CLONES holds git clones (bare or not) named as the packages, with their tags. Read is, at the tag of every release that
the ledger lists, the workflow that builds the wheels of the release: its matrix of torch, CUDA, Python and machine
without what it excludes. The table's head is kept. Review the difference before committing it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby, product
from pathlib import Path

import yaml

from envdoctor.matrix import Ledger
from envdoctor.versions import rank

MATRICES = Path(__file__).parents[1] / "matrices"
TABLE = MATRICES / "tables" / "torch-wheels.toml"
#: By package: where its repository is, and its workflow.
PACKAGES = {
    "flash-attn": ("https://github.com/Dao-AILab/flash-attention", ".github/workflows/publish.yml"),
    "causal-conv1d": ("https://github.com/Dao-AILab/causal-conv1d", ".github/workflows/publish.yaml"),
    "mamba-ssm": ("https://github.com/state-spaces/mamba", ".github/workflows/publish.yaml"),
}
Build = tuple[str, str, str, str]


def builds(workflow: str) -> set[Build] | None:
    """Every wheel of the workflow: minor release of torch, major of CUDA, minor release of Python, machine. None for a
    workflow of another form."""
    matrix = yaml.safe_load(workflow)["jobs"].get("build_wheels", {}).get("strategy", {}).get("matrix")
    if matrix is None:
        return None
    axes = {name: values for name, values in matrix.items() if name != "exclude"}
    found = set()
    for values in product(*axes.values()):
        one = dict(zip(axes, values, strict=True))
        excluded = matrix.get("exclude", [])
        if not any(all(one[name] == value for name, value in parts.items()) for parts in excluded):
            torch, cuda = one["torch-version"].split("."), one["cuda-version"].split(".")
            machine = "aarch64" if one["os"].endswith("-arm") else "x86_64"
            found.add((".".join(torch[:2]), cuda[0], str(one["python-version"]), machine))
    return found


def grouped(found: set[Build]) -> Iterator[str]:
    """The wheels as lines of the table: what holds for the same Pythons, then CUDAs, then machines, in one."""
    pythons: dict[tuple[str, str, str], list[str]] = {}
    for torch, cuda, python, machine in sorted(found, key=lambda build: rank(build[2])):
        pythons.setdefault((torch, cuda, machine), []).append(python)
    cudas: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (torch, cuda, machine), minors in sorted(pythons.items()):
        cudas.setdefault((torch, machine, tuple(minors)), []).append(cuda)
    machines: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (torch, machine, minors), majors in cudas.items():
        machines.setdefault((torch, tuple(majors), minors), []).append(machine)
    for (torch, majors, minors), where in sorted(machines.items(), key=lambda entry: rank(entry[0][0])):
        cells = {"torch": torch, "cuda": majors, "python": minors, "machine": sorted(where, reverse=True)}
        yield "{ " + ", ".join(f"{name} = {json.dumps(cell)}" for name, cell in cells.items()) + " }"


def rows(name: str, clone: Path, ledger: Ledger) -> Iterator[str]:
    """The text of the rows of a package, neighbouring releases with the same wheels in one."""
    home, path = PACKAGES[name]
    released = ledger.package(name)
    read: list[tuple[str, tuple[str, ...]]] = []
    for release in released.releases if released is not None else ():
        shown = subprocess.run(
            ["git", "-C", str(clone), "show", f"v{release.version}:{path}"], capture_output=True, text=True, check=False
        )
        found = builds(shown.stdout) if shown.returncode == 0 else None
        read.append((release.version, tuple(grouped(found)) if found else ()))
    for lines, run in groupby(read, key=lambda entry: entry[1]):
        versions = [version for version, _ in run]
        if lines:
            span = f"=={versions[0]}" if len(versions) == 1 else f">={versions[0]},<={versions[-1]}"
            yield f'[[row]]\npackage = "{name}"\nversions = "{span}"\nlevel = "declared"\n'
            yield f'source = "{home}/blob/v{versions[-1]}/{path}"\n'
            yield "builds = [\n" + "".join(f"  {line},\n" for line in lines) + "]\n\n"


def main(clones: Path, table: Path = TABLE) -> None:
    """Read every package and write the table."""
    ledger = Ledger(MATRICES / "ledger")
    head = table.read_text(encoding="utf-8").partition("[[row]]\n")[0]
    body = "".join(text for name in PACKAGES for text in rows(name, clones / name, ledger))
    table.write_text(head + body.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
