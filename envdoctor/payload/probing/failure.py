"""What an exception means for an observation: not offered here, out of memory, or broken for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..child import STICKY, is_out_of_memory

#: Texts of an exception with which torch says that a backend, or an argument, is not for these inputs.
_DECLINED = (
    "No available kernel",
    "No viable backend",
    "unexpected keyword",
    "is not supported",
    "only supports",
    "not implemented for",  # half on a CPU, before torch 2.2
    "Expected attn_mask dtype",  # a float32 mask with half inputs, before torch 2.1
)


class Unavailable(Exception):
    """This release does not offer what the case is about; the message says what."""


def found_by(measure: Callable[[], dict[str, Any]], device: str) -> dict[str, Any]:
    """What is measured for an observation, or why it was not."""
    try:
        return measure()
    except Unavailable as reason:
        return {"skip": str(reason)}
    except Exception as error:
        return failure(error, device)


def cannot_run(what: str, error: Exception) -> dict[str, Any]:
    """The part of an observation that says that a library gave up."""
    return {"error": f"{what} cannot run: {type(error).__name__}: {error}"[:500]}


def failure(error: BaseException, device: str) -> dict[str, Any]:
    """The part of an observation that says why there is no measure: ``skip``, or ``error`` with what it means."""
    text = f"{type(error).__name__}: {error}"[:1000]
    if is_out_of_memory(error):
        return {"error": text, "oom": True}
    if device == "cuda" and any(part in text for part in STICKY):
        return {"error": text, "sticky": True}
    if any(part in text for part in _DECLINED):
        return {"skip": str(error).strip().split("\n")[0][:300]}
    return {"error": text}
