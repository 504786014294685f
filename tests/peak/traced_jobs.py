"""What is traced: a job, to be changed, and the models of the fixtures. Also read where there is no envdoctor."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envdoctor.peak import Trace

GIB = 1 << 30
LORA = {"r": 8, "lora_dropout": 0.0, "target_modules": "all-linear", "modules_to_save": None, "use_dora": None}
JOB: dict[str, Any] = {
    **{"training": True, "load_dtype": "bfloat16", "amp": None, "attention": "sdpa", "quantized": None, "lora": None},
    **{"checkpointing": False, "stage": "sft", "reference": "none", "batch": 1, "padded": False, "accumulation": 1},
    **{"keep_outputs": False, "optimizer": "AdamW"},
}


def config(name: str) -> dict[str, Any]:
    """The config.json of a model."""
    path = Path(__file__).parents[2] / "fixtures" / "memory" / name / "config.json"
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data


class MadeUp:
    """Answers every job with one trace, and keeps the jobs."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.jobs = trace, list[Any]()

    def __call__(self, jobs: Sequence[Mapping[str, Any]]) -> list[Trace | str]:
        self.jobs += jobs
        return [self.trace for _ in jobs]
