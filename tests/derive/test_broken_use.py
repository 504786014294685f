"""What the code uses and the installed releases do not have: by installed files, by the ledger, by the table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rooms import derivation

from envdoctor.derive import derive
from envdoctor.facts import ABSENT, Fact, FactSet, Records, parse_value
from envdoctor.facts.change import change
from envdoctor.knowledge import Matrix, load_source

compute = derivation("broken_use").compute
ROOT = Path(__file__).resolve().parents[2]
SPADE = """envdoctor-ledger	1
package	spade
modules	spade
depth	names
[releases]
1.0.0	2023-01-05	-	read
2.0.0	2024-02-05	-	read
3.0.0	2025-02-05	-	read
[requires]
[wheels]
[offers]
spade	1.0.0..	Handle	Tool	Trainer	dig
spade	1.0.0..1.0.0	bore	old_dig
spade.extras	1.0.0..1.0.0	more
[open]
[parameters]
spade:Handle	1.0.0..	length
spade:Handle	1.0.0..1.0.0	width
spade:Handle	3.0.0..	depth
spade:Tool	1.0.0..	&rope:Knot
[alias]
[calls]
spade:Trainer.step	2.0.0..	1 hard=
[takes]
[demands]
[moved]
spade:old_dig	2.0.0..	spade:dig
"""
ROPE = """envdoctor-ledger	1
package	rope
modules	rope
depth	names
[releases]
1.0	2023-01-05	-	read
2.0	2024-02-05	-	read
[requires]
[wheels]
[offers]
rope	1.0..	Knot
[open]
[parameters]
rope:Knot	1.0..	turns
rope:Knot	1.0..1.0	loops
[alias]
[calls]
[takes]
[demands]
[moved]
"""
MOVED = """schema = 1
[table]
title = "x"
as_of = 2026-11-22
source_note = "x"
[[name]]
old = ["spade:bore"]
package = "spade"
releases = "<2"
new = "drill:bore"
level = "observed"
source = "pkg:pypi/spade@2.0.0"
[[name]]
old = ["hammer:hit"]
package = "hammer"
releases = "<1.24"
write = { en = "strike it yourself", zh = "x" }
level = "observed"
source = "pkg:pypi/hammer@2.0.0"
[[keyword]]
of = ["Handle", "*Grip"]
old = ["width"]
package = "spade"
releases = "<2"
new = "length"
level = "observed"
source = "pkg:pypi/spade@2.0.0"
[[kept]]
of = ["Han*"]
old = ["width"]
package = "spade"
by = "glove"
releases = ">=2"
level = "observed"
source = "pkg:pypi/glove@2.0.0"
"""
CALLS = """schema = 1
[table]
title = "x"
as_of = 2026-11-22
source_note = "x"
[[row]]
framework = "trl"
stage = "sft"
call = "spade.Handle"
others = ["rope.Knot"]
level = "observed"
source = "pkg:pypi/spade@2.0.0"
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    home = tmp_path_factory.mktemp("matrices")
    for folder in ("rules", "tables", "ledger"):
        (home / folder).mkdir()
    shutil.copy(ROOT / "matrices" / "facts.toml", home)
    (home / "tables" / "moved-names.toml").write_text(MOVED)
    (home / "tables" / "recipe-calls.toml").write_text(CALLS)
    (home / "ledger" / "spade.txt").write_text(SPADE)
    (home / "ledger" / "rope.txt").write_text(ROPE)
    return load_source(home, source="test")


def given(tools: Matrix, key: str, value: object) -> Fact:
    spec = tools.registry.find(key)
    assert spec is not None
    return Fact(key, parse_value(spec, value), "test", "given")


@pytest.fixture
def broken(tools: Matrix) -> Callable[..., list[Mapping[str, Any]]]:
    """The items of ``broken_use`` for uses and versions of packages; ``key`` is whose uses they are."""

    def derived(uses: list[dict[str, Any]], key: str = "use", **packages: str | None) -> list[Mapping[str, Any]]:
        facts = FactSet([given(tools, key, [use if "call" in use else USE | use for use in uses])])
        more = packages.pop("more", None) or {}
        facts.update(given(tools, f"pkg.{name}", version) for name, version in packages.items())
        facts.update(given(tools, name, value) for name, value in more.items())
        derive(facts, tools)
        found = facts.value("broken_use")
        assert isinstance(found, Records)
        return list(found)

    return derived


USE = {"reach": "start", "guarded": False}
NAME = {"kind": "name", "module": "spade", "name": "old_dig", "place": ["a.py:1"]}
KEYWORD = {"kind": "keyword", "module": "spade", "name": "Handle", "keyword": "width", "place": ["a.py:2"]}
OVERRIDE = {"kind": "override", "module": "spade", "name": "Trainer.step", "parameters": ["x"], "place": ["a.py:3"]}


def test_keys_of_a_recipe_become_keywords(broken: Any):
    key = {"key": "width", "call": "spade.Handle", "place": ["train.yaml:3"]}
    (item,) = broken([key, {**key, "call": None}], "recipe_key", spade="3.0.0", rope="2.0")
    assert (item["what"], item["moved_to"], item["place"]) == ("spade.Handle(width=)", "length=", ("train.yaml:3",))


def test_a_key_that_no_release_took_is_the_framework_s_own(broken: Any):
    key = {"key": "my_own", "call": "spade.Handle", "place": ["train.yaml:3"]}
    assert broken([key], "recipe_key", spade="3.0.0", rope="2.0") == []


def test_a_key_that_another_class_of_the_same_parser_may_take(broken: Any):
    key = {"key": "width", "call": "spade.Handle", "place": ["train.yaml:3"]}
    assert broken([key], "recipe_key", spade="3.0.0") == []  # which rope there is is not known


def test_names_of_arguments_go_to_the_call_of_the_framework(broken: Any):
    told = {"recipe.framework": "trl", "recipe.stage": "sft", "recipe.arguments": ["width", "length"]}
    (item,) = broken([], "use", spade="3.0.0", rope="2.0", more=told)
    assert item["what"] == "spade.Handle(width=)"
    assert broken([], "use", spade="3.0.0", rope="2.0", more={**told, "recipe.stage": "dpo"}) == []


@pytest.mark.parametrize("version", ["1.0.0", None])
def test_what_is_there_or_not_known_is_not_told(broken: Any, version: str | None):
    packages = {"spade": version} if version else {}
    assert broken([NAME, KEYWORD, OVERRIDE], **packages) == []


def test_a_name_that_went(broken: Any):
    (item,) = broken([NAME], spade="2.0.0")
    assert (item["package"], item["kind"], item["what"], item["installed"]) == (
        "spade",
        "name",
        "spade.old_dig",
        "2.0.0",
    )
    assert (item["has"], item["moved_to"], item["reach"], item["place"]) == ("<2.0", "spade.dig", "start", ("a.py:1",))


def test_the_table_knows_places_outside_of_the_package(broken: Any):
    (item,) = broken([{**NAME, "name": "bore"}], spade="3.0.0")
    assert (item["has"], item["moved_to"]) == ("<2.0", "drill.bore")


def test_keywords_and_overrides(broken: Any):
    keyword, override = broken([KEYWORD, OVERRIDE], spade="3.0.0")
    assert (keyword["what"], keyword["has"], keyword["moved_to"]) == ("spade.Handle(width=)", "<2.0", "length=")
    assert (override["what"], override["call"], override["has"]) == ("spade.Trainer.step", "step(_, hard=_)", "<2.0")


def test_a_keyword_that_a_base_class_of_another_package_takes(broken: Any):
    (item,) = broken([{**KEYWORD, "name": "Tool", "keyword": "loops"}], spade="2.0.0", rope="2.0")
    assert (item["package"], item["what"], item["installed"], item["has"]) == (
        "rope",
        "spade.Tool(loops=)",
        "2.0",
        "<2.0",
    )


def test_a_keyword_that_another_package_of_the_code_makes_the_call_take(broken: Any):
    glove = {**NAME, "module": "glove.fingers", "name": "grip"}
    other = {**KEYWORD, "keyword": "height"}
    assert broken([glove, KEYWORD], spade="3.0.0", glove="2.1") == []
    assert len(broken([KEYWORD], spade="3.0.0", glove="2.1")) == 1
    assert len(broken([glove, KEYWORD], spade="3.0.0", glove="1.9")) == 1
    assert len(broken([glove, KEYWORD], spade="3.0.0", glove=None)) >= 1
    assert [item["what"] for item in broken([glove, other], spade="3.0.0", glove="2.1")] == ["spade.Handle(height=)"]


def test_a_keyword_that_is_too_new(broken: Any):
    (item,) = broken([{**KEYWORD, "keyword": "depth"}], spade="2.0.0")
    assert item["has"] == ">=3.0"


def test_a_missing_name_is_told_once_and_not_with_its_keywords(broken: Any):
    uses = [NAME, {**NAME, "kind": "attribute", "place": ["b.py:7"], "reach": "call"}, {**KEYWORD, "name": "old_dig"}]
    (item,) = broken(uses, spade="2.0.0")
    assert item["place"] == ("a.py:1", "b.py:7") and item["reach"] == "start"


def test_a_missing_module_stands_for_its_names(broken: Any):
    uses = [{**NAME, "module": "spade.extras", "name": name} for name in ("more", "less")]
    (item,) = broken(uses, spade="2.0.0")
    assert (item["kind"], item["what"], item["has"]) == ("module", "spade.extras", "<2.0")


def test_guarded_uses_are_left_out(broken: Any):
    assert broken([{**NAME, "guarded": True}], spade="2.0.0") == []


def test_a_package_that_is_not_installed(broken: Any):
    uses = [NAME, {"kind": "attribute", "module": "spade", "name": "dig"}, {"kind": "module", "module": "spade.extras"}]
    (item,) = broken(uses, spade=None)
    assert (item["package"], item["kind"], item["what"]) == ("spade", "package", "spade")


def test_packages_that_the_ledger_does_not_know_are_judged_by_the_table(broken: Any):
    use = {"kind": "attribute", "module": "hammer", "name": "hit"}
    (item,) = broken([use], hammer="2.4.6")
    assert (item["has"], item["moved_to"]) == ("<1.24", "strike it yourself")
    assert broken([use], hammer="1.23.5") == []
    assert broken([{**use, "name": "hold"}], hammer="2.4.6") == []


def test_the_table_speaks_of_releases_that_were_not_read(broken: Any):
    (item,) = broken([{**NAME, "name": "bore", "package": "spade", "lacks": "spade.bore"}], spade="4.0.0")
    assert item["has"] == "<2"


def test_installed_files_come_before_the_ledger(broken: Any):
    there = {**NAME, "package": "spade", "lacks": None}
    gone = {"kind": "name", "module": "spade", "name": "dig", "package": "spade", "lacks": "spade.dig"}
    (item,) = broken([there, gone], spade="2.0.0")
    assert item["what"] == "spade.dig"


def test_a_module_that_nobody_brings(broken: Any):
    use = {"kind": "module", "module": "own_tools.deep", "lacks": "own_tools", "package": None}
    (item,) = broken([use])
    assert (item["kind"], item["what"]) == ("unknown-module", "own_tools")


def test_another_release_is_judged_by_the_ledger_again(tools: Matrix):
    use = {**NAME, "package": "spade", "lacks": "spade.old_dig", "reach": "start", "guarded": False}
    other = {"kind": "name", "module": "hammer", "name": "nail", "package": "hammer", "lacks": "hammer.nail"}
    other |= {"reach": "start", "guarded": False}
    facts = FactSet([given(tools, "use", [use, other])])
    facts.update(given(tools, f"pkg.{name}", version) for name, version in (("spade", "2.0.0"), ("hammer", "1.0")))
    after = change(facts, [given(tools, "pkg.spade", "1.0.0")], tools.registry)
    derive(after, tools)
    found = after.value("broken_use")
    assert isinstance(found, Records) and [item["what"] for item in found] == ["hammer.nail"]


def test_unread_code_leaves_the_list_incomplete(tools: Matrix):
    uses = given(tools, "use", [])._replace(value=Records((), "train.py: it is not Python"))
    facts = FactSet([uses])
    derive(facts, tools)
    assert facts.value("broken_use") == Records((), "train.py: it is not Python")


def test_the_code_of_a_model_is_judged_alike(broken: Any):
    (item,) = broken([NAME], "model_use", spade="2.0.0")
    assert (item["what"], item["reach"], item["place"]) == ("spade.old_dig", "start", ("a.py:1",))


def test_the_code_of_a_model_may_be_left_out_where_transformers_has_a_class_for_the_type(broken: Any):
    (item,) = broken([NAME], "model_use", spade="2.0.0", more={"model.registered": True})
    assert item["reach"] == "optional"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "lmdeploy", "torchtune"])
def test_serving_engines_and_trainers_with_models_of_their_own_run_none_of_it(broken: Any, engine: str):
    assert broken([NAME], "model_use", spade="2.0.0", more={"recipe.framework": engine}) == []
    assert len(broken([NAME], spade="2.0.0", more={"recipe.framework": engine})) == 1


def test_what_a_model_overrides_is_left_to_rules_of_its_own(broken: Any):
    assert broken([OVERRIDE], "model_use", spade="3.0.0") == []


def test_a_package_that_the_code_of_a_model_imports_anywhere_must_be_there(broken: Any):
    later = {**NAME, "reach": "call"}
    assert [item["reach"] for item in broken([later], "model_use", spade=None)] == ["start"]
    assert [item["reach"] for item in broken([later], spade=None)] == ["call"]
    assert [item["reach"] for item in broken([later], "model_use", spade="2.0.0")] == ["call"]


@pytest.mark.parametrize(
    ("unsloth", "told"),
    [
        ("2025.1.6", False),
        (None, False),
        ("2024.11.6", True),
        ("2024.11.7", False),
        ("absent", True),
        ("not imported", True),
    ],
)
def test_classes_that_an_import_makes_take_any_keyword(matrix: Matrix, unsloth: str | None, told: bool):
    """Unsloth puts what SFTTrainer no longer takes into its settings."""
    uses = [{"kind": "keyword", "module": "trl", "name": "SFTTrainer", "keyword": "packing", "reach": "start"}]
    if unsloth != "not imported":
        uses.append({"kind": "name", "module": "unsloth", "name": "FastLanguageModel", "reach": "start"})
    facts = FactSet([Fact("use", Records(tuple(uses)), "", "code"), Fact("pkg.trl", "0.13.0", "", "given")])
    if unsloth not in (None, "not imported"):
        facts.add(Fact("pkg.unsloth", ABSENT if unsloth == "absent" else unsloth, "", "given"))
    found = compute(facts.value, matrix)["broken_use"].value
    assert isinstance(found, Records)
    assert any(item["what"] == "trl.SFTTrainer(packing=)" for item in found) is told
