"""The registry: which keys exist, and what may be given for each."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows

from envdoctor.facts import (
    ABSENT,
    Absent,
    FactSpec,
    FactTypeError,
    Records,
    Registry,
    canonical_key,
    parse_value,
)
from envdoctor.matrix import Schemas, load_toml

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
REGISTRY = Registry.from_mapping(load_toml(MATRICES / "facts.toml"))


def spec(kind):
    columns = {"cc": spec("dotted"), "name": spec("text")} if kind == "records" else {}
    return FactSpec("k", kind, columns=columns)


def test_every_fact_has_a_meaning_and_every_help_exists():
    for entry in REGISTRY:
        assert entry.meaning, entry.key
        assert entry.help in REGISTRY.help_texts, entry.key
        for column in entry.columns.values():
            assert column.meaning, column.key
        assert set(entry.identity) <= set(entry.columns), entry.key


@pytest.mark.parametrize(
    ("key", "kind", "records"),
    [("pkg.torch", "version", None), ("gpu.cc", "dotted", "gpu"), ("gpu.count", "number", None)],
)
def test_a_key_below_a_star_and_a_record_column_are_found(key, kind, records):
    assert REGISTRY.find(key).type == kind
    assert getattr(REGISTRY.records_of(key), "key", None) == records


@pytest.mark.parametrize("key", ["pkg.", "pkg", "gpu.colour", "torch", "", ".", "nothing.at.all"])
def test_a_key_that_nobody_registered(key):
    assert REGISTRY.find(key) is None


@rows("entry")
def test_a_wrong_entry_is_named(entry):
    whole = {"meaning": "what it says", "help": "model", **entry}
    document = {"schema": 1, "help": {}, "fact": {"my.key": whole}}
    (fault,) = Schemas(MATRICES / "schema").faults("facts", document)
    assert fault.startswith("fact: my.key: ")


KINDS = ["text", "texts", "number", "boolean", "version", "dotted", "records"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", [None, "absent"])
def test_null_and_the_word_absent_mean_known_to_be_absent(kind, raw):
    assert parse_value(spec(kind), raw) is ABSENT


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("text", "bf16", "bf16"),
        ("texts", ["a", "b"], ("a", "b")),
        ("texts", [], ()),
        ("texts", "a, b", ("a", "b")),
        ("number", 2, 2),
        ("number", "2", 2),
        ("number", "0.5", 0.5),
        ("number", "3", 3),
        ("boolean", True, True),
        ("boolean", "False", False),
        ("boolean", "yes", True),
        ("version", "2.5.0+cu118", "2.5.0+cu118"),
        ("version", "2.5.0a0+872d972e41.nv24.08", "2.5.0a0+872d972e41.nv24.08"),
        ("dotted", "12.4", "12.4"),
        ("records", [{"cc": "9.0"}], Records(({"cc": "9.0"},))),
        ("records", [{"cc": None}], Records(({"cc": ABSENT},))),
        ("records", [], Records(())),
    ],
)
def test_a_value_that_fits_is_kept(kind, raw, value):
    assert parse_value(spec(kind), raw) == value


@rows("kind raw problem", ("text", "x" * 5000, "5000 characters"), ("version", "1." * 1000 + "x", "..."))
def test_a_value_that_does_not_fit_is_refused_with_what_was_expected(kind, raw, problem):
    with pytest.raises(FactTypeError) as caught:
        parse_value(spec(kind), raw)
    assert problem in str(caught.value) and len(str(caught.value)) < 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), json_values)
def test_any_json_value_is_kept_or_refused_in_one_sentence(kind, raw):
    try:
        value = parse_value(spec(kind), raw)
    except FactTypeError as error:
        assert str(error)
    else:
        assert isinstance(value, (str, int, float, bool, tuple, Absent, Records))


@given(st.text(max_size=20) | st.text("0123456789.٥-+ ", max_size=20))
def test_dotted_integers_are_only_that(text):
    try:
        parse_value(spec("dotted"), text)
    except FactTypeError:
        return
    assert text == "absent" or (text.replace(".", "").isdecimal() and text.isascii())


@given(st.text(alphabet="aB1-_.", max_size=10))
def test_names_of_packages_are_normalised_as_pep_503_does(name):
    assert canonical_key("pkg." + name) == "pkg." + re.sub(r"[-_.]+", "-", name).lower()
    assert canonical_key("model." + name) == "model." + name


@pytest.mark.parametrize(
    ("raw", "specifiers"),
    [("installed", ""), (">=0.15, <0.17", ">=0.15,<0.17"), ("==0.20.*", "==0.20.*"), ("~=1.2", "~=1.2")],
)
def test_of_a_package_a_range_is_taken(raw, specifiers):
    assert parse_value(FactSpec("pkg.*", "version"), raw).specifiers == specifiers


@pytest.mark.parametrize("raw", [">=banana", ">=1 or <3", "===1", "=>1", ">=1\x1b", "newest", ">"])
def test_what_is_no_range_is_refused(raw):
    with pytest.raises(FactTypeError, match="by PEP 440 is expected"):
        parse_value(FactSpec("pkg.*", "version"), raw)
