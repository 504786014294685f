"""Sets of planted faults, with what must be said of each, and the whole suite. The experiments know none of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from planted import PROBES, jobs

from envdoctor.experiments import Job
from envdoctor.matrix import parse_toml


class Causes(NamedTuple):
    """The rules that may name each fault of a machine, a kernel or a build, of released code, or that is not steady."""

    machine: Mapping[str, list[str]] = {}
    released: Mapping[str, list[str]] = {}
    flaky: Mapping[str, list[str]] = {}

    @property
    def steady(self) -> dict[str, list[str]]:
        """Those of the faults that are always there."""
        return {**self.machine, **self.released}


_TABLE = Path(__file__).with_name("causes.toml")
#: The sets of faults by their names; ``trials`` and ``strangers`` were planted first.
SETS = {name: Causes(**rows) for name, rows in parse_toml(_TABLE.read_bytes(), _TABLE.name).items()}
#: Heads of 128, as the trial gave a model for.
_LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
#: These look for nothing that a fault could change, or take a compiler.
_LEFT_OUT = ("context", "imports")


def with_heads(scratch: Path) -> str:
    """The folder of a model whose heads have 128 elements."""
    folder = scratch / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_LLAMA), encoding="utf-8")
    return str(folder)


def suite_jobs(suite: str = "quick", model: str | None = None) -> list[Job]:
    """The jobs of a suite on the CPU that look for something."""
    names = [name for name in PROBES if PROBES[name].suites.get(suite) and name not in _LEFT_OUT]
    return [job for name in names for job in jobs(name, suite, model=model)]
