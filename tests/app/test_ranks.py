"""A job's processes send their facts to rank 0: who they are by their launcher's variables, and what rank 0 makes of
what came."""

import base64
import hashlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import sysconfig
import time
import zlib
from pathlib import Path

import pytest
from dists import install
from pinned import installing, pinned
from uv import find_uv_bin

from envdoctor.app import Gathered, JobError, Sources, UsageProblem, all_ranks, launched
from envdoctor.facts import Fact, FactSet
from envdoctor.observe import Target
from envdoctor.system import ChildAnswer

TORCHRUN = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}
TORCHRUN |= {"MASTER_ADDR": "n1", "MASTER_PORT": "1234"}
AGENT = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
SRUN = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "16"}
SRUN |= {"SLURM_STEP_NODELIST": "gpu[03-10,12],login"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (TORCHRUN, (3, 8, "n1", 1234, False, "0", 3)),
        (AGENT, (3, 8, "n1", 1234, True, "2", 3)),
        (SRUN, (1, 16, "gpu03", 29500, False, "0", 0)),
        ({**SRUN, "SLURM_STEP_NODELIST": "r[0-3]n[2,5]"}, (1, 16, "r0n2", 29500, False, "0", 0)),
        ({**SRUN, **MPIRUN, "MASTER_ADDR": "n1"}, (2, 4, "n1", 29500, False, "0", None)),
        ({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (2, 4, "127.0.0.1", 29500, False, "0", None)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, (0, 2, "127.0.0.1", 29500, False, "0", None)),
    ],
)
def test_each_launcher_is_understood(environ, told):
    assert launched(environ) == told


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no launcher started this process"),
        (MPIRUN, "MASTER_ADDR is not set"),
        ({**TORCHRUN, "RANK": "8"}, "RANK=8 is not below WORLD_SIZE=8"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK=-1: a number up to"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, "MASTER_PORT=http: a number up to 65535"),
    ],
)
def test_what_a_launcher_did_not_say_is_wrong_use(environ, said):
    with pytest.raises(UsageProblem, match=said):
        launched(environ)


def packed(data):
    return base64.b64encode(zlib.compress(data)).decode()


def sent(facts):
    return packed(json.dumps({"facts": facts, "complete": ["pkg"]}).encode())


@pytest.fixture
def gather(monkeypatch, matrix):
    """What rank 0 makes of records that its child handed over, or of what the child does where there are none."""

    def do(records, world, kind="venv", python=sys.executable):
        if records is not None:
            answers = [ChildAnswer(tuple(records), "ok")]
            monkeypatch.setattr("envdoctor.app.ranks.run_in_target", lambda *_: answers)
        environ = {"RANK": "0", "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        facts = FactSet([Fact("python.executable", python, "", "")])
        return all_ranks(Sources(environ=environ), matrix, 5)(Gathered(facts, Target(kind, "/image", "")))

    return do


def test_ranks_of_a_machine_with_the_same_facts_are_one_entry(gather):
    records = [
        {"ranks": [[0, "a", "x"], [1, "a", "x"], [2, "b", "x"], [3, "b", "y"]]},
        {"digest": "x", "document": [sent({"pkg.torch": "2.4"})[:5], sent({"pkg.torch": "2.4"})[5:]]},
        {"digest": "y", "document": [sent({"pkg.torch": "2.5"})]},
    ]
    got = gather(records, 4)
    assert got.ranks == {"a (ranks 0-1)": 2, "b (rank 2)": 1, "b (rank 3)": 1}
    assert got.documents["b (rank 3)"]["facts"] == {"pkg.torch": "2.5"} and got.problems == []


@pytest.mark.parametrize(
    "hostile",
    ["", "%%%", base64.b64encode(b"no zlib").decode(), packed(b"[" * 9999), packed(b'"' + b" " * (5 << 20) + b'"')],
)
def test_what_does_not_come_or_cannot_be_read_is_said(gather, hostile):
    records = [{"ranks": [[0, "a", "x"], [2, "b", "y"], [3, "b", "z"]]}, {"missing": [1]}]
    records += [{"digest": "x", "document": [sent({})]}, {"digest": "y", "document": [hostile]}]
    got = gather(records, 4)
    assert list(got.documents) == ["a (rank 0)"]
    assert got.problems == [
        "of 4 ranks these sent no facts in 5 s: 1",
        "the facts of the ranks 2-3 are too many or too long to be compared",
    ]


@pytest.fixture
def send(monkeypatch):
    """The script that every rank runs, on a store of this process; what rank 0 hands over."""
    distributed = pytest.importorskip("torch.distributed")
    from envdoctor.payload import ranks as script

    store = distributed.HashStore()
    monkeypatch.setattr(distributed, "TCPStore", lambda *_, **__: store)

    def do(documents, world):
        job = {"address": "", "port": 0, "served": False, "attempt": "0", "seconds": 0.3, "world": world}
        records: list = []
        for number, text in sorted(documents.items(), reverse=True):
            digest = hashlib.sha256(text.encode()).hexdigest()
            script.run({**job, "rank": number, "digest": digest, "document": text}, records.append)
        return records

    return do


@pytest.mark.torch
def test_every_rank_sends_and_one_that_does_not_come_is_named_after_the_wait(send, gather):
    same = sent({"pkg.torch": "2.4"})
    got = gather(send({0: same, 1: same, 3: sent({"pkg.torch": "2.5"}), 5: "x" * 70_000}, 6), 6)
    host = socket.gethostname()
    assert {name: got.documents[name]["facts"]["pkg.torch"] for name in got.ranks} == {
        f"{host} (ranks 0-1)": "2.4",
        f"{host} (rank 3)": "2.5",
    }
    assert got.problems == [
        "of 6 ranks these sent no facts in 5 s: 2, 4",
        "the facts of the ranks 5 are too many or too long to be compared",
    ]


@pytest.mark.torch
def test_a_wait_of_less_than_a_millisecond_is_none_without_end():
    distributed = pytest.importorskip("torch.distributed")
    from envdoctor.payload import ranks as script

    for left in (0.0009, 0.0001, 0.0, -1.0):
        assert script.waited(distributed.HashStore(), "rank/1", time.monotonic() + left) is None


@pytest.mark.torch
def test_what_rank_0_receives_is_bounded_by_the_number_of_ranks(send):
    noise = [random.Random(number).randbytes(15_000).hex() for number in range(400)]
    handed = [json.dumps(record) for record in send(dict(enumerate(noise * 5)), 2000)]
    assert max(map(len, handed)) < 60_000
    documents = [record for record in map(json.loads, handed) if record.get("document")]
    assert len({record["digest"] for record in documents}) == 256
    assert sum(map(len, handed)) - sum(len(json.dumps(record)) for record in documents) < 2000 * 180


def test_a_target_that_cannot_take_part_is_said(gather):
    with pytest.raises(JobError, match=r"rank 0 of 3 did not reach 127\.0\.0\.1:29500: it cannot be started"):
        gather(None, 3, python="/nowhere/python")
    with pytest.raises(UsageProblem, match="--all-ranks asks the interpreter"):
        gather(None, 3, kind="root")


@pytest.fixture
def nccl_by_number(tmp_path: Path) -> Path:
    """Folders 0 and 1 for PYTHONPATH, with one release of NCCL each."""
    for number, version in enumerate(("2.27.5", "2.27.3")):
        install(tmp_path / str(number), "nvidia-nccl-cu12", version)
    return tmp_path


@pytest.mark.slow
def test_torchrun_names_the_rank_whose_nccl_differs(nccl_by_number: Path, torch_python: str, cache: Path) -> None:
    script = 'cd "$0/$LOCAL_RANK"; PYTHONPATH=. "$1" -m envdoctor check --python "$2" --all-ranks --no-config; '
    script += "echo $? > code; exit $(cat code)"
    launcher = [torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*launcher, "sh", "-c", script, str(nccl_by_number), sys.executable, torch_python],
        cwd=nccl_by_number,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    host = socket.gethostname()
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("error[nodes-differ-in-nccl]") == 1
    assert f"(2.27.3: {host} (rank 1); 2.27.5: {host} (rank 0))" in " ".join(done.stdout.split())
    codes = {path.parent.name: path.read_text() for path in nccl_by_number.glob("*/code")}
    assert codes in ({"0": "1\n"}, {"0": "1\n", "1": "0\n"})  # the launcher may end the other before it has written


RAY = """
import os, subprocess, sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "include_dashboard": False}
first, second = ({"PYTHONPATH": os.path.join(sys.argv[1], name)} for name in "01")
cluster = Cluster(initialize_head=True, head_node_args={**node, "env_vars": first})
cluster.add_node(num_cpus=1, env_vars=second)
command = [sys.executable, sys.argv[2], sys.argv[1], "--no-config", "--format", "json"]
done = subprocess.run(command, env={**os.environ, "RAY_ADDRESS": cluster.address})
cluster.shutdown()
sys.exit(done.returncode)
"""


@pytest.fixture
def ray_python(tmp_path: Path) -> Path:
    """An interpreter with ray from the package index, and behind it everything that the tests' own has."""
    folder = tmp_path / "with-ray"
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    python = folder / "bin" / "python"
    # Compiled at once: else Ray's processes do it when they start, for which Ray gives them 30 seconds.
    install = installing(python, "--compile-bytecode", *pinned(tmp_path, "ray"))
    subprocess.run([*install, "ray"], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a cluster of several nodes on one machine needs Linux or macOS")
def test_a_ray_cluster_names_the_node_whose_nccl_differs(nccl_by_number: Path, ray_python: Path, cache: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    example = Path(__file__).resolve().parents[2] / "examples/ray_nodes.py"
    command = [ray_python, "-c", RAY, str(nccl_by_number), str(example)]
    for _ in range(3):  # on a busy machine a node may take longer than the 30 seconds that Ray gives it
        done = subprocess.run(command, cwd=nccl_by_number, env=environ, capture_output=True, timeout=300, check=False)
        if done.stdout:
            break
    assert done.returncode == 1 and done.stdout, done.stderr
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "nodes-differ-in-nccl"]
    host = socket.gethostname()
    assert re.search(rf"\(2.27.3: {host}-\w{{6}}; 2.27.5: {host}-\w{{6}}\)", found["message"])
