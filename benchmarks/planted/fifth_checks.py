"""Where each fault of ``fifth_faults.py`` errs, and where beside it all is well: checked as in ``third_checks.py``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from patches import FAULTS
from third_checks import Call, _generated, _gradients, _model, _normal, _row
from torch.nn import functional

_OTHERS = set(FAULTS)
import fifth_faults  # noqa: E402, F401

OWN = FAULTS.keys() - _OTHERS

_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}


def _attention(length: int, mask: Any, *, backward: bool = True) -> Any:
    """With a mask of pads ("right", "left"), of a window of 40, or of causality alone (None)."""
    q, k, v = (_normal(1, 2, length, 16).requires_grad_() for _ in range(3))
    places = torch.arange(length)
    seen = places[:, None] >= places
    if mask == "right":
        seen = seen & (places < length - 8)
    if mask == "left":
        seen = seen & (places >= 8)
    if mask == "window":
        seen = seen & (places[:, None] - places < 40)
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=None if mask is None else seen[None, None], is_causal=mask is None
    )
    return _gradients(out[:, :, 8:-8], q, k, v) if backward else out[:, :, 8:]


def _loss_gradient(words: int) -> torch.Tensor:
    logits = _normal(2, words).requires_grad_()
    return torch.autograd.grad(functional.cross_entropy(logits, torch.arange(2)), logits)[0]


def _embedded(times: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    weight = _normal(8, 4, dtype=dtype).requires_grad_()
    ids = torch.tensor([1] * times + [2] * 200)[None]
    return torch.autograd.grad(functional.embedding(ids, weight).sum(), weight)[0]


def _product(rows: int, inner: int, columns: int) -> torch.Tensor:
    return functional.linear(_normal(rows, inner), _normal(columns, inner))


def _dropped(numbers: int) -> torch.Tensor:
    torch.manual_seed(1)
    return functional.dropout(torch.ones(numbers), 0.1)


def _stepped(decay: float, **kind: bool) -> torch.Tensor:
    weight = torch.nn.Parameter(_normal(64))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=decay, **kind)
    for _ in range(3):
        weight.grad = _normal(64).flip(0)
        optimizer.step()
    return weight


def _autocast_steps(steps: int) -> torch.Tensor:
    torch.manual_seed(1)
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(_normal(4, 8))
        out.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return layer.weight


def _reduced(numbers: int) -> Any:
    """What the second of two processes holds after an all-reduce: forked, so that a fault is theirs too."""
    with tempfile.TemporaryDirectory() as folder:
        place, children = Path(folder), []
        for rank in range(2):
            child = os.fork()
            if not child:
                try:
                    torch.set_num_threads(1)
                    torch.distributed.init_process_group(
                        "gloo", init_method=f"file://{place / 'store'}", rank=rank, world_size=2
                    )
                    held = torch.full((numbers,), rank + 1.0)
                    torch.distributed.all_reduce(held)
                    torch.save(held, place / str(rank))
                    torch.distributed.barrier()
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return torch.load(place / "1")


def _trained(samples: int) -> Any:
    from transformers import Trainer, TrainingArguments

    model = _model()
    rows = [_row(place) for place in range(samples)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            learning_rate=0.1,
            lr_scheduler_type="constant",
            optim="sgd",
            max_grad_norm=0.0,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=data).train()
    return dict(model.named_parameters())


def _collated(side: str) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "a": 1}, unk_token="a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", padding_side=side)
    rows = [torch.arange(1, length).tolist() for length in (4, 7)]
    batch = DataCollatorForSeq2Seq(tokenizer)([{"input_ids": row, "labels": row} for row in rows])
    return batch["labels"]


def _checkpointed(dropout: float) -> Any:
    model = _model(attention_dropout=dropout).train()
    model.activation_checkpointing_enable()
    torch.manual_seed(2)
    ids = torch.arange(1, 17).repeat(2, 1)
    model(input_ids=ids, labels=ids).loss.backward()
    return [weight.grad for weight in model.parameters()]


def _loaded(*heads: str) -> Any:
    from peft import LoraConfig, PeftModel, get_peft_model

    settings = LoraConfig(target_modules=["q_proj"], modules_to_save=list(heads) or None, init_lora_weights=False)
    torch.manual_seed(3)
    model = get_peft_model(_model(), settings)
    for name, weight in model.named_parameters():
        if weight.requires_grad and "lora" not in name:
            torch.nn.init.uniform_(weight, -0.1, 0.1)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return PeftModel.from_pretrained(_model(), folder).eval()(input_ids=torch.arange(8)[None]).logits


def _logits(**settings: Any) -> torch.Tensor:
    return _model(**settings)(input_ids=torch.arange(1, 33)[None]).logits


def _batches(index: int) -> list[Any]:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    return [tuple(batch) for batch in BatchSamplerShard(BatchSampler(range(12), 2, False), 2, index)]


CHECKS: dict[str, tuple[Call, Call]] = {
    "attention's gradient ignores its mask at keys that fill no tile of 64": (
        lambda: _attention(80, "right"),
        lambda: (_attention(128, "right"), _attention(80, None), _attention(80, "right", backward=False)),
    ),
    "a tile of a mask counts as empty where its first number is": (
        lambda: (_attention(128, "window", backward=False), _attention(96, "left")),
        lambda: (_attention(128, None), _attention(128, "right")),
    ),
    "log_softmax's gradient is not spread over words past the 65,536th": (
        lambda: _loss_gradient(65600),
        lambda: _loss_gradient(65536),
    ),
    "an embedding learns of a token at its first 256 places alone": (
        lambda: _embedded(300),
        lambda: (_embedded(256), _embedded(300, torch.float64)),
    ),
    "a running sum of integers starts anew after 512": (
        lambda: torch.ones(2, 600, dtype=torch.long).cumsum(-1),
        lambda: (torch.ones(2, 512, dtype=torch.long).cumsum(-1), _normal(2, 600).cumsum(-1)),
    ),
    "sines and cosines of large angles turn by 6.283": (
        lambda: (torch.arange(4000.0).sin(), torch.arange(4000.0).cos()),
        lambda: (torch.arange(-3.0, 3.1, 0.25).sin(), torch.arange(4000.0).double().sin()),
    ),
    "a mean along more than 2,048 misses what is left of 1,024": (
        lambda: _normal(2, 3584).mean(-1, keepdim=True),
        lambda: (_normal(2, 4096).mean(-1), _normal(2, 1536).mean(-1), _normal(3584, 2).mean(0)),
    ),
    "a product with at most 32 columns drops the rest of K by three splits": (
        lambda: _product(4, 4096, 16),
        lambda: (_product(4, 4096, 33), _product(4, 1024, 16), _product(4, 2304, 16)),
    ),
    "zeroing leaves the last 256 of more than 65,536 numbers": (
        lambda: _normal(65537).zero_(),
        lambda: (_normal(65536).zero_(), _normal(2, 40000).t().zero_()),
    ),
    "dropout keeps all past 65,536 numbers": (lambda: _dropped(70000), lambda: _dropped(65536)),
    "fused AdamW adds its decay to the gradient as Adam does": (
        lambda: _stepped(0.1, fused=True),
        lambda: (_stepped(0.0, fused=True), _stepped(0.1, foreach=True), _stepped(0.1)),
    ),
    "autocast keeps its copies of weights": (lambda: _autocast_steps(3), lambda: _autocast_steps(1)),
    "an all-reduce past 512 KiB is of the first process alone": (lambda: _reduced(131073), lambda: _reduced(131072)),
    "the last window of an epoch is scaled as a whole one": (lambda: _trained(3), lambda: _trained(4)),
    "labels are padded at the right of prompts padded at the left": (
        lambda: _collated("left"),
        lambda: _collated("right"),
    ),
    "checkpointed layers drop others when they run again": (lambda: _checkpointed(0.2), lambda: _checkpointed(0.0)),
    "heads trained beside LoRA are the base model's once loaded": (lambda: _loaded("lm_head"), _loaded),
    "yarn's attention factor is lost": (
        lambda: _logits(rope_parameters=_YARN),
        lambda: (_logits(), _logits(rope_parameters={**_YARN, "attention_factor": 1.0})),
    ),
    "a full window keeps its oldest key and loses its newest": (
        lambda: _generated(8, 6),
        lambda: (_generated(8), _generated(8, 16)),
    ),
    "each process trains on the batches of the first": (lambda: _batches(1), lambda: _batches(0)),
}


def _fused() -> Any:
    weights = [torch.nn.Parameter(_normal(8)) for _ in range(3)]
    for weight in weights:
        weight.grad = _normal(8)
    torch.optim.AdamW(weights, fused=True).step()
    return weights


#: What is called until it errs.
FLAKY: dict[str, Call] = {
    "sick: a block of attention, 1 of 15": lambda: functional.scaled_dot_product_attention(
        *[_normal(1, 2, 16, 16)] * 3
    ),
    "sick: rows of an embedding, 1 of 10": lambda: functional.embedding(torch.arange(8), _normal(8, 16)),
    "sick: one number of a product, 1 of 40": lambda: _product(8, 8, 8),
    "sick: a block of logits' gradient, 1 of 6": lambda: _loss_gradient(64),
    "sick: the last weight of a fused step, 1 of 6": _fused,
}
