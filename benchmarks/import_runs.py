"""The real imports of a case: which statements fail, and with what error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from import_cases import BESIDE, CORE, ROOT, Bench, Case, Workshop, installed_in, met, requirements_of, site_of
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(ROOT))

from envdoctor.matrix import entries, load_matrix

#: No network, no GPU, no messages home.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
#: Whose statements come first, because others load these packages: what a failed statement has loaded is lost.
FIRST = (
    "numpy",
    "pandas",
    "pyarrow",
    "torch",
    "safetensors",
    "tokenizers",
    "huggingface-hub",
    "transformers",
    "accelerate",
    "datasets",
    "evaluate",
    "peft",
)
#: Says which third-party modules the statements load, and which statements fail.
RECORD = """
import json, os, sys, warnings
warnings.filterwarnings("ignore")
answers = os.dup(1); null = os.open(os.devnull, os.O_WRONLY); os.dup2(null, 1); os.dup2(null, 2)
sys.path.append(sys.argv[1])
failed = []
for statement in sys.argv[2:]:
    try:
        exec(statement, {})
    except BaseException as error:
        failed.append(statement + ": " + repr(error)[:200])
os.write(answers, json.dumps([list(sys.modules), failed]).encode())
"""


class Interpreters:
    """One interpreter a stack that has loaded what no replaced package can change."""

    def __init__(self, workshop: Workshop, bench: Bench) -> None:
        self.workshop, self.bench = workshop, bench
        self.running: dict[str, subprocess.Popen[str]] = {}

    def truth(self, case: Case, *, alone: bool = False) -> dict[str, Any]:
        """Statements with None or their errors, and whether all requirements are met, as `uv pip check` says."""
        with self.bench.mounted(case) as tree:
            site = site_of(tree)
            request = {
                "site": str(site),
                "changed": sorted(modules_of(site, case.pins)),
                "statements": statements(site, case.pins),
                "alone": alone,
            }
            process = self._interpreter(case.stack)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            results = json.loads(process.stdout.readline())
            return {"met": met(self.workshop.uv, tree), "results": results}

    def close(self) -> None:
        """End the interpreters."""
        for process in self.running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def _interpreter(self, stack: str) -> subprocess.Popen[str]:
        if stack not in self.running:
            environment = self.workshop.stack(stack)
            command = [
                str(environment / "bin" / "python"),
                "-I",
                "-S",
                str(Path(__file__).with_name("import_truth.py")),
            ]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environ()
            )
            assert process.stdin is not None
            first = {"base": str(site_of(environment)), "preload": self._preload(stack)}
            process.stdin.write(json.dumps(first) + "\n")
            process.stdin.flush()
            self.running[stack] = process
        return self.running[stack]

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **QUIET, "HOME": str(self.workshop.home / "home")}

    def _preload(self, stack: str) -> list[str]:
        """The modules that the statements load in the stack itself, of packages that need none that is replaced."""
        path = self.workshop.home / f"stack-{stack}" / "loaded.json"
        environment = self.workshop.stack(stack)
        site = site_of(environment)
        if not path.exists():
            command = [str(environment / "bin" / "python"), "-I", "-S", "-c", RECORD, str(site), *statements(site)]
            done = subprocess.run(command, capture_output=True, check=True, env=self._environ())
            loaded, failed = json.loads(done.stdout)
            if failed or not met(self.workshop.uv, environment):
                raise SystemExit(f"the stack {stack} is broken by itself: {failed}")
            path.write_text(json.dumps(loaded))
        steady = modules_of(site, steady_packages(site))
        return [name for name in json.loads(path.read_text()) if name.partition(".")[0] in steady]


def statements(site: Path, changed: Iterable[str] | None = None) -> list[str]:
    """The entry statements of what is installed there; of packages outside of CORE only where they require, themselves
    or through others, one of those that ``changed``."""
    installed = {name: version for name, (version, _) in requirements_of(site).items()}
    found = [entry for entry in entries(load_matrix().rows, installed) if not entry.needs_gpu]
    if changed is not None:
        touched = {*CORE, *dependents(site, changed)}
        found = [entry for entry in found if entry.package in touched]
    places = {name: place for place, name in enumerate(FIRST)}
    found.sort(key=lambda entry: places.get(entry.package, len(places)))
    return [entry.statement for entry in found]


def modules_of(site: Path, names: Iterable[str]) -> set[str]:
    """Top-level modules of these distributions."""
    wanted = set(names)
    return {module for found in installed_in(site) if found.name in wanted for module in found.modules}


def steady_packages(site: Path) -> set[str]:
    """The distributions that take nothing from CORE and BESIDE, by their requirements; bitsandbytes takes kernels where
    it finds it."""
    return set(requirements_of(site)) - dependents(site, (*CORE, *BESIDE, "bitsandbytes"))


def dependents(site: Path, names: Iterable[str]) -> set[str]:
    """These distributions, and those that require one of them, themselves or through others."""
    needs: dict[str, set[str]] = {}
    for name, (_, requires) in requirements_of(site).items():
        needs[name] = set()
        for text in requires:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                needs[name].add(canonicalize_name(wanted.name))
    found = set(names)
    while more := {name for name, wanted in needs.items() if name not in found and wanted & found}:
        found |= more
    return found
