"""Probes are found by their files, read without being run, and become the jobs of a suite."""

import ast
from pathlib import Path

import pytest
from fakes import payload, write_probe

from envdoctor.experiments import PAYLOAD, CatalogueError, choose, find_probes, has_probe


def test_every_shipped_probe_can_be_read_and_context_comes_first() -> None:
    probes = find_probes()
    assert next(iter(probes)) == "context"
    assert "attention" in probes
    assert "accelerate" in probes["grad-accumulation"].usual.needs, "the Trainer needs it"
    for probe in probes.values():
        assert probe.title
        assert any(probe.suites.values())
        path, _, function = probe.usual.script.partition(":")
        tree = ast.parse((PAYLOAD / path).read_text("utf-8"))
        places = {getattr(node, "name", ""): node for node in tree.body}
        alone = sum(other.usual.script.startswith(f"{path}:") for other in probes.values()) == 1
        words = ast.get_docstring(tree if alone else places[function])
        assert "https://" in (words or ""), f"the docstring cites what {probe.name} exists for"


def test_a_new_probe_is_one_file(tmp_path: Path) -> None:
    home = payload(tmp_path, new_one="raise SystemExit('never imported here')")
    assert list(find_probes(home)) == ["context", "new-one"]
    assert has_probe("new-one", home)
    assert not has_probe("other", home)


def test_one_file_may_declare_several_probes_each_with_its_function(tmp_path: Path) -> None:
    home = payload(tmp_path)
    text = '"Two."\nPROBES = {\n    "one-a": {"title": "a"},\n    "one-b": {"title": "b"},\n}\n'
    (home / "probes" / "two.py").write_text(text)
    probes = find_probes(home)
    assert [probe.usual.script for probe in probes.values()][1:] == ["probes/two.py:one_a", "probes/two.py:one_b"]
    assert [has_probe(name, home) for name in ("one-a", "one-b", "two", "one")] == [True, True, False, False]


def test_a_probe_needs_no_more_than_a_title(tmp_path: Path) -> None:
    home = payload(tmp_path)
    (home / "probes" / "new_one.py").write_text("PROBES = {'new-one': {'title': 'does it?'}}\n")
    probe = find_probes(home)["new-one"]
    (job,) = probe.jobs("full", "cuda")
    assert (job.probe, job.device, job.needs, job.alone) == ("new-one", "cuda", ("torch",), False)
    assert (list(probe.suites), probe.settles) == (["quick", "full"], ("new-one",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "no PROBES"),
        ("PROBES = {", "SyntaxError"),
        ("PROBES = {'one': {'title': 't', 'colour': 1}}", "keyword argument 'colour'"),
        ("PROBES = {'one': {'title': 't', 'suites': {'slow': []}}}", "suites are"),
        ("PROBES = {'one': {}}", "'title'"),
        ("PROBES = dict(one=open('x'))", "ValueError"),
    ],
)
def test_a_file_that_declares_nonsense_is_named(tmp_path: Path, text: str, says: str) -> None:
    home = payload(tmp_path)
    (home / "probes" / "one.py").write_text(text)
    with pytest.raises(CatalogueError, match=r"one\.py") as error:
        find_probes(home)
    assert says in str(error.value)


def test_jobs_of_a_suite_are_those_of_the_device(tmp_path: Path) -> None:
    home = payload(tmp_path)
    suites = {
        "quick": [{"dtype": "bf16", "grid": "small", "options": {"seed": 1}}],
        "full": [{"dtype": "fp16"}, {"dtype": "fp32", "devices": ["cuda"], "seconds": 7}],
    }
    write_probe(home, "one", "pass", suites=suites, seconds={"cpu": 5}, needs=["torch"])
    write_probe(home, "long", "pass", suites={"long": [{"dtype": "bf16"}]})
    probe, long = (find_probes(home)[name] for name in ("one", "long"))
    (quick,) = probe.jobs("quick", "cpu")
    assert (quick.dtype, quick.options, quick.seconds) == ("bf16", {"seed": 1, "grid": "small"}, 35.0)
    assert quick.label == "one bf16 seed=1 small"
    assert [job.dtype for job in probe.jobs("full", "cpu")] == ["fp16"]
    assert [(job.dtype, job.seconds) for job in probe.jobs("full", "cuda")] == [("fp16", 150.0), ("fp32", 37.0)]
    assert [job.dtype for job in probe.jobs("long", "cpu")] == ["fp16"], "the next shorter suite stands in"
    assert (long.jobs("quick", "cpu"), len(long.jobs("quick", "cpu", by_name=True))) == ([], 1)


def test_a_probe_is_found_by_its_name_and_by_what_it_settles(tmp_path: Path) -> None:
    home = payload(tmp_path, one="pass")
    write_probe(home, "two", "pass", settles=["one", "other"])
    probes = find_probes(home)
    assert [probe.name for probe in choose(probes, ["one"])] == ["one", "two"]
    assert [probe.name for probe in choose(probes, ["other", "two"])] == ["two"]
    with pytest.raises(CatalogueError, match="did you mean two"):
        choose(probes, ["twoo"])
