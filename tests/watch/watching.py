"""Runs under the watch, their flight records, and scripts that are two processes of one run."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from envdoctor.experiments.watch import RunStopped, Watch

NAN = float("nan")
ROOT = Path(__file__).parents[2]


class Poison(torch.autograd.Function):
    """The identity whose backward gives NaN."""

    @staticmethod
    def forward(context: Any, value: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * NAN


def spoil(module: Any, factor: float = NAN) -> Any:
    """The module's output times this, from now on."""
    return module.register_forward_hook(lambda _, __, output: output * factor)


def run(trainer: Any, train: bool = True) -> list[dict[str, Any]]:
    """Train; what the watch told."""
    with contextlib.suppress(RunStopped):
        if train:
            trainer.train()
    return next(one for one in trainer.callback_handler.callbacks if isinstance(one, Watch)).events


def records(folder: str | Path) -> list[dict[str, Any]]:
    """The flight records."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("envdoctor-flight-*"))]


def findings(trainer: Any) -> list[str]:
    return [finding["id"] for record in records(trainer.args.output_dir) for finding in record["findings"]]


def lora(trainer: Any) -> Any:
    """The trainer's model with LoRA."""
    peft = pytest.importorskip("peft", reason="needs tests/torch-requirements.txt")
    torch.manual_seed(0)
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"])
    return peft.get_peft_model(trainer.model, settings)


def weights(model: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(mine: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(one, another) for one, another in zip(mine, other, strict=True))


def both(script: str, *arguments: str) -> list[Any]:
    """What the two ranks of a script print last: it is given its rank, a port, the root and these arguments."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    commands = [[sys.executable, "-c", script, rank, port, str(ROOT), *arguments] for rank in "01"]
    environ = {**os.environ, "ACCELERATE_USE_CPU": "1"}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for command in commands]
    try:
        return [json.loads(one.communicate(timeout=500)[0].splitlines()[-1]) for one in started]
    finally:
        for one in started:
            one.kill()
