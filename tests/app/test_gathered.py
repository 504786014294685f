"""Which interpreter experiments, traces and the processes of a job may run in."""

import pytest

from envdoctor.app import Gathered, collect_facts
from envdoctor.facts import Fact, FactSet
from envdoctor.observe import Target


@pytest.mark.parametrize(
    ("kind", "started"),
    [("venv", True), ("conda", True), *((one, False) for one in ("path", "root", "facts", "report"))],
)
def test_nothing_of_what_is_only_read_is_started(kind, started):
    facts = FactSet()
    facts.add(Fact("python.executable", "/there/bin/python", "", "environment"))
    assert Gathered(facts, Target(kind, "there", "")).interpreter == ("/there/bin/python" if started else None)
    assert Gathered(FactSet(), Target(kind, "there", "")).interpreter is None, "it is not known"


@pytest.mark.parametrize(("typed", "checkpointing"), [([], False), (["pkg.trl=0.23.0"], True)])
def test_what_a_recipe_leaves_open_is_what_the_release_that_was_typed_takes(
    matrix, given, tmp_path, typed, checkpointing
):
    (tmp_path / "sft.yaml").write_text("model_name_or_path: x/y\ndataset_name: a/b\npacking: true\n")
    sources = given({"pkg.trl": "0.19.1"}, recipe=["sft.yaml"], cwd=tmp_path, assignments=typed)
    facts = collect_facts(sources, matrix).facts
    assert facts.value("recipe.gradient_checkpointing") is checkpointing
