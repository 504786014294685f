"""One step of training, or one prompt, with the code that is installed; the same on fake and on real tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .model import Refused


def training_step(model: Any, optimizer: Any, job: dict[str, Any], tokens: int, tell: Callable[[str], None]) -> None:
    """Run forward, backward, clipping, and the optimizer's step; ``tell`` hears which comes next.

    With accumulation the gradients of earlier batches are there from the beginning.
    """
    tell("forward")
    if job["stage"] != "sft":
        loss = (_preference_loss if job["stage"] == "dpo" else _policy_loss)(model, job, tokens)
    else:
        outputs = _called(model, job, **_labelled(model, job, tokens))
        loss = outputs["loss"]
        if not job["keep_outputs"]:
            del outputs
    tell("backward")
    loss.backward()
    tell("clip")
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    tell("step")
    optimizer.step()
    tell("")
    model.zero_grad()


def prompt(model: Any, job: dict[str, Any], tokens: int, tell: Callable[[str], None]) -> Any:
    """Read a prompt and hand back its keys and values, as generate does: logits of the last token alone if possible."""
    import inspect

    known = inspect.signature(model.forward).parameters
    given = {name: 1 for name in ("logits_to_keep", "num_logits_to_keep") if name in known}
    given.update({"use_cache": True} if "past_key_values" in known else {})
    if "decoder_input_ids" in known:
        given["decoder_input_ids"] = _ids(job["batch"], 1)
    given.update(_inputs(model, job, tokens))
    tell("forward")
    with torch.no_grad():
        outputs = model(**given)
        outputs["logits"][..., -1, :].clone().float()
    tell("")
    return outputs.get("past_key_values")


def _inputs(model: Any, job: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return what the model reads: ``tokens``, the 30 seconds of Whisper, or a picture."""
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        ids = _ids(job["batch"], tokens)
        return {name: ids, **_mask(job, ids)}
    if name == "pixel_values":
        sizes = [config.num_channels, config.image_size, config.image_size]
    else:
        sizes = [config.num_mel_bins, 2 * config.max_source_positions]
    return {name: torch.zeros([job["batch"], *sizes], dtype=next(model.parameters()).dtype)}


def _labelled(model: Any, job: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return the inputs with their labels: of a classifier one a sample."""
    own = getattr(model, "get_base_model", lambda: model)()
    inputs = _inputs(own, job, tokens)
    if type(own).__name__.endswith("Classification"):
        return {**inputs, "labels": torch.zeros(job["batch"], dtype=torch.long)}
    return {**inputs, "labels": inputs.get("input_ids", _ids(job["batch"], tokens))}


def _ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.zeros((batch, tokens), dtype=torch.long)


def _mask(job: dict[str, Any], ids: torch.Tensor) -> dict[str, Any]:
    """Return a mask of padded samples; one sample alone has no padding: the code that reads the mask drops it."""
    return {"attention_mask": torch.ones_like(ids)} if job["padded"] else {}


def _called(model: Any, job: dict[str, Any], **inputs: Any) -> Any:
    """Return the model's outputs under the recipe's autocast, and in float32 then, as accelerate hands them on."""
    if job["amp"] is None:
        return model(**inputs)
    with torch.autocast(next(model.parameters()).device.type, dtype=getattr(torch, job["amp"])):
        outputs = model(**inputs)
    for name in list(outputs):
        value = outputs[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            outputs[name] = value.float()
    return outputs


def _preference_loss(model: Any, job: dict[str, Any], tokens: int) -> Any:
    """Return the loss of DPO (arXiv 2305.18290): chosen and rejected answers in one batch, and the reference's."""
    ids = _ids(2 * job["batch"], tokens)
    base = _of_reference(model, job, ids, _log_likelihood)
    policy = _log_likelihood(model, job, ids)
    chosen, rejected = (policy - base).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def _log_likelihood(model: Any, job: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
    logits = _called(model, job, input_ids=ids, **_mask(job, ids))["logits"][:, :-1].float()
    return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(2).sum(-1)


def _policy_loss(model: Any, job: dict[str, Any], tokens: int) -> Any:
    """Return the loss of GRPO (arXiv 2402.03300): answers by the policy, and what the reference says of each token."""
    ids = _ids(job["batch"], tokens)
    base = _of_reference(model, job, ids, _token_likelihoods)
    policy = _token_likelihoods(model, job, ids)
    ratio = (policy - policy.detach()).exp()
    return ((base - policy).exp() - (base - policy) - 1 - ratio).mean()


def _token_likelihoods(model: Any, job: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
    """Return the log-likelihood of each token, a row at a time, divided by the temperature before, as TRL does
    (trl/trainer/utils.py, selective_log_softmax)."""
    logits = _called(model, job, input_ids=ids, **_mask(job, ids))["logits"][:, :-1] / 1.0
    index = ids[:, 1:, None]
    if logits.dtype == torch.float32:
        return torch.gather(logits, 2, index).squeeze(2) - torch.stack([row.logsumexp(-1) for row in logits])
    rows = [torch.gather(row.log_softmax(-1), 1, label) for row, label in zip(logits, index)]
    return torch.stack(rows).squeeze(2)


def _of_reference(model: Any, job: dict[str, Any], ids: torch.Tensor, judge: Callable[..., torch.Tensor]) -> Any:
    """Return what the model without its adapters says, or a copy; zeros if that is known or not asked."""
    with torch.no_grad():
        if job["reference"] == "adapter-off":
            with model.disable_adapter():
                return judge(model, job, ids)
        if job["reference"] == "copy":
            return judge(model.reference, job, ids)
        return torch.zeros(1)


def make_optimizer(model: Any, name: str) -> Any:
    """Return the recipe's optimizer with its states allocated, as they are in every step but the first."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name in _KEPT:
        return _Still(parameters, [_KEPT[name](parameter) for parameter in parameters])
    if name == "adafactor":
        from transformers.optimization import Adafactor

        # Without their own schedule, as the Trainer sets it.
        optimizer: Any = Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)
    elif name == "Muon":
        optimizer = _Muon(model)
    elif name.startswith(("galore-", "apollo-")):
        optimizer = _GaLore(model, int(name.partition("-")[2]))
    else:
        # A GPU takes the for-each form where none is named, and a CPU does not.
        optimizer = getattr(torch.optim, name)(parameters, foreach=True)
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    model.zero_grad()
    return optimizer


class _Muon:
    """Muon for the matrices of the layers and AdamW for the rest, as trainers divide them."""

    def __init__(self, model: Any) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise Refused("torch {} has no Muon, which is there from 2.9 on", str(torch.__version__))
        rest, matrices = _divided(model)
        self.parts: list[Any] = [torch.optim.AdamW(rest, foreach=True)] if rest else []
        self.parts += [torch.optim.Muon(matrices)] if matrices else []

    def step(self) -> None:
        for part in self.parts:
            part.step()


class _GaLore:
    """GaLore's AdamW at a step that makes the projections anew, which needs the most: the matrices of the layers are
    projected to ``rank``, the rest is not (github.com/jiaweizzhao/GaLore, galore_torch/adamw.py at 1317b5f).
    APOLLO, whose projections are random, needs no more."""

    def __init__(self, model: Any, rank: int) -> None:
        rest, matrices = _divided(model)
        self.ranks = [*((parameter, 0) for parameter in rest), *((parameter, rank) for parameter in matrices)]
        self.states: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self.sides: dict[Any, torch.Tensor] = {}

    def step(self) -> None:
        with torch.no_grad():
            for parameter, rank in self.ranks:
                if parameter.grad is not None:
                    self._change(parameter, rank)

    def _change(self, parameter: Any, rank: int) -> None:
        gradient = parameter.grad
        right = rank and gradient.shape[0] >= gradient.shape[1]
        if rank:
            self.sides[parameter] = side = self._side(gradient, rank, right)
            gradient = gradient @ side.t() if right else side.t() @ gradient
        if parameter not in self.states:
            self.states[parameter] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        mean, square = self.states[parameter]
        mean.mul_(0.9).add_(gradient, alpha=0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = square.sqrt().add_(1e-6)
        change = mean / root
        if rank:
            change = (change @ side if right else side @ change) * 0.25
        parameter.add_(change, alpha=-1e-4)

    def _side(self, gradient: torch.Tensor, rank: int, right: int) -> torch.Tensor:
        """Return a side of the decomposition. In float32 it is a view, and the whole side stays with it."""
        left_side, _, right_side = torch.linalg.svd(gradient.float(), full_matrices=False)
        return (right_side[:rank] if right else left_side[:, :rank]).to(gradient.dtype)


def _divided(model: Any) -> tuple[list[Any], list[Any]]:
    """Return the trained parameters: the rest, and the matrices of the layers."""
    groups: tuple[list[Any], list[Any]] = ([], [])
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            ends = "embed" in name or "lm_head" in name
            groups[parameter.ndim == 2 and not ends].append(parameter)
    return groups


class _Still:
    """An optimizer whose kernel needs nothing beside its states: it changes the parameters where they are."""

    def __init__(self, parameters: list[Any], states: Any) -> None:
        self.parameters = parameters
        self.states = states

    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.detach().add_(parameter.grad)


def _eight_bit(parameter: torch.Tensor, states: int) -> list[torch.Tensor]:
    """Return states of bitsandbytes: a byte a value and a float32 scale for 256 of them; float32 below 4096 values."""
    count = parameter.numel()
    if count < 4096:
        return [torch.empty(count) for _ in range(states)]
    sizes = [count, 4 * -(-count // 256)]
    return [torch.empty(size, dtype=torch.uint8) for size in sizes * states]


#: States of optimizers that are not torch's, or that work without temporary values.
_KEPT: dict[str, Callable[[torch.Tensor], list[torch.Tensor]]] = {
    "adamw_fused": lambda parameter: [torch.empty_like(parameter), torch.empty_like(parameter)],
    "adamw_8bit": lambda parameter: _eight_bit(parameter, 2),
    "ademamix": lambda parameter: [torch.empty_like(parameter) for _ in range(3)],
    "lion": lambda parameter: [torch.empty_like(parameter)],
    "lion_8bit": lambda parameter: _eight_bit(parameter, 1),
    "elsewhere": lambda parameter: [],
}
