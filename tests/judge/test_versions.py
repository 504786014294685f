"""Comparing versions: PEP 440 with pre-releases counted, vendor builds, dotted integers, texts and numbers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envdoctor.facts import ABSENT, FactSpec, FactTypeError, Range, Records, Registry, Unknown, parse_value
from envdoctor.judge import answer
from envdoctor.knowledge import parse_condition
from envdoctor.knowledge.conditions import ConditionError
from envdoctor.versions import Answer, base_release, satisfies
from envdoctor.versions.dotted import dotted

VENDOR = "2.5.0a0+872d972e41.nv24.08"


def condition(registry, key, operand):
    parsed = parse_condition(registry, key, operand)
    return parsed.type, parsed.alternatives


def torch(registry, operand, value):
    kind, alternatives = condition(registry, "pkg.torch", operand)
    return answer(kind, alternatives, value)


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
    st.builds(lambda n, m: f"~={n}.{m}", numbers, st.integers(0, 9)),
)
specifiers = st.lists(written, min_size=1, max_size=3).map(",".join)


def own_registry() -> Registry:
    return Registry.from_mapping({"fact": {"pkg.*": {"type": "version", "meaning": "", "observer": ""}}})


OWN = own_registry()


@settings(max_examples=150)
@given(versions, specifiers)
def test_every_version_and_specifier_gets_packagings_answer_or_that_of_its_base_release(version, specifier):
    given_answer = torch(OWN, specifier, version)
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
    given_answer = torch(OWN, specifier, release + tag)
    assert given_answer == Answer(SpecifierSet(specifier).contains(release + tag, prereleases=True))


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


# --- vendor builds, pre- and post-releases -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        ("==2.5.0", Answer(True, True)),  # as such it is older than 2.5.0
        (">=2.5", Answer(True, True)),
        (">=2.4,<2.5", Answer(False)),  # PEP 440 leaves pre-releases of 2.5 out of <2.5
        ("==2.5.*", Answer(True)),
        (">=2.4", Answer(True)),
        ("<2.5.1", Answer(True)),
        (">=2.5.1", Answer(False)),
        ("!=2.5.0", Answer(True, True)),  # the version says yes, its base release no
    ],
)
def test_a_vendor_build_is_judged_as_such_and_as_its_base_release(registry, specifier, expected):
    assert torch(registry, specifier, VENDOR) == expected


@pytest.mark.parametrize("version", ["2.5.0.dev20240801+cu124", "2.5.0rc3", "2.5.0a1"])
def test_of_a_checkout_or_candidate_nobody_can_tell_whether_it_has_what_its_release_brought(registry, version):
    assert torch(registry, ">=2.5", version) == Answer(None)
    assert torch(registry, ">=2.4,<2.5", version) == Answer(False)
    assert torch(registry, "<2.5.1", version) == Answer(True)


def test_a_conda_forge_post_build_counts_as_its_release_with_less_confidence(registry):
    assert torch(registry, "==2.5.0", "2.5.0.post304") == Answer(True, True)
    assert torch(registry, "<2.5.1", "2.5.0.post304") == Answer(True)


@pytest.mark.parametrize("version", ["2.7.4.post1", "2.7.4.post1+cu12torch2.6cxx11abiFALSE", "2.7.4.post2"])
def test_the_post_release_that_brings_the_fix_is_not_judged_as_its_base_release(registry, version):
    assert torch(registry, ">=2.7.0,<2.7.4.post1", version) == Answer(False)
    assert torch(registry, ">=2.7.0,<2.7.4.post1", "2.7.4") == Answer(True)


def test_a_bound_that_names_a_release_candidate_is_exact_for_candidates(registry):
    assert torch(registry, ">=5.0.0rc1,<5.0.0rc3", "5.0.0rc2") == Answer(True)
    assert torch(registry, ">=5.0.0rc1,<5.0.0rc3", "5.0.0rc3") == Answer(False)


def test_a_yes_without_reservation_comes_before_one_from_the_base_release(registry):
    assert torch(registry, ["==2.5.0", "==2.5.*"], VENDOR) == Answer(True)


def test_a_text_that_is_no_version_answers_nothing(registry):
    assert torch(registry, ">=2", "unknown-build").holds is None


# --- dotted integers, numbers, texts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "operand", "expected"),
    [
        ("12.10", ">12.9", True),
        ("12.4", "==12.4.0", True),
        ("9.0", ">=9,<10", True),
        ("10.0", ">=9,<10", False),
        ("550.54.15", ">=525.60.13", True),
        ("550.54.15", "<550.54.15", False),
        ("2.35", "!=2.35", False),
    ],
)
def test_dotted_versions_compare_as_integers(registry, value, operand, expected):
    kind, alternatives = condition(registry, "driver.version", operand)
    assert answer(kind, alternatives, value).holds is expected


@given(st.lists(st.integers(0, 999), min_size=1, max_size=6), st.integers(0, 0))
def test_trailing_zeros_of_dotted_versions_do_not_count(parts, zero):
    text = ".".join(map(str, parts))
    assert dotted(text) == dotted(text + ".0") or len(parts) == 6


def test_dotted_text_that_is_none_answers_nothing(registry):
    kind, alternatives = condition(registry, "driver.version", ">=525")
    assert answer(kind, alternatives, "525.x").holds is None


@pytest.mark.parametrize(
    ("operand", "value", "expected"),
    [
        ("glm4*", "GLM4-moe", True),
        ("GLM4", "glm4", True),
        ("glm4", "glm4-moe", False),
        ("glm?", "glm4", True),
        ("*[int]*", "def f(x: list[int])", True),
        ("f(x[0])", "f(x[0])", True),
        ("f(x[0])", "f(x0)", False),
        (["a", "b*"], "bcd", True),
    ],
)
def test_texts_match_exactly_or_by_star_and_question_mark(registry, operand, value, expected):
    kind, alternatives = condition(registry, "model.family", operand)
    assert answer(kind, alternatives, value).holds is expected


def test_a_list_of_texts_matches_when_any_item_does(registry):
    kind, alternatives = condition(registry, "model.code_methods", "*._pad(*padding_side*)")
    assert answer(kind, alternatives, ("A.f(self)", "ChatGLM4Tokenizer._pad(self, padding_side)")).holds is True
    assert answer(kind, alternatives, ("A.f(self)",)).holds is False
    assert answer(kind, alternatives, ()).holds is False


@given(st.text(alphabet="ab[]*?", max_size=8), st.text(alphabet="ab[]", max_size=8))
def test_a_glob_answers_what_its_characters_say(pattern, text):
    import re

    expected = re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), text) is not None
    assert answer("text", [pattern], text).holds is expected


def test_a_number_may_be_written_without_an_operator(registry):
    kind, alternatives = condition(registry, "recipe.batch_size", 2)
    assert answer(kind, alternatives, 2).holds is True
    assert answer(kind, alternatives, 2.5).holds is False


def test_a_boolean_compares_with_itself_only(registry):
    kind, alternatives = condition(registry, "recipe.packing", True)
    assert answer(kind, alternatives, True).holds is True
    assert answer(kind, alternatives, False).holds is False


def test_absent_and_present_are_answers_and_unknown_is_none(registry):
    for operand, expected in (("absent", True), ("present", False), (">=2", False)):
        kind, alternatives = condition(registry, "pkg.torch", operand)
        assert answer(kind, alternatives, ABSENT).holds is expected
        assert answer(kind, alternatives, Unknown("unreadable")).holds is None


def test_an_empty_list_that_may_lack_items_is_neither_present_nor_absent(registry):
    kind, alternatives = condition(registry, "gpu", "present")
    assert answer(kind, alternatives, Records(())).holds is False
    assert answer(kind, alternatives, Records((), "the driver stopped answering")).holds is None
    assert answer(kind, alternatives, Records(({"cc": "9.0"},), "the driver stopped answering")).holds is True


@pytest.mark.parametrize(
    ("key", "operand"),
    [
        ("pkg.torch", ">=2.5.0+cu118"),  # the build is asked for with torch.cuda
        ("pkg.torch", "2.5"),
        ("pkg.torch", ">=2.5.*"),
        ("pkg.torch", "===2.5"),
        ("pkg.torch", "~=2"),
        ("pkg.torch", ">=2,"),
        ("pkg.torch", 2.5),
        ("pkg.torch", []),
        ("pkg.torch", ">=" + "9" * 5000),
        ("pkg.Flash_Attn", ">=2"),
        ("pkg.*", "present"),
        ("driver.version", "~=1.2"),
        ("driver.version", ">=1.2.3.4.5.6.7.8.9"),
        ("driver.version", ">=٥٢٥"),
        ("recipe.batch_size", ">=two"),
        ("recipe.batch_size", float("nan")),
        ("recipe.packing", "true"),
        ("model.family", ""),
        ("model.family", 4),
        ("gpu", ">=1"),
        ("gpu.cc", ">=9"),
        ("any(gpu.count)", ">=1"),
        ("any(gpu)", "present"),
        ("no.such", "present"),
    ],
)
def test_a_condition_that_could_never_be_decided_is_refused(registry, key, operand):
    with pytest.raises(ConditionError):
        parse_condition(registry, key, operand)


def test_the_number_of_gpus_can_be_a_condition(registry):
    kind, alternatives = condition(registry, "gpu.count", ">=2")
    assert answer(kind, alternatives, 4).holds is True


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operand", "releases", "expected"),
    [
        (">=2.5", ("2.5.0", "2.6.0"), True),
        (">=2.6", ("2.5.0", "2.6.0"), None),
        (">=2.7", ("2.5.0", "2.6.0"), False),
        (["==2.5.0", "==2.6.0"], ("2.5.0", "2.6.0"), True),
        (["absent", "<2"], ("2.5.0", "2.6.0"), False),
        (">=2.5", (), None),
        ("present", (), True),
        ("absent", (), False),
        (["absent", "<2"], (), None),
    ],
)
def test_a_range_answers_when_all_releases_in_it_do(operand, releases, expected):
    assert torch(OWN, operand, Range(">=2.5,<2.7", releases)).holds is expected
