"""Single steps: loss scalers, infinite gradients, losses outside the model, several processes, older Trainers."""

import math
import sys
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from watching import NAN, Poison, records, same, weights  # noqa: E402

from envdoctor.experiments.watch import Watch  # noqa: E402
from envdoctor.experiments.watch.rerun import Gradients  # noqa: E402

INF = float("inf")
LOST = torch.full((4, 8), NAN)


class Net(torch.nn.Module):
    """Two layers; the loss is in the output, or with ``outside`` only the logits are."""

    def __init__(self, outside: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.outside = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False), outside

    def forward(self, values):
        logits = self.second(self.first(values))
        return {"logits": logits} if self.outside else {"loss": logits.pow(2).mean(), "logits": logits}


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

    def step(self, spoil=None, values=None, **more) -> None:
        batch = {"values": torch.ones(4, 8) if values is None else values, **more}
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
        if hasattr(transformers.TrainerCallback, "on_pre_optimizer_step"):
            self.tell("on_pre_optimizer_step")
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.model.zero_grad()
        self.state.global_step += 1
        self.tell("on_step_end")

    @property
    def event(self) -> dict:
        (event,) = self.watch.events
        return event

    @property
    def details(self) -> dict:
        (record,) = records(self.args.output_dir)
        return record["details"]


@pytest.fixture
def begin(tmp_path):
    return lambda model=None, **more: Run(tmp_path, model, **more)


@pytest.fixture
def run(begin):
    return begin()


@pytest.fixture
def scaled(begin):
    return begin(scaler=torch.amp.GradScaler("cpu"))


def told(run) -> tuple:
    return tuple(run.event.get(f"watch.{name}") for name in ("event", "step", "where", "module"))


def gradient(value):
    """Plants a value in the largest weight's gradient, not in the sentinel's."""
    return lambda model: model.second.weight.grad.__setitem__((3, 2), value)


def every_gradient(value):
    return lambda model: [parameter.grad.fill_(value) for parameter in model.parameters()]


@pytest.mark.parametrize("value", [INF, NAN])
def test_an_overflow_of_the_loss_scale_is_left_to_the_scaler(begin, value):
    run = begin(scaler=torch.amp.GradScaler("cpu", init_scale=4.0))
    run.step()
    before = weights(run.model)
    run.step(gradient(value))
    assert run.watch.events == [] and not run.control.should_training_stop
    assert same(weights(run.model), before) and run.scaler.get_scale() == 2.0


def test_twenty_overflows_in_a_row_stop_the_run_and_a_good_step_starts_the_count_again(scaled):
    for spoil in (*[gradient(INF)] * 19, None, *[gradient(INF)] * 19):
        scaled.step(spoil)
    assert scaled.watch.events == []
    scaled.step(gradient(INF))
    assert told(scaled)[:2] == ("nan-gradient", 40)
    assert scaled.control.should_training_stop and scaled.details["skipped_by_the_loss_scaler"] == 20


def test_a_bad_loss_stops_a_scaled_run_and_the_scaler_still_gets_its_gradients(scaled):
    scaled.step()
    before = weights(scaled.model)
    scaled.step(values=LOST)
    assert told(scaled)[0::2] == ("nan-loss", "data")
    assert scaled.control.should_training_stop and same(weights(scaled.model), before)


def test_a_scaler_that_looks_at_gradients_only_in_its_step_gets_zeros(begin):
    run = begin(scaler=torch.amp.GradScaler("cpu"), max_grad_norm=0.0)
    run.scaler.scale(run.model(values=LOST)["loss"]).backward()
    run.tell("on_pre_optimizer_step")
    assert all(not parameter.grad.any() for parameter in run.model.parameters())
    run.scaler.step(run.optimizer)
    assert all(bool(torch.isfinite(weight).all()) for weight in weights(run.model))


def test_one_infinite_gradient_is_seen_though_clipping_leaves_the_others_at_zero(run):
    run.step()
    before = weights(run.model)
    run.step(gradient(INF))
    assert told(run) == ("nan-gradient", 2, "nothing", None)
    assert same(weights(run.model), before), "the bad step was applied"
    assert records(run.args.output_dir)[0]["findings"][0]["id"] == "watch-second-run-finite"
    assert run.details["learning_rate"] == 1e-2


def test_gradients_that_are_all_zero_are_no_fault(run):
    run.step(every_gradient(0.0))
    run.step(lambda model: model.first.bias.grad.zero_())
    assert run.watch.events == []
    run.step(gradient(INF))  # the bias is no sentinel any more, or it is: either way it is seen
    assert len(run.watch.events) == 1


def test_gradients_that_torch_does_not_have_are_not_taken_for_zero():
    """DeepSpeed keeps its own."""
    assert Gradients().any_bad(Net(), applied=False) == (False, False, False)


@pytest.mark.parametrize(("scaled", "expected"), [(True, []), (False, ["infinite-norm"])])
def test_an_infinite_norm_in_the_log_stops_the_run_unless_a_scaler_does_its_work(begin, scaled, expected):
    run = begin(fp16=scaled)
    run.watch.on_log(run.args, run.state, run.control, logs={"loss": 2.0, "grad_norm": INF}, optimizer=None)
    assert run.control.should_training_stop is not scaled and run.control.should_save is scaled
    assert [event["watch.event"] for event in run.watch.events] == expected


def test_without_a_loss_in_the_output_the_backward_is_searched_from_the_logits(begin):
    model = Net(outside=True)
    forward = model.second.forward
    model.second.forward = lambda value: Poison.apply(forward(value))
    run = begin(model)
    run.step()
    assert told(run)[2:] == ("backward", "second") and run.event["watch.operation"] == "PoisonBackward"


def test_a_loss_outside_the_model_that_goes_wrong_is_not_blamed_on_the_model(begin):
    run = begin(Net(outside=True))
    run.step(every_gradient(NAN))
    assert told(run)[2:] == ("outside", None)
    assert "outside the model" in run.details["problem"]


def test_an_output_without_loss_and_logits_says_so(begin):
    run = begin(Net(outside=True))
    run.model.register_forward_hook(lambda _, __, output: {"text": output["logits"].mean().item()})
    run.model(values=torch.ones(4, 8))
    for parameter in run.model.parameters():
        parameter.grad = torch.full_like(parameter, NAN)
    run.tell("on_pre_optimizer_step")
    assert run.event["watch.where"] == "unknown"
    assert "neither a loss nor logits" in run.details["problem"]


class Words(Net):
    """A loss of this size over labels."""

    def forward(self, values, labels):
        own = super().forward(values)["loss"]
        return {"loss": values.mean() + own - own.detach()}


@pytest.mark.parametrize(
    ("kind", "loss", "diverged"),
    [
        ("Whisper", 1.49 * math.log(32), False),
        ("Whisper", 1.51 * math.log(32), True),
        ("Wav2Vec2", 1000.0, False),  # that of CTC is a sum over a clip
    ],
)
def test_a_loss_is_held_against_guessing_unless_it_is_a_sum(begin, kind, loss, diverged):
    run = begin(Words())
    run.model.config = getattr(transformers, f"{kind}Config")(vocab_size=32)
    for number, size in enumerate((1.0, *[loss] * 10)):
        run.step(values=torch.full((4, 8), size * (1 + number / 1e5)), labels=torch.ones(2, 9, dtype=torch.long))
    assert [event["watch.event"] for event in run.watch.events] == (["diverged"] if diverged else [])


def test_recording_alone_leaves_the_gradients_and_goes_on(begin):
    run = begin(watch=Watch(stop=False))
    run.model(values=torch.ones(4, 8))["loss"].backward()
    every_gradient(NAN)(run.model)
    held = [parameter.grad for parameter in run.model.parameters()]
    run.tell("on_pre_optimizer_step")
    assert all(one.grad is mine and mine.isnan().all() for one, mine in zip(run.model.parameters(), held, strict=True))
    run.model.zero_grad()
    run.state.global_step += 1
    run.step(values=LOST)
    run.step(values=LOST)
    events = [(event["watch.event"], event["watch.step"]) for event in run.watch.events]
    assert events == [("nan-gradient", 1), ("nan-loss", 2)]
    assert not run.control.should_training_stop


def test_where_the_trainer_tells_nothing_before_the_step_the_optimizer_is_asked(begin, monkeypatch):
    monkeypatch.delattr(transformers.TrainerCallback, "on_pre_optimizer_step")
    for name in [name for name in sys.modules if name.startswith("envdoctor.experiments.watch")]:
        monkeypatch.delitem(sys.modules, name)
    from envdoctor.experiments.watch import RunStopped, Watch

    run = begin(watch=Watch())
    for _ in range(5):
        run.step()
    before = weights(run.model)
    with pytest.raises(RunStopped):
        run.step(values=LOST)
    assert told(run)[:2] == ("nan-loss", 6) and same(weights(run.model), before)


def test_an_optimizer_that_is_not_torchs_is_read_after_its_step(begin, monkeypatch):
    run = begin()
    monkeypatch.setattr(run, "tell", lambda event, tell=run.tell: event == "on_step_end" and tell(event))
    for _ in range(5):
        run.step()
    run.step(values=LOST)
    assert told(run)[:2] == ("nan-loss", 6)
    assert run.details["weights_were_changed"] is True
    assert run.control.should_training_stop and not run.control.should_save


def test_micro_batches_and_flags_are_bounded_and_the_bad_one_is_still_known(run):
    for number in range(1000):
        run.model(values=torch.full((1, 8), NAN if number == 990 else 1.0))
    assert len(run.watch._steps.kept.batches) <= 64 and len(run.watch._steps.kept.losses) <= 256
    run.tell("on_pre_optimizer_step")
    assert told(run)[2] == "data" and run.details["micro_batch"] == 990


def test_passes_without_gradients_are_not_the_steps_own(run):
    with torch.no_grad():
        run.model(values=LOST)
    run.step()
    assert run.watch.events == []


@pytest.mark.parametrize(
    ("rates", "still"),
    [
        ([(99, 0.0)], False),
        ([(98, 1e-9), (99, 1e-9)], True),
        ([(98, 1e-9), (99, 2e-9)], False),  # warm-up: it rises
        ([(98, 1e-1), (99, 1e-1)], False),
    ],
)
def test_weights_that_stand_still_are_told_unless_the_rate_warms_up(begin, rates, still):
    """bfloat16 weights: too small a rate moves none of them."""
    model = Net()
    model.first, model.second = torch.nn.Linear(8, 64), torch.nn.Linear(64, 64, bias=False)
    run = begin(model.bfloat16())
    for number, rate in rates:
        run.state.global_step = number
        run.optimizer.param_groups[0]["lr"] = rate
        run.step(values=torch.randn(4, 8).bfloat16())
    assert [event["watch.event"] for event in run.watch.events] == (["weights-stand-still"] if still else [])


def test_a_compiled_model_is_watched_like_any_other(run):
    plain, run.model = run.model, torch.compile(run.model, backend="eager")
    run.step()
    assert plain.training and run.watch.events == []
    run.step(values=LOST)
    assert told(run)[2] == "data"
