"""Does the installed xformers compute right attention outputs and gradients, with and without a bias?

Its wheels are built for one torch each, and a wrong pair either falls back or fails; the memory-efficient kernel is
also the origin of torch's, which gave NaN gradients with masks and with large values:
https://github.com/pytorch/pytorch/issues/119320, https://github.com/pytorch/pytorch/issues/178251.
"""

from __future__ import annotations

from ..probing.attention_case import run_cases
from ..probing.kit import Emit, Job
from ..probing.packages import XFORMERS, xformers

PROBE = {
    "title": "xformers, forward and backward",
    "attention": "xformers",
    "needs": ["torch", "xformers"],
    "suites": {
        "quick": [{"dtype": "bf16", "devices": ["cuda"]}],
        "full": [{"dtype": "bf16", "devices": ["cuda"]}, {"dtype": "fp16", "devices": ["cuda"]}],
    },
    "seconds": {"cpu": 90, "cuda": 120},
}


def run(job: Job, emit: Emit) -> None:
    """One observation a case, for the judge ``attention``."""
    run_cases(job, emit, XFORMERS, kernel=xformers)
