"""39 planted faults against the whole quick suite: what must be said of each, and what was said.

They are those of ``inside/trial_faults.py``. The experiments know none of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from planted import PROBES, jobs, planted, seen

from envdoctor.experiments import Job

__all__ = ["CAUSES", "HEALTHY", "LEFT_OUT", "Found", "trial"]

#: The rule that names the cause of a fault.
CAUSES = {
    "k and v heads flipped": "probe-transformers-sdpa-differs",
    "v rolled by a head at D=128": "probe-transformers-sdpa-differs",
    "mask leaks in row 0": "probe-transformers-sdpa-differs",
    "RMSNorm summed in bf16": "probe-model-norm-inaccurate",
    "scale + 2 % inside transformers": "probe-transformers-sdpa-differs",
    "AdamW without bias correction": "probe-optimizer-step-wrong",
    "fused AdamW, eps x 10^6": "probe-optimizer-step-wrong",
    "clipping skips 1-D parameters": "probe-gradient-clipping-wrong",
    "clipping skips the last parameter": "probe-gradient-clipping-wrong",
    "layer norm weight gradient x 0.5": "probe-operation-inaccurate",
    "embedding gradient loses duplicates": "probe-operation-inaccurate",
    "checkpointing drops the RNG state": "probe-checkpointing-differs",
    "dropout active in eval": "probe-dropout-in-evaluation",
    "tied weights lost at load": "probe-reload-differs",
    "KV cache disagrees with prefill": "probe-cache-differs",
    "LoRA scaling ignored": "probe-lora-differs",
    "LoRA merged twice": "probe-lora-differs",
    "GradScaler never skips": "probe-grad-scaler-wrong",
    "NaN in a masked forward, no_grad": "probe-evaluation-nan",
    "leak per new shape": "probe-memory-grows",
    "leak per call of a model": "probe-memory-grows",
    "loss averaged over ignored tokens": "probe-model-loss-differs",
    "evaluate() in training mode": "probe-trainer-evaluation-differs",
    "collator's pads count as labels": "probe-collator-differs",
    "packed samples see each other": "probe-packing-leaks",
    "token ids cut to 16 bits": "probe-operation-inaccurate",
    "products lose a tile from width 2048": "probe-operation-inaccurate",
    "mask of the first sample for all": "probe-attention-inaccurate",
    "accumulation without division": "probe-accumulation-differs",
    "positions of the first sample for all": "probe-model-code-differs",
    "sliding window one key too long": "probe-model-code-differs",
    "index_add loses duplicates": "probe-operation-inaccurate",
    "schedule without its warm-up": "probe-trainer-training-differs",
    "Trainer decays norms": "probe-trainer-training-differs",
    "dropout not scaled": "probe-operation-inaccurate",
    "optimizer resumed without second moments": "probe-optimizer-step-wrong",
    "loss in bf16 under autocast": "probe-model-loss-differs",
    "weights rounded when saved": "probe-reload-differs",
    "Trainer drops the last batch": "probe-trainer-training-differs",
}
#: Heads of 128, as the trial gave a model for.
_LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
_WITH_MODEL = "v rolled by a head at D=128"
#: Nothing is planted.
HEALTHY = ("healthy", "healthy, with a model")
#: Faults in one process: memory is what limits them.
_AT_ONCE = 7
#: These look for nothing that a fault could change, or take a compiler.
LEFT_OUT = ("context", "imports", "compile")


class Found(NamedTuple):
    """The rules that spoke, those that another explains left out, and the CPU seconds that it took."""

    rules: tuple[str, ...]
    seconds: float


def trial(
    python: str, scratch: Path, faults: Collection[str] = (), suite: str = "quick", only: Collection[str] = ()
) -> Iterator[tuple[str, Found]]:
    """What the suite says of each of these faults, or of all, some in one process: the whole suite, which is asked
    about none (``HEALTHY``) as well, or only some of its experiments."""
    folder = scratch / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_LLAMA), encoding="utf-8")

    def all_jobs(fault: str) -> list[Job]:
        model = str(folder) if fault in (_WITH_MODEL, HEALTHY[1]) else None
        names = only or [name for name in PROBES if PROBES[name].suites.get(suite) and name not in LEFT_OUT]
        return [job for name in names for job in jobs(name, suite, model=model)]

    wanted = {} if only else {name: (None, all_jobs(name)) for name in HEALTHY}
    wanted.update({fault: (fault, all_jobs(fault)) for fault in faults or CAUSES})
    names = list(wanted)
    for place in range(0, len(names), _AT_ONCE):
        some = {name: wanted[name] for name in names[place : place + _AT_ONCE]}
        for name, outcomes in planted(python, scratch, some).items():
            seconds = sum(outcome.cpu_seconds or 0.0 for outcome in outcomes)
            yield name, Found(tuple(sorted(seen(outcomes).roots)), seconds)
