"""The shipped rules over any facts: no crash, and every text is filled."""

import re

import known
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from known import judged
from observing import shipped

from envdoctor.facts import ABSENT, Fact, FactSet, FactTypeError, Unknown, parse_value

MATRIX = shipped()
# Facts of the rules' own tests: the values near which they change their answer.
POOL: dict[str, list] = {}
for _rule in MATRIX.rules:
    for _test in MATRIX.texts(_rule)["test"]:
        for _key, _raw in _test["facts"].items():
            POOL.setdefault(_key, []).append(_raw)
VENDOR = {"pkg.torch": ["2.5.0a0+872d972e41.nv24.08", "2.6.0.dev20241112+cu121", "2.7.0.post1", "2.8.0+cpu", "v2.9"]}


def unfilled(text: str) -> bool:
    """Whether a placeholder such as ``{pkg.torch}`` was left; ``layers.{i}`` is a pattern of tensor names."""
    return re.search(r"\{[a-z_]+\.[\w.-]+\}", text) is not None


facts_near_the_bounds = st.dictionaries(st.sampled_from(sorted(POOL)), st.integers(0, 10_000), max_size=12)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(facts_near_the_bounds, st.sampled_from([(), ("pkg",), ("pkg", "env")]), st.integers(-20, 4))
def test_any_mixture_of_facts_is_judged(picked, complete, vendor):
    values = {key: POOL[key][number % len(POOL[key])] for key, number in picked.items()}
    if vendor >= 0:
        values["pkg.torch"] = VENDOR["pkg.torch"][vendor]
    judgement = judged(known.given(values, MATRIX.registry, complete), MATRIX)
    answered = {finding.id for finding in judgement.findings} | {entry.id for entry in judgement.not_checked}
    assert answered <= {rule.id for rule in MATRIX.rules}
    assert judgement.rules_checked + len(judgement.not_checked) == len(
        [rule for rule in MATRIX.rules if rule.status != "withdrawn"]
    )
    for finding in judgement.findings:
        assert not unfilled(finding.message.en), finding.message.en
        for fix in finding.fixes:
            assert fix.withheld is None or fix.commands == ()


@pytest.mark.parametrize("value", [ABSENT, Unknown("unreadable"), "", "not a version", "9" * 4000, "\u0662.5", (), -1])
def test_a_fact_of_any_shape_stops_no_rule(value):
    facts = FactSet(Fact(key, value, "", "environment") for key in POOL if MATRIX.registry.find(key).type != "records")
    judged(facts, MATRIX)


def test_the_embedded_facts_are_of_their_registered_types():
    for key, raws in POOL.items():
        spec = MATRIX.registry.find(key)
        assert spec is not None, key
        for raw in raws:
            try:
                parse_value(spec, raw)
            except FactTypeError as error:
                pytest.fail(f"{key}: {error}")
