"""A real Trainer over two processes with gloo: both stop at the same step, both go on past a masked batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys
rank, port, folder, kind, root = int(sys.argv[1]), *sys.argv[2:6]
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
sys.path[:0] = [root, root + "/tests/support"]
import torch, transformers
from token_samples import tokens
from envdoctor.watch import RunStopped, Watch
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0))
samples = tokens(64)
for sample in samples[::2] if kind == "masked" else ():
    sample["labels"][:] = -100
watch = Watch()
trainer = transformers.Trainer(
    model=model, train_dataset=samples, callbacks=[] if kind == "plain" else [watch],
    args=transformers.TrainingArguments(
        folder, per_device_train_batch_size=2, max_steps=4, report_to=[], use_cpu=True, ddp_backend="gloo",
        disable_tqdm=True, save_strategy="no", logging_steps=1))
assert torch.distributed.get_world_size() == 2
if kind == "nan" and rank == 1:
    calls = []
    def spoil(_, __, output):
        calls.append(1)
        return output * float("nan") if len(calls) == 3 else output
    model.model.layers[1].mlp.register_forward_hook(spoil)
stopped = False
try:
    trainer.train()
except RunStopped:
    stopped = True
total = float(sum(one.detach().double().abs().sum() for one in model.parameters()))
print(json.dumps([trainer.state.global_step, [event["watch.event"] for event in watch.events], stopped, total]))
"""


def both(tmp_path, kind):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {**os.environ, "ACCELERATE_USE_CPU": "1"}
    arguments = [[str(rank), port, str(tmp_path / kind), kind, str(ROOT)] for rank in (0, 1)]
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, *more], stdout=subprocess.PIPE, text=True, env=environ)
        for more in arguments
    ]
    try:
        return [json.loads(one.communicate(timeout=500)[0].splitlines()[-1]) for one in started]
    finally:
        for one in started:
            one.kill()


def test_a_bad_batch_of_one_process_stops_both(tmp_path):
    for steps, events, stopped, _ in both(tmp_path, "nan"):
        assert (steps, events, stopped) == (3, ["nan-loss"], True)


def test_a_masked_batch_of_one_process_stops_none_and_no_weight_is_changed_by_the_watch(tmp_path):
    masked, plain, quiet = both(tmp_path, "masked"), both(tmp_path, "plain"), both(tmp_path, "healthy")
    assert all(steps == 4 and not stopped for steps, _, stopped, _ in masked + quiet)
    assert {tuple(events) for _, events, _, _ in masked} == {("labels-masked",)}
    assert [one[3] for one in plain] == [one[3] for one in quiet] and quiet[0][1] == []
