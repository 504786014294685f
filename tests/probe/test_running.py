"""Jobs share processes; of those that end badly the one to blame is named, and nobody is left behind."""

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import payload, write_probe
from processes import gone

from envdoctor.experiments import Outcome, find_probes, run_jobs
from envdoctor.system import Place

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
OK = 'emit({"case": "a", "judge": "exact", "equal": True})\n'
PID = "import os; emit({'kind': 'info', 'pid': os.getpid()})"


Run = Callable[..., list[Outcome]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the quick suite of stand-ins with these bodies, where these modules can be imported."""

    def start(
        declared: dict[str, object] | None = None,
        modules: dict[str, str] | None = None,
        python: str = sys.executable,
        seconds: float | None = None,
        needs: dict[str, list[str]] | None = None,
        workers: int = 1,
        **bodies: str,
    ) -> list[Outcome]:
        home = payload(tmp_path)
        for name, body in bodies.items():
            write_probe(home, name, body, **{"needs": (needs or {}).get(name, []), **(declared or {})})
        for folder in ("scratch", "lib"):
            (tmp_path / folder).mkdir()
        for name, text in (modules or {}).items():
            (tmp_path / "lib" / f"{name}.py").write_text(text)
        environ = {**os.environ, **({"PYTHONPATH": str(tmp_path / "lib")} if modules else {})}
        place = Place(python, environ, str(tmp_path), str(tmp_path / "scratch"), None, home)
        jobs = [
            job for name, probe in find_probes(home).items() if name in bodies for job in probe.jobs("quick", "cpu")
        ]
        return run_jobs([replace(job, seconds=seconds or job.seconds) for job in jobs], place, workers=workers)

    return start


def test_observations_carry_the_job(run: Run) -> None:
    (outcome,) = run(one=OK)
    assert outcome.ending == "ok"
    assert outcome.observations == (
        {"probe": "one", "device": "cpu", "dtype": "bf16", "backend": "default"}
        | {"case": "a", "judge": "exact", "equal": True},
    )


HANGS = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    ("declared", "bodies", "endings", "counts"),
    [
        ({}, {"b": OK + "import os; os.kill(os.getpid(), 11)", "c": OK}, "ok crash ok", [1, 1, 1]),
        # One that hangs costs the others nothing but its own time.
        ({"seconds": {"cpu": 1}}, {"b": HANGS, "c": OK, "d": OK}, "ok timeout ok ok", [1, 0, 1, 1]),
        # What a later one writes takes nothing from one that is done.
        ({}, {"b": OK + "while True: print('x' * 65535)"}, "ok output-limit", [1, 1]),
    ],
)
def test_of_those_that_share_a_process_only_the_one_to_blame_is_named(
    run: Run, declared: dict[str, object], bodies: dict[str, str], endings: str, counts: list[int]
) -> None:
    outcomes = run(declared, a=OK, **bodies)
    assert [outcome.ending for outcome in outcomes] == endings.split()
    assert [len(outcome.observations) for outcome in outcomes] == counts


ONCE = "import os\nif not os.path.exists('mark'):\n    open('mark', 'w').close()\n    "


@pytest.mark.parametrize(("how", "earlier"), [("os.abort()", "crash"), (HANGS, "timeout"), ("os._exit(7)", "failed")])
def test_how_one_ended_beside_others_is_kept_though_it_is_done_alone(run: Run, how: str, earlier: str) -> None:
    outcomes = run({"seconds": {"cpu": 1}}, a=OK, b=OK + ONCE + how, c=OK)
    assert [outcome.ending for outcome in outcomes] == ["ok", "ok", "ok"]
    assert [outcome.earlier for outcome in outcomes] == ["", earlier, ""]
    assert "after 1 observations" in outcomes[1].earlier_detail
    assert [len(outcome.observations) for outcome in outcomes] == [1, 1, 1], "nothing is told twice"


def test_a_limit_that_jobs_share_blames_nobody_who_is_done_alone(run: Run) -> None:
    flood = "import sys\n    for _ in range(300): sys.stderr.write('x' * (1 << 20))"
    outcomes = run(a=OK, b=OK + ONCE + flood)
    assert [(outcome.ending, outcome.earlier) for outcome in outcomes] == [("ok", ""), ("ok", "")]


@pytest.mark.parametrize(
    ("torch", "ending"),
    [("raise ImportError('libcudart')", "torch-broken"), (HANGS, "timeout"), ("import os; os.abort()", "crash")],
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_torch_that_cannot_be_imported_is_tried_once(
    run: Run, tmp_path: Path, torch: str, ending: str, alone: bool
) -> None:
    log = tmp_path / "imports"
    text = f"open({str(log)!r}, 'a').write('x')\n{torch}\n"
    outcomes = run({"needs": ["torch"], "alone": alone}, {"torch": text}, seconds=1.0, a=OK, b=OK, c=OK)
    assert [outcome.ending for outcome in outcomes] == [ending] * 3
    assert len({outcome.detail for outcome in outcomes}) == 1
    assert log.read_text() == "x"


def test_another_library_that_ends_the_process_is_not_torch(run: Run) -> None:
    outcomes = run(modules={"odd_kernels": "import os; os.abort()\n"}, needs={"a": ["odd_kernels"]}, a=OK, b=OK)
    assert [outcome.ending for outcome in outcomes] == ["crash", "ok"]


def test_an_interpreter_that_is_gone_is_named(run: Run, tmp_path: Path) -> None:
    outcomes = run(python=str(tmp_path / "none"), a=OK, b=OK)
    reason = f"it cannot be started: {os.strerror(errno.ENOENT)}"
    assert [(outcome.ending, outcome.detail) for outcome in outcomes] == [("failed", reason)] * 2


@pytest.mark.parametrize("alone", [False, True])
def test_jobs_share_a_process_unless_they_stand_alone(run: Run, alone: bool) -> None:
    first, second = run({"alone": alone}, workers=2, a=PID, b=PID)
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
