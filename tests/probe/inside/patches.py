"""The faults by their names: what takes the place of one thing of torch, transformers or peft. Runs where torch is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from importlib import import_module
from typing import Any

#: Replaces an attribute: ``put(module, "name", value)``.
Put = Callable[[Any, str, Any], None]
FAULTS: dict[str, Callable[[Put], None]] = {}
#: How often something was called that a fault replaces.
CALLS = [0]
SDPA = "torch.nn.functional:scaled_dot_product_attention"
_MODELS = ("llama", "qwen2", "qwen3", "glm", "mistral")


def fault(name: str, place: str) -> Callable[[Any], Any]:
    """Under this fault ``change(real, *arguments)`` stands at ``module:attribute``.

    ``models:Ending.method`` is the method of every class with this ending in the code of several models.
    """

    def register(change: Any) -> Any:
        def plant(put: Put) -> None:
            for holder, attribute in _holders(place):
                put(holder, attribute, _around(getattr(holder, attribute), change))

        FAULTS[name] = plant
        return change

    return register


def _around(real: Any, change: Any) -> Any:
    def around(*arguments: Any, **kwargs: Any) -> Any:
        CALLS[0] += 1
        return change(real, *arguments, **kwargs)

    return around


def _holders(place: str) -> Iterator[tuple[Any, str]]:
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    if module != "models":
        yield reduce(getattr, outer, import_module(module)), name
        return
    for model in _MODELS:
        for known, value in vars(import_module(f"transformers.models.{model}.modeling_{model}")).items():
            if known.endswith(outer[0]) and isinstance(value, type):
                yield value, name
