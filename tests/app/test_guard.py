"""``envdoctor.guard()``: it stops what is broken, and nothing else that goes wrong stops training."""

import gc
import os
import runpy
import signal
import sys
import threading
import time

import pytest

import envdoctor
from envdoctor.app import Stopped
from envdoctor.app import guard as guard_module
from envdoctor.matrix import matrix as matrix_module

BROKEN = {"pkg.torch": "2.5.0+cu118", "model.repo": "THUDM/glm-4-9b-chat-hf", "recipe.batch_size": 2}
NAN = "error[torch-2-5-0-glm4-batch-nan]"


@pytest.fixture(autouse=True)
def somewhere(tmp_path, cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("LOCAL_RANK", "ENVDOCTOR_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_a_broken_environment_stops_the_script(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(f"import envdoctor\nenvdoctor.guard(settings={BROKEN!r})\nprint('step 1')\n")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script))
    said = capsys.readouterr()
    assert ended.value.code == 1 and said.out == ""
    assert NAN in said.err and "the script stops here" in said.err


def test_none_only_tells_and_what_the_project_accepts_does_not_stop(tmp_path, capsys, monkeypatch):
    report = envdoctor.guard(settings=BROKEN, fail_on=None)
    assert report is not None and report.exit_code == 0 and gc.isenabled()
    said = capsys.readouterr().err
    assert NAN in said and said.endswith("envdoctor: the script goes on\n")
    ignores = [f"[[ignore]]\nid = '{finding.id}'\nreason = 'known'\n" for finding in report.findings]
    (tmp_path / "envdoctor.toml").write_text("".join(ignores))
    monkeypatch.setattr(sys, "stderr", None)  # closed: no fault either
    assert envdoctor.guard(settings=BROKEN).exit_code == 0


def test_only_the_first_process_of_a_machine_tells(capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    with pytest.raises(Stopped) as stopped:
        envdoctor.guard(settings=BROKEN)
    assert capsys.readouterr().err == ""
    assert stopped.value.code == 1 and any(finding.gate for finding in stopped.value.report.findings)


def test_a_broken_matrix_or_configuration_does_not_stop_training(tmp_path, monkeypatch, capsys):
    (tmp_path / "envdoctor.toml").write_text("fail-on = 'fatal'")
    assert envdoctor.guard() is None
    assert "envdoctor.toml: fail-on" in capsys.readouterr().err
    (tmp_path / "envdoctor.toml").unlink()
    (tmp_path / "index.jsonl").write_text("{")
    monkeypatch.setattr(matrix_module, "_COMPILED", tmp_path)
    assert envdoctor.guard(settings=BROKEN) is None
    assert capsys.readouterr().err.startswith("envdoctor: not checked, the script goes on: ")


@pytest.mark.parametrize("wrong", [{"recipe": [7]}, {"recipe": "no-such.yaml"}, {"settings": {"no.such": 1}}])
def test_a_wrong_argument_or_a_fault_of_its_own_does_not_stop_training(wrong, capsys):
    report = envdoctor.guard(**wrong)
    assert report is None or report.exit_code != 1
    assert "the script goes on" in capsys.readouterr().err


@pytest.mark.parametrize("fault", [RuntimeError, SystemExit, RecursionError, MemoryError])
def test_whatever_envdoctor_raises_does_not_stop_training(monkeypatch, capsys, fault):
    monkeypatch.setattr(matrix_module, "load_matrix", lambda *_: (_ for _ in ()).throw(fault("ours")))
    assert envdoctor.guard(settings=BROKEN) is None
    assert "the script goes on: " + fault.__name__ in capsys.readouterr().err


class Preempted(Exception):
    """What a script's own handler may raise."""


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
@pytest.mark.parametrize("raised", [SystemExit(143), TimeoutError("late"), ValueError("theirs"), Preempted()])
@pytest.mark.parametrize("where", ["load_matrix", "_text", "say"])
def test_what_the_scripts_own_signal_handlers_raise_is_the_scripts(monkeypatch, capsys, raised, where):
    entered = threading.Event()

    def handler(*_: object) -> None:
        raise raised

    def slow(*_: object) -> None:
        entered.set()
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000):
            time.sleep(0.001)  # whatever the handler raises here, a reader of files could take for its own
        raise OSError("ours")

    monkeypatch.setattr(matrix_module if where == "load_matrix" else guard_module, where, slow)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(type(raised)) as caught:
            envdoctor.guard(settings=BROKEN)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value is raised and entered.is_set() and gc.isenabled()
    assert "goes on" not in capsys.readouterr().err


def test_a_gate_that_was_mistyped_is_said_at_once():
    with pytest.raises(ValueError, match="error, warning, note or None"):
        envdoctor.guard(fail_on="eror")
