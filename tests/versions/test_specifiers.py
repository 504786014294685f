"""Specifier sets: several become one that says no more than they do together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows

from envdoctor.versions import NotASpecifier, join_specifiers, satisfies

CLAUSE = st.builds(
    "{}{}.{}".format, st.sampled_from([">=", "<", "==", "!=", "<=", ">", "~="]), st.integers(0, 3), st.integers(0, 9)
)
SETS = st.lists(st.lists(CLAUSE, max_size=3).map(",".join), max_size=4)


@rows("sets joined")
def test_what_others_imply_is_left_out(sets, joined):
    assert join_specifiers(sets) == joined


@given(SETS, st.builds("{}.{}.{}".format, st.integers(0, 3), st.integers(0, 9), st.integers(0, 2)))
def test_a_version_is_in_the_joined_set_when_it_is_in_all(sets, version):
    joined = join_specifiers(sets)
    in_all = all(satisfies(version, one) for one in sets)
    if joined is not None:
        assert satisfies(version, joined) == in_all


def test_what_is_no_specifier_is_refused():
    with pytest.raises(NotASpecifier):
        join_specifiers(["1.0"])
