"""Stand-ins for layers with 4-bit weights: the bytes that bitsandbytes keeps, and one weight unpacked at a time."""

from __future__ import annotations

from typing import Any

import torch

#: Weights that share one scale (bitsandbytes: blocksize 64, of the scales 256).
_BLOCK = 64
_SCALES = 256


class _Unpacked(torch.autograd.Function):
    """x @ W.T with W unpacked for the product alone, and once more for the gradient (bitsandbytes' MatMul4Bit)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: Any) -> torch.Tensor:
        ctx.packed, ctx.shape, ctx.dtype = packed, shape, x.dtype
        return torch.nn.functional.linear(x, packed.new_empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.matmul(ctx.packed.new_empty(ctx.shape, dtype=ctx.dtype)), None, None


class Linear4bit(torch.nn.Linear):
    """A linear layer whose weight is packed; ``scales`` are its scales."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        out = _Unpacked.apply(input, self.weight, (self.out_features, self.in_features))
        return out if self.bias is None else out + self.bias.to(out.dtype)


def quantize(model: Any, wanted: dict[str, Any]) -> None:
    """Replace the linear layers but the head's, on meta; with ``upcast`` what is left in half precision becomes
    float32, as PEFT's prepare_model_for_kbit_training does."""
    head = model.get_output_embeddings()
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if type(child) is torch.nn.Linear and child is not head:
                module._modules[name] = _packed(child, wanted["double"])
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if wanted["upcast"] and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)


def _packed(layer: torch.nn.Linear, double: bool) -> Linear4bit:
    with torch.device("meta"):
        new = Linear4bit(1, 1, bias=False)
        count = layer.weight.numel()
        blocks = -(-count // _BLOCK)
        new.weight = torch.nn.Parameter(torch.empty((count + 1) // 2, 1, dtype=torch.uint8), requires_grad=False)
        scales = blocks + 4 * -(-blocks // _SCALES) if double else 4 * blocks
        new.register_buffer("scales", torch.empty(scales, dtype=torch.uint8), persistent=False)
    new.bias = layer.bias
    new.in_features, new.out_features = layer.in_features, layer.out_features
    return new
