"""Attention backends of torch 2.0 and newer: which there are, how one is forced, which is chosen, why not another."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import torch

from .kit import Emit

#: Our names, and those of torch.nn.attention.SDPBackend.
BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}

#: What ``torch._fused_sdp_choice`` answers, the number of an SDPBackend.
CHOICES = {-1: "none", 0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}


def is_known(backend: str, emit: Emit) -> bool:
    """Whether this torch can force the backend; else that is said."""
    members = _members()
    older = backend in ("math", "flash", "efficient")
    if backend == "default" or (hasattr(members, BACKENDS.get(backend, "")) if members is not None else older):
        return True
    emit({"case": "backend", "skip": f"this torch has no {backend} backend to ask for"})
    return False


def force(backend: str) -> Any:
    """A context in which scaled_dot_product_attention may use this backend alone; none for ``default``."""
    if backend == "default":
        return nullcontext()
    members = _members()
    if members is not None:
        from torch.nn.attention import sdpa_kernel

        return sdpa_kernel(getattr(members, BACKENDS[backend]))
    switches = {"enable_flash": "flash", "enable_math": "math", "enable_mem_efficient": "efficient"}
    return torch.backends.cuda.sdp_kernel(**{name: backend == one for name, one in switches.items()})


def chosen(given: tuple[Any, ...]) -> str:
    """The backend that torch would take for (q, k, v, attn_mask, is_causal, gqa), without running it."""
    q, k, v, mask, is_causal, gqa = given
    extra: dict[str, Any] = {"enable_gqa": True} if gqa else {}
    try:
        number = int(torch._fused_sdp_choice(q, k, v, attn_mask=mask, is_causal=is_causal, **extra))
        return CHOICES.get(number, "unknown")
    except (AttributeError, TypeError, RuntimeError, NotImplementedError):
        return "unknown"


def declined(given: tuple[Any, ...]) -> dict[str, str]:
    """CUDA only: what torch says against each fused backend for (q, k, v, attn_mask, is_causal, gqa)."""
    cuda: Any = torch.backends.cuda
    reasons: dict[str, str] = {}
    try:
        parameters = _parameters(cuda, given)
    except (AttributeError, TypeError, RuntimeError):
        return reasons
    for backend in ("flash", "efficient", "cudnn"):
        ask = getattr(cuda, f"can_use_{backend}_attention", None)
        if ask is None:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                usable = bool(ask(parameters, True))
            except (TypeError, RuntimeError):
                continue
        if not usable:
            texts = [str(warning.message).split("(Triggered")[0].strip() for warning in caught]
            reasons[backend] = " ".join(text for text in texts if text)[:300] or "declined without a reason"
    return reasons


def _members() -> Any:
    """torch.nn.attention.SDPBackend, from torch 2.3 on."""
    try:
        from torch.nn.attention import SDPBackend
    except ImportError:
        return None
    return SDPBackend


def _parameters(cuda: Any, given: tuple[Any, ...]) -> Any:
    q, k, v, mask, is_causal, gqa = given
    try:
        return cuda.SDPAParams(q, k, v, mask, 0.0, is_causal, gqa)
    except TypeError:  # before enable_gqa
        return cuda.SDPAParams(q, k, v, mask, 0.0, is_causal)
