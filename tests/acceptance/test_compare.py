"""Machines of one job, by the facts files that each of them wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from envdoctor.facts import Unknown
from envdoctor.observe import drift_between
from envdoctor.system import sentence

SAME: dict[str, Any] = {
    "pkg.torch": "2.5.0+cu118",
    "pkg.nvidia-nccl-cu12": "2.27.5",
    "python.version": "3.11.9",
    "driver.version": "550.54.15",
    "model.revision": "8599336",
    "os.platform": "linux",
    "gpu": [{"name": "A100", "cc": "8.0", "memory_gib": 79.1, "uuid": "GPU-1", "index": 0}],
}


def document(**changed: Any) -> dict[str, Any]:
    given = {key.replace("__", "."): value for key, value in changed.items()}
    facts = {key: value for key, value in {**SAME, **given}.items() if value is not ...}
    return {"schema": "envdoctor.facts/1", "facts": facts, "complete": ["pkg"]}


def drift(matrix: Any, *documents: dict[str, Any]) -> Any:
    return drift_between({f"node{number}": one for number, one in enumerate(documents)}, matrix.registry)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pkg__torch": "2.4.1"}, "2.5.0+cu118: 2 nodes; 2.4.1: node2"),
        ({"pkg__rich": "14.0"}, "absent: 2 nodes; 14.0: node2"),
        ({"gpu": [{"name": "H100", "memory_gib": 80}]}, "1 x A100 79.1 GiB: 2 nodes; 1 x H100 80 GiB: node2"),
        ({"gpu": []}, "1 x A100 79.1 GiB: 2 nodes; none: node2"),
        ({"gpu": [{**SAME["gpu"][0], "uuid": "GPU-2"}]}, None),
        ({"environment__path": "/somewhere/else"}, None),
        ({}, None),
    ],
)
def test_what_differs_is_told_with_its_nodes(matrix: Any, changed: dict[str, Any], told: str | None) -> None:
    _, records = drift(matrix, document(), document(), document(**changed))
    assert [item["values"] for item in records] == ([told] if told else [])


def test_what_differs_is_told_from_the_driver_up(matrix: Any) -> None:
    names = ["driver.version", "cuda.toolkit", "torch.cuda", "pkg.torch", "pkg.flash-attn", "pkg.transformers"]
    names += ["pkg.peft", "pkg.trl", "pkg.nvidia-nccl-cu12", "python.version", "pkg.absl-py", "pkg.zipp"]
    one, other = ({name.replace(".", "__"): version for name in reversed(names)} for version in ("1.0", "2.0"))
    _, records = drift(matrix, document(**one), document(**other))
    assert [item["key"] for item in records] == names


def test_what_is_not_known_everywhere_makes_the_list_incomplete(matrix: Any) -> None:
    shared, records = drift(matrix, document(), document(driver__version=...), document(python__version="3.12.1"))
    assert [item["key"] for item in records] == ["python.version"]
    assert records.incomplete == "not every fact is known on node1"
    values = {fact.key: fact.value for fact in shared}
    assert "driver.version" not in values and values["os.platform"] == "linux"
    assert isinstance(values["python.version"], Unknown)


def test_many_values_and_ranks_are_counted_and_said_in_chinese(matrix: Any) -> None:
    documents = {f"n{number}": document(pkg__torch=f"2.{number // 2}") for number in range(9)}
    ranks = dict.fromkeys(documents, 8)
    _, records = drift_between(documents, matrix.registry, ranks)
    assert records.items[0]["values"] == "2.0: 16 ranks; 2.1: n2, n3; 2.2: n4, n5; 2 other values: 24 ranks"
    chinese = "2.0：16 个 rank；2.1：n2，n3；2.2：n4，n5；另外 2 个值：24 个 rank"
    assert sentence("zh", records.items[0]["values"]) == chinese


@pytest.mark.parametrize(("old", "new", "agrees"), [("3.11.9", "3.11.8", 2), ("3.11.9", "3.12.9", 1), ("3.11", "2", 0)])
def test_how_far_versions_agree(matrix: Any, old: str, new: str, agrees: int) -> None:
    _, records = drift(matrix, document(python__version=old), document(python__version=new))
    assert records.items[0]["agrees"] == agrees


@pytest.fixture
def nodes(tmp_path: Path) -> Any:
    def write(**documents: Any) -> list[str]:
        for name, text in documents.items():
            content = text if isinstance(text, str) else json.dumps(text)
            (tmp_path / f"{name}.json").write_text(content, encoding="utf-8")
        return [f"{name}.json" for name in documents]

    return write


def test_drift_that_breaks_a_job_fails_and_names_the_node(run: Any, nodes: Any) -> None:
    files = nodes(a=document(), b=document(), c=document(**{"pkg__nvidia-nccl-cu12": "2.27.3", "pkg__torch": "2.4.1"}))
    done = run("compare", *files, "--no-config")
    assert done.code == 1
    assert "error[nodes-differ-in-nccl]" in done.out and "(2.27.5: 2 nodes; 2.27.3: c)" in done.out
    assert "torch not known (it differs between the machines)" in done.out
    chinese = run("compare", *files, "--no-config", "--lang", "zh").out
    assert "各机器的 pkg.nvidia-nccl-cu12 不同（2.27.5：2 个节点；2.27.3：c）" in chinese
    assert "more" not in chinese and "（absent" not in chinese


def test_other_drift_is_a_note_and_none_is_none(run: Any, nodes: Any) -> None:
    files = nodes(a=document(), b=document(python__version="3.11.8"), c=document())
    done = run("compare", *files, "--no-config", "--format", "json")
    assert done.code == 0 and [one["id"] for one in done.json["findings"]] == ["nodes-differ"]
    same = run("compare", files[0], files[2], "--no-config", "--format", "concise")
    assert same.code == 0 and same.out.startswith("No findings. 6 rules checked")


def test_a_file_that_cannot_be_read_ends_the_run_and_is_named(run: Any, nodes: Any) -> None:
    files = nodes(a=document(), b=document(pkg__torch="2.4.1"), c="[" * 50_000)
    done = run("compare", *files, "--no-config")
    assert done.code == 2 and "c.json: nested too deeply" in done.err
    few = run("compare", "a.json", "nowhere.json", "--no-config")
    assert few.code == 2 and "nowhere.json: cannot be read" in few.err
    assert run("compare", "a.json", "--no-config").code == 2
    odd = run("compare", "a.json", "b.json", *nodes(d={**document(), "facts": {"no.fact": 1}}), "--no-config")
    assert odd.code == 2 and "d.json: 'no.fact' is not a known fact" in odd.err


def test_different_gpus_in_one_job_are_a_warning_with_what_can_be_done(run: Any, nodes: Any) -> None:
    def with_gpu(name: str, **more: Any) -> dict[str, Any]:
        one = document()
        return {**one, "facts": {**one["facts"], "gpu": [{"name": name, **more}] * 8}}

    done = run("compare", *nodes(a=with_gpu("A100-80GB", memory_gib=80), b=with_gpu("H100")), "--no-config")
    assert done.code == 0 and "warning[nodes-differ-in-gpu]" in done.out
    assert "(8 x A100-80GB 80 GiB: a; 8 x H100: b)" in done.out
    assert "install the same environment" not in done.out


def test_gpus_that_are_given_as_plain_lists_are_compared(run: Any, nodes: Any) -> None:
    h100, others = (document(gpu=..., gpu__name=["H100", name]) for name in ("H100", "A100"))
    assert "2 x H100" in run("compare", *nodes(a=h100, b=h100), "--no-config").out
    done = run("compare", *nodes(a=h100, b=others), "--no-config")
    assert "warning[nodes-differ-in-gpu]" in done.out and "(1 x A100, 1 x H100: b; 2 x H100: a)" in done.out


def test_of_two_machines_the_errors_are_named_that_only_one_has(run: Any, tmp_path: Path) -> None:
    for name, numpy in (("yesterday", "1.26.4"), ("today", "2.0.0")):
        (tmp_path / f"{name}.json").write_text(json.dumps(document(pkg__torch="2.2.2", pkg__numpy=numpy)))
    result = run("compare", "yesterday.json", "today.json")
    assert result.code == 0 and "pkg.numpy differs" in result.out
    assert "warning: today alone has numpy-2-with-torch-built-for-numpy-1: torch 2.2.2 was compiled" in result.out
    assert "yesterday alone" not in result.out
