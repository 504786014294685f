"""Findings: their texts, confidence and order, what is superseded, ignored, switched off or lowered."""

from datetime import date
from typing import Any

import known
import pytest

from envdoctor.facts import Fact, FactSet, Unknown
from envdoctor.judge import Assumption, Ignore, Judgement, Policy, Text, errors_of

TODAY = date(2026, 11, 20)
FACTS = {"pkg.torch": "2.5.0+cu118"}
VENDOR = {"pkg.torch": "2.5.0a0+872d972e41.nv24.08"}
GUESS = {"key": "recipe.batch_size", "value": 8, "because": "most people do"}
DEFAULT = {**GUESS, "default": True}
BATCH = {"affects": [{"pkg.torch": "==2.5.0", "recipe.batch_size": ">=2"}]}
EAGER = {"unless": [{"recipe.attn": "eager"}]}
DOUBTED = {**BATCH, **EAGER, "assume": [GUESS]}
SAYS_NAME = {"message": {"en": "{model.name} fails", "zh": "{model.name} 会失败"}}
REMOTE = {"model.remote_code": True}
A_OVER_B = {"rule": {"supersedes": ["b"]}}


@pytest.fixture
def judged(matrix_of, facts):
    """What hand-written rules say of facts; other words are the policy's."""

    def judge(rules, given=FACTS, **policy) -> Judgement:
        return known.judged(given if isinstance(given, FactSet) else facts(given), matrix_of(rules), Policy(**policy))

    return judge


def shown(judgement: Judgement, *columns: str) -> list[tuple[str, ...]]:
    """Rule and columns of the record of the findings that a report shows."""
    found = [finding for finding in judgement.findings if finding.superseded_by is None and finding.ignored is None]
    return [(finding.id, *(finding.item.get(column, "") for column in columns)) for finding in found]


def said(finding, name):
    """An attribute of a finding; of texts ``en`` and ``zh``, of facts their values by their keys."""
    if name in ("en", "zh"):
        return getattr(finding.message, name)
    return {fact.key: fact.value for fact in finding.facts} if name == "facts" else getattr(finding, name)


#: By what is told: the rules, of the findings by their rules what is so, and facts and a policy where they matter.
FOUND: dict[str, Any] = {
    "a reported error fails and an inferred one does not": (
        {"a": {"rule": {"confidence": "reported"}}, "b": {"rule": {"confidence": "inferred"}}},
        {"a": {"gate": True}, "b": {"gate": False}},
    ),
    "the user's versions are filled in": (
        {"r": {}},
        {"r": {"en": "torch 2.5.0+cu118 fails", "facts": {"pkg.torch": "2.5.0+cu118"}}},
    ),
    "a value is not read as a placeholder": (
        {"r": {"affects": [{"model.family": "*"}], "message": {"en": "{model.family} and {pkg.torch}"}}},
        {"r": {"en": "{pkg.torch} and 2"}},
        {"model.family": "{pkg.torch}", "pkg.torch": "2"},
    ),
    "a column of any shows the values that fit": (
        {"r": {"affects": [{"any(gpu.cc)": ">=9"}], "message": {"en": "compute capability {gpu.cc}"}}},
        {"r": {"en": "compute capability 9.0, 10.0", "facts": {"gpu.cc": "9.0, 10.0"}}},
        {"gpu": [{"cc": "8.0"}, {"cc": "9.0"}, {"cc": "9.0"}, {"cc": "10.0"}]},
    ),
    "a guess lowers confidence and severity one step and a default does not": (
        {"guess": {**BATCH, "assume": [GUESS]}, "default": {**BATCH, "assume": [DEFAULT]}},
        {
            "guess": {
                "confidence": "reported",
                "severity": "warning",
                "caveats": ("a warning because of what is not known for sure, an error where it is so",),
                "assumed": (Assumption("recipe.batch_size", "8", Text("most people do"), False),),
                "facts": FACTS,
            },
            "default": {
                "confidence": "upstream",
                "severity": "error",
                "caveats": (),
                "assumed": (Assumption("recipe.batch_size", "8", Text("most people do"), True),),
                "facts": FACTS,
            },
        },
    ),
    "a severity that the user chose stands on a guess too": (
        {"r": {**BATCH, "assume": [GUESS]}},
        {"r": {"severity": "error", "caveats": ()}},
        FACTS,
        {"severities": {"r": "error"}},
    ),
    "confidence falls once for each reason and not below inferred": (
        {
            "r": {**DOUBTED, "rule": {"confidence": "reproduced"}},
            "low": {**DOUBTED, "rule": {"confidence": "reported"}},
        },
        {"r": {"confidence": "inferred"}, "low": {"confidence": "inferred"}},
        {"pkg.torch": "2.5.0a0+nv24.8"},
    ),
    "a model without a name is this model": (
        {"r": {"affects": [REMOTE], **SAYS_NAME}},
        {"r": {"en": "this model fails", "zh": "该模型 会失败"}},
        REMOTE,
    ),
    "a model without a name goes by its family": (
        {"r": {"affects": [REMOTE], **SAYS_NAME}},
        {"r": {"en": "glm4 fails"}},
        {**REMOTE, "model.family": "glm4"},
    ),
    "a superseded finding stays marked and does not gate": (
        {"a": A_OVER_B, "b": {}},
        {"a": {"superseded_by": None, "gate": True}, "b": {"superseded_by": "a", "gate": False}},
    ),
    "a rule that does not apply supersedes nothing": (
        {"a": {**A_OVER_B, "affects": [{"pkg.torch": "==9"}]}, "b": {}},
        {"b": {"gate": True}},
    ),
    "an ignored finding stands for what comes of the same cause": (
        {"a": A_OVER_B, "b": {}},
        {"a": {"gate": False}, "b": {"superseded_by": "a", "gate": False}},
        FACTS,
        {"ignores": (Ignore("a", "known"),)},
    ),
    "an ignored finding does not stand for what is worse": (
        {"a": {"rule": {**A_OVER_B["rule"], "severity": "warning"}}, "b": {}},
        {"a": {"gate": False}, "b": {"superseded_by": None, "gate": True}},
        FACTS,
        {"ignores": (Ignore("a", "known"),)},
    ),
    "a chain of superseded findings ends at the one that is shown": (
        {"a": A_OVER_B, "b": {"rule": {"supersedes": ["c"]}}, "c": {}},
        {"a": {"gate": True}, "b": {"superseded_by": "a", "gate": False}, "c": {"superseded_by": "a", "gate": False}},
    ),
    "rules that supersede each other do not both vanish": (
        {"a": A_OVER_B, "b": {"rule": {"supersedes": ["a"]}}},
        {"a": {"superseded_by": None, "gate": True}, "b": {"superseded_by": "a"}},
    ),
    "a rule switched off is not found": ({"r": {}}, {}, FACTS, {"severities": {"r": "off"}}),
    "a withdrawn rule says nothing": ({"r": {"rule": {"status": "withdrawn"}}}, {}),
    "a lowered rule no longer fails the run": (
        {"r": {}},
        {"r": {"severity": "warning", "gate": False}},
        FACTS,
        {"severities": {"r": "warning"}},
    ),
    "an expired ignore beside one in force changes nothing": (
        {"r": {}},
        {"r": {"ignored": "new"}},
        FACTS,
        {"ignores": (Ignore("r", "old", until=date(2020, 1, 1)), Ignore("r", "new"))},
    ),
}


@pytest.mark.parametrize("told", FOUND)
def test_what_is_found(judged, told):
    rules, wanted, *more = FOUND[told]
    facts, policy = [*more, *(FACTS, {})[len(more) :]]
    judgement = judged(rules, facts, **policy)
    found = {one.id: {name: said(one, name) for name in wanted.get(one.id, ())} for one in judgement.findings}
    assert found == wanted
    assert judgement.rules_checked == (len(rules) if wanted else 0) and judgement.not_checked == ()


def test_a_finding_says_where_the_versions_come_from(judged):
    (finding,) = judged({"r": {}}).findings
    assert [(fact.key, fact.value, fact.origin) for fact in finding.facts] == [
        ("pkg.torch", "2.5.0+cu118", "facts.json")
    ]


def test_what_was_said_and_could_not_be_read_need_not_be_the_default(judged, facts):
    computed = facts(FACTS)
    computed.add(Fact("recipe.batch_size", Unknown("the recipe computes it"), "train.py:3", "recipe"))
    (found,) = judged({"r": {**BATCH, "assume": [DEFAULT]}}, computed).findings
    assert (found.severity, found.confidence, found.assumed[0].default) == ("warning", "reported", False)


@pytest.mark.parametrize(
    ("parts", "facts_given", "words"),
    [
        ({}, VENDOR, ["2.5.0a0+872d972e41.nv24.08", "base release"]),
        (EAGER, FACTS, ["recipe.attn"]),
        (DOUBTED, VENDOR, ["base release", "recipe.attn", "a warning because of what is not known for sure"]),
    ],
)
def test_each_doubt_lowers_the_confidence_and_is_named(judged, parts, facts_given, words):
    (finding,) = judged({"r": parts}, facts_given).findings
    assert finding.confidence == ("reported" if len(finding.caveats) == 1 else "inferred")
    assert all(word in " ".join(finding.caveats) for word in words) and len(finding.caveats) in (1, 3)


def test_findings_come_by_severity_then_effect_then_id(judged):
    rules = {
        "b-note": {"rule": {"severity": "note"}},
        "b-slow": {"rule": {"effect": "slow"}},
        "a-slow": {"rule": {"effect": "slow"}},
        "z-crash": {"rule": {"effect": "crash"}},
        "z-install": {"rule": {"effect": "install"}},  # it stops first
        "a-warning": {"rule": {"severity": "warning"}},
    }
    found = [name for (name,) in shown(judged(rules))]
    assert found == ["z-install", "z-crash", "a-slow", "b-slow", "a-warning", "b-note"]


def test_a_fingerprint_names_rule_and_record_and_no_version(judged):
    rules = {"r": {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=8", "pkg.torch": "present"}]}}
    gpus = [{"index": 0, "name": "A100", "cc": "8.0"}, {"index": 1, "name": "A100", "cc": "8.0"}]
    first, second = (judged(rules, {"gpu": gpus, "pkg.torch": torch}).findings for torch in ("2.5.0", "2.6.0"))
    assert [f.fingerprint for f in first] == [f.fingerprint for f in second]
    assert len({f.fingerprint for f in first}) == 2
    assert first[0].item == {"name": "A100", "index": "0"}


def test_a_rule_that_cannot_be_told_is_listed_with_what_would_help(judged):
    judgement = judged({"r": {"affects": [{"pkg.torch": "==2.5.0", "model.family": "glm4"}]}})
    (entry,) = judgement.not_checked
    assert (entry.id, dict(entry.missing), entry.help) == ("r", {"model.family": "not given"}, ("model",))
    assert judgement.rules_checked == 0


def test_a_rule_that_this_engine_cannot_read_is_not_checked_with_the_reason(judged):
    judgement = judged({"newer": {"schema": 2}, "odd": {"surprise": 1}, "r": {}})
    reasons = {entry.id: entry.reason for entry in judgement.not_checked}
    assert "newer" in reasons["newer"] and "surprise" in reasons["odd"]
    assert judgement.rules_checked == 1


@pytest.mark.parametrize("weaker", [{"status": "preview"}, {"severity": "note"}, {"confidence": "inferred"}])
def test_standing_for_another_finding_never_weakens_the_gate(judged, weaker):
    judgement = judged({"special": {"rule": {"supersedes": ["general"], **weaker}}, "general": {}})
    assert any(finding.gate for finding in judgement.findings)


RESULTS = {
    **FACTS,
    "probe": [
        {"name": "kernel", "device": "cuda", "dtype": "bf16", "verdict": "fail"},
        {"name": "kernel", "device": "cuda", "dtype": "fp16", "verdict": "fail"},
        {"name": "model", "device": "cuda", "dtype": "bf16", "verdict": "fail"},
        {"name": "model", "device": "cpu", "dtype": "bf16", "verdict": "fail"},
        {"name": "model", "device": "cuda", "dtype": "absent", "verdict": "fail"},
    ],
}


def about(name, *columns, **head):
    """A rule over the results of a probe, which a finding of ``kernel`` explains where these columns are the same."""
    return {
        "rule": {"each": "probe", "explained_by": {"kernel": list(columns)}, **head},
        "affects": [{"probe.name": name}],
        "message": {"en": "{probe.dtype}"},
    }


KERNEL, MODEL = about("kernel", "device"), about("model", "device", "dtype")


def test_a_finding_is_folded_into_one_about_another_record_that_explains_it(judged):
    judgement = judged({"kernel": KERNEL, "model": MODEL}, RESULTS)
    assert shown(judgement, "device", "dtype") == [
        ("kernel", "cuda", "bf16"),
        ("model", "cpu", "bf16"),
        ("model", "cuda", ""),
    ]
    assert [finding.superseded_by for finding in judgement.findings].count("kernel") == 2
    kernel = judgement.findings[0]
    assert [fact.value for fact in kernel.facts if fact.key == "probe"] == ["kernel cuda fp16", "model cuda bf16"]


@pytest.mark.parametrize("severity", ["note", "warning"])
def test_a_finding_that_is_weaker_explains_nothing(judged, severity):
    judgement = judged({"kernel": about("kernel", "device", severity=severity), "model": MODEL}, RESULTS)
    assert shown(judgement).count(("model",)) == 3


CONFLICT = {"package": "huggingface-hub", "kind": "conflict", "installed": "0.36.0"}
CONFLICTS = {
    **FACTS,
    "pkg.huggingface-hub": "0.36.0",
    "pkg.transformers": "5.23.0",
    "conflict": [
        {**CONFLICT, "required_by": ["datasets (>=1.0)", "transformers (>=1.3.0,<3.0)"]},
        {**CONFLICT, "package": "protobuf", "required_by": ["transformers (<7)"]},
        {**CONFLICT, "package": "datasets", "required_by": ["trl (>=3)"]},
    ],
}
GENERAL = {
    "rule": {"severity": "warning", "each": "conflict", "folds_into": ["conflict.package", "conflict.required_by"]},
    "affects": [{"conflict.kind": "conflict"}],
    "message": {"en": "{conflict.package} conflicts"},
}
HUB = {"affects": [{"pkg.huggingface-hub": "<1", "pkg.transformers": ">=5"}]}


def test_a_conflict_is_folded_into_the_finding_that_says_what_its_packages_do_to_each_other(judged):
    judgement = judged({"general": GENERAL, "hub": HUB}, CONFLICTS)
    assert shown(judgement, "package") == [("hub", ""), ("general", "protobuf"), ("general", "datasets")]
    covering = {"rule": {"each": "conflict", "covers": ["conflict.package"]}, "affects": GENERAL["affects"]}
    covering["message"] = GENERAL["message"]
    judgement = judged({"cause": covering, "hub": HUB}, CONFLICTS)
    assert ("hub", "") not in shown(judgement, "package") and len(shown(judgement, "package")) == 3
    accepted = judged({"cause": covering, "hub": HUB}, CONFLICTS, ignores=(Ignore("cause", "not there in the job"),))
    assert shown(accepted, "package") == [("hub", "")]  # who accepts what stands in front is told what is behind it


@pytest.mark.parametrize(
    "other",
    [
        {"affects": [{"pkg.huggingface-hub": "<1"}]},  # says nothing of who asks
        {"affects": [{"pkg.huggingface-hub": "<1", "pkg.torch": "==2.5.0"}]},  # torch asks for nothing
        {**HUB, "rule": {"severity": "note"}},  # weaker than the conflict
    ],
)
def test_a_finding_of_something_else_does_not_stand_for_a_conflict(judged, other):
    judgement = judged({"general": GENERAL, "other": other}, CONFLICTS)
    assert shown(judgement).count(("general",)) == 3


def test_thousands_of_records_are_folded_and_offered_fixes_without_comparing_each_with_each(judged):
    # Each record compared with each, and its fix tried again, takes minutes.
    many = [{**CONFLICT, "package": f"p{number}", "required_by": ["transformers (<7)"]} for number in range(8000)]
    fix = [{"safety": "review", "constraints": ["transformers==5.22.0"], "summary": {"en": "use transformers 5.22.0"}}]
    rules = {"general": {**GENERAL, "fix": fix}, "hub": HUB}
    judgement = judged(rules, {**CONFLICTS, "conflict": [*CONFLICTS["conflict"], *many]})
    found = [finding for finding in judgement.findings if finding.id == "general"]
    assert len(found) == 8003
    assert [finding.item["package"] for finding in found if finding.superseded_by] == ["huggingface-hub"]
    assert all(finding.fixes == found[0].fixes != () for finding in found)


EXTENSIONS = {
    **FACTS,
    "extension": [{"package": "torchvision", "unresolved": 3}, {"package": "xformers", "unresolved": 5}],
    "torch_companion": [{"package": name, "apart": "minor"} for name in ("torchvision", "torchaudio")],
}
ABI_AND_BUILD = {
    "abi": {"rule": {"each": "extension"}, "affects": [{"extension.unresolved": ">=1"}], "message": {"en": "abi"}},
    "build": {
        "rule": {"each": "torch_companion", "supersedes": ["abi"]},
        "affects": [{"torch_companion.apart": "minor"}],
        "message": {"en": "build"},
    },
}


def test_between_rules_over_records_only_the_same_record_is_folded(judged):
    judgement = judged(ABI_AND_BUILD, EXTENSIONS)
    expected = [("abi", "xformers"), ("build", "torchaudio"), ("build", "torchvision")]
    assert sorted(shown(judgement, "package")) == expected
    assert [finding.gate for finding in judgement.findings if finding.superseded_by] == [False]
    accepted = Ignore("build", "known", where={"torch_companion.package": "torchvision"})
    judgement = judged(ABI_AND_BUILD, EXTENSIONS, ignores=(accepted,))
    assert ("abi", "torchvision") not in shown(judgement, "package")
    assert [finding.gate for finding in judgement.findings if finding.ignored] == [False]


MISSING = {
    "rule": {"each": "conflict", "folds_into": ["conflict.package"]},
    "affects": [{"conflict.kind": "missing"}],
    "message": {"en": "{conflict.package} is missing"},
}
TAKES = {
    "rule": {"each": "broken_link", "folds_into": ["broken_link.provider"], "explained_by": {"takes": ["provider"]}},
    "affects": [{"broken_link.kind": "module"}],
    "message": {"en": "{broken_link.consumer} takes {broken_link.provider}"},
}


def test_a_missing_package_is_one_error_whoever_asks_for_it(matrix_of, facts):
    takes = [("datasets", "aiohttp"), ("fsspec", "aiohttp"), ("fsspec", "yarl"), ("gradio", "yarl")]
    links = [{"consumer": a, "provider": b, "kind": "module", "name": b} for a, b in takes]
    missing = [{"package": "aiohttp", "kind": "missing", "required_by": ["datasets"]}]
    matrix, given = matrix_of({"missing": MISSING, "takes": TAKES}), {"broken_link": links, "conflict": missing}
    stack = facts({**FACTS, **given})
    judgement = known.judged(stack, matrix)
    said = {finding.message.en for finding in judgement.findings if finding.superseded_by is None}
    assert said == {"aiohttp is missing", "fsspec takes yarl"}
    causes, told = errors_of(stack, matrix)
    assert {message.en for message in causes.values()} == said
    assert "datasets takes aiohttp" not in causes.values()
    assert len(told) == 5
