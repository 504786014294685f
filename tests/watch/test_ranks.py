"""Two processes with gloo, under a real Trainer and without: both stop at one step, both go on past a masked batch."""

from pathlib import Path
from typing import Any

import pytest
from sharing import once

pytestmark = [pytest.mark.torch, pytest.mark.slow]

pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from watching import both, records  # noqa: E402

SCRIPT = """
import contextlib, json, os, sys, types
rank, port, root, folder = int(sys.argv[1]), *sys.argv[2:5]
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
sys.path[:0] = [root, root + "/tests/support"]
import torch, transformers
from token_samples import tokens
from envdoctor.experiments.watch import RunStopped, Watch
def ran(kind):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        pad_token_id=0))
    samples = tokens(64)
    for sample in samples[::2] if kind == "masked" else ():
        sample["labels"][:] = -100
    watch = Watch()
    trainer = transformers.Trainer(
        model=model, train_dataset=samples, callbacks=[] if kind == "plain" else [watch],
        args=transformers.TrainingArguments(
            f"{folder}/{kind}", per_device_train_batch_size=2, max_steps=4, report_to=[], use_cpu=True,
            ddp_backend="gloo", disable_tqdm=True, save_strategy="no", logging_steps=1))
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
    return trainer.state.global_step, [event["watch.event"] for event in watch.events], stopped, total
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 4)
    def forward(self, values):
        return {"loss": self.layer(values).mean()}
def alone(folder):  # without a Trainer: rank 1 has neither loss nor gradient
    torch.manual_seed(0)
    model, watch = Net(), Watch()
    args = types.SimpleNamespace(max_grad_norm=1.0, logging_nan_inf_filter=True, output_dir=folder, fp16=False)
    state = types.SimpleNamespace(global_step=0, log_history=[])
    control = types.SimpleNamespace(should_training_stop=False, should_save=False, should_evaluate=False)
    watch.on_train_begin(args, state, control, model=model, optimizer=None)
    for step in range(3):
        state.global_step = step
        if rank == 0:
            values = torch.ones(2, 4)
            if step == 1:
                values[0, 0] = float("nan")
            model(values=values)["loss"].backward()
        watch.on_pre_optimizer_step(args, state, control, model=model)
        model.zero_grad()
        if control.should_training_stop:
            break
    return step, watch.events, folder
def parallel(kind):  # DistributedDataParallel in a loop of one's own
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    watch = Watch(model, optimizer, folder=f"{folder}/{kind}")
    stopped, step = False, 0
    try:
        with contextlib.nullcontext() if "plain" in kind else watch:
            for step in range(1, 6):
                torch.manual_seed(10 * step + rank)
                values = torch.randn(4, 8)
                if "nan" in kind and rank == 1 and step == 3:
                    values[0, 0] = float("nan")
                model(values).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    except RunStopped:
        stopped = True
    torch.distributed.barrier()
    total = float(sum(one.detach().double().abs().sum() for one in net.parameters()))
    return step, [event["watch.step"] for event in watch.events], stopped, total
runs = {kind: ran(kind) for kind in ("nan", "masked", "plain", "healthy")}
runs |= {kind: parallel(kind) for kind in ("parallel nan", "parallel plain", "parallel healthy")}
runs["alone"] = alone(f"{folder}/alone")
torch.distributed.barrier()
print(json.dumps(runs))
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of each process: by the kind of run, the steps, the events, whether it was stopped, and the sum of weights;
    without a Trainer the last step, the events, and where the flight records are."""
    return once(tmp_path_factory, "ranks", lambda folder: both(SCRIPT, str(folder)))


def test_a_bad_batch_of_one_process_stops_both(ranks):
    for steps, events, stopped, _ in (process["nan"] for process in ranks):
        assert (steps, events, stopped) == (3, ["nan-loss"], True)


def test_a_masked_batch_of_one_process_stops_none_and_no_weight_is_changed_by_the_watch(ranks):
    masked, plain, quiet = ([process[kind] for process in ranks] for kind in ("masked", "plain", "healthy"))
    assert all(steps == 4 and not stopped for steps, _, stopped, _ in masked + quiet)
    assert {tuple(events) for _, events, _, _ in masked} == {("labels-masked",)}
    assert [one[3] for one in plain] == [one[3] for one in quiet] and quiet[0][1] == []


def test_both_stop_at_the_same_step_and_only_the_bad_one_says_where(ranks):
    first, second = (process["alone"] for process in ranks)
    assert first[0] == second[0] == 1
    assert first[1][0]["watch.where"] == "data" and "watch.where" not in second[1][0]
    folder = Path(first[2])
    names = sorted(path.name for path in folder.glob("*.json"))
    assert names == [f"envdoctor-flight-2-nan-loss-rank{rank}.json" for rank in (0, 1)]
    details = [record["details"] for record in records(folder)]
    assert [(one["rank"], one["bad_here"]) for one in details] == [(0, True), (1, False)]
    assert "several processes" in details[0]["rerun"]


def test_two_processes_of_a_loop_stop_at_the_same_step_and_compute_what_they_do_without_it(ranks):
    nan, plain, quiet = ([process[f"parallel {kind}"] for process in ranks] for kind in ("nan", "plain", "healthy"))
    assert [entry[:3] for entry in nan] == [[3, [3], True]] * 2
    assert [entry[3] for entry in plain] == [entry[3] for entry in quiet]
    assert all(entry[1:3] == [[], False] for entry in quiet)
