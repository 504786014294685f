"""What is tried on a batch that went wrong before it is advised: attention without cuDNN, eager attention.

Releases of transformers choose the attention in two ways: since 4.48 from the configuration at every call, before that
by the class of the attention module when it is built (``LlamaSdpaAttention`` beside ``LlamaAttention``). Both are
changed for one call, and whether that took the fused kernel out of it is counted, not believed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

_FUSED = re.compile(r"Sdpa|Flash")


def cures(model: Any) -> list[tuple[str, Callable[[], contextlib.AbstractContextManager[Callable[[], bool]]]]]:
    """The cures that can be tried here, by the words of the fact ``watch.cured_by``.

    Each opens a context in which the model runs with it; what the context gives says afterwards whether it was in
    force."""
    found: list[tuple[str, Any]] = []
    if torch.cuda.is_available() and hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        found.append(("cudnn-off", _without_cudnn))
    if any(getattr(config, "_attn_implementation", "eager") not in ("eager", None) for config in _configs(model)):
        found.append(("eager", lambda: _eager(model)))
    return found


@contextlib.contextmanager
def _without_cudnn() -> Iterator[Callable[[], bool]]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield lambda: before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextlib.contextmanager
def _eager(model: Any) -> Iterator[Callable[[], bool]]:
    chosen = [(config, config._attn_implementation) for config in _configs(model)]
    flags = [
        (module, name)
        for module in model.modules()
        for name in ("_use_sdpa", "_use_flash_attention_2")
        if module.__dict__.get(name) is True
    ]
    classes = [(module, type(module)) for module in model.modules() if _plain_class(type(module)) is not None]
    calls = 0
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*arguments: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return fused(*arguments, **kwargs)

    torch.nn.functional.scaled_dot_product_attention = counted
    try:
        for config, _ in chosen:
            config._attn_implementation = "eager"
        for module, name in flags:
            setattr(module, name, False)
        for module, kind in classes:
            module.__class__ = _plain_class(kind)
        yield lambda: calls == 0
    finally:
        torch.nn.functional.scaled_dot_product_attention = fused
        for module, kind in classes:
            module.__class__ = kind
        for module, name in flags:
            setattr(module, name, True)
        for config, before in reversed(chosen):
            config._attn_implementation = before


def _configs(model: Any) -> list[Any]:
    """Configurations of the model and of its parts, each once."""
    found = [getattr(module, "config", None) for module in model.modules()]
    return list({id(config): config for config in found if hasattr(config, "_attn_implementation")}.values())


def _plain_class(kind: type) -> type | None:
    """The class that computes attention plainly where this one takes a fused kernel; None for every other module."""
    if "Attention" not in kind.__name__ or not _FUSED.search(kind.__name__):
        return None
    parents = (one for one in kind.__mro__[1:] if "Attention" in one.__name__ and not _FUSED.search(one.__name__))
    return next(parents, None)
