"""Releases that have something, spelled as specifiers."""

from __future__ import annotations

import pytest

from envdoctor.versions import nearest_span, spell_spans


@pytest.mark.parametrize(
    ("versions", "has", "text"),
    [
        (("1.0.0", "1.1.0"), (True, True), ""),
        (("1.0.0", "1.1.0"), (False, False), None),
        (("4.50.3", "4.51.3", "4.52.4"), (True, False, True), "<4.51 or >=4.52.4"),
        (("4.51.0", "4.51.3"), (True, False), "<4.51.3"),
        (("4.57.6", "5.0.0"), (True, False), "<5.0"),
        (("81.0.0", "82.0.1"), (True, False), "<82.0"),
        (("4.49.0", "4.50.3"), (False, True), ">=4.50.3"),
        (("1", "2.0.0.post1"), (True, False), "<2.0"),
    ],
)
def test_a_bound_claims_nothing_of_patches_that_were_not_read(versions, has, text):
    assert spell_spans(versions, has) == text


@pytest.mark.parametrize(
    ("has", "at", "places"),
    [
        ("", 0, []),
        ("..", 1, []),
        ("#.##", 0, [0]),
        ("#.##", 1, [2, 3]),
        ("##..#", 2, [0, 1]),
        ("####", 9, [0, 1, 2, 3]),
    ],
)
def test_the_nearest_row(has, at, places):
    assert list(nearest_span([one == "#" for one in has], at)) == places
