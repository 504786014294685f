"""What tensors hold when nothing of a cycle is needed any more."""

from __future__ import annotations

import gc

import torch


def held_kib(device: str) -> float:
    """KiB of the tensors that are alive, after what circles hold was collected and the device has finished."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
    return (torch.cuda.memory_allocated() if device == "cuda" else _live_bytes()) / 1024.0


def _live_bytes() -> int:
    """Bytes of the storages of all tensors that are alive."""
    storages = {}
    for value in gc.get_objects():
        try:
            # type(), not isinstance(): deprecated stand-ins among the objects would warn when they are asked.
            if issubclass(type(value), torch.Tensor) and value.device.type == "cpu":
                storage = value.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        except (ReferenceError, RuntimeError, AttributeError, NotImplementedError):
            continue
    return sum(storages.values())
