"""Jobs share processes; of those that end badly the one to blame is named, and nobody is left behind."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import payload, write_probe
from processes import gone

from envdoctor.probe import Outcome, find_probes, run_jobs
from envdoctor.sandbox import Place

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
OK = 'emit({"case": "a", "judge": "exact", "equal": True})\n'
PID = "import os; emit({'kind': 'info', 'pid': os.getpid()})"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Outcome]]:
    """Run the quick suite of stand-ins with these bodies."""

    def start(workers: int = 1, declared: dict[str, object] | None = None, **bodies: str) -> list[Outcome]:
        home = payload(tmp_path)
        for name, body in bodies.items():
            write_probe(home, name, body, **(declared or {}))
        (tmp_path / "scratch").mkdir()
        place = Place(sys.executable, os.environ, str(tmp_path), str(tmp_path / "scratch"), None, home)
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


def test_of_those_that_share_a_process_only_the_one_to_blame_is_named(run: Callable[..., list[Outcome]]) -> None:
    outcomes = run(a=OK, b=OK + "import os; os.kill(os.getpid(), 11)", c=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "crash", "ok"]
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1, 1]


def test_one_that_hangs_costs_the_others_nothing_but_its_own_time(run: Callable[..., list[Outcome]]) -> None:
    outcomes = run(declared={"seconds": {"cpu": 1}}, a=OK, b="import time; time.sleep(600)", c=OK, d=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "timeout", "ok", "ok"]


ONCE = "import os\nif not os.path.exists('mark'):\n    open('mark', 'w').close(); "


@pytest.mark.parametrize(
    ("how", "earlier"),
    [("os.abort()", "crash"), ("import time; time.sleep(600)", "timeout"), ("os._exit(7)", "failed")],
)
def test_how_one_ended_beside_others_is_kept_though_it_is_done_alone(
    run: Callable[..., list[Outcome]], how: str, earlier: str
) -> None:
    outcomes = run(declared={"seconds": {"cpu": 1}}, a=OK, b=OK + ONCE + how, c=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "ok", "ok"]
    assert [outcome.earlier for outcome in outcomes] == ["", earlier, ""]
    assert "after 1 observations" in outcomes[1].earlier_detail
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1, 1], "nothing is told twice"


def test_a_limit_that_jobs_share_blames_nobody_who_is_done_alone(run: Callable[..., list[Outcome]]) -> None:
    flood = "import sys\nfor _ in range(300): sys.stderr.write('x' * (1 << 20))\n"
    outcomes = run(a=OK, b=OK + ONCE.replace("close(); ", "close()\n    ") + flood.replace("\n", "\n    ").rstrip(" "))
    assert [(outcome.ending, outcome.earlier) for outcome in outcomes] == [("ok", ""), ("ok", "")]


def test_what_a_later_one_writes_takes_nothing_from_one_that_is_done(run: Callable[..., list[Outcome]]) -> None:
    outcomes = run(a=OK, b=OK + "while True: print('x' * 65535)")
    assert [outcome.ending for outcome in outcomes] == ["ok", "output-limit"]
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1]


@pytest.mark.parametrize(
    ("torch", "ending"),
    [
        ("raise ImportError('libcudart')", "torch-broken"),
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
        write_probe(home, name, OK, needs=["torch"], alone=alone, seconds={"cpu": 1})
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}
    place = Place(sys.executable, environ, str(tmp_path), str(tmp_path), payload=home)
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


def test_an_interpreter_that_is_gone_is_named(tmp_path: Path) -> None:
    home = payload(tmp_path, a=OK, b=OK)
    place = Place(str(tmp_path / "none"), os.environ, str(tmp_path), str(tmp_path), None, home)
    outcomes = run_jobs([find_probes(home)[name].jobs("quick", "cpu")[0] for name in "ab"], place)
    assert {(one.ending, one.detail) for one in outcomes} == {
        ("failed", f"it cannot be started: {os.strerror(errno.ENOENT)}")
    }


@pytest.mark.parametrize("alone", [False, True])
def test_jobs_share_a_process_unless_they_stand_alone(run: Callable[..., list[Outcome]], alone: bool) -> None:
    first, second = run(workers=2, declared={"alone": alone}, a=PID, b=PID)
    assert (first.observations[0]["pid"] == second.observations[0]["pid"]) is not alone


@linux
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_a_run_that_is_ended_leaves_no_child_and_but_for_sigkill_no_file(
    script: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "lib").mkdir()
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "lib" / "torch.py").write_text(
        f"import os, time\nwith open({str(tmp_path / 'pipe')!r}, 'w') as file: print(os.getpid(), file=file)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, str(script), "probe", "--python", sys.executable, "--device", "cpu"]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path / "lib")}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        assert select.select([pipe], [], [], 60)[0], "no child began"
        child = int(os.read(pipe, 100).split()[0])
        assert list(tmp_path.glob("envdoctor-probe-*"))
        process.send_signal(getattr(signal, name))
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(pipe)
    assert gone(child)
    assert bool(list(tmp_path.glob("envdoctor-probe-*"))) == (name == "SIGKILL")
