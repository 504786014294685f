"""A set of facts: the last one of a key holds, and what was never added is unknown."""

import json

import pytest

from envdoctor.facts import ABSENT, Fact, FactSet, Range, Records, Unknown, Unlisted, plain, restored, spell, written


def fact(key, value):
    return Fact(key, value, "here", "given")


def test_the_last_fact_of_a_key_holds_and_one_that_was_never_added_is_unknown():
    assert FactSet([fact("a", 1), fact("a", 2)]).value("a") == 2
    assert FactSet().value("pkg.torch") == Unknown("not given")


def test_in_a_complete_prefix_what_is_not_listed_is_absent():
    facts = FactSet([fact("pkg.torch", "2")])
    facts.declare_complete("pkg", "site-packages")
    assert facts.value("pkg.torch") == "2"
    assert facts.get("pkg.apex") == Fact("pkg.apex", ABSENT, "site-packages", "environment")
    assert isinstance(facts.value("package.apex"), Unknown)
    assert "pkg.apex" not in facts


def test_a_copy_is_independent():
    facts = FactSet([fact("a", 1)])
    twin = facts.copy()
    twin.add(fact("a", 2))
    twin.declare_complete("pkg", "x")
    assert facts.value("a") == 1 and isinstance(facts.value("pkg.b"), Unknown)


def test_dropping_a_prefix_forgets_only_what_is_below_it():
    facts = FactSet([fact("torch.cuda", "12.4"), fact("torchvision", "1"), fact("torch.hip", ABSENT)])
    facts.drop("torch.")
    assert [found.key for found in facts] == ["torchvision"] and len(facts) == 1


@pytest.mark.parametrize(
    ("value", "said", "data"),
    [
        ("2.5.0", "2.5.0", "2.5.0"),
        (True, "true", True),
        (2, "2", 2),
        (0.5, "0.5", 0.5),
        (80.0, "80", 80.0),
        (("a", "b"), "a, b", ["a", "b"]),
        ((), "none", []),
        (ABSENT, "absent", None),
        (Records(({"cc": "9.0", "name": Unknown("x"), "uuid": ABSENT},)), "1 item", [{"cc": "9.0", "uuid": None}]),
    ],
)
def test_a_value_as_a_person_and_as_a_program_reads_it(value, said, data):
    assert (spell(value), plain(value)) == (said, data)


def test_an_unknown_value_has_no_json_form():
    assert spell(Unknown("x")) == "unknown"
    with pytest.raises(ValueError, match="no JSON form: not given"):
        plain(Unknown("not given"))


def test_records_compare_by_items_and_completeness():
    one = Records(({"a": 1},))
    assert one == Records(({"a": 1},)) and one != Records(({"a": 1},), "cut off") and one != 4
    assert "incomplete=None" in repr(one) and len(one) == 1


VALUES = [
    *(
        1,
        1.5,
        True,
        "2.5.0",
        ("a", "b"),
        (),
        ABSENT,
        Unknown("why"),
        Range("<2", ("1.9",)),
        Range("40 or 80", (40, 80)),
    ),
    *(Unlisted("falsh", ["flash", "sdpa"]), Records(({"a": Range("<2"), "b": ABSENT},), "cut off")),
]


@pytest.mark.parametrize("value", VALUES)
def test_what_the_cache_keeps_of_a_value_is_all_of_it(value):
    again = restored(json.loads(json.dumps(written(value))))
    assert (repr(again), again) == (repr(value), value)
    for name in getattr(value, "__slots__", ()):
        assert getattr(again, name) == getattr(value, name)
