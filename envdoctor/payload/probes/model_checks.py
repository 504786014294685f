"""Do models of transformers compute what is published of them, and in evaluation what they compute in training?

The functions cite the bugs that they exist for, such as https://github.com/huggingface/transformers/issues/32390.
"""

from __future__ import annotations

import copy
import importlib
from functools import partial
from typing import Any

import torch

from ..probing import tiny_models
from ..probing.kit import IGNORED, Emit, Job, attempt, full_precision, in_setting, lost, relative, rms, seed_of, vector
from ..probing.plain_decoder import can_follow, logits_of, loss_of
from ..probing.shapes import drawn, each

PROBES = {
    "eval-mode": {
        "title": "models in evaluation: dropout, masks, cache, packing",
        "attention": "sdpa",
        "suites": {
            "quick": [{"models": ["llama"]}],
            "full": [{"models": ["llama", "qwen2", "glm", "gemma2", "mistral"]}],
        },
        "memory_mib": 2000,
    },
    "model-code": {
        "title": "models of transformers against a decoder in plain torch",
        "suites": {
            "quick": [{"models": ["llama", "llama linear", "llama llama3", "llama yarn", "qwen2", "qwen3", "glm"]}],
            "full": [
                {"models": ["llama", "llama linear", "llama llama3", "llama yarn", "qwen2", "qwen3", "glm"]},
                {"models": ["llama dynamic", "glm4", "mistral", "gemma3", "phi3"]},
            ],
        },
        "memory_mib": 2000,
    },
}

#: Relative error in float32 of what is right: 3e-6 at most; of a scale that is 2 % off, 1e-2.
_LIMIT = 1e-3
#: Weights of q and k, times this, make attention depend on the tokens.
_GAIN = 12
_WAYS = ("sdpa", "eager")
_WIDTH, _ROWS = 2048, 64
_PROMPTS, _NEW = (7, 4), 17
#: How texts are written, and what is kept meanwhile.
_MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "num_return_sequences": 2, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0},
    "lookup": {"do_sample": False, "prompt_lookup_num_tokens": 3},
}
_CACHES: dict[str, dict[str, Any]] = {"dynamic": {}, "static": {"cache_implementation": "static"}}
_WRITTEN = {"mode": each(*_MODES), "cache": each(*_CACHES), "prompts": each("one", "equal", "unequal")}


def eval_mode(job: Job, emit: Emit) -> None:
    """Does a model give in evaluation what it gives in training: the same logits, finite, whatever is masked or cached?

    Under ``no_grad`` and ``eval()`` other kernels and other code may run: dropout must be off, a padded batch with a
    row of nothing but padding and a row whose labels are all ignored must be finite and give the logits of training,
    prompts that are continued with a cache must give those of the whole text at once, and samples packed into one row
    have those that they have alone, where the installed transformers tells packed samples by their positions.

    https://github.com/huggingface/transformers/issues/36536 and
    https://github.com/huggingface/transformers/issues/37574 (generation with a cache differs),
    https://github.com/huggingface/transformers/pull/31629 (packing), https://github.com/pytorch/pytorch/issues/110213
    (fully padded rows). In float32, but for the finite values, which are asked of bf16.
    """
    common = {"backend": "sdpa", "tensors": ["logits"]}

    def of_one(name: str, called: str) -> None:
        model = tiny_models.unlike(tiny_models.build(name, "sdpa", job["model"])).to(job["device"])
        tiny_models.stress(model, _GAIN)
        tiny_models.stress(model, "bias")
        for check in (_dropout, _masked, _packed):
            case = {"case": f"{called}: {check.__name__[1:]}", "params": {"model": called}}
            emit({**common, **case, **check(model, job, name)})

    with full_precision():
        tiny_models.each_chosen(job, emit, "llama", of_one, **common)
        usual = {"mode": "greedy", "cache": "dynamic", "prompts": "one"}
        plain = {name: {"model": name, **usual} for name in _chosen(job)}
        for row in [*plain.values(), *drawn(seed_of(job), model=each(*plain), **_WRITTEN)]:
            if row["mode"] == "lookup":  # which is for one text
                row.update(prompts="one", cache="dynamic")
            case = {"case": f"{row['model']}: cached, {row['mode']}, {row['cache']} cache, {row['prompts']} prompts"}
            measures = attempt(partial(_written, row, job), job["device"])
            if row is plain[row["model"]]:
                plain[row["model"]] = measures
            emit({**common, **case, "params": {"model": row["model"]}, **in_setting(measures, plain[row["model"]])})


def model_code(job: Job, emit: Emit) -> None:
    """Do the models of the installed transformers compute what is published of them, by every way through attention?

    In float32, where the way through the code decides and not the rounding: logits and gradients of a padded batch with
    sdpa and with eager attention, each against a decoder written in plain torch in float64 that shares no code with
    them (Llama, Qwen2, Qwen3 and Mistral), or against each other where there is none. What only sdpa gets wrong has a
    cure, which was tried here: eager. The loss that the model gives, also under autocast to bf16, is compared with the
    mean over the labels that count, of the same logits. And the norms in bf16: one that sums in half precision is off
    by one factor for a whole row, which the rounding of single values hides:
    https://github.com/pytorch/pytorch/pull/134106.

    Bugs that it exists for: masks and sdpa (https://github.com/huggingface/transformers/issues/32390), losses that
    count labels otherwise (https://github.com/huggingface/transformers/pull/34191).
    """
    with full_precision():
        tiny_models.each_chosen(job, emit, "llama", lambda name, called: _one_model(job, emit, name, called))


def _logits(model: Any, batch: dict[str, Any], **more: Any) -> Any:
    with torch.no_grad():
        return model(**tiny_models.moved(batch, model), **more).logits.cpu()


def _change(logits: Any, exact: Any, signature: str) -> dict[str, Any]:
    case = {"tensors": ["logits"], "dtype": "fp32"}
    if lost(logits):
        why = f"{lost(logits)} logits are not finite without gradients"
        return {**case, "judge": "exact", "signature": "eval-nan", "equal": False, "detail": why}
    difference = relative(logits, exact)
    why = f"logits are off by {difference:.2g} of them"
    return {**case, "judge": "change", "signature": signature, "detail": why, "relative": difference, "limit": _LIMIT}


def _dropout(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Check that values are dropped in training only: in eager attention, and behind each feed-forward."""
    eager = tiny_models.build(name, "eager", job["model"]).to(job["device"])
    batch = tiny_models.padded(tiny_models.samples((24, 17)), "right")
    exact = _logits(eager.eval(), batch)
    tiny_models.drop_attention(eager)
    tiny_models.drop_layers(eager)
    return _change(_logits(eager.eval(), batch), exact, "eval-dropout")


def _masked(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Compare the logits of evaluation with those of training, and check that they are finite in bf16."""
    pairs = tiny_models.samples(tiny_models.LENGTHS["short"])
    pairs[1][1].fill_(IGNORED)
    half = tiny_models.unlike(tiny_models.build(name, "sdpa", job["model"])).to(job["device"], torch.bfloat16).eval()
    change: dict[str, Any] = {}
    for empty in (False, True):
        batch = tiny_models.padded(pairs, "left", position_ids=True, empty=empty)
        live = batch["attention_mask"].bool()
        model.train()
        exact = model(**tiny_models.moved(batch, model)).logits.detach().cpu()
        change = _change(_logits(model.eval(), batch)[live], exact[live], "eval-differs")
        rough = _change(_logits(half, batch)[live], exact[live], "eval-differs")
        for record in (change, {**rough, "dtype": "bf16"}):
            if record["judge"] == "exact" or (record is change and not record["relative"] <= _LIMIT):
                return record
    return change


def _chosen(job: Job) -> list[str]:
    """Return models whose caches keep everything, and one whose cache keeps a window."""
    return ["own"] if tiny_models.chosen(job["model"], [""])[0] == "own" else ["llama", "mistral", "qwen3"]


def _written(row: dict[str, Any], job: Job) -> dict[str, Any]:
    """Compare prompts that are continued with a cache with each text at once: the logits of each token, or of beams the
    probability of the text that the score says."""
    mode = row["mode"]
    if row["cache"] == "static" and job["device"] == "cuda":
        return {"skip": "a static cache is compiled on a GPU"}
    model = tiny_models.unlike(tiny_models.build(row["model"], "sdpa", job["model"])).to(job["device"]).eval()
    tiny_models.stress(model, _GAIN)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(_GAIN)  # so that one text is likelier than others
    lengths = _PROMPTS if row["prompts"] == "unequal" else _PROMPTS[:1] * (2 if row["prompts"] == "equal" else 1)
    batch = tiny_models.padded(tiny_models.samples(lengths), "left")
    inputs = {key: batch[key].to(job["device"]) for key in ("input_ids", "attention_mask")}
    model.generation_config.eos_token_id = None  # no text ends before its time
    options: dict[str, Any] = dict.fromkeys(
        ("use_cache", "output_logits", "output_scores", "return_dict_in_generate"), True
    )
    options.update(max_new_tokens=_NEW, **_MODES[mode], **_CACHES[row["cache"]])
    torch.manual_seed(3)
    with torch.no_grad():
        output = model.generate(**inputs, **options)
    answers, exact = [], []
    each_one = len(output.sequences) // len(lengths)
    for place, tokens in enumerate(output.sequences.cpu()):
        length = lengths[place // each_one]
        text = tokens[max(lengths) - length :][None]
        logits = _logits(model, {"input_ids": text})[0, length - 1 : -1]
        if mode == "beams":
            exact.append(torch.log_softmax(logits, -1).gather(-1, text[0, length:, None]).sum()[None])
            answers.append(output.sequences_scores[place].cpu()[None])
        else:
            exact.append(logits)
            answers.append(torch.stack([logits[place] for logits in output.logits]).cpu())
    return _change(torch.cat(answers), torch.cat(exact), "cache-differs")


def _packed(model: Any, job: Job, name: str) -> dict[str, Any]:
    """Compare two samples in one row, told apart by positions that begin again, with each sample alone."""
    try:
        masking = importlib.import_module("transformers.masking_utils")
    except ImportError:
        masking = None
    if not hasattr(masking, "find_packed_sequence_indices"):
        return {"skip": "this transformers does not tell packed samples apart in sdpa attention"}
    texts = [tokens for tokens, _ in tiny_models.samples((24, 17))]
    alone = torch.cat([_logits(model.eval(), {"input_ids": tokens[None]}) for tokens in texts], 1)
    positions = torch.cat([torch.arange(len(tokens)) for tokens in texts])[None]
    logits = _logits(model, {"input_ids": torch.cat(texts)[None], "position_ids": positions}, use_cache=False)
    return _change(logits, alone, "packing-leaks")


def _one_model(job: Job, emit: Emit, name: str, called: str) -> None:
    device, models = job["device"], {}
    for way in _WAYS:
        try:
            models[way] = tiny_models.unlike(tiny_models.build(name, way, job["model"])).to(device)
        except tiny_models.NoAttention:
            continue
        tiny_models.stress(models[way], _GAIN)
    if not models:
        raise tiny_models.NoAttention(f"{name} has neither sdpa nor eager attention")
    model = next(iter(models.values()))
    common = {"judge": "change", "dtype": "fp32", "limit": _LIMIT, "params": {"model": called}}
    for side in ("right", "left"):
        batch = tiny_models.padded(tiny_models.samples(tiny_models.LENGTHS["short"]), side, position_ids=side == "left")
        outputs = {way: _results(variant, batch) for way, variant in models.items()}
        for way, error in _errors(model, batch, outputs).items():
            case: Job = {"backend": way, "signature": f"{way}-path-differs"}
            if way == "every":
                case = {"backend": [*outputs][-1], "signature": "model-differs"}
            words = " and ".join(outputs) if way == "every" else way
            case.update(case=f"{called} {words}, {side}-padded", relative=error, tensors=["logits", "gradients"])
            emit({**common, **case, "params": {"model": called, "padding": side}})
        _judge_loss(emit, common, called, batch, next(iter(outputs.values())))
    batch = tiny_models.padded(tiny_models.samples((24, 24)), "right")  # no padding: masks in bf16 are another matter
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        output = model(**tiny_models.moved(batch, model))
    rough = {"loss": float(output.loss), "logits": output.logits.double().cpu()}
    _judge_loss(emit, common, f"{called} under autocast", batch, rough)
    _judge_norm(emit, called, model, device)


def _results(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the logits of a batch, and the gradient of the plain loss of these logits."""
    model.zero_grad(set_to_none=True)
    inputs = tiny_models.moved(batch, model)
    output = model(**inputs)
    loss_of(output.logits, inputs["labels"]).backward()
    logits = output.logits.detach().double().cpu()
    return {"loss": float(output.loss.detach()), "logits": logits, "gradients": vector(model)}


def _errors(model: Any, batch: dict[str, Any], outputs: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return how far each way is off, by way; one that is off alike with all is called "every"."""
    live = batch["attention_mask"].bool()
    if not can_follow(model.config):
        if len(outputs) < 2:
            return {}
        return {"sdpa": _distance(outputs["sdpa"], outputs["eager"], live)}
    weights = {name: value.detach().double().cpu().requires_grad_() for name, value in model.named_parameters()}
    positions = batch.get("position_ids", torch.arange(live.shape[1])[None].expand(live.shape))
    logits = logits_of(weights, model.config, batch["input_ids"], batch["attention_mask"], positions)
    loss_of(logits, batch["labels"]).backward()
    parts = [torch.zeros_like(value) if value.grad is None else value.grad for value in weights.values()]
    exact = {"logits": logits.detach(), "gradients": torch.cat([part.flatten() for part in parts])}
    errors = {way: _distance(output, exact, live) for way, output in outputs.items()}
    wrong = [way for way, error in errors.items() if not error <= _LIMIT]
    return {"every": max(errors.values())} if len(wrong) == len(errors) else errors


def _distance(output: dict[str, Any], exact: dict[str, Any], live: Any) -> float:
    pairs = [(output["logits"][live], exact["logits"][live]), (output["gradients"], exact["gradients"])]
    if any(lost(tensor) for tensor, _ in pairs):
        return float("nan")
    return max(relative(*pair) for pair in pairs)


def _judge_loss(emit: Emit, common: Any, called: str, batch: dict[str, Any], output: dict[str, Any]) -> None:
    exact = float(loss_of(output["logits"], batch["labels"]))
    detail = f"loss {output['loss']:.4g}, where the mean over the labels that count is {exact:.4g}"
    case = {"signature": "loss-differs", "tensors": ["loss"], "relative": abs(output["loss"] - exact) / exact}
    emit({**common, **case, "case": f"{called}: the loss of its logits", "detail": detail})


def _judge_norm(emit: Emit, called: str, model: Any, device: str) -> None:
    """Judge a fresh norm of the model's class on a wide row: the factor of each row, in units of what rounding the
    values one by one leaves of it."""
    kinds = {type(module) for module in model.modules() if type(module).__name__.endswith("RMSNorm")}
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        try:
            norm = copy.deepcopy(kind(_WIDTH, eps=1e-6)).to(device, torch.bfloat16)
        except TypeError:
            continue
        values = (3.7 * torch.randn(_ROWS, _WIDTH, generator=torch.Generator().manual_seed(8))).bfloat16()
        with torch.no_grad():
            normed = norm(values.to(device)).double().cpu()
        wide = values.double()
        exact = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        factor = (normed * exact).sum(-1) / exact.pow(2).sum(-1) - 1
        rounded = (exact.bfloat16().double() * exact).sum(-1) / exact.pow(2).sum(-1) - 1
        case = {"case": f"{kind.__name__} on rows of {_WIDTH}", "judge": "rounding", "dtype": "bf16"}
        emit({**case, "params": {"model": called}, "ratio": {"o": rms(factor) / rms(rounded)}, "gate": ["o"]})
