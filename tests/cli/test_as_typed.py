"""What people type: other words for an option, a choice or a fact are taken, or the sentence says what to type."""

import pytest

from envdoctor import __version__


@pytest.mark.parametrize("words", ["version", "-V", "--version"])
def test_the_version_by_any_of_its_names(run, words):
    assert run(words).out.strip() == f"envdoctor, version {__version__}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("memory --model Qwen/Qwen3-8B --max-length 2048", "--max-length is a fact here: --set recipe.max_length=2048"),
        ("memory --model Qwen/Qwen3-8B --batch 4", "--batch is a fact here: --set recipe.batch_size=4"),
        ("check --cutoff-len=4096", "--cutoff-len is a fact here: --set recipe.max_length=4096"),
        ("plan --max_seq_length", "--max_seq_length is a fact here: --set recipe.max_length=VALUE"),
        ("check --set recipe.cutoff_len=2048", "did you mean recipe.max_length?"),
        ("memory --set per_device_train_batch_size=2", "batch_size?"),
        ("check --no-such-thing", "No such option"),
        ("check --driver 550", "Did you mean '--target-driver'?"),
        ("check --python-version 3.11", "Did you mean '--target-python'?"),
    ],
)
def test_a_key_of_a_trainer_names_the_fact(run, words, said):
    result = run(*words.split())
    assert result.code == 2 and said in result.err


@pytest.mark.parametrize("card", ["--gpu 2x4090", "--target-gpu 2x4090", "2x4090", "--set gpu=2x4090"])
@pytest.mark.parametrize("command", ["check", "memory"])
def test_a_card_is_named_in_the_same_ways_everywhere(run, facts_file, command, card):
    facts = ("--facts", facts_file({"pkg.torch": "2.6.0"}))
    result = run(command, "--no-config", *facts, "Qwen/Qwen3-8B", *card.split())
    assert "2 x RTX 4090" in result.out


@pytest.mark.parametrize("command", ["check", "memory"])
def test_a_method_is_an_option_wherever_a_run_is_described(run, facts_file, command):
    asked = ("--facts", facts_file({"pkg.torch": "2.6.0"}), "Qwen/Qwen3-8B", "--gpu", "4090", "--method")
    assert "qlora" in run(command, "--no-config", *asked, "qlora").out
    assert "known are full, lora, qlora" in run(command, "--no-config", *asked, "nonsense").err


def test_a_language_is_called_as_people_call_it(run, facts_file):
    asked = ("--facts", facts_file({}), "--model", "Qwen/Qwen3-8B", "--gpu", "4090", "--method", "qlora")
    assert "显存" in run("memory", "--lang", "CN", *asked).out
    assert run("check", "--lang", "fr").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lock", "did you mean check --lock?"),
        ("check --lock pixi.toml", "give pixi.lock"),
        ("check pixi.toml", "give pixi.lock"),
        ("check setup.py", "uv pip compile setup.py -o requirements.txt` writes the list that --lock reads\n"),
        ("check --recipe pixi.toml", "this looks like --lock pixi.toml"),
        ("check a.txt b.txt", "a.txt and b.txt: a run judges one --lock: run it for each"),
        ("memory --gpu 4090", "give --model DIR"),
        ("compare a.txt b.txt", "`envdoctor facts --format json` writes a facts file"),
    ],
)
def test_a_dead_end_names_the_way_out(run, tmp_path, words, said):
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    (tmp_path / "pixi.toml").write_text('[workspace]\nchannels = ["conda-forge"]\n[dependencies]\npython = "3.11.*"\n')
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("torch==2.5.1\n")
    result = run(*words.split())
    assert result.code == 2 and said in result.err


def test_a_folder_with_a_pin_has_no_revision_to_compare_with(run, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/config.json").write_text('{"model_type": "qwen2"}')
    assert run("pin", "./a").code == 0
    assert "envdoctor check --model ./a" in run("diff-revision", "./a", "--pin").err


def test_a_recipe_without_a_model_is_a_job_that_could_not_be_done(run, tmp_path):
    (tmp_path / "train.yaml").write_text("stage: sft\nfinetuning_type: lora\nper_device_train_batch_size: 1\n")
    result = run("memory", "--recipe", "train.yaml", "--gpu", "4090", "--no-config")
    assert result.code == 3 and "or a recipe that names it" in result.out


@pytest.mark.parametrize("name", ["Dockerfile2", "build"])
def test_a_dockerfile_of_any_name_is_read(run, tmp_path, name):
    (tmp_path / name).write_text("FROM python:3.11\nRUN pip install torch==2.5.1 transformers==4.44.2\n")
    assert "torch 2.5.1" in run("check", "--no-config", "--lock", name).out
