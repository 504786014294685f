"""What strangers tried with the watch and what fell short: each line of their report, under real Trainers."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

from token_samples import tokens  # noqa: E402
from watching import NAN, findings, lora, records, run, same, spoil, weights  # noqa: E402

from envdoctor.experiments.watch import RunStopped, Watch  # noqa: E402


class Masked(torch.utils.data.Dataset):
    """Samples in the order in which they are taken; of these numbers no label counts."""

    def __init__(self, masked) -> None:
        self.masked, self.taken, self.samples = masked, -1, tokens(128)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index):
        self.taken += 1
        sample = self.samples[self.taken % len(self.samples)]
        if self.taken in self.masked:
            sample = {**sample, "labels": torch.full_like(sample["labels"], -100)}
        return sample


def test_the_same_trainer_trains_again_after_a_run_that_was_stopped(tiny):
    trainer = tiny(callbacks=[Watch()])
    spoiled = spoil(trainer.model.model.layers[0].mlp)
    with pytest.raises(RunStopped, match=r"layers\.0\.mlp.* \(flight record in "):
        trainer.train()
    assert trainer.state.global_step == 1
    spoiled.remove()
    assert run(trainer) == [] and trainer.state.global_step == 6


@pytest.mark.parametrize(
    ("masked", "arguments", "expected", "steps", "told"),
    [
        # One batch is named as that, and the rest trains.
        ({4, 5}, {}, [["labels-masked"]], 6, [["watch-all-labels-masked"]]),
        # A loss that is shared out over the tokens of the whole step is 0 in one micro-batch, and nothing is wrong.
        ({10, 11}, {"gradient_accumulation_steps": 4, "max_steps": 3}, [["labels-masked"], []], 3, None),
        # Where no label ever counts the run is stopped.
        (range(1000), {"max_steps": 60}, [["labels-masked", "all-labels-masked"]], 20, "watch-no-label-counts"),
    ],
)
def test_batches_without_a_label_that_counts(tiny, masked, arguments, expected, steps, told):
    trainer = tiny(Masked(masked), callbacks=[Watch()], **arguments)
    events = run(trainer)
    assert [event["watch.event"] for event in events] in expected and trainer.state.global_step == steps
    if told == [["watch-all-labels-masked"]]:
        assert (events[0]["watch.step"], events[0]["watch.label_tokens"]) == (3, 0)
        assert [findings(trainer)] == told
    elif told:
        assert told in findings(trainer)


@pytest.mark.parametrize("planted", ["attention", "head"])
def test_eager_attention_is_tried_before_it_is_advised(tiny, monkeypatch, planted):
    trainer = tiny(pad=3, callbacks=[Watch()])
    classes = [type(module) for module in trainer.model.modules()]
    if planted == "attention":
        plain = torch.nn.functional.scaled_dot_product_attention
        monkeypatch.setattr(
            torch.nn.functional, "scaled_dot_product_attention", lambda *q, **options: plain(*q, **options) * NAN
        )
    else:
        spoil(trainer.model.lm_head)
    before = trainer.model.config._attn_implementation
    (event,) = run(trainer)
    assert before == trainer.model.config._attn_implementation == "sdpa"
    assert classes == [type(module) for module in trainer.model.modules()]
    assert event["watch.cured_by"] == (["eager"] if planted == "attention" else [])
    expected = "watch-only-padded-batches-fail" if planted == "attention" else "watch-loss-not-finite"
    assert findings(trainer) == [expected]


def test_a_run_that_diverges_is_stopped_and_not_saved_on(tiny):
    trainer = tiny(callbacks=[Watch()], learning_rate=50.0, max_steps=60, save_strategy="steps", save_steps=20)
    events = run(trainer)
    assert [event["watch.event"] for event in events] == ["diverged"]
    assert events[0]["watch.step"] < 5 and findings(trainer) == ["watch-diverged"]
    assert not list(Path(trainer.args.output_dir).glob("checkpoint-*"))


@pytest.mark.parametrize("trained", [True, False])
def test_a_nan_in_evaluation_is_named_with_batch_and_module(tiny, trained):
    samples = [*tokens(4), *tokens(2, length=24), *tokens(2)]
    trainer = tiny(callbacks=[Watch()], per_device_eval_batch_size=2)
    trainer.model.model.layers[1].mlp.register_forward_hook(
        lambda module, _, output: output if module.training or output.shape[1] != 24 else output * NAN
    )
    if trained:
        trainer.train()
    trainer.evaluate(samples)
    (event,) = run(trainer, train=False)
    assert (event["watch.event"], event["watch.batch"], event["watch.where"]) == ("nan-eval-loss", 2, "forward")
    assert event["watch.module"] == "model.layers.1.mlp" and event["watch.step"] == (6 if trained else 0)
    assert findings(trainer) == ["watch-eval-module-not-finite"]
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_an_evaluation_batch_without_labels_is_not_blamed_on_the_model(tiny):
    trainer = tiny(callbacks=[Watch()], per_device_eval_batch_size=1)
    samples = tokens(3)
    samples[1]["labels"][:] = -100
    trainer.evaluate(samples)
    (event,) = run(trainer, train=False)
    assert (event["watch.batch"], event["watch.label_tokens"]) == (1, 0) and "watch.module" not in event
    assert findings(trainer) == ["watch-eval-labels-masked"]


def test_a_healthy_evaluation_says_nothing_and_changes_no_number(tiny):
    plain, trainer = (tiny(callbacks=callbacks, per_device_eval_batch_size=2) for callbacks in ([], [Watch()]))
    assert plain.evaluate(tokens(6))["eval_loss"] == trainer.evaluate(tokens(6))["eval_loss"]
    assert run(trainer, train=False) == []


@pytest.mark.parametrize("kind", ["plain", "lora", "accumulation", "packing", "evaluation"])
def test_training_is_bitwise_the_same_with_the_watch(tiny, kind):
    """Packing: samples one behind the other in one row, with positions that begin again."""
    arguments = {"per_device_eval_batch_size": 2, "gradient_accumulation_steps": 3 if kind == "accumulation" else 1}
    samples = None
    if kind == "packing":
        arguments["per_device_train_batch_size"] = 1
        samples = [{**one, "position_ids": torch.arange(20) % 7} for one in tokens(12)]
        samples = [{name: value for name, value in one.items() if name != "attention_mask"} for one in samples]
    trained = []
    for callbacks in ([], [Watch()]):
        trainer = tiny(samples, callbacks=callbacks, **arguments)
        if kind == "lora":
            trainer = transformers.Trainer(
                model=lora(trainer), args=trainer.args, train_dataset=tokens(64), callbacks=callbacks
            )
        trainer.train()
        if kind == "evaluation":
            trainer.evaluate(tokens(4))
            trainer.train()
        trained.append(weights(trainer.model))
    assert run(trainer, train=False) == records(trainer.args.output_dir) == []
    assert same(*trained)


def test_under_lora_the_bad_module_is_named(tiny):
    trainer = tiny()
    model = lora(trainer)
    trainer = transformers.Trainer(model=model, args=trainer.args, train_dataset=tokens(64), callbacks=[Watch()])
    (name,) = [name for name, _ in model.named_modules() if name.endswith("layers.1.self_attn.v_proj.lora_B.default")]
    model.get_submodule(name).register_forward_hook(lambda _, __, output: output / 0.0)
    (event,) = run(trainer)
    assert (event["watch.where"], event["watch.module"], event["watch.cured_by"]) == ("forward", name, [])


def tokenizer():
    made = pytest.importorskip("tokenizers")
    words = {"<pad>": 0, "<eos>": 1, **{str(number): number for number in range(2, 97)}}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made.Tokenizer(made.models.WordLevel(words, unk_token="<eos>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )


@pytest.mark.parametrize("packing", [False, True])
def test_sft_is_bitwise_the_same_and_its_bad_module_is_named(tiny, tmp_path, packing):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    rows = [{"input_ids": one["input_ids"].tolist(), "labels": one["input_ids"].tolist()} for one in tokens(48)]
    for row in rows:
        row["labels"][:5] = [-100] * 5
    trained = []
    for callbacks in ([], [Watch()], [Watch()]):
        model = tiny().model
        if len(trained) == 2:
            spoil(model.model.layers[1].mlp)
        settings = trl.SFTConfig(
            output_dir=str(tmp_path / "sft"), max_steps=4, per_device_train_batch_size=2, report_to=[], use_cpu=True,
            bf16=False, max_length=40, packing=packing, disable_tqdm=True, save_strategy="no", eos_token=None,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            model=model, args=settings, train_dataset=datasets.Dataset.from_list(rows), callbacks=callbacks,
            processing_class=tokenizer(),
        )  # fmt: skip
        events = run(trainer) if callbacks else trainer.train() and []
        trained.append(weights(trainer.model))
        assert events == [] or len(trained) == 3
    assert same(*trained[:2])
    (event,) = events
    assert (event["watch.event"], event["watch.step"], event["watch.where"]) == ("nan-loss", 1, "forward")
    assert event["watch.module"] == "model.layers.1.mlp"
