"""The quantisation that a method brings with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("recipe.method", "recipe.framework", "model.quantization")
OUTPUTS = ("recipe.quantization",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``recipe.quantization`` of QLoRA, which is 4 bit of bitsandbytes; torchtune quantises with torchao."""
    quantized = isinstance(value("model.quantization"), str)
    if value("recipe.method") != "qlora" or value("recipe.framework") == "torchtune" or quantized:
        return {}
    return {"recipe.quantization": Derived("bnb-4bit", "recipe.method: qlora", "default")}
