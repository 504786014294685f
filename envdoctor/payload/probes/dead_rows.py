"""Do rows that may see no key at all stay harmless: the padding of a sample that is padded on the left?

Before torch 2.5 such rows come out as NaN, and 0 · NaN then enters dk and dv of the whole sample: finite outputs,
finite loss, NaN in the weights after one step. https://github.com/pytorch/pytorch/issues/103749,
https://github.com/pytorch/pytorch/issues/110213; zeros by definition since
https://github.com/pytorch/pytorch/pull/131060. On a B200 NaN in the outputs of exactly these rows was seen with 2.13:
https://github.com/unslothai/unsloth/pull/9848.

The upstream gradient of dead rows is 0, as a loss over the other tokens sends it. NaN in the output of dead rows alone
is a warning; NaN in a live row, dk or dv is a failure.
"""

from __future__ import annotations

from ..probing.attention_case import run_cases
from ..probing.job import Emit, Job

PROBE = {
    "title": "rows that see no key",
    "attention": "sdpa",
    "suites": {
        "quick": [{"backend": "default"}],
        "full": [
            {"backend": "default"},
            {"backend": "math"},
            {"backend": "flash"},
            {"backend": "efficient", "devices": ["cuda"]},
            {"backend": "cudnn", "devices": ["cuda"]},
        ],
    },
}

#: The last sample of left_dead is padding alone: a batch filled up with empty samples.
_MASKS = ("bool_left", "inf_left", "min_left", "bool_left_dead")
_SIZE = {"B": 2, "H": 2, "Hk": 2, "L": 24, "S": 24, "D": 16, "layout": "bhsd", "dout": "plain", "stress": "unit"}
_CASES = [{**_SIZE, "mask": mask, "gqa": "", "number": number} for number, mask in enumerate(_MASKS)]


def run(job: Job, emit: Emit) -> None:
    """One observation for each dtype and mask, for the judge ``attention``."""
    run_cases(job, emit, _CASES, ("bf16", "fp16"))
