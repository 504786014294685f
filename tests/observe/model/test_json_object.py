"""JSON objects from a stranger: read, or refused with a clause that goes behind the file's name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.observe import JsonProblem, parse_object


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON: line 1, column 1: "),
        (b'{"a": 1,\n 2}', "is not JSON: line 2, column 2"),
        (b"<html>", "is not JSON"),
        (b"[]", "is not a JSON object but a list"),
        (b"null", "is not a JSON object but null"),
        (b"\xff\xfe{", "is not UTF-8 text: byte 0"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "is nested more than 60 levels deep"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "holds a number that is too long to read"),
    ],
)
def test_what_is_no_object_is_refused_with_the_place(content: bytes, why: str) -> None:
    with pytest.raises(JsonProblem, match="^" + why):
        parse_object(content)


def test_keys_that_are_given_twice_are_told_and_the_last_one_counts() -> None:
    found = parse_object(b'\xef\xbb\xbf{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert found.data == {"a": 3, "b": {"c": 2}}
    assert sorted(found.repeated) == ["a", "c"]


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(content: bytes) -> None:
    try:
        assert isinstance(parse_object(content).data, dict)
    except JsonProblem as problem:
        assert str(problem).isprintable()


def test_keys_are_not_written_flat_when_that_takes_more_than_the_file() -> None:
    content = json.dumps({"p" * (1 << 20): {str(number): 1 for number in range(100)}}).encode()
    with pytest.raises(JsonProblem, match="keys that are too long"):
        parse_object(content)
