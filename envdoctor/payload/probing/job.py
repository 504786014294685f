"""What a probe is given and what it hands back, and the names of dtypes in both."""

from __future__ import annotations

from typing import Any, Callable, Dict  # noqa: UP035 (Python 3.8 knows no others at run time)

import torch

#: ``device``, ``suite``, ``dtype``, ``backend``, ``options``, ``model`` (a folder) and ``recipe``.
Job = Dict[str, Any]  # noqa: UP006
#: Hands back one observation.
Emit = Callable[[Dict[str, Any]], None]  # noqa: UP006

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_SPELLED = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "fp16": "fp16", "bf16": "bf16"}


def judged(judge: str, signature: str, tensors: list[str], **more: Any) -> dict[str, Any]:
    """The part of observations for the judges ``exact`` and ``change`` that is said before anything is measured: the
    word for a violation and what is compared; ``more`` are their dtype, their limit and the like."""
    return {"judge": judge, "signature": signature, "tensors": tensors, **more}


def loaded_dtype(job: Job) -> str | None:
    """The half dtype in which the recipe loads and trains weights, if it does."""
    return _SPELLED.get(str(job["recipe"].get("load_dtype")).lower())


def wanted_dtypes(job: Job, usual: tuple[str, ...]) -> tuple[str, ...]:
    """The dtype of the job, or the usual ones."""
    return (job["dtype"],) if job["dtype"] else usual
