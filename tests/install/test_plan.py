"""The plan: one set of changes, the smallest that ends all errors and breaks nothing, judged as a whole."""

import pytest
from known import given, judged
from ledgers import ledger
from observing import shipped

from envdoctor.facts import ABSENT, Fact, FactSet, Records
from envdoctor.judge import Ignore, Policy
from envdoctor.judge.derivations import with_facts
from envdoctor.matrix import load_matrix
from envdoctor.remedy import Remedy, before, try_remedy, with_plan
from envdoctor.remedy.commands import apply

LEDGER = {name: ledger(name, "1.0 2.0 3.0 4.0", depth="metadata") for name in ("aa", "bb", "cc", "torch")}


def fix(**what):
    return {"safety": "review", "summary": {"en": "do it"}, **what}


def error(conditions, *fixes, **parts):
    return {"affects": [conditions], "message": {"en": "m"}, "fix": list(fixes), **parts}


@pytest.fixture
def planned(matrix_of, facts):
    """The judgement of facts with its plan. ``requires`` maps an installed package to its requirements."""

    def run(values, rules, policy=None, requires=()):
        matrix = matrix_of(rules, ledger=LEDGER)
        known = facts(values, ["pkg"])
        dists = [
            {"name": key[4:], "version": version, "kind": "dist-info", "requires": dict(requires).get(key[4:], ())}
            for key, version in values.items()
            if key.startswith("pkg.")
        ]
        known.add(Fact("dist", Records(tuple(dists)), "", "environment"))
        judgement = judged(known, matrix, policy)
        return with_plan(judgement, matrix)

    return run


def ids(judgement, fingerprints):
    return [finding.id for finding in judgement.findings if finding.fingerprint in fingerprints]


A, B = fix(constraints=["aa>=2"]), fix(constraints=["bb>=2"])
AA, TWO = {"pkg.aa": "1.0"}, {"pkg.aa": "1.0", "pkg.bb": "1.0"}
OLD_A, OLD_B = error({"pkg.aa": "<2"}, A), error({"pkg.bb": "<2"}, B)
#: Installed packages, rules, and what the plan installs.
PLANS = {
    "two errors get one set of changes": (TWO, {"first": OLD_A, "second": OLD_B}, ("aa==2.0", "bb==2.0")),
    # no rule offers it: it is read from their conditions
    "one change that ends both is preferred to two": (
        {**TWO, "pkg.cc": "1.0"},
        {
            "first": error({"pkg.aa": "<2", "pkg.bb": "<2"}, B),
            "second": error({"pkg.aa": "<2", "pkg.cc": "<2"}, fix(constraints=["cc>=2"])),
        },
        ("aa==2.0",),
    ),
    "uninstalling costs more": (AA, {"r": error({"pkg.aa": "<2"}, fix(uninstall=["aa"]), A)}, ("aa==2.0",)),
    "an error that a fix would bring is mended too": (
        TWO,
        {
            "first": error({"pkg.aa": "<2"}, fix(constraints=["aa==2.0"])),
            "second": error({"pkg.aa": ">=2", "pkg.bb": "<3"}, fix(constraints=["bb>=3"])),
        },
        ("aa==2.0", "bb==3.0"),
    ),
    **{
        f"what another rule explains, {'gone' if told else 'staying'}": (
            TWO,
            {
                "better": error({"pkg.aa": "<2"}, A, rule={"supersedes": ["told"]}),
                "told": error({"pkg.bb": "<2", **told}, B),
            },
            ends,
        )
        for told, ends in (({"pkg.aa": "<2"}, ("aa==2.0",)), ({}, ("aa==2.0", "bb==2.0")))
    },
    **{f"a {level} alone": (AA, {"r": {**OLD_A, "rule": {"severity": level}}}, None) for level in ("warning", "note")},
}


@pytest.mark.parametrize(("values", "rules", "pins"), PLANS.values(), ids=PLANS)
def test_the_plan_is_the_smallest_set_of_changes(planned, values, rules, pins):
    judgement = planned(values, rules)
    plan = judgement.plan
    assert (plan.constraints if plan else None) == pins
    if plan:
        assert plan.commands == (f"python -m pip install {' '.join(pins)}",) and plan.note is None
        assert plan.leaves == () and set(ids(judgement, plan.clears)) <= set(rules)


def test_a_fix_that_brings_an_error_is_withheld(planned):
    values, rules, _ = PLANS["an error that a fix would bring is mended too"]
    (finding,) = planned(values, rules).findings
    assert "it would bring second" in finding.fixes[0].withheld


#: Installed packages with their requirements, conditions of an error with its fixes, why the first fix is withheld, and
#: what the plan installs instead.
BROKEN = {
    "another change does as well": (
        {"aa": "4.0", "bb": "1.0", "cc": "1.0"},
        {"cc": ("aa>=3",)},
        ({"pkg.aa": ">=3", "pkg.bb": "<2"}, fix(constraints=["aa==2.0"]), fix(constraints=["bb>=2"])),
        ("cc (>=3) asks for another aa", ("bb==2.0",)),
    ),
    # cc asks for the extra, and what it requires stands in the metadata of dd
    "an extra": (
        {"aa": "4.0", "cc": "1.0", "dd": "1.0"},
        {"cc": ("dd[x]",), "dd": ("aa>=3; extra == 'x'", "aa>=9; extra == 'y'")},
        ({"pkg.aa": ">=3"}, fix(constraints=["aa==2.0"])),
        ("cc -> dd[x] (>=3) asks for another aa", None),
    ),
    "nothing that is asked for is uninstalled": (
        {"aa": "1.0", "cc": "1.0"},
        {"cc": ("aa",)},
        ({"pkg.aa": "present"}, fix(uninstall=["aa"])),
        ("cc asks for aa", None),
    ),
}


@pytest.mark.parametrize(("installed", "requires", "rule", "said"), BROKEN.values(), ids=BROKEN)
def test_a_requirement_of_another_package_is_never_broken(planned, installed, requires, rule, said):
    judgement = planned(
        {f"pkg.{name}": version for name, version in installed.items()}, {"r": error(*rule)}, requires=requires
    )
    assert judgement.findings[0].fixes[0].withheld == f"it would break a requirement: {said[0]}"
    assert (judgement.plan.constraints if judgement.plan else None) == said[1]


def test_errors_that_no_set_of_fixes_ends_together_are_named(planned):
    judgement = planned(
        {"pkg.aa": "1.0", "recipe.batch_size": 2, "recipe.packing": True},
        {
            "batch": error({"recipe.batch_size": ">1"}, fix(set={"recipe.batch_size": 1})),
            "packing": error({"recipe.packing": True}, fix(set={"recipe.packing": False})),
            "both": error({"recipe.packing": False, "recipe.batch_size": 1}),
        },
    )
    assert [finding.fixes[0].withheld for finding in judgement.findings] == [None, None]
    (cleared,), (left,) = ids(judgement, judgement.plan.clears), ids(judgement, judgement.plan.leaves)
    assert judgement.plan.note == f"no set of these fixes clears both {left} and {cleared}"


def test_what_nothing_installable_ends_is_left(planned):
    judgement = planned(
        {"pkg.aa": "1.0", "gpu.count": 0},
        {
            "curable": error({"pkg.aa": "<2"}, fix(constraints=["aa>=2"])),
            "by-hand": error({"gpu.count": "==0"}, fix(safety="manual")),
        },
    )
    assert ids(judgement, judgement.plan.clears) == ["curable"]
    assert ids(judgement, judgement.plan.leaves) == ["by-hand"]
    assert judgement.plan.note is None


def test_settings_are_part_of_the_plan(planned):
    judgement = planned(
        {"pkg.aa": "1.0", "recipe.batch_size": 2, "env.NCCL_NVLS_ENABLE": None},
        {
            "batch": error({"recipe.batch_size": ">1"}, fix(set={"recipe.batch_size": 1})),
            "variable": error({"env.NCCL_NVLS_ENABLE": "absent"}, fix(env={"NCCL_NVLS_ENABLE": "0"})),
        },
    )
    assert judgement.plan.set == {"recipe.batch_size": "1"}
    assert judgement.plan.commands == ("export NCCL_NVLS_ENABLE=0",)


def test_what_is_accepted_needs_no_plan(planned):
    assert planned(AA, {"r": OLD_A}, Policy(ignores=(Ignore("r", "on purpose"),))).plan is None


def test_what_the_search_had_no_judgements_left_for_gets_its_fix_all_the_same(planned, monkeypatch):
    monkeypatch.setattr("envdoctor.remedy.plan._BUDGET", 1)
    rules = {name * 2: error({f"pkg.{name * 2}": "<2"}, fix(constraints=[f"{name * 2}>=2"])) for name in "abc"}
    judgement = planned({"pkg.aa": "1.0", "pkg.bb": "1.0", "pkg.cc": "1.0"}, rules)
    assert judgement.plan.constraints == ("aa==2.0", "bb==2.0", "cc==2.0")


def test_errors_of_packages_and_of_the_recipe_get_one_plan():
    """A search that tries every release of one package before the next error never gets to the recipe."""
    facts = {
        **{"pkg.torch": "2.5.0+cu124", "pkg.torchvision": "0.20.0+cu124", "pkg.transformers": "4.46.3"},
        **{"pkg.tokenizers": "0.19.1", "python.version": "3.11.9", "os.platform": "linux", "os.arch": "x86_64"},
        **{"recipe.attn": "flash_attention_2", "recipe.dtype": "fp16", "recipe.batch_size": 2},
        "model.repo": "THUDM/glm-4-9b-chat-hf",
        # what transformers and tokenizers cannot be imported without
        **{"pkg.filelock": "3.20.0", "pkg.fsspec": "2025.9.0", "pkg.huggingface-hub": "0.36.2", "pkg.numpy": "1.26.4"},
        **{"pkg.packaging": "25.0", "pkg.pyyaml": "6.0.3", "pkg.regex": "2025.9.1", "pkg.requests": "2.32.5"},
        **{"pkg.safetensors": "0.6.2", "pkg.tqdm": "4.67.1", "pkg.typing-extensions": "4.15.0"},
    }
    matrix = shipped()
    judgement = with_plan(judged(given(facts, matrix.registry, complete=["pkg"]), matrix), matrix)
    shown = [finding for finding in judgement.findings if finding.superseded_by is None]
    errors = {finding.id for finding in shown if finding.severity == "error"}
    assert {"tokenizers-outside-transformers-window", "glm4-fp16-training-nan"} <= errors
    assert len(judgement.plan.clears) == len(errors)
    assert judgement.plan.set["recipe.dtype"] == "bf16" and judgement.plan.constraints == ("tokenizers==0.20.3",)


@pytest.mark.parametrize(
    ("pins", "present", "broken"),
    [
        ({"trl": "0.17.0", "transformers": "4.44.0"}, {}, "trl (>=4.46.0) asks for another transformers"),
        ({"trl": "0.17.0", "transformers": "4.46.0"}, {}, None),
        ({"vllm": "0.3.0"}, {"vllm": ABSENT, "torch": "2.13.0"}, "vllm (==2.1.2) asks for another torch"),
        ({"vllm": "0.3.0"}, {"vllm": ABSENT, "torch": "2.1.2"}, None),
    ],
)
def test_releases_that_refuse_each_other_are_not_installed_together(pins, present, broken):
    changed = tuple(Fact(f"pkg.{name}", version, "the fix", "given") for name, version in pins.items())
    now = before(FactSet(Fact(f"pkg.{name}", version, "", "given") for name, version in present.items()), load_matrix())
    found = try_remedy(Remedy({name: f"=={version}" for name, version in pins.items()}, facts=changed), now).broken
    assert found == (broken and f"it would break a requirement: {broken}")


def test_of_a_package_that_a_list_leaves_open_the_newest_that_allows_the_change_is_taken():
    versions, matrix = {"numpy": "2.4.6", "pandas": "3.1.1"}, load_matrix()
    needs = {"numpy": (), "pandas": ("numpy>=2.0.2",)}
    dists = tuple({"name": name, "version": versions[name], "kind": "lock", "requires": needs[name]} for name in needs)
    lists = {"dist": Records(dists), "refused": Records(()), "python.version": "3.11.9"}
    facts = [Fact(key, value, "", "environment") for key, value in lists.items()]
    facts += [Fact(f"pkg.{name}", version, "", "preset") for name, version in versions.items()]
    change = Remedy({"numpy": "==1.26.4"}, facts=(Fact("pkg.numpy", "1.26.4", "the fix", "given"),))
    pandas = apply(change, with_facts(FactSet(), facts, matrix), matrix).text("pkg.pandas")
    assert pandas and pandas.startswith("3.0.")  # 3.1 asks for numpy 2
