"""A payload script in the target's interpreter: what it is asked, what it answers, and the name of every end."""

import ast
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import gone

from envdoctor.system import PAYLOAD, ChildAnswer, Place, Task, run_in_target
from envdoctor.system.target import Conversation

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
Run = Callable[..., ChildAnswer]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """This interpreter, with its scripts and scratch files in a folder of the test."""
    for name in ("scripts", "scratch"):
        (tmp_path / name).mkdir()
    return Place(sys.executable, os.environ, str(tmp_path), str(tmp_path / "scratch"), payload=tmp_path / "scripts")


@pytest.fixture
def run(place: Place) -> Run:
    """Run one script, given by the body of its ``run``, in a place that is changed so; further arguments are those of
    the task."""

    def start(body: str, where: dict[str, Any] | None = None, **more: Any) -> ChildAnswer:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (place.payload / "script.py").write_text(f"def run(job, emit):\n{lines}")
        task = Task("script.py", **{"memory_mib": 300, "seconds": 20, **more})
        (answer,) = run_in_target([task], place._replace(**(where or {})))
        return answer

    return start


def test_a_script_of_three_lines_is_asked_and_answers(place: Place) -> None:
    (place.payload / "imports.py").write_text(
        "def run(job, emit):\n"
        "    module = __import__(job['module'])\n"
        "    emit({'version': getattr(module, '__version__', None)})\n"
    )
    tasks = [Task("imports.py", {"module": "json"}), Task("imports.py", {"module": "no_such"})]
    there, missing = run_in_target(tasks, place)
    assert (there.ending, there.records) == ("ok", ({"version": "2.0.9"},))
    assert (there.begin["python"], there.begin["device"]) == (sys.version.split()[0], "cpu")
    assert (missing.ending, missing.records) == ("failed", ())
    assert missing.detail.startswith("ModuleNotFoundError: ") and "no_such" in missing.detail
    assert " (imports.py:2" in missing.detail


ONE = "emit({'seen': 1})\n"


@pytest.mark.parametrize(
    ("body", "ending", "says"),
    [
        ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV after 1 observations, in string_at"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("import os; os.abort()", "crash", "SIGABRT"),
        ("raise MemoryError('no more')", "oom", "MemoryError: no more"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "oom", "out of memory"),
        ("raise ValueError('odd')", "failed", "ValueError: odd (script.py:"),
        ("import os; os._exit(0)", "lost", "without saying that it was done"),
        ("import os; os._exit(7)", "failed", "exit code 7"),
        ("import sys; sys.exit(3)", "failed", "exit code 3"),
        ("import os; os.write(PRIVATE, b'not json\\n')", "garbage", "not json"),
        ("import os; os.write(PRIVATE, b'[1, 2]\\n')", "garbage", "[1, 2]"),
        ("import os; os.write(PRIVATE, b'{\"half\": '); os._exit(0)", "lost", "in the middle of a line"),
        ("import os\nwhile True: os.write(PRIVATE, b'x' * 65536)", "output-limit", "more output"),
        ("import os\nwhile True: os.write(PRIVATE, b'x\\n' * 999)", "garbage", "lines that are no observation"),
        ("while True: print('x' * 65535)", "output-limit", "more output"),
        ("import time\nx = bytearray(500 << 20)\nx[::4096] = x[1::4096]\ntime.sleep(60)", "oom", "more than 300 MiB"),
        ("emit({'error': 'CUDA error', 'sticky': True})\nemit({'never': 1})", "sticky", "CUDA error"),
    ],
)
def test_every_bad_end_has_its_name(run: Run, body: str, ending: str, says: str) -> None:
    # The private channel is the descriptor that the emitting method writes to.
    answer = run(ONE + body.replace("PRIVATE", "emit.__self__.descriptor"))
    assert answer.ending == ending
    assert says in answer.detail
    assert answer.records[0] == {"seen": 1}, "what came before is kept"
    assert {"never": 1} not in answer.records


def test_a_task_that_hangs_is_ended_at_its_limit(run: Run) -> None:
    answer = run(ONE + "import time; time.sleep(600)", seconds=1)
    assert (answer.ending, answer.detail) == ("timeout", "not done in 1 s, after 1 observations")


@linux
@pytest.mark.parametrize(
    ("elapsed", "used", "queue", "late"),
    [
        (9.0, 40.0, 0.0, False),  # several processes at once
        (11.0, 10.5, 0.0, True),
        (30.0, 4.0, 0.0, False),  # others use the machine as well
        (30.0, 1.0, 0.0, True),  # it hangs
        (30.0, 1.0, 28.0, False),  # others use nearly all of the machine
        (30.0, 0.0, 0.0, True),  # or the system does not tell
        (101.0, 9.0, 90.0, True),
    ],
)
def test_the_time_of_a_task_is_what_it_computes(
    monkeypatch: pytest.MonkeyPatch, elapsed: float, used: float, queue: float, late: bool
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    conversation = Conversation([60.0, 10.0], lambda task, records: None)
    usage: Any = SimpleNamespace(seconds=7.0, queue=50.0)
    assert not conversation.is_late(usage)
    conversation.take(b'{"kind": "end", "ending": "ok"}')
    now[0] += elapsed
    usage = SimpleNamespace(seconds=7.0 + used, queue=50.0 + queue)
    assert conversation.is_late(usage) is late


def test_of_several_tasks_the_one_that_ends_the_child_is_known_and_those_behind_it_were_not_reached(
    place: Place,
) -> None:
    (place.payload / "script.py").write_text("def run(job, emit):\n    emit(job)\n    exec(job['does'])\n")
    does = ["pass", "import os; os.abort()", "pass"]
    answers = run_in_target([Task("script.py", {"does": text}) for text in does], place)
    told = [(answer.ending, answer.died, len(answer.records)) for answer in answers]
    assert told == [("ok", False, 1), ("crash", True, 1), ("unreached", False, 0)]


def test_an_interpreter_that_is_not_there_is_the_end_of_every_task(place: Place, tmp_path: Path) -> None:
    answers = run_in_target([Task("a.py"), Task("b.py")], place._replace(python=str(tmp_path / "none")))
    why = f"it cannot be started: {os.strerror(errno.ENOENT)}"
    assert [(answer.ending, answer.detail) for answer in answers] == [("failed", why)] * 2


@linux
def test_what_it_started_ends_with_it(run: Run) -> None:
    answer = run("import os, time\npid = os.fork()\nif pid == 0: os.setsid(); time.sleep(600)\nemit({'pid': pid})")
    assert answer.ending == "ok"
    assert gone(answer.records[0]["pid"])


NOISE = "import os\nprint('{\"case\": \"fake\"}')\nos.write(1, b'noise\\n')\nos.system('echo more')\n"
ODD = "emit({'a': float('nan'), 'b': [float('-inf')], 'c': {1: 2.5}, 'd': Ellipsis})"
LONG = "emit({'case': 'big', 'kib': list(range(100000))})"


@pytest.mark.parametrize(
    ("body", "needs", "record"),
    [
        (NOISE + ONE, (), {"seen": 1}),  # what libraries print is no answer
        (ODD, (), {"a": "nan", "b": ["-inf"], "c": {"1": 2.5}, "d": "Ellipsis"}),
        (LONG, (), {"case": "big", "error": "the observation is too long to hand back"}),
        (ONE, ("no_such_library",), {"case": "needs", "skip": "no_such_library is not installed"}),
    ],
)
def test_a_record_is_json_of_a_bounded_length(run: Run, body: str, needs: tuple[str, ...], record: Any) -> None:
    answer = run(body, needs=needs)
    assert (answer.ending, answer.records) == ("ok", (record,))


@pytest.mark.parametrize(
    ("torch", "ending"),
    [
        ("raise ImportError('libcudart')", "torch-broken"),
        ("import sys; sys.exit(1)", "torch-broken"),
        ("__version__ = '1.13.1'", "torch-old"),
        ("__version__ = '2.5.0'\nclass cuda: is_available = staticmethod(lambda: False)", "no-device"),
    ],
)
def test_a_torch_that_cannot_be_used_is_the_end(run: Run, tmp_path: Path, torch: str, ending: str) -> None:
    (tmp_path / "torch.py").write_text(torch)
    where = {"environ": {**os.environ, "PYTHONPATH": str(tmp_path)}, "cwd": "/"}
    answer = run("emit({})", where, job={"device": "cuda"}, needs=("torch",))
    assert (answer.ending, answer.records) == (ending, ())


SEEN = "import os\nemit({'env': dict(os.environ), 'cwd': os.getcwd()})"


def test_children_see_the_callers_variables_and_no_file_of_the_working_directory(
    run: Run, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')\n")
    environ = {**os.environ, "MINE": "kept", "PYTHONPATH": f".{os.pathsep}lib", "WORLD_SIZE": "8", "RANK": "3"}
    answer = run(SEEN, {"environ": environ, "visible": "GPU-1"})
    assert answer.ending == "ok", answer.detail
    (seen,) = answer.records
    expected = {"MINE": "kept", "PYTHONPATH": str(tmp_path / "lib"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    assert {name: seen["env"].get(name) for name in expected} == expected
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == "", "on the CPU no GPU is touched"
    assert "WORLD_SIZE" not in seen["env"]
    assert seen["cwd"] == os.path.realpath(place.scratch)
    assert not list(place.payload.rglob("*.pyc")), "nothing is written beside the scripts"


@pytest.mark.parametrize(("device", "visible", "hip", "cuda"), [("cuda", "0", "3", "0"), ("cpu", None, "", "")])
def test_the_users_choice_of_amd_gpus_stays(run: Run, device: str, visible: str | None, hip: str, cuda: str) -> None:
    environ = {**os.environ, "HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "2"}
    (seen,) = run(SEEN, {"environ": environ, "visible": visible}, job={"device": device}).records
    assert (seen["env"]["HIP_VISIBLE_DEVICES"], seen["env"]["CUDA_VISIBLE_DEVICES"]) == (hip, cuda)


def python38() -> str | None:
    folder = Path.home() / ".pyenv" / "versions"
    found = sorted(folder.glob("3.8.*/bin/python")) if folder.is_dir() else []
    return str(found[-1]) if found else None


@pytest.mark.skipif(python38() is None, reason="no Python 3.8 of pyenv here")
def test_python_38_runs_the_child(place: Place) -> None:
    (place.payload / "script.py").write_text("def run(job, emit): emit({'seen': 1})\n")
    request = {"folder": str(place.payload), "tasks": [{"script": "script.py"}]}
    done = subprocess.run(
        [str(python38()), "-X", "faulthandler", "-B", "-u", str(PAYLOAD / "child.py")],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    begin, seen, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert (begin["kind"], seen, end["kind"], end["ending"]) == ("begin", {"seen": 1}, "end", "ok")


def test_the_payload_uses_nothing_newer_than_python_38() -> None:
    for path in PAYLOAD.rglob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not any(module.startswith("envdoctor") for module in modules), path
