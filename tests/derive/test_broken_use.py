"""What the code uses and the installed releases do not have: by installed files, by the ledger, by the table."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from known import given
from ledgers import ledger
from rooms import computing

from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.judge.derivations import derive, with_facts
from envdoctor.matrix import Matrix, load_source

compute = computing("broken_use")
ROOT = Path(__file__).resolve().parents[2]
SPADE = """[offers]
spade	1.0.0..	Handle	Tool	Trainer	dig
spade	1.0.0..1.0.0	bore	old_dig
spade.extras	1.0.0..1.0.0	more
[parameters]
spade:Handle	1.0.0..	length
spade:Handle	1.0.0..1.0.0	width
spade:Handle	1.0.0..2.0.0	girth
spade:Handle	3.0.0..	depth
spade:Tool	1.0.0..	&rope:Knot
[calls]
spade:Trainer.step	2.0.0..	1 hard=
[moved]
spade:old_dig	2.0.0..	spade:dig
"""
ROPE = "[offers]\nrope\t1.0..\tKnot\n[parameters]\nrope:Knot\t1.0..\tturns\nrope:Knot\t1.0..1.0\tloops\tbends\n"
MOVED = """
name = [
  { old = ["spade:bore"], package = "spade", releases = "<2", new = "drill:bore", source = "x" },
  { old = ["hammer:hit"], package = "hammer", releases = "<1.24", source = "x", write = { en = "strike", zh = "x" } },
]
keyword = [
  { of = ["Handle", "*Grip"], old = ["width"], package = "spade", releases = "<2", new = "length", source = "x" },
  { of = ["Tool"], old = ["bends"], package = "rope", releases = "<2", new = "turns", source = "x" },
]
kept = [{ of = ["Han*"], old = ["width"], package = "spade", by = "glove", releases = ">=2", source = "x" }]
"""
CALLS = '[[row]]\nframework = "trl"\nstage = "sft"\ncall = "spade.Handle"\nothers = ["rope.Knot"]\n'
NAME = {"kind": "name", "module": "spade", "name": "old_dig", "place": ["a.py:1"]}
KEYWORD = {"kind": "keyword", "module": "spade", "name": "Handle", "keyword": "width", "place": ["a.py:2"]}
OVERRIDE = {"kind": "override", "module": "spade", "name": "Trainer.step", "parameters": ["x"], "place": ["a.py:3"]}
BORE = {**NAME, "name": "bore"}
HIT = {"kind": "attribute", "module": "hammer", "name": "hit"}
GLOVE = {**NAME, "module": "glove.fingers", "name": "grip"}
KEY = {"key": "width", "call": "spade.Handle", "place": ["train.yaml:3"]}
TRL = {"recipe.framework": "trl", "recipe.stage": "sft", "recipe.arguments": ["width", "length"]}
DIG = {"kind": "name", "module": "spade", "name": "dig", "package": "spade"}
NEW, BOTH = {"spade": "3.0.0"}, {"spade": "3.0.0", "rope": "2.0"}
TWO = {"spade": "2.0.0"}
WIDTH = {"what": "spade.Handle(width=)", "has": "<2.0", "moved_to": "length="}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    home = tmp_path_factory.mktemp("matrices")
    for folder in ("rules", "tables", "ledger"):
        (home / folder).mkdir()
    for file in ("facts.toml", "tables/framework-models.toml"):
        shutil.copy(ROOT / "matrices" / file, home / file)
    (home / "tables" / "moved-names.toml").write_text(MOVED)
    (home / "tables" / "recipe-calls.toml").write_text(CALLS)
    (home / "ledger" / "spade.txt").write_text(ledger("spade", "1.0.0 2.0.0 3.0.0", SPADE))
    (home / "ledger" / "rope.txt").write_text(ledger("rope", "1.0 2.0", ROPE))
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
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str, list[dict[str, Any]]]] = {
    "keys of a recipe become keywords": (
        [KEY, {**KEY, "call": None}],
        BOTH,
        "recipe_key",
        [{**WIDTH, "place": ("train.yaml:3",)}],
    ),
    "a key that no release took is the framework's own": ([{**KEY, "key": "my_own"}], BOTH, "recipe_key", []),
    "another class of the same parser may take a key, and which rope there is is not known": (
        [KEY],
        NEW,
        "recipe_key",
        [],
    ),
    "names of arguments go to the call of the framework": ([], {**BOTH, **TRL}, "use", [WIDTH]),
    "names of arguments of another stage": ([], {**BOTH, **TRL, "recipe.stage": "dpo"}, "use", []),
    "what is there": ([NAME, KEYWORD, OVERRIDE], {"spade": "1.0.0"}, "use", []),
    "what is not known": ([NAME, KEYWORD, OVERRIDE], {}, "use", []),
    "what every release of a range lacks": (
        [NAME],
        {"spade": ">=2.0.0"},
        "use",
        [{"has": "<2.0", "installed": "3.0.0"}],
    ),
    "what a release of a range has": ([NAME], {"spade": ">=1.0.0"}, "use", []),
    "a name that went": (
        [NAME],
        TWO,
        "use",
        [
            {"package": "spade", "kind": "name", "what": "spade.old_dig", "installed": "2.0.0"}
            | {"has": "<2.0", "moved_to": "spade.dig", "reach": "start", "place": ("a.py:1",)}
        ],
    ),
    "the table knows places outside of the package": ([BORE], NEW, "use", [{"has": "<2.0", "moved_to": "drill.bore"}]),
    "keywords and overrides": (
        [KEYWORD, OVERRIDE],
        NEW,
        "use",
        [WIDTH, {"what": "spade.Trainer.step", "call": "step(_, hard=_)", "has": "<2.0", "reach": "sometimes"}],
    ),
    "a keyword that a base class of another package takes": (
        [{**KEYWORD, "name": "Tool", "keyword": "loops"}],
        {**TWO, "rope": "2.0"},
        "use",
        [{"package": "rope", "what": "spade.Tool(loops=)", "installed": "2.0", "has": "<2.0"}],
    ),
    "its new name is looked up in the class that was called": (
        [{**KEYWORD, "name": "Tool", "keyword": "bends"}],
        {**TWO, "rope": "2.0"},
        "use",
        [{"package": "rope", "has": "<2.0", "moved_to": "turns="}],
    ),
    "one release of a package fits all, but for what another package brings": (
        [KEYWORD, {**KEYWORD, "keyword": "girth"}, {**KEYWORD, "name": "Tool", "keyword": "loops"}],
        BOTH,
        "use",
        [{"has": "<2.0", "fits": "<2.0"}, {"has": "<3.0", "fits": "<2.0"}, {"package": "rope", "fits": "<2.0"}],
    ),
    "another package of the code makes the call take it": ([GLOVE, KEYWORD], {**NEW, "glove": "2.1"}, "use", []),
    "that package is not in the code": ([KEYWORD], {**NEW, "glove": "2.1"}, "use", [WIDTH]),
    "that package is too old": ([GLOVE, KEYWORD], {**NEW, "glove": "1.9"}, "use", [WIDTH]),
    "that package is not there": ([GLOVE, KEYWORD], {**NEW, "glove": None}, "use", [WIDTH]),
    "that package takes other keywords": (
        [GLOVE, {**KEYWORD, "keyword": "height"}],
        {**NEW, "glove": "2.1"},
        "use",
        [{"what": "spade.Handle(height=)"}],
    ),
    "a keyword that is too new": ([{**KEYWORD, "keyword": "depth"}], TWO, "use", [{"has": ">=3.0"}]),
    "a missing name is told once and not with its keywords": (
        [NAME, {**NAME, "kind": "attribute", "place": ["b.py:7"], "reach": "call"}, {**KEYWORD, "name": "old_dig"}],
        TWO,
        "use",
        [{"place": ("a.py:1", "b.py:7"), "reach": "start"}],
    ),
    "a missing module stands for its names": (
        [{**NAME, "module": "spade.extras", "name": name} for name in ("more", "less")],
        TWO,
        "use",
        [{"kind": "module", "what": "spade.extras", "has": "<2.0"}],
    ),
    "guarded uses are left out": ([{**NAME, "guarded": True}], TWO, "use", []),
    "a package that is not installed": (
        [NAME, {"kind": "attribute", "module": "spade", "name": "dig"}, {"kind": "module", "module": "spade.extras"}],
        {"spade": None},
        "use",
        [{"package": "spade", "kind": "package", "what": "spade"}],
    ),
    "packages that the ledger does not know are judged by the table": (
        [HIT],
        {"hammer": "2.4.6"},
        "use",
        [{"has": "<1.24", "moved_to": "strike"}],
    ),
    "the table has the release": ([HIT], {"hammer": "1.23.5"}, "use", []),
    "the table does not have the name": ([{**HIT, "name": "hold"}], {"hammer": "2.4.6"}, "use", []),
    "the table speaks of releases that were not read": (
        [{**BORE, "package": "spade", "lacks": "spade.bore"}],
        {"spade": "4.0.0"},
        "use",
        [{"has": "<2"}],
    ),
    "a release behind all that were read lacks what went, and nothing is known of what none had": (
        [{**KEYWORD, "keyword": "girth"}, {**KEYWORD, "keyword": "height"}, NAME],
        {"spade": "4.0.0"},
        "use",
        [{"what": "spade.Handle(girth=)", "has": "<3.0"}, {"what": "spade.old_dig", "has": "<2.0"}],
    ),
    "installed files come before the ledger": (
        [{**NAME, "package": "spade", "lacks": None}, {**DIG, "lacks": "spade.dig"}],
        TWO,
        "use",
        [{"what": "spade.dig"}],
    ),
    "a module that nobody brings": (
        [{"kind": "module", "module": "own_tools.deep", "lacks": "own_tools", "package": None}],
        {},
        "use",
        [{"kind": "unknown-module", "what": "own_tools"}],
    ),
    "the code of a model is judged alike": (
        [NAME],
        TWO,
        "model_use",
        [{"what": "spade.old_dig", "reach": "start", "place": ("a.py:1",)}],
    ),
    "the code of a model may be left out where transformers has a class for the type": (
        [NAME],
        {**TWO, "model.registered": True},
        "model_use",
        [{"reach": "optional"}],
    ),
    "what a model overrides is left to rules of its own": ([OVERRIDE], NEW, "model_use", []),
    "a package that the code of a model imports anywhere must be there": (
        [{**NAME, "reach": "call"}],
        {"spade": None},
        "model_use",
        [{"reach": "start"}],
    ),
    "one of the user's own code need not": ([{**NAME, "reach": "call"}], {"spade": None}, "use", [{"reach": "call"}]),
    "nor must a name of it": ([{**NAME, "reach": "call"}], TWO, "model_use", [{"reach": "call"}]),
}


@pytest.mark.parametrize("told", CASES)
def test_what_is_broken(broken: Any, told: str):
    uses, facts, key, wanted = CASES[told]
    found = broken(uses, facts, key)
    assert [{name: item[name] for name in one} for item, one in zip(found, wanted, strict=True)] == wanted


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


@pytest.mark.parametrize(
    ("unsloth", "told"),
    [
        ("2025.1.6", False),
        (None, False),
        ("2024.11.6", True),
        ("2024.11.7", False),
        (ABSENT, True),
        ("not imported", True),
    ],
)
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


@pytest.mark.parametrize(
    ("call", "keyword", "unsloth", "told"),
    [
        ("GRPOConfig", "vllm_sampling_params", "2025.10.1", False),
        ("RLOOConfig", "unsloth_num_chunks", "2025.10.1", False),
        ("GRPOConfig", "unsloth_num_chunks", ABSENT, True),
        ("GRPOConfig", "vllm_sampling_params", "2025.2.6", True),
        ("GRPOConfig", "lerning_rate", "2025.10.1", True),
    ],
)
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
