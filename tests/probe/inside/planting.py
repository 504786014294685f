"""Planting a fault by its name, whichever kind it is. Runs in an interpreter that has torch."""

from __future__ import annotations

import faults
import loop_faults
import own_faults
import torch
import trial_faults

__all__ = ["plant"]


def plant(name: str, put: loop_faults.Put) -> None:
    """Put the fault in place through ``put(module, name, value)``."""
    if name in faults.FAULTS:
        put(torch.nn.functional, "scaled_dot_product_attention", faults.attention_with(name))
    else:
        {**loop_faults.FAULTS, **trial_faults.FAULTS, **own_faults.FAULTS}[name](put)
