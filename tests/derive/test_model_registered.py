"""Whether the installed transformers has a class for the model's type, by the table of what each release registers."""

from __future__ import annotations

import pytest
from known import derived, given, keyed
from observing import shipped

from envdoctor.facts import ABSENT, Unknown

MATRIX = shipped()


def facts(**values):
    """Derived facts; two underscores stand for a dot."""
    return derived(given(keyed(**values), MATRIX.registry), MATRIX)


@pytest.mark.parametrize(
    ("transformers", "registered"),
    [
        ("4.50.3", False),
        ("4.51.0", True),
        ("4.51.0.dev0", True),
        ("5.23.0", True),
        ("5.99.0", True),
        ("4.20.0", False),
    ],
)
def test_a_type_is_known_from_its_first_release_on(transformers, registered):
    found = facts(model__type="qwen3", pkg__transformers=transformers)
    assert found.value("model.registered_since") == "4.51.0"
    assert found.value("model.registered") is registered


def test_a_type_that_was_taken_out_is_not_known_any_more():
    assert facts(model__type="nezha", pkg__transformers="4.57.6").value("model.registered") is True
    assert facts(model__type="nezha", pkg__transformers="5.0.0").value("model.registered") is False


def test_before_the_first_release_of_the_table_nothing_is_known():
    assert isinstance(facts(model__type="bert", pkg__transformers="4.20.0").value("model.registered"), Unknown)
    assert facts(model__type="bert", pkg__transformers="4.26.0").value("model.registered") is True


def test_what_no_release_has_and_what_no_table_lists():
    assert facts(model__type="chatglm", pkg__transformers="4.57.6").value("model.registered_since") is ABSENT
    assert isinstance(facts(model__type="of-tomorrow").value("model.registered_since"), Unknown)
    assert isinstance(facts(model__type="qwen3").value("model.registered"), Unknown)
