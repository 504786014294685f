"""Sets of releases: their algebra, the nearest run, and how they are spelled."""

from hypothesis import given
from hypothesis import strategies as st
from tables import rows

from envdoctor.versions import Releases, satisfies

READ = ["0.9", "1.0.0", "1.0.2", "1.1.0", "1.2.0rc1", "2.0.0", "2.0.0.post1", "2.1.3", "3.0"]
BETWEEN = ["0.1", "1.0.1", "1.0.2+cu126", "1.1.0.post2", "2.0.1", "9.9", "no version"]
SETS = st.lists(st.sampled_from([True, False, None]), min_size=len(READ), max_size=len(READ))
VERSIONS = st.sampled_from([*READ, *BETWEEN])


def some(marks: str) -> Releases:
    """``#`` has it, ``.`` has not, ``?`` is unknown."""
    return Releases.of(READ[: len(marks)], [{"#": True, ".": False}.get(mark) for mark in marks])


@given(SETS, SETS)
def test_a_no_beats_an_unknown_and_an_unknown_beats_a_yes(one, other):
    both = Releases.of(READ, one) & Releases.of(READ, other)
    either = Releases.of(READ, one) | Releases.of(READ, other)
    for place, version in enumerate(READ):
        pair = {one[place], other[place]}
        assert both.has(version) is (False if False in pair else None if None in pair else True)
        assert either.has(version) is (True if True in pair else None if None in pair else False)


@given(SETS, SETS, VERSIONS)
def test_the_complement_is_by_de_morgan_and_turns_every_answer(one, other, version):
    first, second = Releases.of(READ, one), Releases.of(READ, other)
    assert ~~first == first
    assert ~(first & second) == ~first | ~second
    there = first.has(version)
    assert (~first).has(version) is (None if there is None else not there)
    assert first.possible.has(version) is not False or there is False


@given(SETS, VERSIONS)
def test_the_nearest_run_is_unbroken_whole_and_none_is_nearer(answers, version):
    releases = Releases.of(READ, answers)
    near, at = releases.nearest(version), releases.place_of(version)
    places = [place for place, one in enumerate(READ) if one in near.versions]
    having = [place for place, answer in enumerate(answers) if answer is True]
    assert bool(places) == bool(having)
    if places:
        assert places == list(range(places[0], places[-1] + 1))
        assert not {places[0] - 1, places[-1] + 1} & set(having)
        assert min(abs(place - at) for place in places) == min(abs(place - at) for place in having)
        assert set(releases.by_distance(version)) == set(releases.versions)


@given(SETS, st.sampled_from(READ))
def test_what_is_spelled_has_those_that_were_read_and_no_other(answers, version):
    releases = Releases.of(READ, answers)
    spelled = (releases.specifier or "").split(" or ")
    there = releases.specifier is not None and any(satisfies(version, part) for part in spelled)
    assert there is (releases.has(version) is True)


@rows("versions marks text", tuples=True)
def test_a_bound_claims_nothing_of_patches_that_were_not_read(versions, marks, text):
    assert some(marks)._replace(read=versions).specifier == text


@rows("marks version near")
def test_the_nearest_run_is_the_newer_of_two(marks, version, near):
    assert some(marks).nearest(version) == some(near)


def test_those_that_have_it_by_distance():
    releases = some("##.##")
    assert releases.by_distance("1.0.2+cu126") == ["1.0.0", "1.1.0", "0.9", "1.2.0rc1"]
    assert releases.by_distance("") == ["1.2.0rc1", "1.1.0", "1.0.0", "0.9"]


@rows("marks version text")
def test_a_version_older_or_newer_than_all_is_not_in_the_range(marks, version, text):
    assert some(marks).excluding(version) == text


def test_a_doubt_goes_on():
    unsure = Releases.of(["1.0"], [None], "it makes names")
    assert [(unsure | some("#")).doubt, (some("#") & unsure).doubt, (~unsure).doubt] == ["it makes names"] * 3
