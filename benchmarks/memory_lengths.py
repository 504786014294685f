"""What torch's caching allocator holds after steps of different lengths, as a share of the most that is live.

    python benchmarks/memory_lengths.py

One step of LoRA after the other is replayed on an allocator like torch's (``envdoctor/payload/tracing/allocator.py``),
its tensors by their sizes alone: what layers keep, or with gradient checkpointing their inputs and a layer at a time,
and the logits with the loss. ``fixed`` is the same length each time, ``drawn`` are lengths of a log-normal distribution
cut at the longest, ``even`` are lengths from 16 tokens to the longest. The GPU is never full. What it prints is behind
the rows ``kept`` of the table memory-frameworks; a result stands in results/2026-11-29-memory.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from envdoctor.payload.tracing.allocator import Allocator, Block

#: Layers, hidden, MLP and vocabulary.
MODELS = {
    "Qwen 1.8B": (24, 2048, 5504, 151936),
    "Qwen 7B": (32, 4096, 11008, 151936),
    "Llama 2 7B": (32, 4096, 11008, 32000),
    "Llama 3 8B": (32, 4096, 14336, 128256),
}
STEPS, LONGEST, SEEDS = 150, 2048, 2
#: Of the log-normal lengths: the middle, and the spread of their logarithm.
MIDDLE, SPREAD = 245, 0.7


class Gpu:
    """``most`` is the most that was live, ``allocator`` holds what torch's would."""

    def __init__(self) -> None:
        self.allocator, self.live, self.most = Allocator(), 0, 0

    def take(self, size: int) -> tuple[Block, int]:
        """A tensor of so many bytes."""
        self.live += size
        self.most = max(self.most, self.live)
        return self.allocator.take(size), size

    def give(self, *tensors: tuple[Block, int]) -> None:
        """Free tensors, in this order."""
        for block, size in tensors:
            self.live -= size
            self.allocator.give(block)


def step(gpu: Gpu, tokens: int, sizes: tuple[int, int, int, int], again: bool) -> None:
    """One step; ``again``: layers are computed again on the way back."""
    layers, hidden, inner, vocabulary = sizes
    kept = [2 * hidden, 4 * hidden, *[2 * hidden] * 7, 4 * hidden, 2 * hidden, *[2 * inner] * 4]
    inputs, saved = [], []
    for _ in range(layers):
        inputs.append(gpu.take(2 * tokens * hidden))
        layer = [gpu.take(tokens * size) for size in kept]
        if again:
            gpu.give(*layer)
        else:
            saved.append(layer)
    half = gpu.take(2 * tokens * vocabulary)
    logits = gpu.take(4 * tokens * vocabulary)
    gpu.give(half)
    shifted, scores = (gpu.take(4 * tokens * vocabulary) for _ in range(2))
    gradient = gpu.take(4 * tokens * vocabulary)
    gpu.give(scores)
    back = gpu.take(4 * tokens * vocabulary)
    gpu.give(gradient, shifted)
    half = gpu.take(2 * tokens * vocabulary)
    gpu.give(back, logits)
    last = gpu.take(2 * tokens * hidden)
    gpu.give(half)
    for _ in range(layers):
        layer = [gpu.take(tokens * size) for size in kept] if again else saved.pop()
        gradients: list[tuple[Block, int]] = []
        while layer:
            gradients.append(gpu.take(layer[-1][1]))
            gpu.give(layer.pop())
            if len(gradients) > 2:
                gpu.give(gradients.pop(0))
        gpu.give(*gradients, inputs.pop())
    gpu.give(last)


def lengths(kind: str, seed: int) -> Iterator[int]:
    """The tokens of each step."""
    draw = random.Random(seed)
    for _ in range(STEPS):
        if kind == "fixed":
            yield LONGEST
        elif kind == "even":
            yield draw.randint(16, LONGEST)
        else:
            yield min(LONGEST, max(16, int(draw.lognormvariate(math.log(MIDDLE), SPREAD))))


def main() -> None:
    """Print a line a model, with gradient checkpointing and without."""
    for name, sizes in MODELS.items():
        for again in (True, False):
            told = []
            for kind in ("fixed", "drawn", "even"):
                shares = []
                for seed in range(SEEDS):
                    gpu = Gpu()
                    for tokens in lengths(kind, seed):
                        step(gpu, tokens, sizes, again)
                    shares.append(gpu.allocator.held / gpu.most)
                told.append(f"{kind} {min(shares):.2f} to {max(shares):.2f}")
            print(f"{name:<12} {'checkpointing' if again else 'layers kept':<14} {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
