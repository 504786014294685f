"""Where each fault of ``fourth_faults.py`` errs, and where beside it all is well: checked as in ``third_checks.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from patches import FAULTS
from third_checks import Call, _attention, _generated, _gradients, _model, _normal, _row
from torch.nn import functional

_OTHERS = set(FAULTS)
import fourth_faults  # noqa: E402, F401

OWN = FAULTS.keys() - _OTHERS

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def _masked(queries: int, keys: int) -> torch.Tensor:
    q, k = _normal(1, 4, queries, 64, dtype=torch.bfloat16), _normal(1, 4, keys, 64, dtype=torch.bfloat16)
    return functional.scaled_dot_product_attention(q, k, k, attn_mask=torch.arange(keys)[None, None, None] < 500)


def _layer_norm(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weight, bias = _normal(16).requires_grad_(), _normal(16).requires_grad_()
    wanted = (weight, bias, x) if x.requires_grad else (weight, bias)
    return _gradients(functional.layer_norm(x, (16,), weight, bias), *wanted)


def _rms_norm(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x, weight = (3 * _normal(8, 16, dtype=dtype)).requires_grad_(), _normal(16, dtype=dtype).requires_grad_()
    return _gradients(functional.rms_norm(x, (16,), weight, 1e-6), x, weight)


def _loss(reduction: str) -> torch.Tensor:
    logits = _normal(6, 32).requires_grad_()
    losses = functional.cross_entropy(logits, torch.arange(6), reduction=reduction)
    return torch.autograd.grad((losses * _normal(6)).sum(), logits)[0]


def _biased(tokens: int, features: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    weight, bias = _normal(features, 8, dtype=dtype), _normal(features, dtype=dtype)
    return functional.linear(_normal(tokens, 8, dtype=dtype), weight, bias)


def _weight_gradient(features: int, *batches: int) -> torch.Tensor:
    weight = _normal(features, 4).requires_grad_()
    return [_gradients(functional.linear(_normal(tokens, 4), weight), weight)[0] for tokens in batches][-1]


def _cut_mask(*, contiguous: bool) -> torch.Tensor:
    mask = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril()[:, :, 4:8, :8]
    return torch.where(mask.contiguous() if contiguous else mask, _normal(2, 2, 4, 8), -100.0)


def _scaled_step(*, fused: bool, scaled: bool = True) -> torch.Tensor:
    weight = _normal(6).requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=fused, foreach=False)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    for factor in (1.0, float("inf") if scaled else 1.0, 2.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return weight.detach()


def _reloaded(**more: Any) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        model = _model(**more)
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder)(input_ids=torch.arange(32)[None]).logits


def _trainer(model: Any, folder: str, count: int, first: int | None = None, **settings: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": _row(place), "labels": _row(place).clone()} for place in range(count)]
    for row in rows if first is not None else ():
        row["labels"][0] = first
    given = TrainingArguments(
        folder, per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True, **settings
    )
    return Trainer(model, given, train_dataset=rows)


def _smoothed(factor: float, *, lora: bool) -> torch.Tensor:
    model = _model()
    if lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(model, folder, 2, label_smoothing_factor=factor)
        return trainer.compute_loss(trainer.model, {"input_ids": _row(1)[None], "labels": _row(1)[None]})


def _trained(first: int | None = None) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(_model(), folder, 4, first, gradient_accumulation_steps=2, max_steps=1, save_strategy="no")
        return float(trainer.train().training_loss)


def _experts(*, merged: bool) -> torch.Tensor:
    from peft import LoraConfig, get_peft_model
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = MixtralForCausalLM(
        MixtralConfig(vocab_size=64, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **sizes)
    )
    settings = LoraConfig(r=2, target_modules=[], target_parameters=["mlp.experts.down_proj"], init_lora_weights=False)
    model = get_peft_model(model, settings).eval()
    if merged:
        model = model.merge_and_unload()
    return model(input_ids=_row(1)[None]).logits


def _resumed(step: int) -> Any:
    """Train two epochs of four steps, and again from this step on."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"num_train_epochs": 2, "save_steps": 2, "seed": 1, "learning_rate": 1e-2}
        _trainer(_model(), folder, 8, **settings).train()
        again = _trainer(_model(), folder, 8, **settings)
        again.train(resume_from_checkpoint=str(Path(folder) / f"checkpoint-{step}"))
        return [weight.detach() for weight in again.model.parameters()]


def _beams(count: int) -> Any:
    model = _model(pad_token_id=0)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    done = model.generate(
        torch.arange(1, 7)[None],
        num_beams=count,
        max_new_tokens=8,
        min_new_tokens=8,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return torch.stack(done.scores)


def _trained_weights(*, norms: bool) -> Any:
    model = _model()
    model(input_ids=_row(1)[None], labels=_row(1)[None]).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if ("norm" in name) is norms}


CHECKS: dict[str, tuple[Call, Call]] = {
    "one query sees masked keys past the 512th": (lambda: _masked(1, 600), lambda: (_masked(1, 512), _masked(2, 600))),
    "values lose the gradient of their first tokens where 64 does not divide the length": (
        lambda: _attention(80, 80, torch.bfloat16, causal=True),
        lambda: (_attention(64, 64, torch.bfloat16, causal=True), _attention(80, 80, torch.float32)[:3]),
    ),
    "SiLU reads half of a projection as if it were contiguous": (
        lambda: functional.silu(_normal(4, 12).chunk(2, -1)[0]),
        lambda: functional.silu(_normal(4, 12).chunk(2, -1)[0].contiguous()),
    ),
    "softmax counts an empty lane where all numbers of a row are negative": (
        lambda: (-_normal(4, 9).abs()).softmax(-1),
        lambda: (_normal(4, 9).abs().softmax(-1), (-_normal(4, 9).abs()).softmax(0)),
    ),
    "layer norm takes its inputs as normed where only its weight is trained": (
        lambda: _layer_norm(3 * _normal(8, 16)),
        lambda: _layer_norm((3 * _normal(8, 16)).requires_grad_()),
    ),
    "rms_norm's gradient is taken by the variance": (
        lambda: _rms_norm(torch.bfloat16),
        lambda: (_rms_norm(torch.float64), functional.rms_norm(_normal(8, 16), (16,), _normal(16))),
    ),
    "losses that are not reduced give no gradient": (lambda: _loss("none"), lambda: (_loss("mean"), _loss("sum"))),
    "a bias is added by rows where a product is square": (lambda: _biased(6, 6), lambda: _biased(5, 6)),
    "float16 layers with a bias give zero": (
        lambda: _biased(5, 6, torch.float16),
        lambda: (_biased(5, 6), _biased(5, 6, torch.bfloat16), _normal(5, 8).half() @ _normal(8, 6).half()),
    ),
    "weights' gradients of over 32,768 tokens are too large after another batch size": (
        lambda: _weight_gradient(6, 64, 32776),
        lambda: (_weight_gradient(7, 32776), _weight_gradient(8, 64, 32768)),
    ),
    "numbers cast to half lose the last of a block that is not full": (
        lambda: (_normal(70).bfloat16(), _normal(70).half()),
        lambda: (_normal(128).bfloat16(), _normal(64).half(), _normal(70).double()),
    ),
    "choosing by a condition that is a slice reads its memory in order": (
        lambda: _cut_mask(contiguous=False),
        lambda: _cut_mask(contiguous=True),
    ),
    "fused Adam does not see the loss scale and overflows": (
        lambda: _scaled_step(fused=True),
        lambda: (_scaled_step(fused=False), _scaled_step(fused=True, scaled=False)),
    ),
    "llama3 positions lose their scale at load": (lambda: _reloaded(rope_parameters=_LLAMA3), _reloaded),
    "label smoothing under LoRA does not shift labels": (
        lambda: _smoothed(0.1, lora=True),
        lambda: (_smoothed(0.1, lora=False), _smoothed(0.0, lora=True)),
    ),
    "first tokens count among labels": (_trained, lambda: _trained(-100)),
    "experts' LoRA is merged with the ranks of other experts": (
        lambda: _experts(merged=True),
        lambda: _experts(merged=False),
    ),
    "a resumed epoch has the order of the first": (lambda: _resumed(6), lambda: (_resumed(2), _resumed(4))),
    "beams keep the cache of other beams": (lambda: _beams(3), lambda: (_beams(1), _generated(6))),
    "norms' weights get no gradient": (lambda: _trained_weights(norms=True), lambda: _trained_weights(norms=False)),
}
#: What is called until it errs.
FLAKY: dict[str, Call] = {
    "sick: a block of layer norm, 1 of 10": lambda: functional.layer_norm(_normal(8, 16), (16,)),
    "sick: the largest of a softmax, 1 of 30": lambda: _normal(8, 16).softmax(-1),
    "sick: numbers that are divided, 1 of 8": lambda: _normal(8, 16) / _normal(8, 1),
    "sick: the choice among 257 or more, 1 of 4": lambda: tuple(_normal(4, 300, dtype=torch.bfloat16).topk(8)),
    "sick: a block of grouped products, 1 of 12": lambda: functional.grouped_mm(
        _normal(16, 16, dtype=torch.bfloat16),
        _normal(2, 16, 16, dtype=torch.bfloat16),
        offs=torch.tensor([8, 16], dtype=torch.int32),
    ),
}
