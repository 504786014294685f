"""Versions against specifier sets: the same answers as packaging gives, without importing it."""

import subprocess
import sys

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from envdoctor.versions import NotASpecifier, satisfies

numbers = st.integers(min_value=0, max_value=3).map(str)
releases = st.lists(numbers, min_size=1, max_size=4).map(".".join)
steps = st.sampled_from(
    ["", "", "", "a1", "b2", "rc1", ".dev0", "rc1.dev2", ".post1", ".post1.dev3", "-1", "alpha", "C3"]
)
locals_ = st.sampled_from(["", "", "", "+cu118", "+cpu", "+CU.118", "+01"])
epochs = st.sampled_from(["", "", "", "1!", "0!"])
versions = st.builds("".join, st.tuples(epochs, releases, steps, locals_))
bounds = st.builds("".join, st.tuples(epochs, releases, steps))
clauses = st.one_of(
    st.builds("".join, st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~="]), bounds)),
    st.builds("".join, st.tuples(st.sampled_from(["==", "!="]), releases, st.just(".*"))),
    st.builds("".join, st.tuples(st.sampled_from(["==", "!="]), versions)),
)


def disputed(version: str, clause: str) -> bool:
    """Whether releases of packaging differ there: 1.0.post1 or 1.0+cpu above 1.0rc1 or 1.0.post0, 1.0a1 below
    1.0.post1."""
    operator = clause.rstrip("0123456789abcdevoprst.!+CUlu-_*")
    if operator not in ("<", ">"):
        return False
    left, right = Version(version), Version(clause[1:])
    if left.base_version != right.base_version:
        return False
    if operator == "<":
        return right.is_postrelease and left.is_prerelease
    return (right.is_prerelease or right.is_postrelease) and (left.is_postrelease or left.local is not None)


@given(versions, st.lists(clauses, min_size=1, max_size=3).map(",".join))
@example("1.0", "~=1")
@example("1.0+cpu", "<1.0.post1")
def test_answers_are_those_of_packaging(version: str, specifiers: str) -> None:
    assume(not any(disputed(version, clause) for clause in specifiers.split(",")))
    try:
        expected: bool | None = SpecifierSet(specifiers).contains(version, prereleases=True)
    except InvalidSpecifier:
        expected = None
    try:
        answer: bool | None = satisfies(version, specifiers)
    except NotASpecifier:
        answer = None
    assert answer == expected


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_gives_an_answer_or_is_no_specifier(version: str, specifiers: str) -> None:
    try:
        satisfies(version, specifiers)
    except NotASpecifier:
        pass


@pytest.mark.parametrize("text", [">=", ">=1.*", "1.0", ">=1.0+cpu", "~=1", "==1.0rc1.*", ">=1 2", "=>1"])
def test_what_pep_440_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(NotASpecifier):
        satisfies("1.0", text)


def test_an_arbitrary_equality_compares_the_text() -> None:
    assert satisfies("1.0", "===1.0")
    assert not satisfies("1.0", "===1.0.0")


def test_usual_specifiers_do_not_import_packaging() -> None:
    code = (
        "import sys; from envdoctor.versions import satisfies as s; "
        "assert s('2.0rc1', '>=1.0b2,<3,!=2.1.*,~=2.0rc0') and not s('1!1.post1.dev2+x', '>1!1'); "
        "sys.exit('packaging' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
