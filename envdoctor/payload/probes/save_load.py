"""Is a model that was saved and loaded again the same model?

Weights in float32 and bf16, with an output layer of its own and with one that is tied to the embedding, which is not
saved and must be tied again: otherwise it begins with random numbers, or trains apart from then on.
https://github.com/huggingface/transformers/issues/33689, https://github.com/huggingface/transformers/pull/43429.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.failure import found_by
from ..probing.job import DTYPES, Emit, Job, judged

PROBE = {"title": "models that are saved and loaded again", "needs": ["torch", "transformers", "accelerate"]}


def run(job: Job, emit: Emit) -> None:
    """One observation for each dtype and way of the output layer, for the judge ``exact``."""
    for name in ("fp32", "bf16"):
        for tied in (False, True):
            words = "tied" if tied else "not tied"
            case = judged("exact", "reload-differs", ["parameters"], dtype=name, params={"tied": tied})
            case["case"] = f"{name} weights, embeddings {words}"
            emit({**case, **found_by(partial(_reloaded, DTYPES[name], tied), job["device"])})


def _reloaded(dtype: Any, tied: bool) -> dict[str, Any]:
    problem = _problem(dtype, tied)
    return {"equal": not problem, "detail": problem or "all weights are the same"}


def _problem(dtype: Any, tied: bool) -> str:
    """What is different after saving and loading; empty for nothing."""
    model = tiny_models.build("llama", "sdpa", tied=tied).to(dtype)
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder, torch_dtype=dtype)
    before, after = model.state_dict(), again.state_dict()
    if set(before) != set(after):
        return f"{len(set(before) ^ set(after))} weights are in only one of both"
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    if changed:
        return f"{len(changed)} weights have other values, {changed[0]} among them"
    shared = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    return "" if shared == tied else f"the embeddings are {'no longer ' if tied else ''}tied"
