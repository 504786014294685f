"""Three answers: AND, OR, exceptions, assumptions, records. A missing fact never makes a rule pass or fail."""

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Unknown
from envdoctor.judge.evaluate import evaluate

# Three conditions with a value for each of the three answers; None leaves the fact out.
A = {"pkg.torch": "==2.5.0"}, {True: "2.5.0", False: "2.4.1", None: None}
B = {"recipe.batch_size": ">=2"}, {True: 2, False: 1, None: None}
C = {"model.family": "glm4"}, {True: "glm4", False: "llama", None: None}


def and_(*answers):
    return False if False in answers else None if None in answers else True


def or_(*answers):
    return True if True in answers else None if None in answers else False


def values(*pairs):
    return {key: known[wanted] for ((condition, known), wanted) in pairs for key in condition if known[wanted]}


@pytest.mark.parametrize(("a", "b"), list(product([True, False, None], repeat=2)))
def test_keys_of_a_clause_are_anded_and_clauses_are_ored(outcome, a, b):
    assert outcome({"affects": [{**A[0], **B[0]}]}, values((A, a), (B, b))).holds is and_(a, b)
    assert outcome({"affects": [A[0], B[0]]}, values((A, a), (B, b))).holds is or_(a, b)


@pytest.mark.parametrize(("a", "b", "c"), list(product([True, False, None], repeat=3)))
def test_an_exception_suppresses_only_when_it_is_yes(outcome, a, b, c):
    parts = {"affects": [A[0]], "unless": [B[0], C[0]]}
    found = outcome(parts, values((A, a), (B, b), (C, c)))
    expected = False if a is False or or_(b, c) is True else a
    assert found.holds is expected
    if found.holds:
        open_keys = {key for condition, answer in ((B[0], b), (C[0], c)) if answer is None for key in condition}
        assert set(found.matches[0].open_exceptions) == open_keys


def test_what_was_missing_is_named_with_its_reason(rule, registry):
    facts = FactSet([Fact("pkg.torch", Unknown("METADATA cannot be read"), "", "environment")])
    found = evaluate(rule(affects=[{**A[0], **B[0]}]), facts, registry)
    assert found.holds is None
    assert found.missing == {"pkg.torch": "METADATA cannot be read", "recipe.batch_size": "not given"}


def test_a_condition_that_says_no_leaves_nothing_missing(outcome):
    found = outcome({"affects": [{**A[0], **B[0]}]}, {"pkg.torch": "2.4.1"})
    assert found.holds is False and found.missing == {}


def test_a_complete_prefix_makes_unlisted_packages_absent(rule, facts, registry):
    absent = rule(affects=[{"pkg.flash-attn": "absent"}])
    assert evaluate(absent, facts({"pkg.torch": "2.5.0"}), registry).holds is None
    assert evaluate(absent, facts({"pkg.torch": "2.5.0"}, ("pkg",)), registry).holds is True


def test_a_package_that_is_there_with_an_unreadable_version_stays_unknown_in_a_complete_list(rule, facts, registry):
    given = facts({}, ("pkg",))
    given.add(Fact("pkg.torch", Unknown("no version in METADATA"), "", "environment"))
    assert evaluate(rule(), given, registry).holds is None


# --- assumptions, and versions that match as their base release ------------------------------------------------------


def assume(key, value, default=True):
    return {"key": key, "value": value, "because": "x", "default": default}


BATCH, BATCHES = "recipe.batch_size", [{**A[0], **B[0]}]
EIGHT, ONE = assume(BATCH, 8), assume(BATCH, 1)
EAGER, IS_EAGER = {"unless": [{"recipe.attn": "eager"}]}, assume("recipe.attn", "eager")
TORCH, VENDOR = {"pkg.torch": "2.5.0"}, {"pkg.torch": "2.5.0a0+872d972e41.nv24.08"}
GLM = {**TORCH, "model.family": "glm4", BATCH: 1}
ALL_THREE = [{**A[0], **B[0], **C[0]}]
SDPA_BATCH = [{"recipe.attn": "eager", BATCH: ">=2"}]


def guess(assumed):
    return {**assumed, "default": False}


@pytest.mark.parametrize(
    ("parts", "facts_given", "holds", "told"),
    [
        # a value that was not given is assumed and named, and one that was given is never replaced
        ({"affects": BATCHES, "assume": [EIGHT]}, TORCH, True, {"assumed": ((BATCH, 8, "x", True),)}),
        ({"affects": BATCHES, "assume": [EIGHT]}, {**TORCH, BATCH: 1}, False, {}),
        ({"affects": BATCHES, "assume": [EIGHT]}, {**TORCH, BATCH: 4}, True, {"assumed": ()}),
        # a documented default can clear, a guess can raise and never clears
        ({"affects": BATCHES, "assume": [ONE]}, TORCH, False, {}),
        ({"affects": BATCHES, "assume": [guess(EIGHT)]}, TORCH, True, {}),
        ({"affects": BATCHES, "assume": [guess(ONE)]}, TORCH, None, {}),
        ({"affects": ALL_THREE, "assume": [guess(assume("model.family", "glm4")), ONE]}, TORCH, False, {}),
        # an assumption alone does not decide what else is missing
        ({"affects": ALL_THREE, "assume": [EIGHT]}, TORCH, None, {"missing": {"model.family"}}),
        # an exception that a default decides is decided, and a guess does not make one hold
        (
            {**EAGER, "assume": [assume("recipe.attn", "sdpa")]},
            TORCH,
            True,
            {"open_exceptions": (), "assumed": (("recipe.attn", "sdpa", "x", True),)},
        ),
        ({**EAGER, "assume": [IS_EAGER]}, TORCH, False, {}),
        ({**EAGER, "assume": [guess(IS_EAGER)]}, TORCH, True, {"open_exceptions": ("recipe.attn",)}),
        # an assumption that changed nothing is not named
        (
            {
                "affects": [{**A[0], **C[0]}],
                "unless": SDPA_BATCH,
                "assume": [guess(assume("recipe.attn", "sdpa")), EIGHT],
            },
            GLM,
            True,
            {"assumed": ()},
        ),
        # a match as base release is marked, an exact one comes before it, and such an exception is open
        ({}, VENDOR, True, {"from_base": ("pkg.torch",)}),
        ({"affects": [{"pkg.torch": "==2.5.0"}, {"pkg.torch": "==2.5.*"}]}, VENDOR, True, {"from_base": ()}),
        (
            {"affects": [{"pkg.torch": "present"}], "unless": [{"pkg.torch": ">=2.5"}]},
            VENDOR,
            True,
            {"open_exceptions": ("pkg.torch",)},
        ),
    ],
)
def test_what_is_assumed_and_what_stays_open(outcome, parts, facts_given, holds, told):
    found = outcome(parts, facts_given)
    assert found.holds is holds
    for name, value in told.items():
        assert (set(found.missing) if name == "missing" else getattr(found.matches[0], name)) == value


# --- records -------------------------------------------------------------------------------------------------------

H100, A100, BARE = {"name": "H100", "cc": "9.0"}, {"name": "A100", "cc": "8.0"}, {"name": "?"}
EACH = {"rule": {"each": "gpu"}, "affects": [{"pkg.torch": "==2.5.0", "gpu.cc": ">=9.0"}]}
ANY = {"affects": [{"pkg.torch": "==2.5.0", "any(gpu.cc)": ">=9.0"}]}
ALL = {"affects": [{"pkg.torch": "==2.5.0", "all(gpu.cc)": ">=9.0"}]}
LOST = "the driver stopped answering"


def gpus(items, incomplete=None, torch="2.5.0"):
    return FactSet(
        [
            Fact("gpu", Records(tuple(items), incomplete), "NVML", "machine"),
            Fact("pkg.torch", torch, "METADATA", "environment"),
        ]
    )


@pytest.mark.parametrize(
    ("parts", "items", "incomplete", "expected"),
    [
        (EACH, [H100, A100], None, True),
        (EACH, [A100], None, False),
        (EACH, [], None, False),
        (EACH, [BARE], None, None),
        (EACH, [BARE, H100], None, True),
        (EACH, [A100], LOST, None),
        (EACH, [H100], LOST, True),
        (EACH, [], LOST, None),
        (ANY, [H100, A100], None, True),
        (ANY, [A100], None, False),
        (ANY, [], None, False),
        (ANY, [A100, BARE], None, None),
        (ANY, [A100], LOST, None),
        (ANY, [H100], LOST, True),
        (ALL, [H100, H100], None, True),
        (ALL, [H100, A100], None, False),
        (ALL, [H100, BARE], None, None),
        (ALL, [A100, BARE], None, False),
        (ALL, [H100], LOST, None),
        (ALL, [A100], LOST, False),
        (ALL, [], None, False),  # a statement about every GPU says nothing of a machine without one
    ],
)
def test_records_answer_yes_no_or_unknown(rule, registry, parts, items, incomplete, expected):
    assert evaluate(rule(**parts), gpus(items, incomplete), registry).holds is expected


def test_each_makes_one_match_an_item(rule, registry):
    found = evaluate(rule(**EACH), gpus([H100, A100, H100]), registry)
    assert [match.item for match in found.matches] == [H100, H100]


def test_a_machine_known_to_have_no_gpu_is_a_no(rule, registry):
    facts = FactSet([Fact("gpu", ABSENT, "", "given"), Fact("pkg.torch", "2.5.0", "", "given")])
    assert {evaluate(rule(**parts), facts, registry).holds for parts in (EACH, ANY, ALL)} == {False}


@pytest.mark.parametrize("parts", [EACH, ANY, ALL])
def test_why_the_list_is_unknown_is_what_was_missing(rule, registry, parts):
    facts = FactSet([Fact("gpu", Unknown("--no-gpu"), "", ""), Fact("pkg.torch", "2.5.0", "", "")])
    found = evaluate(rule(**parts), facts, registry)
    assert found.holds is None and set(found.missing.values()) == {"--no-gpu"}


@pytest.mark.parametrize("parts", [EACH, ANY, ALL])
def test_another_condition_says_no_although_the_list_is_unknown(outcome, parts):
    assert outcome(parts, {"pkg.torch": "2.4.1"}).holds is False


def test_why_the_list_is_incomplete_is_what_was_missing(rule, registry):
    assert LOST in evaluate(rule(**EACH), gpus([A100], LOST), registry).missing.values()
    assert LOST in evaluate(rule(**ANY), gpus([A100], LOST), registry).missing.values()
    present = rule(affects=[{"gpu": "absent"}])
    assert evaluate(present, gpus([], LOST), registry).missing == {"gpu": LOST}


def test_the_number_of_gpus_is_no_column(rule, registry):
    several = rule(rule={"each": "gpu"}, affects=[{"gpu.cc": ">=9", "gpu.count": ">=2"}])
    facts = gpus([H100])
    facts.add(Fact("gpu.count", 1, "", "derived"))
    assert evaluate(several, facts, registry).holds is False


def test_exceptions_and_assumptions_hold_for_each_item_by_itself(rule, registry):
    parts = {**EACH, "unless": [{"gpu.name": "h100"}]}
    found = evaluate(rule(**parts), gpus([H100, {"name": "H200", "cc": "9.0"}]), registry)
    assert [match.item["name"] for match in found.matches] == ["H200"]


def test_a_version_column_that_matches_as_base_release_is_marked(rule, registry):
    parts = {"affects": [{"any(dist.version)": "==2.5.0"}]}
    facts = FactSet([Fact("dist", Records(({"name": "torch", "version": "2.5.0a0+nv24.8"},)), "", "environment")])
    assert evaluate(rule(**parts), facts, registry).matches[0].from_base == ("dist.version",)


# --- any rule ------------------------------------------------------------------------------------------------------

clause = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3).map(
    lambda picked: {key: operand for condition, _ in picked for key, operand in condition.items()}
)
known = st.fixed_dictionaries({}, optional={"a": st.booleans(), "b": st.booleans(), "c": st.booleans()})


def truth(clauses, answers):
    """Kleene's OR of ANDs over the answers of the three conditions."""
    name = {"pkg.torch": "a", "recipe.batch_size": "b", "model.family": "c"}
    return or_(*(and_(*(answers.get(name[key]) for key in keys)) for keys in clauses))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(clause, min_size=1, max_size=3), st.lists(clause, max_size=2), known, known)
def test_any_rule_has_the_answer_of_three_valued_logic_and_facts_never_reverse_it(
    outcome, affects, unless, answers, more
):
    def ask(given_answers):
        facts = values(*((pair, given_answers.get(name)) for name, pair in (("a", A), ("b", B), ("c", C))))
        return outcome({"affects": affects, "unless": unless}, facts)

    found = ask(answers)
    applies, excepted = truth(affects, answers), truth(unless, answers)
    assert found.holds is (False if applies is False or excepted is True else applies)
    learned = ask({**more, **answers})
    if found.holds is False:
        assert learned.holds is False
    if found.holds is True and not found.matches[0].open_exceptions:
        assert learned.holds is True
    if found.holds is None:
        assert found.missing and set(found.missing) <= {"pkg.torch", "recipe.batch_size", "model.family"}
