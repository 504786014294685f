"""The experiments of every rank of a job: who is at fault by all results together, and what rank 0 says of it."""

import base64
import json
import os
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from planted import PROBES

from envdoctor.app import launched
from envdoctor.app.probe import _Met, _read, _with_the_others, _wrong
from envdoctor.experiments import Job, Outcome, Results, results_of, session_of
from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.report import document

RIGHT = {"case": "a", "judge": "exact", "equal": True}
WRONG = {"case": "b", "judge": "exact", "equal": False}


def results(**cases: dict[str, Any]) -> Results:
    """What these experiments, with one case each, gave on a CPU."""
    stamped = {name: {"probe": name, "device": "cpu", **case} for name, case in cases.items()}
    outcomes = [Outcome(Job(name, "cpu", "quick"), (case,), "ok") for name, case in stamped.items()]
    return results_of(session_of(outcomes), PROBES, suite="quick", names=(), using=True)


def rank_0(world: int) -> Any:
    return launched({"RANK": "0", "WORLD_SIZE": str(world), "MASTER_ADDR": "n"})


def packed(document: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


@pytest.fixture
def sent(matrix):
    """The records of rank 0's child, for what each rank (on node0, node1, two each) sends; None: it did not come."""

    def do(*ranks: Results | str | None) -> _Met:
        records: list[dict[str, Any]] = [{"missing": [at for at, one in enumerate(ranks) if one is None]}]
        for at, one in enumerate(ranks):
            wrong = FactSet([Fact("probe", Records(tuple(_wrong(one))), "", "")] if isinstance(one, Results) else [])
            refused = one if isinstance(one, str) else ""
            text = packed({"facts": document(wrong, matrix.registry)["facts"], "complete": [], "refused": refused})
            if one is not None:
                records.append({"ranks": [[at, f"node{at // 2}", text]]})
                records += [{"digest": text, "document": [text]}] if ranks.index(one) == at else []
        return _read(rank_0(len(ranks)), 60, records, matrix)

    return do


def among(own: Results, met: _Met) -> dict[tuple[str, str], Any]:
    """The ranks of each result, by experiment and outcome; the report's groups must say the same."""
    merged = _with_the_others(own, met)
    (fact,) = [fact for fact in merged.facts if fact.key == "probe"]
    found = {(item["name"], item["signature"]): item["ranks"] for item in fact.value.items}
    groups = {(group.name, group.signature): group.ranks or ABSENT for group in merged.section["groups"]}
    assert groups == {key: where for key, where in found.items() if key[1] != "ok"}
    return found


def test_what_failed_on_some_ranks_names_them_and_what_failed_on_all_does_not(sent) -> None:
    everywhere = results(tf32=WRONG, lora=RIGHT)
    met = sent(everywhere, everywhere, results(tf32=WRONG, lora=WRONG), everywhere)
    assert among(everywhere, met) == {
        ("tf32", "differs"): ABSENT,
        ("lora", "ok"): ABSENT,
        ("lora", "differs"): "node1 (rank 2)",
    }
    assert met.problems == [] and met.notes == ["4 of 4 ranks ran the experiments, on 2 machine(s)"]


def test_a_fault_of_rank_0_alone_names_it(sent) -> None:
    own = results(tf32=WRONG)
    assert among(own, sent(own, results(tf32=RIGHT))) == {("tf32", "differs"): "node0 (rank 0)"}


def test_who_refuses_and_who_does_not_come_is_said(sent) -> None:
    right = results(tf32=RIGHT)
    met = sent(right, "GPU 1 is in use", None, "GPU 1 is in use")
    assert _with_the_others(right, met).unmeasured == [
        "of 4 ranks these did not come in 60 s: 2",
        "nothing ran on node0 (rank 1), node1 (rank 3): GPU 1 is in use",
    ]


@pytest.mark.parametrize("hostile", [{}, {"refused": 3}, {"refused": "", "facts": {"probe": 3}, "complete": []}])
def test_a_document_that_is_none_of_ours_is_said(matrix, hostile) -> None:
    records = [{"ranks": [[1, "n", "x"]]}, {"digest": "x", "document": [packed(hostile)]}]
    met = _read(rank_0(2), 60, records, matrix)
    assert met.problems == ["the results of the ranks 1 are too many or cannot be read"]


@pytest.fixture
def script():
    pytest.importorskip("torch")
    from envdoctor.payload.probes import ranks

    return ranks


def rank(script, number: int, digest: str = "a", error: float = 0.3, **own: Any) -> Any:
    mine = {"device": "cuda", "nccl": True, "name": "H100", "alike": "H100, torch 2.13.0", **own}
    return script.Rank(number, f"n{number // 8}", {**mine, "results": {"matmul": [digest, error], "norm": ["c", 0.2]}})


@pytest.mark.torch
def test_of_10_000_ranks_the_odd_one_is_named_and_what_is_told_is_bounded(script) -> None:
    ranks = [rank(script, number) for number in range(10_000)]
    (found,) = script.compared(ranks)
    assert found == {"case": "10000 ranks alike", "equal": True}
    ranks[7777] = rank(script, 7777, "b")
    found, named = script.compared(ranks)
    assert found["case"] == "10000 ranks: rank 7777 on n972 (H100): matmul differs from the other H100, torch 2.13.0"
    found, named = script.compared([rank(script, n, str(n % 2), 90.0 if n % 3 else 0.3) for n in range(10_000)])
    assert found["case"].endswith("; and 6663 more") and len(found["case"]) < 300
    assert len(json.dumps(named)) < 60_000  # a line of the child


@pytest.mark.torch
def test_ranks_that_disagree_accuse_nobody(script) -> None:
    (found,) = script.compared([rank(script, 0), rank(script, 1, "b")])
    assert (found["signature"], found["soft"]) == ("cards-disagree", True)


@pytest.mark.torch
def test_the_all_reduce_is_made_by_those_that_came_with_what_all_of_them_have(script) -> None:
    two = [rank(script, 0), rank(script, 2)]
    assert script.planned(two, 3) == {"absent": [1], "backend": "nccl"}
    assert script.planned([two[0], rank(script, 2, device="cpu")], 3)["backend"] == "gloo"
    assert script.planned(two[1:], 3)["backend"] == ""
    assert "above 512" in script.planned([rank(script, n, nccl=False) for n in range(600)], 600)["why"]


@pytest.mark.torch
def test_a_sum_names_who_died_first_whose_share_is_lost_and_who_got_it_wrong(script) -> None:
    labels = {0: "A", 1: "B", 2: "C"}
    right = {"sums": [["sum of 8", 0], ["shares", 0]], "givers": []}
    lost = {"sums": [["sum of 8", 3], ["shares", 4]], "givers": [1]}
    assert script.added(dict.fromkeys(labels, right), labels, "gloo")["difference"] == 0
    assert script.added(dict.fromkeys(labels, lost), labels, "gloo")["case"].endswith("everywhere from B")
    found = script.added({0: right, 1: right, 2: lost}, labels, "gloo")
    assert found["case"].endswith("wrong on C (sum of 8, shares)") and found["difference"] == 4
    died = {0: {"error": "waited", "order": 2}, 1: right, 2: {"error": "ended with -9", "order": 1}}
    assert script.added(died, labels, "nccl")["error"].endswith("(nccl): C ended with -9; A waited")


SICK = """
import sys
if "child.py" in " ".join(sys.orig_argv):
    import torch
    norm = torch.nn.functional.layer_norm
    torch.nn.functional.layer_norm = lambda x, *more: norm(x, *more) * (1.5 if x.dtype == torch.bfloat16 else 1)
"""


@pytest.fixture
def started(tmp_path: Path, torch_python: str, cache: Path):
    """Start ``probe`` by these words of a launcher, or as the rank of two that the variables tell."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def start(*launcher: str, wait: int = 300, **variables: str) -> subprocess.Popen[str]:
        asked = f"-m envdoctor probe --all-ranks --only ranks --wait {wait} --no-config --format json --python"
        two = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables} if variables else {}
        return subprocess.Popen(
            [*launcher, sys.executable, *asked.split(), torch_python],
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "LC_ALL": "C.UTF-8", **two},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def _ended(child: subprocess.Popen[str]) -> tuple[int, Any]:
    out, _ = child.communicate(timeout=500)
    return child.returncode, json.loads(out or "{}")


@pytest.mark.slow
def test_two_healthy_ranks_give_one_report(started, torch_python) -> None:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 --no-python"
    code, report = _ended(started(torch_python, *launcher.split()))
    assert (code, report["findings"]) == (0, [])
    assert "2 of 2 ranks ran the experiments, on 1 machine(s)" in [one["text"] for one in report["notices"]]
    (ran,) = [one for one in report["sections"]["probe"]["probes"] if one["name"] == "ranks"]
    assert ran["counts"] == {"pass": 2}


@pytest.mark.slow
def test_a_rank_that_computes_wrongly_is_named(started, tmp_path) -> None:
    (tmp_path / "sick").mkdir()
    (tmp_path / "sick" / "sitecustomize.py").write_text(SICK)
    sick = started(RANK="1", PYTHONPATH=str(tmp_path / "sick"))
    code, report = _ended(started(RANK="0"))
    assert _ended(sick) == (0, {})
    (found,) = [one for one in report["findings"] if "superseded_by" not in one]
    assert (code, found["id"]) == (1, "probe-one-gpu-differs")
    assert f"rank 1 on {socket.gethostname()} (" in found["message"] and "layer norm 64" in found["message"]


@pytest.mark.slow
def test_a_rank_that_never_comes_is_named(started) -> None:
    code, report = _ended(started(RANK="0", wait=1))
    assert (code, report["findings"]) == (3, [])
    assert "of 2 ranks these did not come in 1 s: 1" in [one["text"] for one in report["notices"]]
