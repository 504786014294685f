"""Faults as a card, a kernel or a loss of one's own make them: what is named, and what the last line says."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from watching import NAN, ROOT, findings, lora, records, run  # noqa: E402

from envdoctor.experiments.watch import Watch  # noqa: E402


class Lost(torch.autograd.Function):
    """The identity; the gradient is NaN in one element."""

    @staticmethod
    def forward(context, value):
        return value.view_as(value)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        gradient.select(-1, 3).fill_(NAN)
        return gradient


def once(at: int, value: float):
    """A hook that spoils one element of what it is given, the ``at``-th time that it is called."""
    calls = []

    def hook(*arguments):
        calls.append(1)
        if len(calls) != at:
            return None
        given = arguments[-1].clone()
        given.view(-1)[1] = value
        return given

    return hook


@pytest.mark.parametrize("which", [0, 1, 2])
def test_attention_that_loses_one_of_its_gradients_is_named_and_no_neighbour(tiny, monkeypatch, which):
    """q, k and v share their input: the gradient that comes out of it is the sum of three."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def sdpa(*qkv, **options):
        qkv = [Lost.apply(one) if number == which else one for number, one in enumerate(qkv)]
        return plain(*qkv, **options)

    trainer = tiny(callbacks=[Watch()])
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", sdpa)
    (event,) = run(trainer)
    assert (event["watch.step"], event["watch.module"]) == (1, "model.layers.1.self_attn")
    assert event["watch.module_class"] == "LlamaAttention" and event["watch.operation"] == "LostBackward"
    assert event["watch.cured_by"] == ["eager"]


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_of_modules_with_one_input_the_one_that_makes_the_value_is_named(tiny, name):
    trainer = tiny(callbacks=[Watch()])
    module = trainer.model.model.layers[1].self_attn.get_submodule(name)
    forward = module.forward
    module.forward = lambda value: forward(Lost.apply(value))
    (event,) = run(trainer)
    assert event["watch.module"] == f"model.layers.1.self_attn.{name}"


def test_a_bad_loss_that_a_second_run_does_not_show_is_hardware_a_race_or_chance(tiny):
    trainer = tiny(callbacks=[Watch()], gradient_accumulation_steps=4)
    trainer.model.model.layers[1].post_attention_layernorm.register_forward_hook(once(7, NAN))
    (event,) = run(trainer)
    assert (event["watch.event"], event["watch.step"], event["watch.where"]) == ("nan-loss", 2, "nothing")
    assert records(trainer.args.output_dir)[0]["details"]["micro_batch"] == 2
    assert findings(trainer) == ["watch-second-run-finite"]


@pytest.mark.parametrize(("value", "named"), [(NAN, "nan-gradient"), (1e20, "infinite-norm")])
def test_so_is_a_bad_gradient_or_an_infinite_norm_and_steps_are_counted_as_the_others(tiny, value, named):
    trainer = tiny(callbacks=[Watch()])
    trainer.model.model.layers[0].mlp.up_proj.weight.register_hook(once(3, value))
    (event,) = run(trainer)
    assert (event["watch.event"], event["watch.step"], event["watch.where"]) == (named, 3, "nothing")
    assert findings(trainer) == ["watch-second-run-finite"] and trainer.state.global_step == 3


def test_an_infinite_norm_that_comes_again_names_its_parameter(tiny):
    trainer = tiny(callbacks=[Watch()])
    weight = trainer.model.model.layers[0].mlp.up_proj.weight
    weight.register_hook(lambda gradient: gradient + 1e20 * (torch.arange(gradient.numel()) == 5).view_as(gradient))
    (event,) = run(trainer)
    assert (event["watch.event"], event["watch.step"]) == ("infinite-norm", 1)
    assert event["watch.parameter"] == "model.layers.0.mlp.up_proj.weight"
    assert findings(trainer) == ["watch-gradient-norm-infinite-by-parameter"]


def test_gradients_that_are_all_zero_are_a_finding_that_names_the_weight_that_flipped(tiny):
    """One bit of the exponent of a frozen weight: nothing is NaN, and nothing is learnt any more."""
    trainer = tiny(callbacks=[Watch()], max_steps=12)
    model = lora(trainer)
    name = "base_model.model.model.layers.1.mlp.down_proj.weight"
    model.get_parameter(name).data[3, 5] = 3e38
    trainer = transformers.Trainer(
        model=model, args=trainer.args, train_dataset=trainer.train_dataset, callbacks=[Watch()]
    )
    (event,) = run(trainer)
    assert (event["watch.event"], event["watch.step"], event["watch.parameter"]) == ("zero-gradient", 1, name)
    assert trainer.state.global_step == 12 and findings(trainer) == ["watch-weight-oversized"]


def test_a_loss_that_stands_still_is_a_finding(tiny):
    trainer = tiny(callbacks=[Watch()], max_steps=8, learning_rate=1e-12)
    trainer.train_dataset = [trainer.train_dataset[0]] * 64
    (event,) = run(trainer)
    assert (event["watch.event"], event["watch.step"]) == ("loss-stands-still", 1)
    assert findings(trainer) == ["watch-loss-stands-still"] and trainer.state.global_step == 8


@pytest.mark.parametrize("kind", ["instead", "of it"])
def test_a_loss_of_ones_own_that_goes_wrong_is_blamed_on_no_hardware(tiny, kind):
    """Made of the logits instead of the model's own, or of that."""

    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **more):
            output = model(**inputs)
            value = output.loss if kind == "of it" else output.logits.float().logsumexp(-1).mean()
            loss = value * torch.log(value.detach() * 0 - 1)
            return (loss, output) if return_outputs else loss

    plain = tiny()
    trainer = Own(model=plain.model, args=plain.args, train_dataset=plain.train_dataset, callbacks=[Watch()])
    (event,) = run(trainer)
    assert (event["watch.step"], event["watch.where"]) == (1, "outside")
    assert findings(trainer) == ["watch-loss-outside-model"]


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:3]
import torch, envdoctor
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with envdoctor.Watch(model, optimizer, folder=sys.argv[3]):
    for step in range(9):
        (model(torch.ones(2, 4)).mean() * (float("nan") if step == 3 else 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
print("saved")
"""


def test_a_script_that_is_stopped_ends_with_one_sentence_that_names_the_file(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(ROOT), str(ROOT / "tests/support"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    (file,) = Path(tmp_path).glob("envdoctor-flight-4-nan-gradient.json")
    assert ended.returncode == 1 and ended.stdout == "" and "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("envdoctor.watch stopped the run: ") and str(file) in last and "step 4" in last
