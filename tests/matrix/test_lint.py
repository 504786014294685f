"""What the lint says of files beside the rules, and of several wrong files at once."""

from datetime import date

import pytest
from small_matrix import rule_document, toml

from envdoctor.app import lint
from envdoctor.matrix import read_source

TODAY = date(2026, 11, 20)
HEAD = 'schema = 1\n[table]\ntitle = "t"\nas_of = 2026-11-20\nsource_note = "n"\n'
ROW = '[[row]]\nkey = "12.4"\nmax_gcc = "13"\nlevel = "observed"\nsource = "pkg:pypi/torch@2.15.0"\n'
FAMILY = (
    '[[family]]\nid = "{id}"\ntitle = "t"\nrepos = []\ntypes = ["{kind}"]\narchitectures = []\nsource = "https://a.b"\n'
)


@pytest.fixture
def complaints(home):
    """What the lint says of the files that are given by their places."""

    def write(**files: str) -> list[tuple[str, str]]:
        for place, text in files.items():
            (home / f"{place.replace('__', '/').replace('_', '-')}.toml").write_text(text)
        found = [tuple(complaint) for complaint in lint(read_source(home, source="test"), today=TODAY)]
        return [complaint for complaint in found if not complaint[1].startswith("until this is mended, ")]

    return write


def test_a_sound_table_has_no_complaint(complaints):
    assert complaints(tables__cuda_compilers=HEAD + ROW) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('max_gcc = "13"\n', "", "row 1: "),
        ('max_gcc = "13"', "max_gcc = 13", "row 1: max_gcc: "),
        ('max_gcc = "13"', 'max_gcc = "thirteen"', "row 1: max_gcc: "),
        ('level = "observed"', 'level = "sure"', "row 1: level: "),
        ("pkg:pypi/torch@2.15.0", "http://a.b", "row 1: source: "),
        ('source = "', 'colour = "red"\nsource = "', "row 1: "),
        ("[[row]]", "[row]", "row: "),
        ("[[row]]", ROW + "[[row]]", "row 2: key: 12.4 occurs twice"),
        ("[[row]]", "[[line]]\na = 1\n[[row]]", ""),
        ("as_of = 2026-11-20", 'as_of = "today"', "table: as_of: "),
        ("schema = 1\n", "", ""),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_its_place(complaints, old, new, complaint):
    ((origin, text),) = complaints(tables__cuda_compilers=(HEAD + ROW).replace(old, new, 1))
    assert origin == "tables/cuda-compilers.toml" and text.startswith(complaint)


def test_a_specifier_that_cannot_be_read_and_a_table_that_no_schema_knows_are_named(complaints):
    row = ROW.replace('key = "12.4"\nmax_gcc = "13"', 'key = "two"\ncuda = "12.4"\narchs = ["sm_90"]')
    (colours, (_, text)) = complaints(tables__torch_archs_windows=HEAD + row, tables__colours=HEAD)
    assert text.startswith("row 1: key: 'two' ")
    assert colours == ("tables/colours.toml", "no schema says what is in it")


def test_every_complaint_of_every_file_is_said_although_some_are_no_toml(complaints, home, write_rule):
    write_rule(home / "rules" / "one" / "same.toml")
    write_rule(home / "rules" / "two" / "same.toml")
    write_rule(home / "rules" / "bad.toml", "schema = = 1\n")
    write_rule(home / "rules" / "sound.toml")
    found = complaints(tables__withdrawn_releases="[releases", tables__gpus=HEAD)
    by_file = {origin: [text for one, text in found if one == origin] for origin, _ in found}
    assert by_file["rules/bad.toml"][0].startswith("not TOML: ")
    assert by_file["rules/two/same.toml"] == ["the id same is also that of rules/one/same.toml"]
    assert by_file["tables/withdrawn-releases.toml"][0].startswith("not TOML: ")
    assert len(by_file["tables/gpus.toml"]) == 1 and "row" in by_file["tables/gpus.toml"][0]
    assert "evidence: at least one source is needed" in by_file["rules/sound.toml"]


def test_a_retired_id_leads_to_a_rule_and_is_none_itself(complaints, home, write_rule):
    write_rule(home / "rules" / "a.toml")
    said = 'date = 2026-11-01, because = "x" }'
    text = f'schema = 1\n[retired]\na = {{ now = "a", {said}\nb = {{ now = "c", {said}\n'
    found = [text for origin, text in complaints(retired=text) if origin == "retired.toml"]
    assert found == ["a is retired and is also a rule: an id is never used again", "b: now: there is no rule c"]


def test_a_model_type_belongs_to_one_family(complaints):
    head = "schema = 1\n[organisations]\n[copies]\norganisations = []\nendings = []\n"
    both = FAMILY.format(id="one", kind="t5") + FAMILY.format(id="two", kind="t5")
    assert complaints(families=head + both) == [("families.toml", "t5 belongs to one and to two")]


def test_a_format_of_recipes_is_of_a_framework_that_facts_know(complaints):
    row = '[[format]]\nname = "new"\ntitle = "New"\nframework = "newer"\nlevel = "observed"\nsource = "https://x.org"\n'
    ((origin, text),) = complaints(tables__recipe_formats=HEAD + row + 'files = true\n[format.keys]\nlr = "attn"\n')
    assert origin == "tables/recipe-formats.toml" and "newer is not among the values" in text


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('help = "machine"', 'help = "weather"', "help: there is no advice 'weather'"),
        ('identity = ["name", "index"]', 'identity = ["colour"]', "gpu: colour is no column of it"),
        ('depends_on = ["os.libc"]', 'depends_on = ["os.lib"]', "depends_on: os.lib is not a registered fact"),
        ('meaning = "number of GPUs"\n', "", "fact: gpu.count: "),
        ('meaning = "number of GPUs"', 'meaning = "number of GPUs"\ncolour = 1', "fact: gpu.count: "),
    ],
)
def test_the_registry_of_facts_has_a_schema_too(complaints, home, old, new, complaint):
    text = (home / "facts.toml").read_text(encoding="utf-8")
    assert old in text
    found = complaints(facts=text.replace(old, new))
    assert found and all(origin == "facts.toml" and complaint in text for origin, text in found), found


#: What such a rule must speak of: engines that serve, and trainers with models of their own.
OTHERS = {"engines": "vLLM, SGLang and LMDeploy", "trainers": "torchtune and other trainers"}


@pytest.mark.parametrize(
    ("rule", "affects", "unless", "forgotten"),
    [
        ({}, {"model.type": "glm"}, None, "engines"),
        ({}, {"recipe.attn": "sdpa"}, {"recipe.framework": "unsloth"}, "engines"),
        ({}, {"recipe.attn": "sdpa"}, {"recipe.framework": "vllm"}, "trainers"),
        ({}, {"model.type": "glm", "recipe.framework": "trl"}, None, ""),
        ({}, {"model.type": "glm", "recipe.method": ["lora", "full"]}, None, "trainers"),
        ({}, {"model.type": "glm", "recipe.method": ["lora", "infer"]}, None, "engines"),
        ({}, {"model.type": "glm", "recipe.gradient_checkpointing": True}, None, "trainers"),
        ({"engines": True}, {"model.type": "glm"}, None, ""),
        ({}, {"pkg.torch": "<2.6"}, None, ""),
        ({}, {"model.type": "glm", "recipe.method": "lora"}, None, "trainers"),
        ({}, {"model.type": "glm"}, {"recipe.framework": ["vllm", "torchtune"]}, "trainers"),
        ({}, {"model.type": "glm"}, {"model.run_by": ["engine", "trainer"]}, ""),
        ({}, {"model.type": "glm", "recipe.method": "lora"}, {"model.run_by": "trainer"}, ""),
        ({}, {"recipe.method": "lora"}, None, ""),
    ],
)
def test_a_rule_about_the_code_of_transformers_says_what_it_means_for_programs_that_do_without_it(
    complaints, home, write_rule, rule, affects, unless, forgotten
):
    parts = {"affects": [{"pkg.transformers": "<5.0", **affects}], "message": {"en": "it fails"}}
    parts |= {"unless": [unless]} if unless else {}
    write_rule(home / "rules" / "a.toml", toml(rule_document(rule=rule, **parts)))
    said = "; ".join(text for _, text in complaints())
    assert " ".join(name for name, words in OTHERS.items() if words in said) == forgotten
