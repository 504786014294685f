"""The guard as a callback of the real Trainer: what it learns, what it leaves with the run, when it stops it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

import envdoctor  # noqa: E402
from envdoctor.app import Stopped  # noqa: E402

FILE = "envdoctor-facts.json"
BROKEN = {"pkg.torch": "2.5.0+cu118"}


@pytest.fixture(autouse=True)
def somewhere(tmp_path, cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def test_a_run_goes_on_and_keeps_the_facts_that_check_reads_again(tiny, run, tmp_path):
    guard = envdoctor.Guard(fail_on=None)
    trainer = tiny(callbacks=[guard], max_steps=1, gradient_checkpointing=True)
    assert trainer.train().global_step == 1
    text = Path(trainer.args.output_dir, FILE).read_text()
    facts = json.loads(text)["facts"]
    assert (facts["model.type"], facts["recipe.train_batch_size"], facts["recipe.gradient_checkpointing"]) == (
        "llama",
        2,
        True,
    )
    assert facts["pkg.torch"] and "recipe.dtype" not in facts and str(tmp_path) not in text
    assert guard.report is not None and guard.report.facts.value("model.type") == "llama"
    again = run("check", "--facts", str(Path(trainer.args.output_dir, FILE)), "--no-config", "-q")
    assert again.code in (0, 1), again.err


def test_findings_at_the_gate_stop_it_before_the_first_step_and_are_kept(tiny, capsys):
    guard = envdoctor.Guard(settings=BROKEN)
    trainer = tiny(callbacks=[guard])
    with pytest.raises(Stopped):
        trainer.train()
    assert trainer.state.global_step == 0 and guard.report.exit_code == 1
    assert json.loads(Path(trainer.args.output_dir, FILE).read_text())["facts"]["pkg.torch"] == "2.5.0+cu118"
    assert "the script stops here" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_does_not_stop_it(tiny, capsys):
    trainer = tiny(callbacks=[envdoctor.Guard(fail_on=None)], max_steps=1)
    Path(trainer.args.output_dir, FILE).mkdir(parents=True)
    assert trainer.train().global_step == 1
    assert f"{FILE} was not written" in capsys.readouterr().err


def test_envdoctor_itself_imports_no_transformers():
    code = "import sys, envdoctor; envdoctor.guard; sys.exit(bool({'torch', 'transformers'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
