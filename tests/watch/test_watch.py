"""A planted NaN under the real Trainer: right step, module and class; nothing bad is saved."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from token_samples import tokens  # noqa: E402
from watching import NAN, Poison, records, run  # noqa: E402

from envdoctor.experiments.watch import Watch  # noqa: E402

SAVED = {"save_strategy": "steps", "save_steps": 1}


class At(transformers.TrainerCallback):
    """Does something to the model at the beginning of one step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            self.action(model)


def poison_backward(model):
    """The second layer's gate projection gives NaN gradients from now on."""
    projection = model.model.layers[1].mlp.gate_proj
    forward = projection.forward
    projection.forward = lambda value: forward(Poison.apply(value))


def saved(trainer) -> list[str]:
    paths = Path(trainer.args.output_dir).glob("checkpoint-*/model.safetensors")
    return sorted(path.parent.name for path in paths)


def place(event) -> tuple:
    return tuple(event.get(f"watch.{name}") for name in ("event", "step", "where", "module", "module_class"))


def test_a_nan_in_one_layers_backward_is_found_in_its_step_and_module(tiny):
    trainer = tiny(callbacks=[At(3, poison_backward), Watch()], **SAVED)
    (event,) = run(trainer)
    assert place(event) == ("nan-gradient", 4, "backward", "model.layers.1.mlp.gate_proj", "Linear")
    assert event["watch.operation"] == "PoisonBackward"
    assert all(bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters())
    assert trainer.state.global_step == 4
    assert saved(trainer) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_a_weight_that_is_nan_is_named(tiny):
    def poison(model):
        with torch.no_grad():
            model.model.layers[0].self_attn.q_proj.weight[0, 0] = NAN

    trainer = tiny(callbacks=[At(2, poison), Watch()], **SAVED)
    (event,) = run(trainer)
    assert place(event) == ("nan-loss", 3, "weights", "model.layers.0.self_attn.q_proj", "Linear")
    assert event["watch.parameter"] == "model.layers.0.self_attn.q_proj.weight"
    assert saved(trainer) == ["checkpoint-1", "checkpoint-2"]


class Turning(torch.utils.data.Dataset):
    """Embeddings that are finite until so many samples were taken."""

    def __init__(self, good: int) -> None:
        self.left = good
        self.generator = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict:
        self.left -= 1
        values = torch.randn(6, 32, generator=self.generator)
        if self.left < 0:
            values[2, 5] = NAN
        return {"inputs_embeds": values, "labels": torch.arange(3, 9)}


def test_data_that_is_not_finite_is_named(tiny):
    (event,) = run(tiny(Turning(good=8), callbacks=[Watch()]))
    assert place(event)[1:4] == (5, "data", "inputs_embeds")


@pytest.mark.parametrize("masked", [False, True])
def test_a_module_with_a_bad_forward_is_named_and_neither_its_parents_nor_a_mask_of_inf(tiny, masked):
    def poison(model):
        model.model.layers[1].mlp.act_fn.register_forward_hook(lambda _, __, output: output / 0.0 * 0.0)

    causal = torch.full((20, 20), -float("inf")).triu(1)[None]
    samples = [{**sample, "attention_mask": causal} for sample in tokens(64)] if masked else None
    (event,) = run(tiny(samples, callbacks=[At(1, poison), Watch()]))
    assert place(event)[1:4] == (2, "forward", "model.layers.1.mlp.act_fn")


def test_with_gradient_accumulation_the_bad_micro_batch_is_the_one_that_is_described(tiny):
    trainer = tiny(pad=3, callbacks=[At(1, poison_backward), Watch()], gradient_accumulation_steps=4)
    (event,) = run(trainer)
    assert event["watch.batch_size"] == 2 and event["watch.length"] == 20 and event["watch.tile"] == 20
    assert event["watch.padded"] and event["watch.padding_side"] == "left"


def test_recording_alone_does_not_stop_the_run(tiny):
    trainer = tiny(callbacks=[At(3, poison_backward), Watch(stop=False, rerun=False)])
    assert place(run(trainer)[0])[1:3] == (4, None)
    assert trainer.state.global_step == 6


def test_without_clipping_the_next_loss_tells(tiny):
    (event,) = run(tiny(callbacks=[At(2, poison_backward), Watch()], max_grad_norm=0.0))
    assert event["watch.step"] in (3, 4)


def test_the_flight_record_holds_versions_arguments_and_findings(tiny):
    trainer = tiny(callbacks=[At(3, poison_backward), Watch()])
    run(trainer)
    (document,) = records(trainer.args.output_dir)
    assert document["schema"] == "envdoctor.flight/1"
    assert document["facts"]["pkg.torch"] == str(torch.__version__)
    assert document["arguments"]["per_device_train_batch_size"] == 2
    assert document["details"]["weights_were_changed"] is False
    assert document["findings"] and document["findings"][0]["severity"] == "error"
