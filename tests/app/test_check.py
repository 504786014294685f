"""``check`` as a function: exit codes, notices, names that are known, sources that are merged."""

from datetime import date

import pytest

from envdoctor import check
from envdoctor.app import UsageProblem, collect_facts, rule_named
from envdoctor.facts import ABSENT, Unknown
from envdoctor.judge import Ignore, Policy
from envdoctor.matrix import load_matrix
from envdoctor.report import document

TORCH = '"pkg.torch" = "==2.5.0"'
NOW = {"pkg.torch": "2.5.0+cu118"}
TODAY = date(2026, 11, 20)


def notices(report):
    return [(notice.level, notice.text) for notice in report.notices]


# --- exit codes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "options", "code"),
    [
        ({"pkg.torch": "2.4.1"}, {}, 0),
        (NOW, {}, 1),
        (NOW, {"exit_zero": True}, 0),
        (NOW, {"policy": Policy(fail_confidence="reproduced")}, 0),
        (NOW, {"require": ["gpu"]}, 3),
        (NOW, {"require": ["gpu"], "exit_zero": True}, 3),  # turns 1 into 0 only
        (NOW, {"require": ["pkg.torch", "pkg"]}, 1),
        ({**NOW, "gpu": None}, {"require": ["gpu"]}, 3),  # it is known to be absent
        ({}, {}, 3),  # nothing is known: no rule could be checked
        ({}, {"exit_zero": True}, 3),
    ],
)
def test_exit_codes(small, given, facts, options, code):
    report = check(given(facts), matrix=small(r=TORCH), **options)
    assert report.exit_code == code
    assert report.status == ("incomplete" if code == 3 else "complete")


def test_what_was_required_and_is_missing_is_named_and_that_nothing_is_known(small, given):
    report = check(given(NOW), matrix=(matrix := small(r=TORCH)), require=["gpu", "pkg.torch", "model"])
    assert any("--require gpu, model: not known, or not there" in text for _, text in notices(report))
    said = ("error", "no rule could be checked: nothing is known of this environment")
    assert said in notices(check(given({}), matrix=matrix))


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("pkg.torch>=2.8", 2, "pkg.torch>=2.8: not a known fact; did you mean pkg.torch?"),
        ("pkg.torch==2.5.0", 2, "did you mean pkg.torch?"),
        ("pkg.tourch", 3, "--require pkg.tourch (did you mean pkg.torch?): not known, or not there"),
        ("pkg.deepspeed", 3, "--require pkg.deepspeed: not known, or not there"),
        ("pkg.left-pad", 3, "--require pkg.left-pad: not known, or not there"),
    ],
)
def test_a_misspelled_requirement_is_told_as_one(run, facts_file, name, code, said):
    result = run("check", "--no-config", "--facts", facts_file({"pkg.torch": "2.6.0"}), "--require", name)
    assert result.code == code and said in result.out + result.err


def test_one_line_a_finding_says_too_why_the_run_is_incomplete(run, tmp_path):
    metadata = tmp_path / "site" / "transformers-4.46.3.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.46.3\n")
    words = ("check", "--no-config", "--path", "site", "--model", "Qwen/Qwen2.5-7B-Instruct")
    result = run(*words, "--format", "concise")
    assert result.code == 3
    assert result.out.startswith("Not judged: torch is not installed there: nothing about training was judged\n")


# --- names in the configuration ------------------------------------------------------------------------------------

RETIRED = """
[retired.old-name]
now = "r"
date = 2026-11-01
because = "renamed"
[retired.gone]
date = 2026-11-01
because = "it was wrong"
"""


@pytest.mark.parametrize("name", ["r", "old-name"])
def test_a_rule_is_switched_off_and_ignored_under_its_former_name_too(small, given, name):
    matrix = small(RETIRED, r=TORCH, other='"pkg.torch" = "==9"')
    off = check(given(NOW), matrix=matrix, policy=Policy(severities={name: "off"}))
    assert off.exit_code == 0 and off.findings == ()
    entry = Ignore(name, "known", origin="pyproject.toml")
    ignored = check(given(NOW), matrix=matrix, policy=Policy(ignores=(entry,)))
    assert ignored.exit_code == 0 and ignored.findings[0].ignored == "known"
    renamed = name != "r"
    assert notices(off) == [("note", "rules: old-name names r by its former id")] * renamed
    said = ("note", "pyproject.toml: the ignore of old-name names r by its former id")
    assert notices(ignored) == [said] * renamed


def test_a_withdrawn_rule_in_the_configuration_is_no_mistake(small, given):
    policy = Policy(severities={"gone": "off"}, ignores=(Ignore("gone", "x", origin="pyproject.toml"),))
    report = check(given(NOW), matrix=small(RETIRED, r=TORCH), policy=policy)
    assert report.exit_code == 1
    assert ("warning", "pyproject.toml: the ignore of gone names no rule of this matrix") in notices(report)


def test_an_ignore_that_ended_or_matched_nothing_is_said(small, given):
    entry = Ignore("r", "until then", until=date(2026, 11, 19), origin="pyproject.toml")
    report = check(given(NOW), matrix=(matrix := small(r=TORCH)), policy=Policy(ignores=(entry,), today=TODAY))
    assert report.exit_code == 1
    assert notices(report) == [("warning", "pyproject.toml: the ignore of r ended on 2026-11-19: the finding is back")]
    report = check(given({"pkg.torch": "2"}), matrix=matrix, policy=Policy(ignores=(entry._replace(until=None),)))
    assert notices(report) == [("note", "pyproject.toml: the ignore of r matched nothing: it can be removed")]


# --- sources -------------------------------------------------------------------------------------------------------


def test_what_is_set_comes_last(matrix, given):
    sources = given(
        {"recipe.batch_size": 1},
        configured=["recipe.batch_size=2", "recipe.attn=sdpa"],
        configured_in="pyproject.toml",
        assignments=["recipe.batch_size=4"],
    )
    facts = collect_facts(sources, matrix).facts
    assert facts.value("recipe.batch_size") == 4 and facts.get("recipe.batch_size").origin == "--set"
    assert facts.value("recipe.attn") == "sdpa" and facts.get("recipe.attn").origin == "pyproject.toml"


@pytest.mark.parametrize("name", ["pkg.torch", "pkg.Torch"])
def test_another_torch_drops_what_described_the_installed_one(matrix, given, name):
    installed = {"pkg.torch": "2.5.0+cu118", "torch.cuda": "11.8", "torch.arch_list": ["sm_80"], "pkg.peft": "0.1"}
    facts = collect_facts(given(installed, assignments=[f"{name}=2.4.1a0", "torch.hip=absent"]), matrix).facts
    assert facts.value("pkg.torch") == "2.4.1a0" and facts.value("pkg.peft") == "0.1"
    assert isinstance(facts.value("torch.cuda"), Unknown) and isinstance(facts.value("torch.arch_list"), Unknown)
    assert facts.value("torch.hip") is ABSENT  # given beside it


def test_another_model_drops_what_described_the_first(matrix, given):
    given_facts = {"model.repo": "a/b", "model.type": "glm", "model.remote_code": True}
    facts = collect_facts(given(given_facts, assignments=["model.repo=c/d"]), matrix).facts
    assert facts.value("model.repo") == "c/d" and isinstance(facts.value("model.type"), Unknown)


def test_a_set_value_stands_against_what_would_be_derived(matrix, given):
    report = check(given(NOW, assignments=["torch.cuda=12.4"]), matrix=matrix)
    assert report.facts.value("torch.cuda") == "12.4" and report.facts.get("torch.cuda").origin == "--set"


# --- explain -------------------------------------------------------------------------------------------------------


def test_a_rule_is_explained_under_its_id_and_its_former_id(small):
    matrix = small(RETIRED, r=TORCH)
    assert rule_named("r", matrix).renamed_from is None
    assert rule_named("old-name", matrix).rule.id == "r" and rule_named("old-name", matrix).renamed_from == "old-name"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gone", "gone was withdrawn on 2026-11-01: it was wrong"),
        ("torch-batch-na", "there is no rule torch-batch-na; did you mean torch-batch-nan?"),
        ("NOT_THERE.md", "there is no file NOT_THERE.md, and no rule has such a name"),
        ("zzz", "there is no rule zzz; `envdoctor matrix list` names them"),
    ],
)
def test_a_rule_that_is_not_there_is_one_sentence(small, name, sentence):
    with pytest.raises(UsageProblem) as caught:
        rule_named(name, small(RETIRED, torch_batch_nan=TORCH))
    assert str(caught.value) == sentence


def test_the_package_itself_offers_the_functions_and_nothing_else():
    import envdoctor

    assert envdoctor.check is check and envdoctor.collect_facts is collect_facts
    assert all(getattr(envdoctor, name) is not None for name in envdoctor.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        _ = envdoctor.chek


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peft", "said"),
    [(">=0.19,<0.22", "found"), (">=0.18", "open"), ("<0.19", "passed"), ("installed", "open"), ("0.20.0", "found")],
)
def test_a_range_of_releases_decides_a_rule_when_all_of_them_agree(given, peft, said):
    report = check(given({"pkg.peft": peft, "pkg.torchao": "0.10.0", "recipe.method": "lora"}))
    rule = "peft-0-19-lora-fails-beside-older-torchao"
    found = {one.id: one.message.en for one in report.findings}
    unclear = {one.id for one in report.not_checked}
    assert said == ("found" if rule in found else "open" if rule in unclear else "passed")
    if said == "found":
        assert found[rule] == f"peft {peft} cannot add LoRA layers while torchao 0.10.0 is installed"


def test_a_range_is_written_into_a_facts_file_as_it_was_given(given):
    gathered = collect_facts(given({"pkg.peft": ">=0.19, <0.22", "pkg.trl": "installed"}), load_matrix())
    facts = document(gathered.facts, load_matrix().registry)["facts"]
    assert facts == {"pkg.peft": ">=0.19,<0.22", "pkg.trl": "installed"}
