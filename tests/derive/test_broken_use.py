"""What the code uses and the installed releases do not have: by installed files, by the ledger, by the table."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from known import given
from rooms import computing
from tables import rows, table

from envdoctor.facts import Fact, FactSet, Records, plain
from envdoctor.judge.derivations import derive, with_facts
from envdoctor.matrix import Matrix, load_source

compute = computing("broken_use")
ROOT = Path(__file__).resolve().parents[2]
NAME = {"kind": "name", "module": "spade", "name": "old_dig", "place": ["a.py:1"]}
TWO = {"spade": "2.0.0"}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """A matrix of four packages, two of which have a ledger."""
    home = shutil.copytree(ROOT / "fixtures" / "derive" / "tools", tmp_path_factory.mktemp("matrices") / "tools")
    (home / "rules").mkdir()
    for file in ("facts.toml", "tables/framework-models.toml"):
        shutil.copy(ROOT / "matrices" / file, home / file)
    return load_source(home, source="test")


def known(tools: Matrix, uses: list[dict[str, Any]], packages: Mapping[str, Any], key: str = "use") -> FactSet:
    """Facts of uses and of packages; other facts go by their own keys."""
    whole = [use if "call" in use else {"reach": "start", "guarded": False} | use for use in uses]
    others = {name if "." in name else f"pkg.{name}": value for name, value in packages.items()}
    return given({key: whole, **others}, tools.registry)


@pytest.fixture
def broken(tools: Matrix) -> Callable[..., list[Mapping[str, Any]]]:
    """The items of ``broken_use``."""

    def derived(*about: Any) -> list[Mapping[str, Any]]:
        facts = known(tools, *about)
        derive(facts, tools)
        found = facts.value("broken_use")
        assert isinstance(found, Records)
        return list(found)

    return derived


#: By what is told: the uses, the packages and other facts, whose uses they are, and the items.
CASES: dict[str, Any] = table(__file__)["cases"]


@pytest.mark.parametrize("told", CASES)
def test_what_is_broken(broken: Any, told: str):
    uses, facts, key, wanted = CASES[told]
    found = broken(uses, facts, key)
    assert [{name: plain(item[name]) for name in one} for item, one in zip(found, wanted, strict=True)] == wanted


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "torchtune"])
def test_serving_engines_and_trainers_with_models_of_their_own_run_none_of_it(broken: Any, engine: str):
    facts = {**TWO, "recipe.framework": engine}
    assert (len(broken([NAME], facts, "model_use")), len(broken([NAME], facts))) == (0, 1)


def test_another_release_is_judged_by_the_ledger_again(tools: Matrix):
    nail = {"kind": "name", "module": "hammer", "name": "nail", "package": "hammer", "lacks": "hammer.nail"}
    uses = [{**NAME, "package": "spade", "lacks": "spade.old_dig"}, nail]
    facts = known(tools, uses, {"spade": "2.0.0", "hammer": "1.0"})
    after = with_facts(facts, given({"pkg.spade": "1.0.0"}, tools.registry), tools)
    found = after.value("broken_use")
    assert isinstance(found, Records) and [item["what"] for item in found] == ["hammer.nail"]


def test_unread_code_leaves_the_list_incomplete(tools: Matrix):
    facts = FactSet([Fact("use", Records((), "train.py: it is not Python"), "test", "given")])
    derive(facts, tools)
    assert facts.value("broken_use") == Records((), "train.py: it is not Python")


@rows("unsloth told")
def test_classes_that_an_import_makes_take_any_keyword(matrix: Matrix, unsloth: Any, told: bool):
    """Unsloth puts what SFTTrainer no longer takes into its settings."""
    uses = [{"kind": "keyword", "module": "trl", "name": "SFTTrainer", "keyword": "packing", "reach": "start"}]
    if unsloth != "not imported":
        uses.append({"kind": "name", "module": "unsloth", "name": "FastLanguageModel", "reach": "start"})
    facts = FactSet([Fact("use", Records(tuple(uses)), "", "code"), Fact("pkg.trl", "0.13.0", "", "given")])
    if unsloth not in (None, "not imported"):
        facts.add(Fact("pkg.unsloth", unsloth, "", "given"))
    found = compute(facts.value, matrix)["broken_use"].value
    assert isinstance(found, Records)
    assert any(item["what"] == "trl.SFTTrainer(packing=)" for item in found) is told


@rows("call keyword unsloth told")
def test_what_unsloth_adds_to_the_settings_of_trl_is_no_wrong_name(matrix, call, keyword, unsloth, told):
    """With an import of unsloth alone; another name is refused by TRL's class, which it stands on."""
    uses = [{"kind": "keyword", "module": "trl", "name": call, "keyword": keyword, "reach": "start"}]
    uses.append({"kind": "module", "module": "unsloth", "reach": "start"})
    versions = {"trl": "0.22.2", "transformers": "4.56.2", "unsloth": unsloth}
    facts = FactSet([Fact("use", Records(tuple(uses)), "", "code")])
    facts.update(Fact(f"pkg.{name}", version, "", "given") for name, version in versions.items())
    found = compute(facts.value, matrix)["broken_use"].value
    assert isinstance(found, Records)
    assert any(item["what"] == f"trl.{call}({keyword}=)" for item in found) is told
