"""Cleaning of strings from outside."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import rows

from envdoctor.system import without_url_credentials
from envdoctor.system.clean import LIMIT, clean

anything = st.text(alphabet=st.characters(), max_size=200)


def safe(text: str) -> bool:
    """Nothing in it moves a cursor, changes direction or stays unseen."""
    return all(unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for char in text)


@given(anything)
def test_what_is_cleaned_can_be_printed(text: str) -> None:
    assert safe(clean(text))
    assert clean(text).isprintable()


@given(anything)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="=:@_-"), max_size=60))
def test_plain_text_is_kept(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("torch\x1b[31m2.5\x1b[0m", "torch2.5"),
        ("\x1b]0;title\x07torch", "]0;titletorch"),
        ("a\r\n::error::b", "a ::error::b"),
        ("a\tb", "a b"),
        ("tor\u200bch", "torch"),
        ("gpj.\u202eexe", "gpj.exe"),
        ("a\u2028b", "a b"),
        ("/home/\udcff\udcfe", "/home/??"),
        ("x\ufe0f\u3164y", "xy"),
        ("e\u0301\u0301\u0301\u0301\u0301", "e\u0301\u0301\u0301"),
        ("模型", "模型"),
        ("\x9b31mred", "red"),
        ("", ""),
    ],
)
def test_hidden_and_moving_characters_go(raw: str, expected: str) -> None:
    assert clean(raw) == expected


@rows("raw")
def test_credentials_are_never_shown(raw: str) -> None:
    assert "s3cr3t" not in clean(raw)
    assert "***" in clean(raw)


@rows("url shown")
def test_an_address_is_shown_without_its_credentials(url: str, shown: str) -> None:
    assert without_url_credentials(url) == shown


def test_ordinary_names_are_no_credentials() -> None:
    for text in ("git+ssh://github.com/org/name", "hf_transfer", "max_new_tokens=4096", "pad_token=<|endoftext|>"):
        assert clean(text) == text


def test_long_text_is_cut_and_says_so() -> None:
    text = clean("x" * 10_000)
    assert len(text) == LIMIT
    assert text.endswith("...")
    assert clean("x" * 10_000, None) == "x" * 10_000
    assert len(clean("x" * 1_000_000, None)) < 70_000


def test_cleaning_hostile_text_takes_linear_time() -> None:
    for hostile in ("://" * 20_000, "\x1b[" * 30_000, "a" * 65_000 + "=", "https://" + "@" * 60_000, "sk-" * 20_000):
        clean(hostile, None)
    for hostile in ("a" * 1_000_000, "?token" * 200_000, "://a" * 200_000 + "@b ://c"):  # hours by their squares
        without_url_credentials(hostile)
