"""Does the installed flash-attn package compute right outputs and gradients, on whole and on unpadded batches?

The package's history holds several silent bugs, each fixed by an upgrade (commits of
https://github.com/Dao-AILab/flash-attention): NaN in dq where the length is no multiple of 128 (a4f148b6, up to 2.0.2),
a race in the backward (1c41d2b0, up to 2.0.3), NaN with many rows and few keys (c65b5106, 2.0.4 to 2.0.7), the output
read with the strides of its gradient (9ee0ff1d, 2.0.0), q and k of different contiguity (2423cca3, up to 2.5.2), and in
flash-attn 4 wrong dq for batches of two and more at head dimension 256 (09aa3222,
https://github.com/NVIDIA/TransformerEngine/issues/3216). A wheel built for another torch shows here, too.
"""

from __future__ import annotations

from ..probing.attention_case import run_cases
from ..probing.kit import Emit, Job
from ..probing.packages import FLASH_ATTN, flash_attn

PROBE = {
    "title": "the flash-attn package, forward and backward",
    "attention": "flash-attn",
    "needs": ["torch", "flash_attn"],
    "suites": {
        "quick": [{"dtype": "bf16", "devices": ["cuda"]}],
        "full": [{"dtype": "bf16", "devices": ["cuda"]}, {"dtype": "fp16", "devices": ["cuda"]}],
    },
    "seconds": {"cpu": 90, "cuda": 120},
}


def run(job: Job, emit: Emit) -> None:
    """One observation a case, for the judge ``attention``."""
    run_cases(job, emit, FLASH_ATTN, kernel=flash_attn)
