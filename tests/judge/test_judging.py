"""Findings: their texts, confidence and order, the gate, what is superseded, ignored, switched off or lowered."""

from __future__ import annotations

from datetime import date
from itertools import product

import known
import pytest

from envdoctor.facts import Fact, Unknown
from envdoctor.judge import CONFIDENCES, SEVERITIES, Assumption, Finding, Ignore, Judgement, Policy, Text, errors_of
from envdoctor.judge.policy import fails_gate, where_matches

TODAY = date(2026, 11, 20)
FACTS = {"pkg.torch": "2.5.0+cu118"}


def judged(matrix, facts, policy=None):
    return known.judged(facts, matrix, policy)


def by_id(judgement):
    return {finding.id: finding for finding in judgement.findings}


# --- the gate ------------------------------------------------------------------------------------------------------

FINDING = Finding("r", "active", "error", "upstream", "crash", Text("m"), Text("w"), (), (), "f")


@pytest.mark.parametrize(
    ("severity", "confidence", "status", "ignored", "superseded", "baseline"),
    list(
        product(
            SEVERITIES,
            CONFIDENCES,
            ("active", "preview"),
            (None, "known"),
            (None, "other"),
            (None, "new", "unchanged"),
        )
    ),
)
def test_the_gate_table(severity, confidence, status, ignored, superseded, baseline):
    finding = FINDING._replace(
        severity=severity,
        confidence=confidence,
        status=status,
        ignored=ignored,
        superseded_by=superseded,
        baseline=baseline,
    )
    for fail_on, fail_confidence in product(SEVERITIES, CONFIDENCES):
        fails = (
            SEVERITIES.index(severity) >= SEVERITIES.index(fail_on)
            and CONFIDENCES.index(confidence) >= CONFIDENCES.index(fail_confidence)
            and status == "active"
            and ignored is None
            and superseded is None
            and baseline != "unchanged"
        )
        assert fails_gate(finding, Policy(fail_on, fail_confidence)) is fails


def test_by_default_a_reported_error_fails_and_an_inferred_one_does_not(matrix_of, facts):
    matrix = matrix_of(
        {"reported": {"rule": {"confidence": "reported"}}, "inferred": {"rule": {"confidence": "inferred"}}}
    )
    found = by_id(judged(matrix, facts(FACTS)))
    assert found["reported"].gate and not found["inferred"].gate


def test_a_withdrawn_rule_says_nothing(matrix_of, facts):
    judgement = judged(matrix_of({"old": {"rule": {"status": "withdrawn"}}}), facts(FACTS))
    assert judgement.findings == () and judgement.rules_checked == 0


# --- texts and confidence ------------------------------------------------------------------------------------------


def test_a_finding_fills_in_the_users_versions_and_says_where_they_come_from(matrix_of, facts):
    finding = judged(matrix_of({"r": {}}), facts(FACTS)).findings[0]
    assert finding.message.en == "torch 2.5.0+cu118 fails"
    assert [(fact.key, fact.value, fact.origin) for fact in finding.facts] == [
        ("pkg.torch", "2.5.0+cu118", "facts.json")
    ]


def test_a_value_is_not_read_as_a_placeholder(matrix_of, facts):
    matrix = matrix_of({"r": {"affects": [{"model.family": "*"}], "message": {"en": "{model.family} and {pkg.torch}"}}})
    finding = judged(matrix, facts({"model.family": "{pkg.torch}", "pkg.torch": "2"})).findings[0]
    assert finding.message.en == "{pkg.torch} and 2"


def test_a_column_of_any_shows_the_values_that_fit(matrix_of, facts):
    matrix = matrix_of({"r": {"affects": [{"any(gpu.cc)": ">=9"}], "message": {"en": "compute capability {gpu.cc}"}}})
    gpus = [{"cc": "8.0"}, {"cc": "9.0"}, {"cc": "9.0"}, {"cc": "10.0"}]
    finding = judged(matrix, facts({"gpu": gpus})).findings[0]
    assert finding.message.en == "compute capability 9.0, 10.0"
    assert finding.facts[0].value == "9.0, 10.0"


def test_a_stale_translation_falls_back_to_english(matrix_of, facts):
    from envdoctor.knowledge import digest

    message = {"en": "torch fails", "zh": "torch 失败"}
    matrix = matrix_of(
        {
            "fresh": {"message": {**message, "zh_of": digest(message["en"])}},
            "stale": {"message": {**message, "zh_of": digest("an older wording")}},
            "unmarked": {"message": message},
        }
    )
    found = by_id(judged(matrix, facts(FACTS)))
    assert found["fresh"].message.zh and found["unmarked"].message.zh and found["stale"].message.zh is None


GUESS = {"key": "recipe.batch_size", "value": 8, "because": "most people do"}
BATCH = {"affects": [{"pkg.torch": "==2.5.0", "recipe.batch_size": ">=2"}]}


def test_a_guess_lowers_confidence_and_severity_one_step_and_a_default_does_not(matrix_of, facts):
    matrix = matrix_of(
        {"guess": {**BATCH, "assume": [GUESS]}, "default": {**BATCH, "assume": [{**GUESS, "default": True}]}}
    )
    found = by_id(judged(matrix, facts(FACTS)))
    assert (found["guess"].confidence, found["default"].confidence) == ("reported", "upstream")
    assert (found["guess"].severity, found["default"].severity) == ("warning", "error")
    assert found["guess"].caveats == ("a warning because of what is assumed, an error where it is so",)
    assert found["default"].caveats == ()
    for name, default in (("guess", False), ("default", True)):
        assert found[name].assumed == (Assumption("recipe.batch_size", "8", Text("most people do"), default),)
    assert "recipe.batch_size" not in [fact.key for fact in found["default"].facts]


def test_what_was_said_and_could_not_be_read_need_not_be_the_default(matrix_of, facts):
    computed = facts(FACTS)
    computed.add(Fact("recipe.batch_size", Unknown("the recipe computes it"), "train.py:3", "recipe"))
    found = judged(matrix_of({"r": {**BATCH, "assume": [{**GUESS, "default": True}]}}), computed).findings[0]
    assert (found.severity, found.confidence, found.assumed[0].default) == ("warning", "reported", False)


def test_a_severity_that_the_user_chose_stands_on_a_guess_too(matrix_of, facts):
    matrix = matrix_of({"r": {**BATCH, "assume": [GUESS]}})
    found = judged(matrix, facts(FACTS), Policy(severities={"r": "error"})).findings[0]
    assert (found.severity, found.caveats) == ("error", ())


def test_a_vendor_build_that_differs_from_its_base_release_lowers_the_confidence(matrix_of, facts):
    finding = judged(matrix_of({"r": {}}), facts({"pkg.torch": "2.5.0a0+872d972e41.nv24.08"})).findings[0]
    assert finding.confidence == "reported"
    assert "2.5.0a0+872d972e41.nv24.08" in finding.caveats[0] and "base release" in finding.caveats[0]


def test_an_open_exception_lowers_the_confidence_and_names_what_was_not_given(matrix_of, facts):
    finding = judged(matrix_of({"r": {"unless": [{"recipe.attn": "eager"}]}}), facts(FACTS)).findings[0]
    assert finding.confidence == "reported"
    assert "recipe.attn" in finding.caveats[0]


def test_confidence_falls_once_for_each_reason_and_not_below_inferred(matrix_of, facts):
    parts = {**BATCH, "assume": [GUESS], "unless": [{"recipe.attn": "eager"}], "rule": {"confidence": "reproduced"}}
    matrix = matrix_of({"r": parts, "low": {**parts, "rule": {"confidence": "reported"}}})
    found = by_id(judged(matrix, facts({"pkg.torch": "2.5.0a0+nv24.8"})))
    assert found["r"].confidence == "inferred" and len(found["r"].caveats) == 3  # the third: why it is a warning
    assert found["low"].confidence == "inferred"


# --- order and identity --------------------------------------------------------------------------------------------


def test_findings_come_by_severity_then_effect_then_id(matrix_of, facts):
    matrix = matrix_of(
        {
            "b-note": {"rule": {"severity": "note"}},
            "b-slow": {"rule": {"effect": "slow"}},
            "a-slow": {"rule": {"effect": "slow"}},
            "z-crash": {"rule": {"effect": "crash"}},
            "a-warning": {"rule": {"severity": "warning"}},
        }
    )
    ids = [finding.id for finding in judged(matrix, facts(FACTS)).findings]
    assert ids == ["z-crash", "a-slow", "b-slow", "a-warning", "b-note"]


def test_a_fingerprint_names_rule_and_record_and_no_version(matrix_of, facts):
    parts = {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=8", "pkg.torch": "present"}]}
    matrix = matrix_of({"r": parts})
    gpus = [{"index": 0, "name": "A100", "cc": "8.0"}, {"index": 1, "name": "A100", "cc": "8.0"}]
    first = judged(matrix, facts({"gpu": gpus, "pkg.torch": "2.5.0"})).findings
    second = judged(matrix, facts({"gpu": gpus, "pkg.torch": "2.6.0"})).findings
    assert [f.fingerprint for f in first] == [f.fingerprint for f in second]
    assert len({f.fingerprint for f in first}) == 2
    assert first[0].item == {"name": "A100", "index": "0"}


# --- what could not be checked -------------------------------------------------------------------------------------


def test_a_rule_that_cannot_be_told_is_listed_with_what_would_help(matrix_of, facts):
    judgement = judged(matrix_of({"r": {"affects": [{"pkg.torch": "==2.5.0", "model.family": "glm4"}]}}), facts(FACTS))
    (entry,) = judgement.not_checked
    assert (entry.id, dict(entry.missing), entry.help) == ("r", {"model.family": "not given"}, ("model",))
    assert judgement.rules_checked == 0


def test_a_rule_that_this_engine_cannot_read_is_not_checked_with_the_reason(matrix_of, facts):
    judgement = judged(matrix_of({"newer": {"schema": 2}, "odd": {"surprise": 1}, "r": {}}), facts(FACTS))
    reasons = {entry.id: entry.reason for entry in judgement.not_checked}
    assert "newer" in reasons["newer"] and "surprise" in reasons["odd"]
    assert judgement.rules_checked == 1


# --- one cause, one finding ----------------------------------------------------------------------------------------


def test_a_superseded_finding_stays_marked_and_does_not_gate(matrix_of, facts):
    matrix = matrix_of({"special": {"rule": {"supersedes": ["general"]}}, "general": {}})
    found = by_id(judged(matrix, facts(FACTS)))
    assert found["general"].superseded_by == "special" and not found["general"].gate
    assert found["special"].superseded_by is None and found["special"].gate


def test_a_rule_that_does_not_apply_supersedes_nothing(matrix_of, facts):
    matrix = matrix_of(
        {"special": {"rule": {"supersedes": ["general"]}, "affects": [{"pkg.torch": "==9"}]}, "general": {}}
    )
    assert by_id(judged(matrix, facts(FACTS)))["general"].gate


@pytest.mark.parametrize("weaker", [{"status": "preview"}, {"severity": "note"}, {"confidence": "inferred"}])
def test_standing_for_another_finding_never_weakens_the_gate(matrix_of, facts, weaker):
    matrix = matrix_of({"special": {"rule": {"supersedes": ["general"], **weaker}}, "general": {}})
    assert any(finding.gate for finding in judged(matrix, facts(FACTS)).findings)


def test_an_ignored_finding_stands_for_nothing(matrix_of, facts):
    matrix = matrix_of({"special": {"rule": {"supersedes": ["general"]}}, "general": {}})
    found = by_id(judged(matrix, facts(FACTS), Policy(ignores=(Ignore("special", "known"),))))
    assert found["general"].gate and found["general"].superseded_by is None


def test_a_chain_of_superseded_findings_ends_at_the_one_that_is_shown(matrix_of, facts):
    matrix = matrix_of({"a": {"rule": {"supersedes": ["b"]}}, "b": {"rule": {"supersedes": ["c"]}}, "c": {}})
    found = by_id(judged(matrix, facts(FACTS)))
    assert (found["b"].superseded_by, found["c"].superseded_by) == ("a", "a")
    assert [finding.id for finding in found.values() if finding.gate] == ["a"]


def test_rules_that_supersede_each_other_do_not_both_vanish(matrix_of, facts):
    matrix = matrix_of({"a": {"rule": {"supersedes": ["b"]}}, "b": {"rule": {"supersedes": ["a"]}}})
    found = by_id(judged(matrix, facts(FACTS)))
    assert found["a"].superseded_by is None and found["a"].gate
    assert found["b"].superseded_by == "a"


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
KERNEL = {
    "rule": {"each": "probe", "explained_by": {"kernel": ["device"]}},
    "affects": [{"probe.name": "kernel"}],
    "message": {"en": "{probe.dtype}"},
}
MODEL = {
    "rule": {"each": "probe", "explained_by": {"kernel": ["device", "dtype"]}},
    "affects": [{"probe.name": "model"}],
    "message": {"en": "{probe.dtype}"},
}


def records(judgement: Judgement) -> list[tuple[str, ...]]:
    """Device and dtype of the findings that a report shows, by rule."""
    found = [finding for finding in judgement.findings if finding.superseded_by is None and finding.ignored is None]
    return [(finding.id, finding.item["device"], finding.item.get("dtype", "")) for finding in found]


def test_a_finding_is_folded_into_one_about_another_record_that_explains_it(matrix_of, facts):
    judgement = judged(matrix_of({"kernel": KERNEL, "model": MODEL}), facts(RESULTS))
    assert records(judgement) == [("kernel", "cuda", "bf16"), ("model", "cpu", "bf16"), ("model", "cuda", "")]
    assert [finding.superseded_by for finding in judgement.findings].count("kernel") == 2
    kernel = judgement.findings[0]
    assert [fact.value for fact in kernel.facts if fact.key == "probe"] == ["kernel cuda fp16", "model cuda bf16"]


@pytest.mark.parametrize("weaker", [{"severity": "note"}, {"severity": "warning"}])
def test_a_weaker_finding_explains_nothing(matrix_of, facts, weaker):
    kernel = {**KERNEL, "rule": {**KERNEL["rule"], **weaker}}
    judgement = judged(matrix_of({"kernel": kernel, "model": MODEL}), facts(RESULTS))
    assert [entry[0] for entry in records(judgement)].count("model") == 3


def test_an_accepted_finding_explains_nothing(matrix_of, facts):
    policy = Policy(ignores=(Ignore("kernel", "known"),))
    judgement = judged(matrix_of({"kernel": KERNEL, "model": MODEL}), facts(RESULTS), policy)
    assert [entry[0] for entry in records(judgement)] == ["model"] * 3


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
    "rule": {
        "severity": "warning",
        "each": "conflict",
        "folds_into": ["conflict.package", "conflict.required_by"],
    },
    "affects": [{"conflict.kind": "conflict"}],
    "message": {"en": "{conflict.package} conflicts"},
}
HUB = {"affects": [{"pkg.huggingface-hub": "<1", "pkg.transformers": ">=5"}]}


def shown(judgement: Judgement) -> list[tuple[str, str]]:
    """Rule and package of the findings that a report shows."""
    return [
        (finding.id, finding.item.get("package", ""))
        for finding in judgement.findings
        if finding.superseded_by is None and finding.ignored is None
    ]


def test_a_conflict_is_folded_into_the_finding_that_says_what_its_packages_do_to_each_other(matrix_of, facts):
    judgement = judged(matrix_of({"general": GENERAL, "hub": HUB}), facts(CONFLICTS))
    assert shown(judgement) == [("hub", ""), ("general", "protobuf"), ("general", "datasets")]


@pytest.mark.parametrize(
    "other",
    [
        {"affects": [{"pkg.huggingface-hub": "<1"}]},  # says nothing of who asks
        {"affects": [{"pkg.huggingface-hub": "<1", "pkg.torch": "==2.5.0"}]},  # torch asks for nothing
        {**HUB, "rule": {"severity": "note"}},  # weaker than the conflict
    ],
)
def test_a_finding_of_something_else_does_not_stand_for_a_conflict(matrix_of, facts, other):
    judgement = judged(matrix_of({"general": GENERAL, "other": other}), facts(CONFLICTS))
    assert len([entry for entry in shown(judgement) if entry[0] == "general"]) == 3


def test_an_accepted_finding_no_longer_stands_for_a_conflict(matrix_of, facts):
    judgement = judged(
        matrix_of({"general": GENERAL, "hub": HUB}), facts(CONFLICTS), Policy(ignores=(Ignore("hub", "known"),))
    )
    assert ("general", "huggingface-hub") in shown(judgement)


def test_thousands_of_records_are_folded_and_offered_fixes_without_comparing_each_with_each(matrix_of, facts):
    # Each record compared with each, and its fix tried again, takes minutes.
    many = [{**CONFLICT, "package": f"p{number}", "required_by": ["transformers (<7)"]} for number in range(8000)]
    fix = [{"safety": "review", "constraints": ["transformers==5.22.0"], "summary": {"en": "use transformers 5.22.0"}}]
    general = {**GENERAL, "fix": fix}
    judgement = judged(
        matrix_of({"general": general, "hub": HUB}), facts({**CONFLICTS, "conflict": [*CONFLICTS["conflict"], *many]})
    )
    found = [finding for finding in judgement.findings if finding.id == "general"]
    assert len(found) == 8003
    assert [finding.item["package"] for finding in found if finding.superseded_by] == ["huggingface-hub"]
    assert all(finding.fixes == found[0].fixes != () for finding in found)


EXTENSIONS = {
    **FACTS,
    "extension": [{"package": "torchvision", "unresolved": 3}, {"package": "xformers", "unresolved": 5}],
    "torch_companion": [
        {"package": "torchvision", "same_build": False},
        {"package": "torchaudio", "same_build": False},
    ],
}
ABI = {"rule": {"each": "extension"}, "affects": [{"extension.unresolved": ">=1"}], "message": {"en": "abi"}}
BUILD = {
    "rule": {"each": "torch_companion", "supersedes": ["abi"]},
    "affects": [{"torch_companion.same_build": False}],
    "message": {"en": "build"},
}


def test_between_rules_over_records_only_the_same_record_is_folded(matrix_of, facts):
    judgement = judged(matrix_of({"abi": ABI, "build": BUILD}), facts(EXTENSIONS))
    assert sorted(shown(judgement)) == [("abi", "xformers"), ("build", "torchaudio"), ("build", "torchvision")]
    assert [finding.gate for finding in judgement.findings if finding.superseded_by] == [False]


def test_accepting_one_record_folds_the_others_all_the_same(matrix_of, facts):
    accepted = Policy(ignores=(Ignore("build", "known", where={"torch_companion.package": "torchvision"}),))
    judgement = judged(matrix_of({"abi": ABI, "build": BUILD}), facts(EXTENSIONS), accepted)
    assert ("abi", "torchvision") in shown(judgement)
    ignored = [finding for finding in judgement.findings if finding.ignored]
    assert len(ignored) == 1 and not ignored[0].gate


# --- what the project decided --------------------------------------------------------------------------------------


def test_a_rule_switched_off_is_neither_found_nor_counted(matrix_of, facts):
    judgement = judged(matrix_of({"r": {}}), facts(FACTS), Policy(severities={"r": "off"}))
    assert (judgement.findings, judgement.not_checked, judgement.rules_checked) == ((), (), 0)


def test_a_lowered_rule_no_longer_fails_the_run(matrix_of, facts):
    finding = judged(matrix_of({"r": {}}), facts(FACTS), Policy(severities={"r": "warning"})).findings[0]
    assert finding.severity == "warning" and not finding.gate


def test_an_ignored_finding_stays_with_its_reason(matrix_of, facts):
    judgement = judged(matrix_of({"r": {}}), facts(FACTS), Policy(ignores=(Ignore("r", "we patched it"),)))
    assert judgement.findings[0].ignored == "we patched it" and not judgement.findings[0].gate
    assert judgement.expired == judgement.dead == ()


def test_an_ignore_holds_on_its_last_day_and_not_after(matrix_of, facts):
    matrix = matrix_of({"r": {}})
    last = Ignore("r", "until then", until=TODAY)
    assert judged(matrix, facts(FACTS), Policy(ignores=(last,), today=TODAY)).findings[0].ignored
    over = last._replace(until=date(2026, 11, 19))
    judgement = judged(matrix, facts(FACTS), Policy(ignores=(over,), today=TODAY))
    assert judgement.findings[0].gate and judgement.expired == (over,)


def test_an_expired_ignore_beside_one_in_force_changes_nothing(matrix_of, facts):
    entries = (Ignore("r", "old", until=date(2020, 1, 1)), Ignore("r", "new"))
    judgement = judged(matrix_of({"r": {}}), facts(FACTS), Policy(ignores=entries))
    assert judgement.findings[0].ignored == "new"


def test_an_ignore_that_expired_is_named_once_for_many_records(matrix_of, facts):
    parts = {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=8"}]}
    entry = Ignore("r", "old", until=date(2020, 1, 1))
    gpus = [{"index": number, "name": "A100", "cc": "8.0"} for number in range(8)]
    assert judged(matrix_of({"r": parts}), facts({"gpu": gpus}), Policy(ignores=(entry,))).expired == (entry,)


def test_an_ignore_that_matched_nothing_is_dead_only_when_its_rule_was_decided(matrix_of, facts):
    matrix = matrix_of({"no": {"affects": [{"pkg.torch": "==9"}]}, "open": {"affects": [{"model.family": "x"}]}})
    entries = (Ignore("no", "…"), Ignore("open", "…"))
    assert judged(matrix, facts(FACTS), Policy(ignores=entries)).dead == entries[:1]


def test_an_ignore_with_where_accepts_only_that_record(matrix_of, facts):
    parts = {"rule": {"each": "gpu"}, "affects": [{"gpu.cc": ">=7"}]}
    gpus = [{"name": "Tesla T4", "cc": "7.5"}, {"name": "A100", "cc": "8.0"}]
    policy = Policy(ignores=(Ignore("r", "old card", where={"gpu.name": "tesla t4"}),))
    found = judged(matrix_of({"r": parts}), facts({"gpu": gpus}), policy).findings
    assert {finding.item["name"]: finding.ignored for finding in found} == {"Tesla T4": "old card", "A100": None}


def test_where_compares_facts_of_the_finding_too():
    from envdoctor.judge import FoundFact

    finding = FINDING._replace(
        facts=(FoundFact("model.name", "glm", ""),), item={"name": "A100"}, subjects=("gpu.cc", "model.name")
    )
    assert where_matches({"model.name": "glm"}, finding)
    assert not where_matches({"model.name": "A100"}, finding)
    assert where_matches({"gpu.name": "a100", "model.name": "GLM"}, finding)
    assert not where_matches({"gpu.uuid": "x"}, finding)


def test_a_model_without_a_name_is_this_model(matrix_of, facts):
    message = {"en": "{model.name} fails", "zh": "{model.name} 会失败"}
    matrix = matrix_of({"r": {"affects": [{"model.remote_code": True}], "message": message}})
    finding = judged(matrix, facts({"model.remote_code": True})).findings[0]
    assert (finding.message.en, finding.message.zh) == ("this model fails", "该模型 会失败")
    finding = judged(matrix, facts({"model.remote_code": True, "model.family": "glm4"})).findings[0]
    assert finding.message.en == "glm4 fails"


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
    matrix = matrix_of({"missing": MISSING, "takes": TAKES})
    known = facts({**FACTS, "broken_link": links, "conflict": missing})
    said = {finding.message.en for finding in judged(matrix, known).findings if finding.superseded_by is None}
    assert said == {"aiohttp is missing", "fsspec takes yarl"}
    causes, told = errors_of(known, matrix)
    assert {message.en for message in causes.values()} == said
    assert "datasets takes aiohttp" not in causes.values()
    assert len(told) == 5
