"""What does ``envdoctor.Watch`` cost a training step? The same run with and without it, in turn, in one process.

    python benchmarks/watch.py [--steps 40] [--rounds 5]

A Llama of some 21 million parameters in bf16 on the CPU, batches of 4 x 128 tokens: on a GPU a step of a real model is
longer and the callback's share smaller, but what it launches there was not measured. Prints the median step of each and
their ratio; the callback's own time is measured apart as well, for it is smaller than the noise of the steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
import transformers

from envdoctor.experiments.watch import Watch


class Steps(transformers.TrainerCallback):
    """The seconds of every step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *arguments: Any, **kwargs: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *arguments: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


class Timed(Watch):
    """The callback, with its own time added up."""

    spent = 0.0


def _timed(name: str) -> Any:
    inner = getattr(Watch, name)

    def method(self: Timed, *arguments: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(self, *arguments, **kwargs)
        finally:
            self.spent += time.perf_counter() - began

    return method


for _name in ("on_pre_optimizer_step", "on_step_end", "on_log", "_before", "_after"):
    setattr(Timed, _name, _timed(_name))


def run(steps: int, callbacks: list[Any]) -> list[float]:
    """Train ``steps`` steps and return the seconds of each but the first five."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    ids = torch.randint(0, 8000, (4 * steps, 128))
    samples = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids]
    clock = Steps()
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=steps,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model=model, args=settings, train_dataset=samples, callbacks=[*callbacks, clock])
        trainer.train()
    return clock.seconds[5:]


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    plain: list[float] = []
    watched: list[float] = []
    own = 0.0
    for _ in range(options.rounds):
        plain += run(options.steps, [])
        callback = Timed()
        watched += run(options.steps, [callback])
        own += callback.spent
    share = own / (options.rounds * options.steps)
    without, beside = statistics.median(plain), statistics.median(watched)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads")
    print(f"step without the watch  {without * 1e3:8.2f} ms (median of {len(plain)})")
    print(f"step with it            {beside * 1e3:8.2f} ms, ratio {beside / without:.4f}")
    print(f"the watch's own time    {share * 1e3:8.3f} ms a step = {share / without:.3%} (bar 0.5 %)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
