"""``--set key=value``: one fact at a time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import cases

from envdoctor.facts import ABSENT, FactSet, Records
from envdoctor.matrix import load_toml
from envdoctor.observe import AssignmentError, parse_assignments

CASES = cases("assignments.toml")

TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "recipes" / "assignments.toml")


@pytest.fixture
def parse(matrix):
    """Facts from texts; the last one wins."""
    return lambda *texts: FactSet(parse_assignments(texts, matrix.registry))


@pytest.mark.parametrize(("text", "key", "value"), CASES["value_read_as"])
def test_a_value_is_read_as_its_key_says(parse, text, key, value):
    fact = parse(text).get(key)
    assert fact.value == value and fact.origin == "--set"


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        (("recipe.packing", True), "recipe.packing", True),
        (("pkg.torch", 2.5), "pkg.torch", "2.5"),
        (("recipe.kernels", ["liger", "unsloth"]), "recipe.kernels", ("liger", "unsloth")),
        (("gpu.name", ["a, b"]), "gpu", Records(({"name": "a, b"},))),
        (("gpu.name", "a, b"), "gpu", Records(({"name": "a"}, {"name": "b"}))),
    ],
)
def test_a_value_that_is_at_hand_is_no_text_to_be_taken_apart(parse, given, key, value):
    assert parse(given).value(key) == value


def test_the_last_one_of_a_key_wins(parse):
    assert parse("recipe.batch_size=2", "recipe.batch_size=4").value("recipe.batch_size") == 4
    assert parse("gpu.cc=9.0", "gpu=absent").value("gpu") is ABSENT


@pytest.mark.parametrize(("texts", "items"), CASES["columns_describe_items"])
def test_columns_describe_items_one_after_the_other(parse, texts, items):
    assert parse(*texts).value("gpu") == Records(tuple(items))


@pytest.mark.parametrize(("text", "sentence"), TABLE["refused"])
def test_a_wrong_assignment_is_one_sentence(parse, text, sentence):
    with pytest.raises(AssignmentError) as caught:
        parse(text)
    assert sentence in str(caught.value)


def test_the_origin_is_named_in_facts_and_faults(matrix):
    (fact,) = parse_assignments(["recipe.batch_size=2"], matrix.registry, "pyproject.toml")
    assert fact.origin == "pyproject.toml"
    with pytest.raises(AssignmentError, match=r"^pyproject\.toml x=1: "):
        parse_assignments(["x=1"], matrix.registry, "pyproject.toml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=12) | st.from_regex(r"(gpu\.(cc|name)|gpu|recipe\.packing|pkg\.x)=.{0,6}")))
def test_any_text_is_read_or_refused(matrix, texts):
    try:
        parse_assignments(texts, matrix.registry)
    except AssignmentError as error:
        assert str(error)
