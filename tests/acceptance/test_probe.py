"""``envdoctor probe`` as a person uses it: what runs, what it says, how it ends."""

import json
import os
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dists import install

Run = Callable[..., Any]


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str | None], Path]:
    """A virtual environment with a package torch whose ``__init__`` has this text, or without one."""

    def make(text: str | None) -> Path:
        home = tmp_path / "target"
        venv.create(home, with_pip=False)
        if text is not None:
            (site,) = home.glob("lib/python*/site-packages")
            install(site, "torch", "2.5.0", files={"torch/__init__.py": text})
            install(site, "transformers", "4.48.0")
        return home

    return make


@pytest.mark.parametrize(
    ("text", "says", "ending"),
    [
        (None, "torch is not installed", "no-torch"),
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12", "torch-broken"),
        ("import sys; sys.exit(1)", "torch cannot be imported: SystemExit: 1", "torch-broken"),
        ("__version__ = '1.13.1+cu117'", "torch 1.13.1+cu117 is older than 2.0", "torch-old"),
        ("import ctypes; ctypes.string_at(0)", "crash: SIGSEGV", "crash"),
    ],
    ids=["none", "broken", "exits", "old", "crashes"],
)
def test_a_torch_that_cannot_be_used_is_one_sentence_and_exit_3_and_known_to_rules(
    run, environment, text, says, ending
):
    home = str(environment(text))
    done = run("probe", "--python", home)
    assert done.code == 3
    (line,) = [line for line in done.out.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: the experiments could not run: ") and says in line
    assert "Traceback" not in done.out + done.err
    facts = run("probe", "--python", home, "--format", "json", "-v").json["facts"]
    assert [one["signature"] for one in facts["probe"]["value"]] == [ending]
    assert facts["probe"]["incomplete"] and "probe.device" not in facts


def test_imports_are_tried_where_torch_cannot_be_used(run, environment):
    home = environment(None)
    (site,) = home.glob("lib/python*/site-packages")
    install(site, "peft", "0.17.0", files={"peft/__init__.py": "from os import nothing_of_this_name\n"})
    done = run("probe", "--only", "imports", "--python", str(home))
    assert done.code == 1
    assert "`import peft` fails here: ImportError: " in done.out and "nothing_of_this_name" in done.out
    assert "could not run" not in done.out


def test_the_catalogue_is_listed(run):
    done = run("probe", "--list")
    assert done.code == 0
    assert any(line.startswith("attention ") and "(quick, full)" in line for line in done.out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "atention"], "did you mean attention?"),
        (["--replay", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--replay", "none.jsonl", "--python", "x", "--force"], "--replay runs nothing: --python, --force"),
        (["--suite", "huge"], "huge"),
        (["--python", "/no/such/python"], "/no/such/python"),
    ],
)
def test_wrong_use_is_exit_2(run, arguments, says):
    done = run("probe", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_gpu_that_was_asked_for_and_is_not_there_is_one_sentence_and_exit_3(run, environment):
    torch = "__version__ = '2.5.0'\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
    done = run("probe", "--python", str(environment(torch)), "--device", "cuda", "--force")
    assert done.code == 3
    (line,) = [line for line in done.out.splitlines() if line.startswith("error: ")]
    assert line == "error: the experiments could not run: torch sees no CUDA device"


def test_nothing_is_started_for_a_model_of_which_nothing_is_known(run, environment, tmp_path):
    home = environment(f"open({str(tmp_path / 'started')!r}, 'w')")
    done = run("probe", "--python", str(home), "--device", "cpu", "--model", "nosuchorg/x")
    assert done.code == 3
    assert "nothing is known of the model nosuchorg/x" in done.err
    assert not (tmp_path / "started").exists()


def test_a_file_that_is_there_is_not_overwritten_by_a_script(run, tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    done = run("probe", "--reproducer", "mine.py")
    assert done.code == 2
    assert "--reproducer: mine.py exists and is not overwritten" in done.err
    assert (tmp_path / "mine.py").read_text() == "precious"


def test_nothing_of_a_working_directory_is_imported(run, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("torch", "json", "transformers"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    done = run("probe", "--only", "tf32", "--device", "cpu", cwd=folder, env={"PYTHONPATH": os.pathsep})
    assert "imported from the working directory" not in done.out + done.err


def test_check_names_the_command_that_settles_a_finding_and_runs_it(run, environment):
    home = environment("__version__ = '2.5.0'\nraise ImportError('no GPU here')")
    about = ["--python", str(home), "--model", "THUDM/glm-4-9b-chat-hf", "--set", "recipe.batch_size=4"]
    done = run("check", *about, "--format", "json")
    command = done.json["sections"]["probe_commands"]["padded-batch"]
    assert command.startswith("envdoctor probe --python ")
    assert command.endswith("--set recipe.batch_size=4 --only padded-batch")
    assert command in run("check", *about).out.replace(" \\\n             ", " ")
    settled = run("check", "--probe", *about)
    assert settled.code == 3
    assert "torch cannot be imported" in settled.out


@pytest.mark.torch
def test_a_healthy_torch_passes_records_and_replays(run, torch_python, tmp_path):
    about = ["--python", torch_python, "--device", "cpu", "--only", "nan-honesty,dead-rows"]
    done = run("probe", *about, "--record", "run.jsonl", "--format", "json", "-v", timeout=300)
    section = done.json["sections"]["probe"]
    assert {entry["ending"] for entry in section["probes"]} == {"ok"}
    assert section["environment"]["build"]["torch"].startswith("2.")
    assert section["cases"] > 5
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert lines[0]["schema"] == "envdoctor.experiments-recording/1"
    assert str(tmp_path) not in (tmp_path / "run.jsonl").read_text()
    again = run("probe", "--replay", "run.jsonl", "--format", "json", "-v")
    assert again.code == done.code
    assert again.json["facts"]["probe"] == done.json["facts"]["probe"]


def test_the_results_of_each_child_come_before_the_facts(run, tmp_path):
    about = {"probe": "attention", "device": "cpu", "dtype": "bf16", "backend": "default"}
    ratio = dict.fromkeys(("o", "dq", "dk", "dv"), 1.5)
    seen = {**about, "judge": "attention", "case": "L64", "params": {"S": 64}, "ratio": ratio}
    facts = {"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.13.0+cpu", "gpu": []}}
    outcome = {"job": {**about, "suite": "quick"}, "observations": [seen], "ending": "ok", "seconds": 1.0}
    lines = [{"schema": "envdoctor.experiments-recording/1", "suite": "quick", "facts": facts}, outcome]
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    told = run("probe", "--replay", "run.jsonl", "-v").out
    assert told.index("attention bf16 default") < told.index("\nFacts\n") and "1 pass" in told
    (point,) = run("probe", "--replay", "run.jsonl", "--format", "json").json["sections"]["probe"]["errors"]
    assert (point["length"], point["ratio"], point["dtype"], point["backend"]) == (64, 1.5, "bf16", "default")
