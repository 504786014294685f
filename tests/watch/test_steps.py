"""Single steps: loss scalers, infinite gradients, losses outside the model, several processes, older Trainers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from envdoctor.watch import Watch, callback  # noqa: E402
from envdoctor.watch.rerun import examine  # noqa: E402

INF, NAN = float("inf"), float("nan")


class Net(torch.nn.Module):
    """Two layers; the loss is in the output, or with ``outside`` only the logits are."""

    def __init__(self, outside: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.outside = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False), outside

    def forward(self, values):
        logits = self.second(self.first(values))
        return {"logits": logits} if self.outside else {"loss": logits.pow(2).mean(), "logits": logits}


class Poison(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.view_as(value)

    @staticmethod
    def backward(context, gradient):
        return gradient * NAN


class Run:
    """What the Trainer does with one batch a step, around a model, an optimizer and maybe a scaler."""

    def __init__(self, tmp_path, model=None, scaler=None, watch=None, rate=1e-2, **arguments) -> None:
        self.model = model or Net()
        self.watch = watch or Watch()
        self.scaler = scaler
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        self.args = SimpleNamespace(
            **{"max_grad_norm": 1.0, "logging_nan_inf_filter": True, "output_dir": str(tmp_path), "fp16": bool(scaler)}
            | arguments
        )
        self.state = SimpleNamespace(global_step=0, log_history=[])
        self.control = SimpleNamespace(should_training_stop=False, should_save=True, should_evaluate=False)
        self.watch.on_train_begin(self.args, self.state, self.control, model=self.model, optimizer=None)

    def tell(self, event) -> None:
        getattr(self.watch, event)(self.args, self.state, self.control, model=self.model, optimizer=self.optimizer)

    def step(self, spoil=None, values=None) -> None:
        batch = {"values": torch.ones(4, 8) if values is None else values}
        output = self.model(**batch)
        loss = output["loss"] if "loss" in output else output["logits"].mean()
        if self.scaler:
            loss = self.scaler.scale(loss)
        loss.backward()
        if spoil:
            spoil(self.model)
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.args.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        if callback._TOLD_BEFORE_STEP:
            self.tell("on_pre_optimizer_step")
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.model.zero_grad()
        self.state.global_step += 1
        self.tell("on_step_end")

    def weights(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def record(self) -> dict:
        (path,) = Path(self.args.output_dir).glob("envdoctor-flight-*.json")
        return json.loads(path.read_text(encoding="utf-8"))


def gradient(value):
    """Plants a value in the largest weight's gradient, not in the sentinel's."""

    def spoil(model):
        model.second.weight.grad[3, 2] = value

    return spoil


def same(one, other) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("value", [INF, NAN])
def test_an_overflow_of_the_loss_scale_is_left_to_the_scaler(tmp_path, value):
    run = Run(tmp_path, scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    run.step()
    before = run.weights()
    run.step(gradient(value))
    assert run.watch.events == [] and not run.control.should_training_stop
    assert same(run.weights(), before) and run.scaler.get_scale() == 2.0


def test_twenty_overflows_in_a_row_stop_the_run_and_a_good_step_starts_the_count_again(tmp_path):
    run = Run(tmp_path, scaler=torch.amp.GradScaler("cpu"))
    for _ in range(19):
        run.step(gradient(INF))
    run.step()
    for _ in range(19):
        run.step(gradient(INF))
    assert run.watch.events == []
    run.step(gradient(INF))
    (event,) = run.watch.events
    assert (event["watch.event"], event["watch.step"]) == ("nan-gradient", 39)
    assert run.control.should_training_stop and run.record()["details"]["skipped_by_the_loss_scaler"] == 20


def test_a_bad_loss_stops_a_scaled_run_and_the_scaler_still_gets_its_gradients(tmp_path):
    run = Run(tmp_path, scaler=torch.amp.GradScaler("cpu"))
    run.step()
    before = run.weights()
    run.step(values=torch.full((4, 8), NAN))
    assert run.watch.events[0]["watch.event"] == "nan-loss" and run.watch.events[0]["watch.where"] == "data"
    assert run.control.should_training_stop and same(run.weights(), before)


def test_a_scaler_that_looks_at_gradients_only_in_its_step_gets_zeros(tmp_path):
    run = Run(tmp_path, scaler=torch.amp.GradScaler("cpu"), max_grad_norm=0.0)
    loss = run.scaler.scale(run.model(values=torch.full((4, 8), NAN))["loss"])
    loss.backward()
    run.tell("on_pre_optimizer_step")
    assert all(not parameter.grad.any() for parameter in run.model.parameters())
    run.scaler.step(run.optimizer)
    assert all(bool(torch.isfinite(weight).all()) for weight in run.weights())


def test_one_infinite_gradient_is_seen_though_clipping_leaves_the_others_at_zero(tmp_path):
    run = Run(tmp_path)
    run.step()
    before = run.weights()
    run.step(gradient(INF))
    (event,) = run.watch.events
    assert (event["watch.event"], event["watch.step"], event["watch.where"]) == ("nan-gradient", 1, "nothing")
    assert same(run.weights(), before), "the bad step was applied"
    assert run.record()["findings"][0]["id"] == "watch-step-not-finite"
    assert run.record()["details"]["learning_rate"] == 1e-2


def test_gradients_that_are_all_zero_are_no_fault(tmp_path):
    run = Run(tmp_path)
    run.step(lambda model: [parameter.grad.zero_() for parameter in model.parameters()])
    run.step(lambda model: model.first.bias.grad.zero_())
    assert run.watch.events == []
    run.step(gradient(INF))  # the bias is no sentinel any more, or it is: either way it is seen
    assert len(run.watch.events) == 1


def test_an_infinite_norm_in_the_log_stops_the_run_unless_a_scaler_does_its_work(tmp_path):
    for scaled in (True, False):
        run = Run(tmp_path, fp16=scaled)
        run.watch.on_log(run.args, run.state, run.control, logs={"loss": 2.0, "grad_norm": INF})
        assert run.control.should_training_stop is not scaled and run.control.should_save is scaled
        assert [event["watch.event"] for event in run.watch.events] == ([] if scaled else ["infinite-norm"])


def test_without_a_loss_in_the_output_the_backward_is_searched_from_the_logits(tmp_path):
    model = Net(outside=True)
    forward = model.second.forward
    model.second.forward = lambda value: Poison.apply(forward(value))
    run = Run(tmp_path, model)
    run.step()
    (event,) = run.watch.events
    assert (event["watch.where"], event["watch.module"]) == ("backward", "second")
    assert event["watch.operation"] == "PoisonBackward"


def test_a_loss_outside_the_model_that_goes_wrong_is_not_blamed_on_the_model(tmp_path):
    run = Run(tmp_path, Net(outside=True))
    run.step(lambda model: [parameter.grad.fill_(NAN) for parameter in model.parameters()])
    (event,) = run.watch.events
    assert event["watch.where"] == "unknown" and "watch.module" not in event
    assert "outside the model" in run.record()["details"]["problem"]


def test_an_output_without_loss_and_logits_says_so():
    class Nothing(torch.nn.Linear):
        def forward(self, values):
            return {"text": "none"}

    found = examine(Nothing(2, 2), {"values": torch.ones(1, 2)})
    assert found["watch.where"] == "unknown" and "neither a loss nor logits" in found["problem"]


def test_recording_alone_leaves_the_gradients_and_goes_on(tmp_path):
    run = Run(tmp_path, watch=Watch(stop=False))
    run.model(values=torch.ones(4, 8))["loss"].backward()
    for parameter in run.model.parameters():
        parameter.grad.fill_(NAN)
    held = [parameter.grad for parameter in run.model.parameters()]
    run.tell("on_pre_optimizer_step")
    assert all(
        parameter.grad is one and one.isnan().all() for parameter, one in zip(run.model.parameters(), held, strict=True)
    )
    run.model.zero_grad()
    run.state.global_step += 1
    run.step(values=torch.full((4, 8), NAN))
    run.step(values=torch.full((4, 8), NAN))
    assert [(event["watch.event"], event["watch.step"]) for event in run.watch.events] == [
        ("nan-gradient", 0),
        ("nan-loss", 1),
    ]
    assert not run.control.should_training_stop


def test_a_trainer_that_tells_nothing_before_the_step_is_read_after_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(callback, "_TOLD_BEFORE_STEP", False)
    run = Run(tmp_path)
    assert "tells nothing before" in caplog.text
    for _ in range(5):
        run.step()
    run.step(values=torch.full((4, 8), NAN))
    (event,) = run.watch.events
    assert (event["watch.event"], event["watch.step"]) == ("nan-loss", 5)
    assert run.record()["details"]["weights_were_changed"] is True
    assert run.control.should_training_stop and not run.control.should_save


def test_micro_batches_and_flags_are_bounded_and_the_bad_one_is_still_known(tmp_path):
    run = Run(tmp_path)
    for number in range(1000):
        run.model(values=torch.full((1, 8), NAN if number == 990 else 1.0))
    assert len(run.watch._steps.kept.batches) <= 64 and len(run.watch._steps.kept.losses) <= 256
    run.tell("on_pre_optimizer_step")
    (event,) = run.watch.events
    assert event["watch.where"] == "data" and run.record()["details"]["micro_batch"] == 990


def test_passes_without_gradients_are_not_the_steps_own(tmp_path):
    run = Run(tmp_path)
    with torch.no_grad():
        run.model(values=torch.full((4, 8), NAN))
    run.step()
    assert run.watch.events == []


class Warming:
    """bfloat16 weights and the learning rates of single steps; too small a rate moves none of them."""

    def __init__(self, tmp_path, rates) -> None:
        torch.manual_seed(0)
        model = Net()
        model.second = torch.nn.Linear(64, 64, bias=False)
        model.first = torch.nn.Linear(8, 64)
        self.run = Run(tmp_path, model.bfloat16())
        for number, rate in rates:
            self.run.state.global_step = number
            self.run.optimizer.param_groups[0]["lr"] = rate
            self.run.step(values=torch.randn(4, 8).bfloat16())


@pytest.mark.parametrize(
    ("rates", "still"),
    [
        ([(0, 0.0)], False),
        ([(99, 1e-9), (100, 1e-9)], True),
        ([(99, 1e-9), (100, 2e-9)], False),  # warm-up: it rises
        ([(99, 1e-1), (100, 1e-1)], False),
    ],
)
def test_weights_that_stand_still_are_told_unless_the_rate_warms_up(tmp_path, rates, still):
    events = [event["watch.event"] for event in Warming(tmp_path, rates).run.watch.events]
    assert events == (["weights-stand-still"] if still else [])


def test_a_compiled_model_is_watched_like_any_other(tmp_path):
    run = Run(tmp_path)
    plain, run.model = run.model, torch.compile(run.model, backend="eager")
    run.step()
    assert plain.training and run.watch.events == []
    run.step(values=torch.full((4, 8), NAN))
    assert run.watch.events[0]["watch.where"] == "data"


RANK = """
import json, sys, types, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[4])
from envdoctor.watch import Watch
number, folder, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 4)
    def forward(self, values):
        return {"loss": self.layer(values).mean()}
torch.manual_seed(0)
model, watch = Net(), Watch()
args = types.SimpleNamespace(max_grad_norm=1.0, logging_nan_inf_filter=True, output_dir=folder, fp16=False)
state = types.SimpleNamespace(global_step=0, log_history=[])
control = types.SimpleNamespace(should_training_stop=False, should_save=False, should_evaluate=False)
watch.on_train_begin(args, state, control, model=model)
stopped = None
for step in range(3):
    state.global_step = step
    if number == 0:  # the other process has neither loss nor gradient
        values = torch.ones(2, 4)
        if step == 1:
            values[0, 0] = float("nan")
        model(values=values)["loss"].backward()
    watch.on_pre_optimizer_step(args, state, control, model=model)
    model.zero_grad()
    if control.should_training_stop:
        break
dist.barrier()
print(json.dumps([step, watch.events]))
"""


@pytest.mark.slow
def test_with_two_processes_both_stop_at_the_same_step_and_only_the_bad_one_says_where(tmp_path):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    root = str(Path(callback.__file__).parents[2])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(number), str(tmp_path), port, root],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    try:
        (first, second) = [json.loads(one.communicate(timeout=120)[0].splitlines()[-1]) for one in started]
    finally:
        for one in started:
            one.kill()
    assert first[0] == second[0] == 1
    assert first[1][0]["watch.where"] == "data" and "watch.where" not in second[1][0]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "envdoctor-flight-1-nan-loss-rank0.json",
        "envdoctor-flight-1-nan-loss-rank1.json",
    ]
    details = [json.loads(path.read_text())["details"] for path in sorted(tmp_path.glob("*.json"))]
    assert [(one["rank"], one["bad_here"]) for one in details] == [(0, True), (1, False)]
    assert "several processes" in details[0]["rerun"]
