"""However a child ends, what it saw is kept, its end has a name that is never a pass, and nobody is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import payload, write_probe

from envdoctor.probe.catalogue import PAYLOAD, find_probes
from envdoctor.probe.child_environment import child_environment
from envdoctor.probe.running import Outcome, Place, run_jobs

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
OK = 'emit({"case": "a", "judge": "exact", "equal": True})\n'


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Outcome]]:
    """Run the quick suite of stand-ins with these bodies."""

    def start(workers: int = 1, declared: dict[str, object] | None = None, **bodies: str) -> list[Outcome]:
        home = payload(tmp_path)
        for name, body in bodies.items():
            write_probe(home, name, body, **(declared or {}))
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        place = Place(sys.executable, os.environ, str(tmp_path), str(scratch), None, home)
        probes = find_probes(home)
        jobs = [job for name, probe in probes.items() if name != "context" for job in probe.jobs("quick", "cpu")]
        return run_jobs(jobs, place, workers=workers)

    return start


def test_observations_carry_the_job(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one=OK)
    assert outcome.ending == "ok"
    assert outcome.observations == (
        {"probe": "one", "device": "cpu", "dtype": "bf16", "backend": "default"}
        | {"case": "a", "judge": "exact", "equal": True},
    )


@pytest.mark.parametrize(
    ("body", "ending", "says"),
    [
        ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV after 1 observations, in string_at"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "SIGKILL"),
        ("import os; os.abort()", "crash", "SIGABRT"),
        ("raise MemoryError('no more')", "oom", "MemoryError: no more"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "oom", "out of memory"),
        ("raise ValueError('odd')", "failed", "ValueError: odd (one.py:"),
        ("import os; os._exit(0)", "lost", "without saying that it was done"),
        ("import os; os._exit(7)", "failed", "exit code 7"),
        ("import sys; sys.exit(3)", "failed", "exit code 3"),
        ("import os; os.write(PRIVATE, b'not json\\n')", "garbage", "not json"),
        ("import os; os.write(PRIVATE, b'[1, 2]\\n')", "garbage", "[1, 2]"),
        ("import os; os.write(PRIVATE, b'{\"half\": '); os._exit(0)", "lost", "in the middle of a line"),
        ("import os\nwhile True: os.write(PRIVATE, b'x' * 65536)", "output-limit", "more output"),
        ("import os\nwhile True: os.write(PRIVATE, b'x\\n' * 999)", "garbage", "lines that are no observation"),
    ],
)
def test_every_bad_end_has_its_name(run: Callable[..., list[Outcome]], body: str, ending: str, says: str) -> None:
    # The private channel is the descriptor that the emitting method writes to.
    (outcome,) = run(one=OK + body.replace("PRIVATE", "emit.__self__.descriptor"))
    assert outcome.ending == ending
    assert says in outcome.detail
    assert len(outcome.observations) == 1, "what came before is kept"


def test_a_child_that_hangs_is_ended_at_its_limit(run: Callable[..., list[Outcome]]) -> None:
    started = time.monotonic()
    (outcome,) = run(declared={"seconds": {"cpu": 1}}, one=OK + "import time; time.sleep(600)")
    assert outcome.ending == "timeout"
    assert outcome.detail == "not done in 1 s, after 1 observations"
    assert time.monotonic() - started < 15


@linux
def test_more_memory_than_allowed_ends_the_child(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one=OK + "import time\nx = bytearray(500 << 20)\nx[::4096] = x[1::4096]\ntime.sleep(60)")
    assert outcome.ending == "oom"
    assert "more than 300 MiB" in outcome.detail


def test_what_libraries_print_is_no_answer(run: Callable[..., list[Outcome]]) -> None:
    noise = "import os\nprint('{\"case\": \"fake\"}')\nos.write(1, b'noise\\n')\nos.system('echo more')\n"
    (outcome,) = run(one=noise + OK)
    assert (outcome.ending, len(outcome.observations)) == ("ok", 1)


def test_a_gigabyte_of_prints_is_survived_or_named(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one=OK + "for _ in range(1 << 14): print('x' * 65535)")
    assert outcome.ending == "output-limit"


@linux
def test_a_grandchild_that_holds_the_pipes_is_ended(run: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    body = (
        "import os, time\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.setsid(); time.sleep(600)\n"
        "emit({'kind': 'info', 'pid': pid})\n"
    )
    started = time.monotonic()
    (outcome,) = run(one=body)
    assert outcome.ending == "ok"
    assert time.monotonic() - started < 15
    pid = outcome.observations[0]["pid"]
    assert gone(pid)


def test_numbers_that_json_lacks_come_as_words(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one="emit({'a': float('nan'), 'b': [float('-inf')], 'c': {1: 2.5}, 'd': object})")
    seen = outcome.observations[0]
    assert (seen["a"], seen["b"], seen["c"]) == ("nan", ["-inf"], {"1": 2.5})


def test_an_observation_that_is_too_long_says_so(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one="emit({'case': 'big', 'kib': list(range(100000))})")
    assert outcome.ending == "ok"
    assert "too long" in outcome.observations[0]["error"]


def test_a_sticky_error_ends_the_process_and_is_named(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(one=OK + "emit({'case': 'b', 'error': 'CUDA error', 'sticky': True})\nemit({'case': 'never'})")
    assert (outcome.ending, outcome.detail, len(outcome.observations)) == ("sticky", "CUDA error", 2)


def test_of_those_that_share_a_process_only_the_one_to_blame_is_named(run: Callable[..., list[Outcome]]) -> None:
    outcomes = run(a=OK, b=OK + "import os; os.kill(os.getpid(), 11)", c=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "crash", "ok"]
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1, 1]


def test_one_that_hangs_costs_the_others_its_own_time_alone(run: Callable[..., list[Outcome]]) -> None:
    started = time.monotonic()
    outcomes = run(declared={"seconds": {"cpu": 1}}, a=OK, b="import time; time.sleep(600)", c=OK, d=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "timeout", "ok", "ok"]
    assert time.monotonic() - started < 30


ONCE = "import os\nif not os.path.exists('mark'):\n    open('mark', 'w').close(); "


@pytest.mark.parametrize(
    ("how", "earlier"),
    [("os.abort()", "crash"), ("import time; time.sleep(600)", "timeout"), ("os._exit(7)", "failed")],
)
def test_how_one_ended_beside_others_is_kept_though_it_is_done_alone(
    run: Callable[..., list[Outcome]], how: str, earlier: str
) -> None:
    outcomes = run(declared={"seconds": {"cpu": 2}}, a=OK, b=OK + ONCE + how, c=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "ok", "ok"]
    assert [outcome.earlier for outcome in outcomes] == ["", earlier, ""]
    assert "after 1 observations" in outcomes[1].earlier_detail
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1, 1], "nothing is told twice"


def test_a_limit_that_jobs_share_blames_nobody_who_is_done_alone(run: Callable[..., list[Outcome]]) -> None:
    flood = "import sys\nfor _ in range(100): sys.stderr.write('x' * (1 << 20))\n"
    outcomes = run(a=OK, b=OK + ONCE.replace("close(); ", "close()\n    ") + flood.replace("\n", "\n    ").rstrip(" "))
    assert [(outcome.ending, outcome.earlier) for outcome in outcomes] == [("ok", ""), ("ok", "")]


def test_what_a_later_one_writes_takes_nothing_from_one_that_is_done(run: Callable[..., list[Outcome]]) -> None:
    outcomes = run(a=OK, b=OK + "for _ in range(1 << 14): print('x' * 65535)")
    assert [outcome.ending for outcome in outcomes] == ["ok", "output-limit"]
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1]


@pytest.mark.parametrize(
    ("torch", "ending"),
    [
        ("raise ImportError('libcudart')", "torch-broken"),
        ("__version__ = '1.13.1'", "torch-old"),
        ("import time; time.sleep(600)", "timeout"),
        ("import os; os.abort()", "crash"),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_torch_that_cannot_be_imported_is_tried_once(
    tmp_path: Path, torch: str, ending: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envdoctor.probe.catalogue._IMPORT_SECONDS", 0.0)
    (tmp_path / "lib").mkdir()
    log = tmp_path / "imports"
    (tmp_path / "lib" / "torch.py").write_text(f"open({str(log)!r}, 'a').write('x')\n{torch}\n")
    home = payload(tmp_path)
    for name in "abc":
        write_probe(home, name, OK, needs=["torch"], alone=alone, seconds={"cpu": 2})
    place = Place(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}, str(tmp_path), str(tmp_path))
    place = place._replace(payload=home)
    outcomes = run_jobs([find_probes(home)[name].jobs("quick", "cpu")[0] for name in "abc"], place)
    assert [outcome.ending for outcome in outcomes] == [ending] * 3
    assert len({outcome.detail for outcome in outcomes}) == 1
    assert log.read_text() == "x"


def test_another_library_that_ends_the_process_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "odd_kernels.py").write_text("import os; os.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    home = payload(tmp_path / "here", b=OK)
    write_probe(home, "a", OK, needs=["odd_kernels"])
    place = Place(sys.executable, os.environ, str(tmp_path), str(tmp_path), None, home)
    outcomes = run_jobs([find_probes(home)[name].jobs("quick", "cpu")[0] for name in "ab"], place)
    assert [outcome.ending for outcome in outcomes] == ["crash", "ok"]


def test_jobs_share_a_process_unless_they_stand_alone(run: Callable[..., list[Outcome]]) -> None:
    pid = "import os; emit({'kind': 'info', 'pid': os.getpid()})"
    first, second = run(a=pid, b=pid)
    assert first.observations[0]["pid"] == second.observations[0]["pid"]


def test_jobs_that_stand_alone_do_not_share(run: Callable[..., list[Outcome]]) -> None:
    pid = "import os; emit({'kind': 'info', 'pid': os.getpid()})"
    first, second = run(workers=2, declared={"alone": True}, a=pid, b=pid)
    assert first.observations[0]["pid"] != second.observations[0]["pid"]


def test_a_library_that_is_not_there_is_a_skip(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(declared={"needs": ["no_such_library"]}, one=OK)
    assert outcome.ending == "ok"
    assert outcome.observations[0]["skip"] == "no_such_library is not installed"


def test_children_see_the_callers_variables_and_no_file_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')\n")
    home = payload(tmp_path, one="import os; emit({'kind': 'info', 'env': dict(os.environ), 'cwd': os.getcwd()})")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environ = {**os.environ, "MINE": "kept", "PYTHONPATH": f".{os.pathsep}lib", "WORLD_SIZE": "8", "RANK": "3"}
    place = Place(sys.executable, environ, str(tmp_path), str(scratch), "GPU-1", home)
    (outcome,) = run_jobs(find_probes(home)["one"].jobs("quick", "cpu"), place)
    assert outcome.ending == "ok", outcome.detail
    seen = outcome.observations[0]
    assert seen["env"]["MINE"] == "kept"
    assert seen["env"]["PYTHONPATH"] == str(tmp_path / "lib")
    assert seen["env"]["OMP_NUM_THREADS"] == "1"
    assert seen["env"]["HF_HUB_OFFLINE"] == "1"
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == "", "on the CPU no GPU is touched"
    assert "WORLD_SIZE" not in seen["env"]
    assert seen["cwd"] == os.path.realpath(scratch)


def test_the_users_choice_of_amd_gpus_stays(tmp_path: Path) -> None:
    environ = {"HIP_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "2"}
    where = {"cwd": str(tmp_path), "scratch": str(tmp_path)}
    seen = child_environment(environ, **where, device="cuda", visible="0")
    assert (seen["HIP_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("3", "0")
    seen = child_environment(environ, **where, device="cpu", visible=None)
    assert (seen["HIP_VISIBLE_DEVICES"], seen["CUDA_VISIBLE_DEVICES"]) == ("", "")


@linux
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_terminal_that_closes_leaves_no_file(tmp_path: Path, name: str) -> None:
    import signal

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text("import time; time.sleep(600)")
    (tmp_path / "t").mkdir()
    command = [sys.executable, "-m", "envdoctor", "probe", "--python", sys.executable, "--device", "cpu", "--no-config"]
    env = {**os.environ, "TMPDIR": str(tmp_path / "t"), "PYTHONPATH": str(tmp_path / "lib")}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + 30
        while not list((tmp_path / "t").glob("envdoctor-probe-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list((tmp_path / "t").glob("envdoctor-probe-*"))
        process.send_signal(getattr(signal, name))
        process.wait(30)
    finally:
        process.kill()
        process.communicate()
    assert not list((tmp_path / "t").glob("envdoctor-probe-*"))


@linux
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_the_children_end_with_the_one_that_started_them(tmp_path: Path, name: str) -> None:
    import signal

    home = payload(tmp_path, one="import os, time; emit({'kind': 'info', 'pid': os.getpid()}); time.sleep(600)")
    code = (
        "import os, sys; from pathlib import Path\n"
        "from envdoctor.app.facts import Sources; from envdoctor.app.probe import Request, probe\n"
        f"home = Path({str(home)!r})\n"
        "sources = Sources(python=sys.executable, cwd=home)\n"
        "def tell(text): 'one bf16 default: 1' in text and print(text, flush=True)\n"
        "probe(Request(payload=home, device='cpu', sources=sources), progress=tell)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    try:
        assert process.stdout is not None
        assert b"one bf16" in process.stdout.readline()
        children = [
            int(child)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        assert children
        process.send_signal(getattr(signal, name))
        process.wait(30)
    finally:
        process.kill()
        process.communicate()
    assert all(map(gone, children))


def gone(pid: int) -> bool:
    """Ended within five seconds, or only waiting to be collected."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
    return False


def python38() -> str | None:
    folder = Path.home() / ".pyenv" / "versions"
    found = sorted(folder.glob("3.8.*/bin/python")) if folder.is_dir() else []
    return str(found[-1]) if found else None


@pytest.mark.skipif(python38() is None, reason="no Python 3.8 of pyenv here")
def test_python_38_runs_the_child(tmp_path: Path) -> None:
    home = payload(tmp_path, one=OK)
    done = subprocess.run(
        [str(python38()), "-X", "faulthandler", "-B", "-u", str(home / "probe_child.py")],
        input=json.dumps({"probe": "one", "dtype": "bf16"}),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in lines if "kind" in line] == ["begin", "end"]
    assert lines[-1]["ending"] == "ok"


def test_the_payload_uses_nothing_newer_than_python_38() -> None:
    import ast

    for path in [PAYLOAD / "probe_child.py", *PAYLOAD.glob("probes/*.py"), *PAYLOAD.glob("probing/*.py")]:
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        assert not any(isinstance(node, ast.ImportFrom) and node.module == "envdoctor" for node in ast.walk(tree)), path


def test_no_orphan_and_no_file_is_left(run: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    run(one=OK + "import tempfile; emit({'kind': 'info', 'dir': tempfile.gettempdir()})")
    assert Path(tmp_path / "scratch").is_dir()
    assert not list((tmp_path / "payload").rglob("*.pyc")), "-B: nothing is written beside the scripts"
