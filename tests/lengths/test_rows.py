"""Rows of JSONL, JSON and CSV, and files that are none of them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from envdoctor.lengths import RowProblem
from envdoctor.lengths.rows import DataProblem, rows_of

ROWS: list[dict[str, Any]] = [{"text": "a"}, {"text": "你好 \n b" * 9}, {"text": "c"}]
JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
CSV = 'text\na\n"' + ROWS[1]["text"] + '"\nc\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSONL),
        ("a.jsonl", "\ufeff" + JSONL.replace("\n{", "\n\n \n{") + "\n"),
        ("a.json", json.dumps(ROWS)),
        ("a.json", "\ufeff \n" + json.dumps(ROWS, indent=2, ensure_ascii=False)),
        ("a.csv", CSV),
    ],
)
def test_every_row_has_a_size_and_a_content(name: str, content: str) -> None:
    rows = rows_of(io.BytesIO(content.encode()), name)
    assert [rows.row(index) for index in (2, 0, 1)] == [ROWS[2], ROWS[0], ROWS[1]]
    assert max(range(3), key=rows.sizes.__getitem__) == 1


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
def test_a_file_that_is_no_data_is_one_sentence(name: str, content: bytes, expected: str) -> None:
    with pytest.raises(DataProblem) as error:
        rows_of(io.BytesIO(content), name)
    assert expected in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("line", [b"{", b"\xe4", b"[" * 5000, b"\0"])
def test_a_line_that_is_no_row_is_the_only_one_that_is_lost(line: bytes) -> None:
    rows = rows_of(io.BytesIO(b'{"text": "a"}\n' + line + b'\n{"text": "b"}'), "a.jsonl")
    assert (rows.row(0), rows.row(2)) == ({"text": "a"}, {"text": "b"})
    with pytest.raises(RowProblem):
        rows.row(1)
