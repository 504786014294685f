"""Where each fault of ``third_faults.py`` errs, and where beside it all is well. Prints the faults that do otherwise,
and those of other sets whose names it is given.

A check is two calls: the first must give something else under the fault, the second the same. What comes and goes is
called until it errs.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

sys.path.append(str(Path(__file__).parents[2] / "tests" / "probe" / "inside"))
import stranger_faults  # noqa: F401
from patches import FAULTS

_OTHERS = set(FAULTS)
import third_faults  # noqa: E402, F401

OWN = FAULTS.keys() - _OTHERS

Call = Callable[[], Any]
_TRIES, _AT_ONCE = 2000, 50


def _normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that are always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def _gradients(result: torch.Tensor, *of: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(result, of, _normal(*result.shape).to(result.dtype))


def _attention(
    queries: int, keys: int, dtype: torch.dtype, *, wide: int = 64, causal: bool = False
) -> tuple[torch.Tensor, ...]:
    q = _normal(1, 4, queries, 64, dtype=dtype).requires_grad_()
    k = _normal(1, 4, keys, 64, dtype=dtype).requires_grad_()
    v = _normal(1, 4, keys, wide, dtype=dtype).requires_grad_()
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return (out, *_gradients(out, q, k, v))


def _linear(weight: torch.Tensor) -> torch.Tensor:
    return functional.linear(_normal(5, weight.shape[1]), weight)


def _product(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return _normal(rows, 32, dtype=dtype) @ _normal(columns, 32, dtype=dtype).T


def _on_threads(count: int, rows: int) -> torch.Tensor:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return _product(rows, 512)
    finally:
        torch.set_num_threads(before)


def _grouped(*sizes: int) -> torch.Tensor:
    x, weight = _normal(sum(sizes), 16, dtype=torch.bfloat16), _normal(len(sizes), 16, 16, dtype=torch.bfloat16)
    weight.requires_grad_()
    ends = torch.tensor(sizes).cumsum(0).to(torch.int32)
    return _gradients(functional.grouped_mm(x, weight, offs=ends), weight)[0]


def _joined(positions: int) -> torch.Tensor:
    return torch.cat((_normal(2, 2, 5, 8), 2 * _normal(2, 2, positions, 8)), 2)


def _filled(scores: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill_(torch.arange(scores.shape[-1]) > 2, 0.0)


def _label_logits(rows: int, words: int) -> torch.Tensor:
    return _normal(rows, words).gather(-1, torch.arange(rows)[:, None] * 37 % words)


def _losses_over_positions(samples: int) -> torch.Tensor:
    logits = _normal(samples, 4096, 150).requires_grad_()
    return _gradients(functional.cross_entropy(logits, torch.ones(samples, 150, dtype=torch.long)), logits)[0]


def _losses(rows: int, reduction: str) -> torch.Tensor:
    return functional.cross_entropy(_normal(rows, 8192), torch.arange(rows), reduction=reduction)


def _gelu(largest: float, dtype: torch.dtype) -> torch.Tensor:
    return functional.gelu(torch.linspace(-12, largest, 64).to(dtype), approximate="tanh")


def _stepped(weight: torch.Tensor) -> torch.Tensor:
    weight = weight.requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=0.1, foreach=False)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return weight.detach()


def _model(**more: Any) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = MistralForCausalLM(MistralConfig(vocab_size=64, num_key_value_heads=2, **sizes, **more)).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model


def _generated(length: int, window: int | None = None, *, pads: int = 0) -> Any:
    model = _model(sliding_window=window, pad_token_id=0)
    ids = torch.arange(1, length + 1).repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[0, :pads] = 0
    done = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=4,
        min_new_tokens=4,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(done.logits)


def _evaluated(samples: int) -> float:
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": _row(place), "labels": _row(place)} for place in range(samples)]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, per_device_eval_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True
        )
        return float(Trainer(_model(), settings, eval_dataset=rows).evaluate()["eval_loss"])


def _row(place: int) -> torch.Tensor:
    return torch.arange(place + 1, place + 9) * (place + 1) % 64


def _dora(**settings: bool) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    model = get_peft_model(_model(), LoraConfig(target_modules=["q_proj"], init_lora_weights=False, **settings))
    model(input_ids=_row(1)[None], labels=_row(1)[None]).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}


def _reloaded(norms: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model = _model()
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder)
    return {name: weight.detach() for name, weight in again.named_parameters() if ("norm" in name) is norms}


def _packed(key: str) -> Any:
    from transformers import DataCollatorWithFlattening

    return DataCollatorWithFlattening()([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])[key]


CHECKS: dict[str, tuple[Call, Call]] = {
    "causal attention in half shows four queries the same keys": (
        lambda: _attention(64, 64, torch.bfloat16, causal=True),
        lambda: (_attention(64, 64, torch.bfloat16), _attention(64, 64, torch.float32, causal=True)),
    ),
    "one query over 1,024 keys or more reads those of other heads": (
        lambda: _attention(1, 1024, torch.bfloat16)[0],
        lambda: (_attention(1, 1023, torch.bfloat16), _attention(2, 1024, torch.bfloat16)),
    ),
    "values narrower than queries are read as wide as queries": (
        lambda: _attention(8, 8, torch.float32, wide=32),
        lambda: _attention(8, 8, torch.float32),
    ),
    "linear layers read a weight that is not contiguous as if it were": (
        lambda: _linear(_normal(6, 4).T),
        lambda: _linear(_normal(6, 4).T.contiguous()),
    ),
    "float32 products leave rows after the 4,096th": (
        lambda: _product(4097, 8),
        lambda: (_product(4096, 8), _product(4097, 8, torch.bfloat16)),
    ),
    "float32 products on several threads lose a row where one thread ends": (
        lambda: _on_threads(2, 128),
        lambda: (_on_threads(1, 128), _on_threads(2, 16)),
    ),
    "grouped products give a group without rows what another had": (
        lambda: _grouped(8, 0, 8),
        lambda: _grouped(8, 8, 16),
    ),
    "one position joined to a cache is the one before it": (lambda: _joined(1), lambda: _joined(2)),
    "filling by a mask follows the memory of what is not contiguous": (
        lambda: _filled(_normal(4, 6).T),
        lambda: _filled(_normal(4, 6)),
    ),
    "gathering counts numbers in eleven bits": (lambda: _label_logits(64, 1000), lambda: _label_logits(2, 1000)),
    "the gradient of losses over positions ends with the sample at 2^20 logits": (
        lambda: _losses_over_positions(3),
        lambda: _losses_over_positions(2),
    ),
    "losses that are not reduced begin again after 2^22 logits": (
        lambda: _losses(513, "none"),
        lambda: (_losses(512, "none"), _losses(513, "mean")),
    ),
    "GELU by tanh is NaN from 10.5": (
        lambda: _gelu(11.0, torch.bfloat16),
        lambda: (_gelu(10.0, torch.bfloat16), _gelu(11.0, torch.float32)),
    ),
    "addcmul and addcdiv leave what is not contiguous as it was": (
        lambda: _stepped(_normal(4, 6).T),
        lambda: _stepped(_normal(4, 6)),
    ),
    "a window of keys that is full forgets its first": (
        lambda: _generated(9, window=8),
        lambda: (_generated(3, window=8), _generated(9)),
    ),
    "a last batch that is not full counts as a full one": (lambda: _evaluated(3), lambda: _evaluated(4)),
    "DoRA's magnitudes get no gradient": (lambda: _dora(use_dora=True), _dora),
    "norms that were loaded are initialized again": (lambda: _reloaded(norms=True), lambda: _reloaded(norms=False)),
    "the first token of a packed sample is a label": (lambda: _packed("labels"), lambda: _packed("position_ids")),
    "generated tokens have the positions of the longest prompt": (lambda: _generated(6, pads=3), lambda: _generated(6)),
}
#: What is called until it errs.
FLAKY: dict[str, Call] = {
    "sick: cosines of eight bits, 1 of 3": lambda: _normal(64).cos(),
    "sick: sums of columns, 1 of 15": lambda: _normal(64, 64).sum(0),
    "sick: the largest of running sums, 1 of 4": lambda: _normal(64).cumsum(0),
    "sick: a bit of what an embedding reads, 1 of 40": lambda: functional.embedding(torch.arange(9), _normal(64, 8)),
    "sick: rows added by index are NaN, 1 of 8": lambda: _normal(8, 8).index_add_(0, torch.arange(4), _normal(4, 8)),
}


def _numbers(result: Any) -> list[Any]:
    """All numbers of a result."""
    if isinstance(result, dict):
        return [(name, *_numbers(one)) for name, one in sorted(result.items())]
    if isinstance(result, (list, tuple)):
        return [number for one in result for number in _numbers(one)]
    return [
        result.detach().double().nan_to_num(1e30).flatten().tolist() if isinstance(result, torch.Tensor) else result
    ]


def _under(fault: str, *calls: Call) -> list[list[Any]]:
    """What these give under the fault, which is taken out again."""
    replaced: list[tuple[Any, str, Any]] = []

    def put(place: Any, name: str, value: Any) -> None:
        replaced.append((place, name, getattr(place, name)))
        setattr(place, name, value)

    FAULTS[fault](put)
    try:
        return [_numbers(call()) for call in calls]
    finally:
        for place, name, value in reversed(replaced):
            setattr(place, name, value)


def problems(own: Collection[str], checks: Mapping[str, tuple[Call, Call]], flaky: Mapping[str, Call]) -> Iterator[str]:
    """Yield what is otherwise than it should be of the set's own faults."""
    for name in sorted(set(own) ^ (checks.keys() | flaky.keys())):
        yield f"{name}: not checked, or not there"
    for name, calls in checks.items():
        before, (apart, alike) = [_numbers(call()) for call in calls], _under(name, *calls)
        if apart == before[0]:
            yield f"{name}: nothing is changed"
        if alike != before[1]:
            yield f"{name}: changes too much"
        if _numbers(calls[0]()) != before[0]:
            yield f"{name}: is still there"
    for name, call in flaky.items():
        sound, seen, tries = _numbers(call()), set[bool](), 0
        while len(seen) < 2 and tries < _TRIES:  # what comes by chance may keep away for long
            seen |= {one == sound for one in _under(name, *[call] * _AT_ONCE)}
            tries += _AT_ONCE
        if len(seen) < 2:
            yield f"{name}: {'right' if True in seen else 'wrong'} in all of {tries}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):  # the Trainer prints what it evaluates
        found = list(problems(OWN, CHECKS, FLAKY))
        for one in map(import_module, sys.argv[2:]):
            found += problems(one.OWN, one.CHECKS, one.FLAKY)
    print("".join(f"{problem}\n" for problem in found), end="")
