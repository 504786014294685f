"""Environment markers against the values of another interpreter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker
from tables import rows

from envdoctor.versions import NotAMarker, holds

VALUES: dict[str, str | None] = {
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_release": "6.1.0-18-amd64",
    "platform_version": "#1 SMP",
    "extra": "",
}

comparison = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["python_version", "python_full_version", "implementation_version"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]),
        st.sampled_from(["'3.8'", "'3.11'", '"3.11.7"', "'3.12'", "'3.10.2'", "'2.7'"]),
    ),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(
            ["sys_platform", "platform_system", "os_name", "platform_machine", "extra", "implementation_name"]
        ),
        st.sampled_from(["==", "!=", "in", "not in"]),
        st.sampled_from(["'linux'", '"Linux"', "'nt'", "'posix x86_64'", "'cpython'", "''"]),
    ),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["'3.8'", "'3.11'", "'3.12'"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        st.just("python_version"),
    ),
    st.sampled_from(["'lin' in sys_platform", "python_version == '3.*'", "python_version in '3.10 3.11'"]),
)
markers = st.recursive(
    comparison,
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} and {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
    ),
    max_leaves=6,
)


@given(markers)
def test_answers_are_those_of_packaging(marker: str) -> None:
    assert holds(marker, VALUES) is Marker(marker).evaluate({k: v for k, v in VALUES.items() if v is not None})


@given(st.one_of(st.text(max_size=60), st.text("()'\" andor<>=~!extrapython_version3.1", max_size=60)))
def test_any_text_gives_an_answer_or_is_no_marker(marker: str) -> None:
    try:
        holds(marker, VALUES)
    except NotAMarker:
        pass


@rows("marker values answer")
def test_the_values_are_those_of_the_target(marker: str, values: dict[str, str | None], answer: bool | None) -> None:
    assert holds(marker, {**VALUES, **values}) is answer


@pytest.mark.parametrize(
    "marker", ["", "python_version", "python_version <", "(os_name == 'x'", "nonsense == '1'", "('" * 90]
)
def test_what_is_no_marker_is_refused(marker: str) -> None:
    with pytest.raises(NotAMarker):
        holds(marker, VALUES)
