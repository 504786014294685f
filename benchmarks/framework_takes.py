"""Frameworks beside releases of what they import: does `check` name what really fails, and nothing else?

    python benchmarks/framework_takes.py --base FOLDER --keep DIR [--seed 20261302] [--count 60] [--uv UV] [--again]

A pair is a release of a framework whose files the ledger has read, and a release of transformers, trl or peft: every
second one lies inside of what the framework's metadata allows, the others outside. What else it imports of the stack is
the newest release of its day that its metadata allows; transformers has the newest tokenizers and huggingface-hub that
it allows itself. These wheels are unpacked once (``uv pip install --no-deps --target``) and linked into a copy of
``--base``, a folder (``--target``) with torch, torchvision, torchaudio and all that the frameworks require beside the
stack, in releases of today. The statements of the table entry-statements and the module of the command
(:data:`COMMANDS`) are really run there (`import_truth.py`), and `check` is asked about the versions of the pair and of
the stack alone (``--facts``). Results are kept in ``--keep``; with ``--again`` only `check` is asked anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from import_asking import Asking
from import_cases import ROOT
from import_runs import QUIET
from import_verdicts import is_error, names, owners_of, stops

sys.path.insert(0, str(ROOT))

from envdoctor.matrix import Matrix, entries, load_matrix
from envdoctor.versions import satisfies

#: What the command of a training run imports first; of ms-swift it is what the table has.
COMMANDS = {"llamafactory": ["import llamafactory.cli"], "axolotl": ["import axolotl.cli.train"], "ms-swift": []}
PROVIDERS = ("transformers", "trl", "peft")
#: What is taken from the day of the framework, and what these require in releases of their own.
STACK = ("transformers", "trl", "peft", "accelerate", "datasets", "gradio")
BELOW = {"tokenizers": "transformers", "huggingface-hub": "transformers", "safetensors": "", "gradio-client": "gradio"}
#: What lies in the folder of a framework.
INSIDE = {"axolotl": ("axolotl-contribs-lgpl", "axolotl-contribs-mit")}
#: Loaded once for all pairs: nothing of it imports what changes.
PRELOAD = (
    *(
        "numpy",
        "torch",
        "torch._dynamo",
        "torch.distributed",
        "torch.utils.data",
        "torchvision",
        "pandas",
        "scipy.stats",
    ),
    *(
        "pyarrow.parquet",
        "PIL.Image",
        "aiohttp",
        "requests",
        "httpx",
        "pydantic",
        "fastapi",
        "uvicorn",
        "matplotlib.pyplot",
    ),
    *(
        "sklearn.metrics",
        "sympy",
        "yaml",
        "regex",
        "fsspec",
        "multiprocess",
        "numba",
        "nltk",
        "jieba",
        "tiktoken",
        "fire",
    ),
)
PYTHON = ".".join(map(str, sys.version_info[:3]))
SINCE = "2023-06-01"


class Pair(NamedTuple):
    """A framework and the release that is put beside it."""

    framework: str
    version: str
    provider: str
    release: str
    inside: bool

    def __str__(self) -> str:
        return f"{self.framework} {self.version} × {self.provider} {self.release}"


def draw(matrix: Matrix, seed: int, count: int) -> Iterator[Pair]:
    """Yield the pairs of a seed."""
    dice = random.Random(seed)
    number = 0
    while number < count:
        framework = dice.choice(sorted(COMMANDS))
        package = package_of(matrix, framework)
        here = [one.version for one in package.releases if one.read and satisfies(PYTHON, one.requires_python or ">=3")]
        read = [version for version in here if any(True for _ in entries(matrix.rows, {framework: version}))]
        version, provider = dice.choice(read), dice.choice(PROVIDERS)
        wanted = [need.specifiers for need in package.requires(version) if need.name == provider and not need.marker]
        inside = number % 2 == 0
        fits = [
            one.version
            for one in package_of(matrix, provider).releases
            if one.date >= SINCE and not one.yanked
            if bool(wanted) and bool(satisfies(one.version, wanted[0]) if wanted[0] else True) is inside
        ]
        if fits:
            number += 1
            yield Pair(framework, version, provider, dice.choice(fits), inside)


def package_of(matrix: Matrix, name: str) -> Any:
    """Return a package of the ledger."""
    package = matrix.ledger.package(name)
    assert package is not None, name
    return package


def pins(matrix: Matrix, pair: Pair) -> dict[str, str]:
    """Return the releases that are put into the folder."""
    framework = package_of(matrix, pair.framework)
    day = next(one.date for one in framework.releases if one.version == pair.version)
    asked = {need.name: need.specifiers for need in framework.requires(pair.version) if not need.marker}
    found = {pair.framework: pair.version, pair.provider: pair.release}
    for name in STACK:
        if name not in found:
            found[name] = newest(matrix, name, asked.get(name, ""), day)
    for name, above in BELOW.items():
        limits = package_of(matrix, above).requires(found[above]) if above else ()
        found[name] = newest(matrix, name, ",".join(n.specifiers for n in limits if n.name == name and n.specifiers))
    return found


def newest(matrix: Matrix, name: str, specifiers: str, day: str = "9999") -> str:
    """Return the newest release up to a day that is allowed; the newest allowed one if there is none."""
    fits = [one for one in package_of(matrix, name).releases if not one.yanked]
    fits = [one for one in fits if not specifiers or satisfies(one.version, specifiers)]
    return ([one for one in fits if one.date <= day] or fits)[-1].version


class Site:
    """A copy of the base, made of hard links, into which releases are linked."""

    def __init__(self, base: Path, keep: Path, uv: str) -> None:
        self.folder, self.unpacked, self.uv = keep / "site", keep / "unpacked", uv
        if self.folder.exists():
            shutil.rmtree(self.folder)
        subprocess.run(["cp", "-al", base, self.folder], check=True)
        self.unpacked.mkdir(exist_ok=True)
        self.links: list[Path] = []

    def put(self, name: str, version: str) -> None:
        """Link a release. Raises RuntimeError where it has no file for this Python."""
        folder = self.unpacked / f"{name}-{version}"
        if not folder.exists():
            wanted = ["--no-deps", "--target", f"{folder}.part", f"{name}=={version}", *INSIDE.get(name, ())]
            command = [self.uv, "pip", "install", "-q", "--python", sys.executable, *wanted]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr.strip()[-300:])
            Path(f"{folder}.part").rename(folder)
        for entry in folder.iterdir():
            path = self.folder / entry.name
            if entry.name not in ("bin", ".lock") and not path.exists():
                path.symlink_to(entry)
                self.links.append(path)

    def clear(self) -> None:
        """Take the releases out again."""
        for path in self.links:
            path.unlink()
        self.links = []


class Truth:
    """The interpreter that has loaded the steady modules."""

    def __init__(self, base: Path, keep: Path) -> None:
        environ = {**os.environ, **QUIET, "HOME": str(keep), "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("import_truth.py"))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ)
        self._tell({"base": str(base), "preload": PRELOAD})

    def of(self, site: Path, statements: list[str]) -> Any:
        """Return each statement with its failure, None for one that works."""
        self._tell({"site": str(site), "changed": [], "statements": statements, "alone": False})
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the interpreter."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Draw, import, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=20261302)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    base, keep, matrix = options.base.resolve(), options.keep.resolve(), load_matrix()
    keep.mkdir(parents=True, exist_ok=True)
    pairs = [*draw(matrix, options.seed, options.count)]
    paths = [keep / f"{options.seed}-{number:02}.json" for number in range(len(pairs))]
    if not all(path.exists() for path in paths):
        site, truth = Site(base, keep, options.uv), Truth(base, keep)
        for pair, path in zip(pairs, paths, strict=True):
            if not path.exists():
                path.write_text(json.dumps(tried(pair, matrix, site, truth), indent=1))
                print(path.stem, pair, file=sys.stderr, flush=True)
        truth.close()
    asking, rows = Asking(keep), []
    for pair, path in zip(pairs, paths, strict=True):
        said = json.loads(path.read_text())
        if "truth" in said and (options.again or "list" not in said):
            facts = keep / "facts.json"
            versions = {f"pkg.{name}": version for name, version in {**pins(matrix, pair), "torch": "2.13.0"}.items()}
            machine = {"python.version": PYTHON, "os.platform": "linux", "os.arch": "x86_64"}
            facts.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": {**versions, **machine}}))
            report = asking.report("--facts", str(facts), "--no-cache")
            said["list"] = [one for one in report["findings"] if is_error(one)]
            path.write_text(json.dumps(said, indent=1))
        rows.append((pair, said))
        print("-", line(pair, said), flush=True)
    asking.close()
    summary(rows)


def tried(pair: Pair, matrix: Matrix, site: Site, truth: Truth) -> dict[str, Any]:
    """Return what the imports of a pair say."""
    said: dict[str, Any] = {"pair": list(pair)}
    try:
        for name, version in pins(matrix, pair).items():
            site.put(name, version)
        known = entries(matrix.rows, {pair.framework: pair.version})
        statements = [*(one.statement for one in known), *COMMANDS[pair.framework]]
        said["installed"] = installed(site.folder)
        said["owners"] = owners_of(site.folder)
        said["truth"] = truth.of(site.folder, statements)
    except RuntimeError as error:
        said["broken"] = str(error)
    finally:
        site.clear()
    return said


def installed(folder: Path) -> dict[str, str]:
    """Return versions by names, of the metadata in a folder."""
    parts = (path.name.removesuffix(".dist-info").rpartition("-") for path in sorted(folder.glob("*.dist-info")))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in parts}


def judged(said: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the statements by outcome: ``named``, an error names what the import stopped at; ``said``, an error says
    of the framework that its import fails, and names something else; ``missed``; ``accused``, the statement works and
    an error says that it fails."""
    found: dict[str, list[str]] = {"named": [], "said": [], "missed": [], "accused": []}
    for statement, failure in said["truth"].items():
        if failure:
            is_named = any(names(one, failure, said["owners"]) for one in said["list"])
            is_said = any(statement_in(statement, one) for one in said["list"])
            found["named" if is_named else "said" if is_said else "missed"].append(statement)
        elif any(statement in stops(one) for one in said["list"]):
            found["accused"].append(statement)
    return found


def statement_in(statement: str, finding: Mapping[str, Any]) -> bool:
    """Return whether a finding is about the package of a statement."""
    top = statement.split(" ")[1].partition(".")[0]
    return any(one.split(" ")[1].partition(".")[0] == top for one in stops(finding))


def line(pair: Pair, said: Mapping[str, Any]) -> str:
    """Return one pair in a line."""
    place = "inside" if pair.inside else "outside"
    if "truth" not in said:
        return f"{pair} ({place}): not unpacked: {said['broken'].splitlines()[-1][:120]}"
    outcome = judged(said)
    failing = sum(len(outcome[key]) for key in ("named", "said", "missed"))
    counts = ", ".join(f"{len(outcome[key])} {key}" for key in outcome if outcome[key])
    text = f"{pair} ({place}): {failing} of {len(said['truth'])} fail" + (f": {counts}" if counts else "")
    for statement in (*outcome["said"], *outcome["missed"]):
        last = (said["truth"][statement].get("errors") or [{}])[-1]
        text += f"\n  - not by name: `{statement}`: {last.get('message', '')[:140]} ({last.get('place')})"
    return text + "".join(f"\n  - accused: `{statement}`" for statement in outcome["accused"])


def summary(rows: list[tuple[Pair, dict[str, Any]]]) -> None:
    """Print the totals."""
    keys = ("pairs", "with a failing import", "statements", "failing", "named", "said", "missed", "accused")
    print(f"\n| metadata | {' | '.join(keys)} |\n|---|{'---|' * len(keys)}")
    for title, inside in (("inside", True), ("outside", False)):
        counts: Counter[str] = Counter()
        for pair, said in rows:
            if pair.inside is inside and "truth" in said:
                outcome = {key: len(found) for key, found in judged(said).items()}
                failing = sum(outcome[key] for key in ("named", "said", "missed"))
                counts.update(pairs=1, statements=len(said["truth"]), failing=failing, **outcome)
                counts["with a failing import"] += failing > 0
        print(f"| {title} | {' | '.join(str(counts[key]) for key in keys)} |")


if __name__ == "__main__":
    main()
