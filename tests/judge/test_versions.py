"""Comparing versions: PEP 440 with pre-releases counted, vendor builds, dotted integers, texts and numbers."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tables import rows

from envdoctor.facts import ABSENT, FactSpec, FactTypeError, Range, Records, Registry, Unknown, parse_value
from envdoctor.judge import answer
from envdoctor.matrix import ConditionError, parse_condition
from envdoctor.versions import VersionAnswer, base_release, satisfies


def answered(registry, key, operand, value):
    """The answer of a value to a condition."""
    parsed = parse_condition(registry, key, operand)
    return answer(parsed.type, parsed.alternatives, value)


# --- against packaging ---------------------------------------------------------------------------------------------

numbers = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffix = st.sampled_from(["", "", "", "a0", "a1", "b2", "rc1", ".post1", ".post2", ".dev3", "rc1.dev2", ".post1.dev1"])
local = st.sampled_from(["", "", "", "+cu118", "+cpu", "+cu124.full", "+872d972e41.nv24.08", "+1", "+cu12torch2.6"])
epoch = st.sampled_from(["", "", "", "", "1!"])
prefix = st.sampled_from(["", "", "", "v"])
versions = st.builds(lambda v, e, n, s, t: f"{v}{e}{n}{s}{t}", prefix, epoch, numbers, suffix, local)
written = st.one_of(
    st.builds(lambda o, n, s: f"{o}{n}{s}", st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers, suffix),
    st.builds(lambda o, n: f"{o}{n}.*", st.sampled_from(["==", "!="]), numbers),
)
specifiers = st.lists(written, min_size=1, max_size=3).map(",".join)


KINDS = {"pkg.*": "version", "driver.version": "dotted"}
OWN = Registry.from_mapping({"fact": {key: {"type": kind, "meaning": ""} for key, kind in KINDS.items()}})


@settings(max_examples=150)
@given(versions, specifiers)
def test_every_version_and_specifier_gets_packagings_answer_or_that_of_its_base_release(version, specifier):
    given_answer = answered(OWN, "pkg.torch", specifier, version)
    exact = SpecifierSet(specifier).contains(version, prereleases=True)
    base = SpecifierSet(specifier).contains(Version(version).base_version, prereleases=True)
    if given_answer.from_base:
        assert given_answer.holds is True and exact is not base
    elif given_answer.holds is None:
        assert Version(version).is_prerelease and exact is not base
    elif exact is base:
        assert given_answer.holds is exact
    else:
        # The bound is itself a pre- or post-release of this release: its answer is exact.
        assert given_answer.holds is exact
        parts = [Version(part.lstrip("<>=!~")) for part in specifier.split(",") if not part.endswith(".*")]
        assert any(
            (part.is_prerelease or part.is_postrelease)
            and Version(part.base_version) == Version(Version(version).base_version)
            for part in parts
        )


@settings(max_examples=150)
@given(numbers, local, specifiers)
def test_a_plain_release_gets_exactly_packagings_answer(release, tag, specifier):
    given_answer = answered(OWN, "pkg.torch", specifier, release + tag)
    assert given_answer == VersionAnswer(SpecifierSet(specifier).contains(release + tag, prereleases=True))


@settings(max_examples=150)
@given(versions, versions)
def test_the_public_part_of_any_accepted_version_can_stand_in_a_specifier(version, other):
    spec = FactSpec("pkg.x", "version")
    accepted = str(parse_value(spec, version))
    satisfies(other, f"<{accepted.partition('+')[0]}")


@settings(max_examples=150)
@given(st.text(alphabet="0123456789.!+-_abcrcpostdevv \n\u0662\u017f", max_size=14))
def test_a_version_is_accepted_when_packaging_accepts_it(text):
    assume(text != "absent")
    spec = FactSpec("pkg.x", "version")
    try:
        parse_value(spec, text)
        accepted = True
    except FactTypeError:
        accepted = False
    if accepted or text.isascii():  # old releases of packaging take a long s in a local label for an s
        assert accepted is (base_release(text) is not None)


# --- by example ----------------------------------------------------------------------------------------------------

VENDOR, BUILD = "2.5.0a0+872d972e41.nv24.08", "2.7.4.post1+cu12torch2.6cxx11abiFALSE"
CODE, PADS = "model.code_methods", ("A.f(self)", "ChatGLM4Tokenizer._pad(self, padding_side)")
CUT = "the driver stopped answering"
RELEASES, NO_RELEASES = (Range(">=2.5,<2.7", known) for known in (("2.5.0", "2.6.0"), ()))
#: By the key: operand, value, and what is answered (with True behind it: as its base release).
ANSWERS: dict[str, list[tuple[object, ...]]] = {
    "pkg.torch": [
        # a vendor build is judged as such and as its base release
        ("==2.5.0", VENDOR, True, True),  # as such it is older than 2.5.0
        (">=2.5", VENDOR, True, True),
        (">=2.4,<2.5", VENDOR, False),  # PEP 440 leaves pre-releases of 2.5 out of <2.5
        ("==2.5.*", VENDOR, True),
        (">=2.4", VENDOR, True),
        ("<2.5.1", VENDOR, True),
        (">=2.5.1", VENDOR, False),
        ("!=2.5.0", VENDOR, True, True),  # the version says yes, its base release no
        # of a checkout or candidate nobody can tell whether it has what its release brought
        *(
            (operand, version, told)
            for version in ("2.5.0.dev20240801+cu124", "2.5.0rc3", "2.5.0a1")
            for operand, told in ((">=2.5", None), (">=2.4,<2.5", False), ("<2.5.1", True))
        ),
        # a post-build of conda-forge counts as its release with less confidence
        ("==2.5.0", "2.5.0.post304", True, True),
        ("<2.5.1", "2.5.0.post304", True),
        # a post-release that brings the fix is not judged as its base release
        *((">=2.7.0,<2.7.4.post1", version, False) for version in ("2.7.4.post1", BUILD, "2.7.4.post2")),
        (">=2.7.0,<2.7.4.post1", "2.7.4", True),
        # a bound that names a release candidate is exact for candidates
        (">=5.0.0rc1,<5.0.0rc3", "5.0.0rc2", True),
        (">=5.0.0rc1,<5.0.0rc3", "5.0.0rc3", False),
        (["==2.5.0", "==2.5.*"], VENDOR, True),  # a yes without reservation comes first
        (">=2", "unknown-build", None),
        # absent and present are answers, and unknown is none
        *((operand, ABSENT, told) for operand, told in (("absent", True), ("present", False), (">=2", False))),
        *((operand, Unknown("unreadable"), None) for operand in ("absent", "present", ">=2")),
        # a range answers when all releases in it do
        (">=2.5", RELEASES, True),
        (">=2.6", RELEASES, None),
        (">=2.7", RELEASES, False),
        (["==2.5.0", "==2.6.0"], RELEASES, True),
        (["absent", "<2"], RELEASES, False),
        (">=2.5", NO_RELEASES, True),
        (">=2.6", NO_RELEASES, None),
        ("!=2.6.3", NO_RELEASES, None),
        ("present", NO_RELEASES, True),
        ("absent", NO_RELEASES, False),
        (["absent", "<2"], NO_RELEASES, False),
    ],
    "driver.version": [
        (">12.9", "12.10", True),
        ("==12.4.0", "12.4", True),
        (">=9,<10", "9.0", True),
        (">=9,<10", "10.0", False),
        (">=525.60.13", "550.54.15", True),
        ("<550.54.15", "550.54.15", False),
        ("!=2.35", "2.35", False),
        (">=525", "525.x", None),
        (">=525", "525", True),
        ("<525.60.13", "525", None),
        ("<525.60.13", "520", True),
        ("<525.60.13", "525.60", True),
    ],
    "model.family": [
        ("glm4*", "GLM4-moe", True),
        ("GLM4", "glm4", True),
        ("glm4", "glm4-moe", False),
        ("glm?", "glm4", True),
        ("*[int]*", "def f(x: list[int])", True),
        ("f(x[0])", "f(x[0])", True),
        ("f(x[0])", "f(x0)", False),
        (["a", "b*"], "bcd", True),
    ],
    CODE: [("*._pad(*padding_side*)", texts, told) for texts, told in ((PADS, True), (PADS[:1], False), ((), False))],
    "recipe.batch_size": [(2, 2, True), (2, 2.5, False)],
    "recipe.packing": [(True, True, True), (True, False, False)],
    "gpu.count": [(">=2", 4, True)],
    # an empty list that may lack items is neither present nor absent
    "gpu": [
        ("present", Records(()), False),
        ("present", Records((), CUT), None),
        ("present", Records(({"cc": "9.0"},), CUT), True),
    ],
}


@pytest.mark.parametrize(("key", "row"), [(key, row) for key, rows in ANSWERS.items() for row in rows])
def test_what_a_value_answers(registry, key, row):
    operand, value, *told = row
    found = answered(registry, key, operand, value)
    assert found == VersionAnswer(*told)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=5).map(lambda parts: ".".join(map(str, parts))))
def test_trailing_zeros_of_dotted_versions_do_not_count(text):
    assert answered(OWN, "driver.version", f"=={text}.0", text).holds is True


@given(st.text(alphabet="ab[]*?", max_size=8), st.text(alphabet="ab[]", max_size=8))
def test_a_glob_answers_what_its_characters_say(pattern, text):
    expected = re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), text) is not None
    assert answer("text", [pattern], text).holds is expected


@rows("key operand", ("pkg.torch", ">=" + "9" * 5000))
def test_a_condition_that_could_never_be_decided_is_refused(registry, key, operand):
    with pytest.raises(ConditionError):
        parse_condition(registry, key, operand)
