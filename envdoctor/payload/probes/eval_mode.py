"""Does a model give in evaluation what it gives in training: the same logits, finite, whatever is masked or cached?

Under ``no_grad`` and ``eval()`` other kernels and other code may run: dropout must be off, a padded batch with a row of
nothing but padding and a row whose labels are all ignored must be finite and give the logits of training, prompts that
are continued with a cache must give those of the whole text at once, asking for attention's weights must change none,
and samples packed into one row have those that they have alone, where the installed transformers tells packed samples
by their positions.

https://github.com/huggingface/transformers/issues/36536 and https://github.com/huggingface/transformers/issues/37574
(generation with a cache differs), https://github.com/huggingface/transformers/pull/30652 (with attention's weights),
https://github.com/huggingface/transformers/pull/31629 (packing), https://github.com/pytorch/pytorch/issues/110213
(fully padded rows). In float32, but for the finite values, which are asked of bf16.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.kit import Emit, Job, full_precision, judged, lost, relative

PROBE = {
    "title": "models in evaluation: dropout, masks, cache, packing",
    "attention": "sdpa",
    "suites": {"quick": [{"models": ["llama"]}], "full": [{"models": ["llama", "qwen2", "glm", "gemma2", "mistral"]}]},
    "memory_mib": 2000,
}

#: Relative error in float32 of what is right: 2e-6.
_LIMIT = 1e-3
_GAIN = 12
_PROMPTS, _NEW = (7, 4), 17


def run(job: Job, emit: Emit) -> None:
    """Observations for each model for the judges ``exact`` and ``change``."""
    common = {"backend": "sdpa", "tensors": ["logits"]}

    def of_one(name: str, called: str) -> None:
        model = tiny_models.build(name, "sdpa", job["model"]).to(job["device"])
        tiny_models.stress(model, _GAIN)
        tiny_models.stress(model, "bias")
        for check in (_dropout, _masked, _attentions, _cached, _packed):
            case = {"case": f"{called}: {check.__name__[1:]}", "params": {"model": called}}
            emit({**common, **case, **check(model, job, name)})

    with full_precision():
        tiny_models.each_chosen(job, emit, "llama", of_one, **common)


def _logits(model: Any, batch: dict[str, Any], **more: Any) -> Any:
    with torch.no_grad():
        return model(**tiny_models.moved(batch, model), **more).logits.cpu()


def _change(found: Any, exact: Any, signature: str) -> dict[str, Any]:
    if lost(found):
        told = f"{lost(found)} logits are not finite without gradients"
        return judged("exact", "eval-nan", ["logits"], dtype="fp32", equal=False, detail=told)
    difference = relative(found, exact)
    told = f"logits are off by {difference:.2g} of them"
    return judged("change", signature, ["logits"], dtype="fp32", detail=told, relative=difference, limit=_LIMIT)


def _dropout(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Values are dropped in training only: of attention's weights, in eager attention, and behind each feed-forward."""
    eager = tiny_models.build(name, "eager", job["model"]).to(job["device"])
    batch = tiny_models.padded(tiny_models.samples((24, 17)), "right")
    exact = _logits(eager.eval(), batch)
    tiny_models.drop_attention(eager)
    for place, module in list(eager.named_modules()):
        if place.endswith(".mlp"):
            module.add_module("dropped", torch.nn.Dropout(0.5))
            module.register_forward_hook(lambda module, given, out: module.dropped(out))
    return _change(_logits(eager.eval(), batch), exact, "eval-dropout")


def _masked(model: Any, job: Job, name: str) -> dict[str, Any]:
    """The logits of evaluation beside those of training, and finite in bf16."""
    made = tiny_models.samples(tiny_models.LENGTHS["short"])
    made[1][1].fill_(tiny_models.IGNORED)
    half = tiny_models.build(name, "sdpa", job["model"]).to(job["device"], torch.bfloat16).eval()
    found: dict[str, Any] = {}
    for empty in (False, True):
        batch = tiny_models.padded(made, "left", position_ids=True, empty=empty)
        live = batch["attention_mask"].bool()
        model.train()
        exact = model(**tiny_models.moved(batch, model)).logits.detach().cpu()
        found = _change(_logits(model.eval(), batch)[live], exact[live], "eval-differs")
        rough = _change(_logits(half, batch)[live], exact[live], "eval-differs")
        for one in (found, {**rough, "dtype": "bf16"}):
            if one["judge"] == "exact" or (one is found and not one["relative"] <= _LIMIT):
                return one
    return found


def _cached(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Prompts of unequal length, continued together with the cache that the model takes, against each text at once."""
    batch = tiny_models.padded(tiny_models.samples(_PROMPTS), "left")
    given = {key: batch[key].to(job["device"]) for key in ("input_ids", "attention_mask")}
    model.generation_config.eos_token_id = None  # no text ends before its time
    with torch.no_grad():
        said = model.eval().generate(
            **given,
            max_new_tokens=_NEW,
            do_sample=False,
            use_cache=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    found, exact = [], []
    for row, length in enumerate(_PROMPTS):
        text = said.sequences[row, max(_PROMPTS) - length :][None]
        exact.append(_logits(model, {"input_ids": text})[0, length - 1 : -1])
        found.append(torch.stack([logits[row] for logits in said.logits]).cpu())
    return _change(torch.cat(found), torch.cat(exact), "cache-differs")


def _attentions(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Asking for the weights of attention changes no logits."""
    tokens = torch.stack([tokens for tokens, _ in tiny_models.samples((24, 24))])
    exact = _logits(model.eval(), {"input_ids": tokens})
    try:
        found = _logits(model, {"input_ids": tokens}, output_attentions=True)
    except ValueError as error:
        return {"skip": f"sdpa attention does not give its weights here: {error}"[:300]}
    return _change(found, exact, "eval-differs")


def _packed(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Two samples in one row, told apart by positions that begin again."""
    try:
        masking = importlib.import_module("transformers.masking_utils")
    except ImportError:
        masking = None
    if not hasattr(masking, "find_packed_sequence_indices"):
        return {"skip": "this transformers does not tell packed samples apart in sdpa attention"}
    made = [tokens for tokens, _ in tiny_models.samples((24, 17))]
    alone = torch.cat([_logits(model.eval(), {"input_ids": tokens[None]}) for tokens in made], 1)
    positions = torch.cat([torch.arange(len(tokens)) for tokens in made])[None]
    found = _logits(model, {"input_ids": torch.cat(made)[None], "position_ids": positions}, use_cache=False)
    return _change(found, alone, "packing-leaks")
