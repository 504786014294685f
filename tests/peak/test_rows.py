"""Rows of JSONL, JSON and CSV, files that are none of them, and rows as what goes into the model."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tables import rows

from envdoctor.peak import DataError, DataProblem, measure
from envdoctor.peak.read_data import samples_of
from envdoctor.system import Place

ROWS = [{"text": "a"}, {"text": "你好 \n b" * 9}, {"text": "c"}]
JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Any]:
    """What a file of this name and content gives where there is no tokenizer."""

    def do(name: str, content: bytes) -> Any:
        (tmp_path / name).write_bytes(content)
        place = Place(sys.executable, os.environ, str(tmp_path), str(tmp_path))
        return measure(f"{tmp_path}/{name}", str(tmp_path), place, data=name, tokenizer="m", cutoff=None, batch=None)

    return do


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSONL),
        ("a.jsonl", "\ufeff" + JSONL.replace("\n{", "\n\n \n{") + "\n"),
        ("a.json", json.dumps(ROWS)),
        ("a.json", "\ufeff \n" + json.dumps(ROWS, indent=2, ensure_ascii=False)),
        ("a.csv", 'text\na\n"' + ROWS[1]["text"] + '"\nc\n'),
    ],
)
def test_every_row_has_a_size_and_a_content(measured: Any, name: str, content: str) -> None:
    found = measured(name, content.encode())
    assert (found["rows"], found["looked_at"], found["formats"], len(found["notes"])) == (3, 3, ["text"], 1)
    assert found["longest_at_most"] == len(ROWS[1]["text"].encode())


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"", "holds no rows"),
        ("a.jsonl", b" \n\n", "holds no rows"),
        ("a.json", b"[]", "holds no rows"),
        ("a.jsonl", b"{}\n" + b"x" * (17 << 20), "more than 16 MiB in line 2"),
        ("a.jsonl", b"\0" * (17 << 20), "more than 16 MiB in line 1"),
        ("a.json", b"[" * 200_000, "row 1 is nested too deeply"),
        ("a.json", b'[{"a": 1}, {]', "is not JSON: line 1, column 13"),
        ("a.json", b'[{"a": 1}, ', "is not JSON"),
        ("a.json", b"[1" + b"0" * 5000, "a number that is too long"),
        ("a.json", '["\xe4"]'.encode("latin-1"), "is not text in UTF-8 (byte 2)"),
        ("a.csv", b'text\n"' + b"x" * (17 << 20) + b'"\n', "is not CSV: row 1"),
        ("a.jsonl.gz", b"\x1f\x8b....", "is compressed"),
        ("a.jsonl", b"\xff\xfe{\0}\0", "is UTF-16"),
    ],
)
def test_a_file_that_is_no_data_is_one_sentence(measured: Any, name: str, content: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=f"^--data {name} ") as error:
        measured(name, content)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_line_that_is_no_row_is_the_only_one_that_is_lost(measured: Any) -> None:
    lines = [b'{"text": "a"}', b"{", b"\xe4", b"[" * 5000, b"\0", b'{"text": "b"}']
    found = measured("a.jsonl", b"\n".join(lines))
    assert (found["rows"], found["looked_at"], found["formats"]) == (6, 2, ["text"])
    assert found["notes"][1] == "4 of 6 rows that were looked at cannot be used; row 2 is not JSON"


@rows("row name samples")
def test_a_row_is_the_samples_of_its_format(row: Any, name: str, samples: list[Any]) -> None:
    assert samples_of(row) == (name, samples)


@pytest.mark.parametrize("row", [3, None, [], {}, {"a": 1}])
def test_what_is_nothing_to_train_on_is_named(row: Any) -> None:
    with pytest.raises(DataProblem):
        samples_of(row)
