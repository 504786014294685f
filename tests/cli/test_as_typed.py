"""What people type: other words for an option, a choice or a fact are taken, or the sentence says what to type."""

from __future__ import annotations

import pytest

from envdoctor import __version__


@pytest.mark.parametrize("words", ["version", "-V", "--version"])
def test_the_version_by_any_of_its_names(run, words):
    assert run(words).out.strip() == f"envdoctor, version {__version__}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("memory --model Qwen/Qwen3-8B --max-length 2048", "--max-length is a fact here: --set recipe.max_length=2048"),
        ("check --cutoff-len=4096", "--cutoff-len is a fact here: --set recipe.max_length=4096"),
        ("plan --max_seq_length", "--max_seq_length is a fact here: --set recipe.max_length=VALUE"),
        ("check --set recipe.cutoff_len=2048", "did you mean recipe.max_length?"),
        ("memory --set per_device_train_batch_size=2", "batch_size?"),
        ("check --no-such-thing", "No such option"),
    ],
)
def test_a_key_of_a_trainer_names_the_fact(run, words, said):
    result = run(*words.split())
    assert result.code == 2 and said in result.err


@pytest.mark.parametrize("card", ["--gpu 2x4090", "--target-gpu 2x4090", "2x4090", "--set gpu=2x4090"])
@pytest.mark.parametrize("command", ["check", "memory"])
def test_a_card_is_named_in_the_same_ways_everywhere(run, command, card):
    result = run(command, "--no-config", "--set", "pkg.torch=2.6.0", "Qwen/Qwen3-8B", *card.split())
    assert "2 x RTX 4090" in result.out


def test_a_language_is_called_as_people_call_it(run):
    assert "显存" in run("memory", "--lang", "CN", "--model", "Qwen/Qwen3-8B", "--gpu", "4090", "--method", "qlora").out
    assert run("check", "--lang", "fr").code == 2
