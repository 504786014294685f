"""A loop of one's own under ``with envdoctor.Watch(model, optimizer)``: plain torch, accelerate, Lightning."""

import contextlib
from functools import partial

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from token_samples import tokens  # noqa: E402
from watching import NAN, records, same, spoil, weights  # noqa: E402

import envdoctor  # noqa: E402
from envdoctor.experiments.watch import RunStopped, Watch  # noqa: E402


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def llama(tiny):
    def made():
        return tiny().model.train()

    return made


class Regression(torch.nn.Module):
    """Positional inputs; the loss is not in the output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)

    def forward(self, values):
        return self.second(torch.relu(self.first(values)))


def batches(count):
    samples = tokens(2 * count)
    for number in range(count):
        pair = samples[2 * number : 2 * number + 2]
        yield {name: torch.stack([sample[name] for sample in pair]) for name in pair[0]}


def train(model, optimizer, *, steps=6, clip=False, accumulate=1, at=None):
    """A loop as people write it; ``at`` is called with the step, counted from 1, before it."""
    for number, batch in enumerate(batches(steps * accumulate)):
        if at and not number % accumulate:
            at(number // accumulate + 1)
        (model(**batch).loss / accumulate).backward()
        if (number + 1) % accumulate == 0:
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("given", [True, False])
def test_a_bad_loss_stops_it_before_the_weights_and_names_step_and_module(llama, given, accumulate):
    model = llama()
    optimizer = adamw(model)
    seen = []

    def at(step):
        seen.append(weights(model))
        if step == 3:
            spoil(model.model.layers[1].mlp)

    watch = envdoctor.Watch(model, *[optimizer] * given)
    with pytest.raises(RunStopped, match=r"model\.layers\.1\.mlp.*step 3.*flight record in"), watch:
        train(model, optimizer, accumulate=accumulate, at=at)
    (event,) = watch.events
    assert (event["watch.event"], event["watch.step"], event["watch.batch_size"]) == ("nan-loss", 3, 2)
    assert same(weights(model), seen[2]) and not same(seen[1], seen[2])
    assert records(".")[0]["details"]["weights_were_changed"] is False


@pytest.mark.parametrize("clip", [True, False])
def test_it_is_bitwise_the_same_and_lets_go_of_model_and_optimizer(llama, clip):
    trained = []
    for context in (contextlib.nullcontext(), None):
        model = llama()
        optimizer = adamw(model)
        with context or Watch(model, optimizer):
            train(model, optimizer, clip=clip)
        trained.append(weights(model))
        spoil(model.lm_head)
        train(model, optimizer, steps=1)  # nothing is watched any more
        assert not model._forward_hooks and not model._forward_pre_hooks
    assert records(".") == [] and same(*trained)


def operators(run, watched, steps) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(watched, steps)
    return sum(event.name.startswith("aten::") for event in profile.events())


def test_a_step_costs_what_the_callback_costs_or_less(tiny, llama):
    """Counted over 2 and 4 steps, with and without: what a step costs is the difference of the differences."""

    def loop(clip, watched, steps):
        model = llama()
        optimizer = adamw(model)
        with Watch(model, optimizer) if watched else contextlib.nullcontext():
            train(model, optimizer, steps=steps, clip=clip)

    def trainer(watched, steps):
        callbacks = [Watch()] if watched else []
        tiny(callbacks=callbacks, max_steps=steps, logging_steps=100, max_grad_norm=0.0).train()

    def added(run):
        few, many = (operators(run, True, n) - operators(run, False, n) for n in (2, 4))
        return (many - few) / 2

    assert max(added(partial(loop, clip)) for clip in (True, False)) <= added(trainer) < 40


def test_positional_inputs_and_a_loss_outside_the_model(llama):
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = Watch(model, optimizer)
    with pytest.raises(RunStopped), watch:
        for step in range(5):
            values = torch.randn(4, 8)
            if step == 2:
                values[0, 0] = NAN
            torch.nn.functional.mse_loss(model(values), torch.zeros(4, 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    (event,) = watch.events
    assert (event["watch.event"], event["watch.step"]) == ("nan-gradient", 3)
    assert (event["watch.where"], event["watch.module"]) == ("data", "values")


def test_a_step_with_a_closure_is_judged_after_it_and_before_the_weights(llama):
    model = Regression()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=1)
    before = []

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).mean() * (NAN if len(before) == 3 else 1)
        loss.backward()
        return loss

    watch = Watch(model, optimizer)
    with pytest.raises(RunStopped), watch:
        for _ in range(5):
            before.append(weights(model))
            optimizer.step(closure)
    assert [(event["watch.event"], event["watch.step"]) for event in watch.events] == [("nan-loss", 3)]
    assert same(weights(model), before[-1])


@pytest.mark.parametrize("bad", [False, True])
def test_a_loss_scaler_skips_steps_and_a_loss_that_stays_bad_is_told_all_the_same(llama, bad):
    model = llama()
    optimizer, scaler = adamw(model), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    watch = Watch(model, optimizer)
    if bad:
        spoil(model.model.layers[0].mlp)
    with pytest.raises(RunStopped) if bad else contextlib.nullcontext(), watch:
        for batch in batches(64 if bad else 30):
            scaler.scale(model(**batch).loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert [event["watch.event"] for event in watch.events] == ["nan-loss"] * bad
    assert scaler.get_scale() < 2.0**127


def test_an_evaluation_within_it_is_named_and_stops_nothing(llama):
    model = llama()
    optimizer = adamw(model)
    model.model.layers[1].mlp.register_forward_hook(lambda module, _, out: out if module.training else out * NAN)

    def at(step):
        if step == 3:
            model.eval()
            with torch.no_grad():
                for batch in batches(2):
                    model(**batch)
            model.train()

    watch = Watch(model, optimizer)
    with watch:
        train(model, optimizer, at=at)
    (event,) = watch.events
    assert (event["watch.event"], event["watch.step"], event["watch.batch"]) == ("nan-eval-loss", 2, 0)
    assert event["watch.module"] == "model.layers.1.mlp"


def test_recording_alone_goes_on(llama):
    model = llama()
    optimizer = adamw(model)
    watch = Watch(model, optimizer, stop=False, folder="flights")
    with watch:
        train(model, optimizer, at=lambda step: spoil(model.lm_head) if step == 4 else None)
    assert [(event["watch.event"], event["watch.step"]) for event in watch.events] == [("nan-loss", 4)]
    assert len(records("flights")) == 1


def test_an_error_of_the_loop_itself_comes_through(llama):
    model = llama()
    with pytest.raises(ZeroDivisionError), Watch(model, adamw(model)):
        raise ZeroDivisionError


def test_without_a_model_it_says_how_it_is_typed():
    with pytest.raises(TypeError, match=r"Watch\(model, optimizer\)"), Watch():
        pass


def test_what_accelerate_prepared(llama):
    accelerate = pytest.importorskip("accelerate", reason="needs tests/torch-requirements.txt")
    model = llama()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(model, adamw(model))
    watch = Watch(model, optimizer)
    with pytest.raises(RunStopped), watch:
        for number, batch in enumerate(batches(12)):
            if number == 7:
                spoil(accelerator.unwrap_model(model).model.layers[0].mlp)
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    (event,) = watch.events
    assert (event["watch.event"], event["watch.step"]) == ("nan-loss", 4)
    assert event["watch.module"] == "model.layers.0.mlp"
    assert records(".")[0]["details"]["micro_batch"] == 1


@pytest.mark.parametrize("whole", [True, False])
def test_what_lightning_runs(llama, whole):
    """The module as a whole, whose ``training_step`` Lightning calls, or the model in it, which shows its batches."""
    lightning = pytest.importorskip("lightning", reason="lightning is not among tests/torch-requirements.txt")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = llama()

        def training_step(self, batch, number):
            if number == 3:
                spoil(self.model.model.layers[0].mlp)
            return self.model(**batch).loss

        def configure_optimizers(self):
            return adamw(self)

    module = Module()
    trainer = lightning.Trainer(
        max_steps=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0,
    )  # fmt: skip
    watch = Watch(module if whole else module.model)
    before = weights(module)
    with pytest.raises(RunStopped), watch:
        trainer.fit(module, torch.utils.data.DataLoader(list(batches(8)), batch_size=None))
    (event,) = watch.events
    assert (event["watch.event"], event["watch.step"]) == ("nan-loss", 4)
    assert event.get("watch.module") == (None if whole else "model.layers.0.mlp")
    assert all(bool(torch.isfinite(weight).all()) for weight in weights(module)) and not same(weights(module), before)


def test_a_compiled_model_is_watched_like_any_other(llama):
    model = llama()
    optimizer = adamw(model)
    compiled = torch.compile(model, backend="eager")
    watch = Watch(compiled, optimizer)
    with pytest.raises(RunStopped), watch:
        train(compiled, optimizer, steps=3, at=lambda step: step == 2 and model.lm_head.weight.data.fill_(NAN))
    assert watch.events[0]["watch.parameter"] == "lm_head.weight"
