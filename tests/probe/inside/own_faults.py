"""Ten more faults, written down before it was looked at what the experiments make of them. Runs where torch is."""

from __future__ import annotations

from typing import Any

import torch
from loop_faults import Put
from trial_faults import classes

__all__ = ["FAULTS"]

functional = torch.nn.functional


def positions_of_the_first(put: Put) -> None:
    """Rotary positions of the first sample are used for all."""
    for rotary in classes("RotaryEmbedding"):

        def forward(self: Any, value: Any, position_ids: Any, *rest: Any, real: Any = rotary.forward) -> Any:
            return real(self, value, position_ids[:1].expand_as(position_ids), *rest)

        put(rotary, "forward", forward)


def window(put: Put) -> None:
    """A sliding window is one key longer than it says."""
    import transformers.masking_utils as module

    real = module.sliding_window_overlay
    put(module, "sliding_window_overlay", lambda size: real(size + 1))


def experts(put: Put) -> None:
    """Adding to rows by index loses what was added to the same row before."""
    real = torch.Tensor.index_copy_
    put(torch.Tensor, "index_add_", lambda self, dim, index, source, **kw: real(self, dim, index, source))


def warmup(put: Put) -> None:
    """The linear schedule begins at the full rate."""
    import transformers.optimization as module

    real = module._get_linear_schedule_with_warmup_lr_lambda

    def rate(step: int, **kwargs: Any) -> float:
        return float(real(step, **{**kwargs, "num_warmup_steps": 0}))

    put(module, "_get_linear_schedule_with_warmup_lr_lambda", rate)


def decay_of_norms(put: Put) -> None:
    """The Trainer decays norms and biases as well."""
    from transformers import Trainer

    put(Trainer, "get_decay_parameter_names", lambda self, model: [name for name, _ in model.named_parameters()])


def dropout_unscaled(put: Put) -> None:
    """What dropout leaves is not divided by 1 - p."""
    real = functional.dropout

    def dropout(value: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return real(value, p, training, inplace) * (1 - p if training else 1.0)

    put(functional, "dropout", dropout)


def resumed(put: Put) -> None:
    """An optimizer that is loaded has lost its second moments."""
    real = torch.optim.Optimizer.load_state_dict

    def load(self: Any, state: Any) -> None:
        real(self, state)
        for entry in self.state.values():
            if "exp_avg_sq" in entry:
                entry["exp_avg_sq"].zero_()

    put(torch.optim.Optimizer, "load_state_dict", load)


def autocast_loss(put: Put) -> None:
    """Under autocast the loss is computed in bf16."""
    real = functional.cross_entropy

    def cross_entropy(logits: Any, *arguments: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return real(logits.bfloat16(), *arguments, **kwargs)
        return real(logits, *arguments, **kwargs)

    put(functional, "cross_entropy", cross_entropy)


def saved_in_half(put: Put) -> None:
    """Saving rounds float32 weights to bf16."""
    from transformers import PreTrainedModel

    real = PreTrainedModel.save_pretrained

    def save(self: Any, *arguments: Any, **kwargs: Any) -> Any:
        rounded = {name: value.bfloat16().to(value.dtype) for name, value in self.state_dict().items()}
        return real(self, *arguments, **{**kwargs, "state_dict": rounded})

    put(PreTrainedModel, "save_pretrained", save)


def last_batch(put: Put) -> None:
    """The Trainer leaves out the last batch where it is not full."""
    from transformers import Trainer

    real = Trainer.get_train_dataloader

    def loader(self: Any) -> Any:
        self.args.dataloader_drop_last = True
        return real(self)

    put(Trainer, "get_train_dataloader", loader)


#: By the names that the table of results uses.
FAULTS = {
    "positions of the first sample for all": positions_of_the_first,
    "sliding window one key too long": window,
    "index_add loses duplicates": experts,
    "schedule without its warm-up": warmup,
    "Trainer decays norms": decay_of_norms,
    "dropout not scaled": dropout_unscaled,
    "optimizer resumed without second moments": resumed,
    "loss in bf16 under autocast": autocast_loss,
    "weights rounded when saved": saved_in_half,
    "Trainer drops the last batch": last_batch,
}
