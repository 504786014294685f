"""The rows of a data file: how large each is, and its content where it is asked for."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from envdoctor.lengths.shapes import RowProblem
from envdoctor.text.message import Message

#: Bytes of one row; a book has one or two million.
_LONGEST_ROW = 16 << 20
#: Bytes of a file that has to be read as a whole.
_LARGEST = 512 << 20
_MOST_ROWS = 4_000_000
_OTHERS = {
    b"ARRO": "is Arrow, which is not read: write it as JSONL, datasets.Dataset.from_file(…).to_json(…)",
    b"\x1f\x8b": "is compressed: unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed: unpack it first",
    b"PK\x03\x04": "is an archive: unpack it first",
    b"\xff\xfe": "is UTF-16, and data sets are read as UTF-8",
    b"\xfe\xff": "is UTF-16, and data sets are read as UTF-8",
}
_BLANKS = " \t\r\n,"


class DataProblem(Exception):
    """A file is no data that can be read; the message is what follows its name in a sentence."""


class Rows(NamedTuple):
    """``sizes`` of all rows (bytes, or characters where the file is read as text); ``row`` gives the content of one,
    and raises :class:`RowProblem`."""

    sizes: array[int]
    row: Callable[[int], Any]


def rows_of(file: BinaryIO, name: str) -> Rows:
    """The rows of JSONL, of a JSON array, or of CSV by its ``name``. Raises :class:`DataProblem`."""
    first = file.read(256)
    for mark, problem in _OTHERS.items():
        if first.startswith(mark):
            raise DataProblem(problem)
    file.seek(0)
    if name.endswith((".csv", ".tsv")):
        rows = _table(file, "\t" if name.endswith(".tsv") else ",")
    elif first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        rows = _array(file)
    else:
        rows = _lines(file)
    if not rows.sizes:
        raise DataProblem(Message("holds no rows"))
    return rows


def _lines(file: BinaryIO) -> Rows:
    places, sizes = array("Q"), array("Q")
    place = number = 0
    while line := file.readline(_LONGEST_ROW + 1):
        number += 1
        if len(line) > _LONGEST_ROW:
            raise DataProblem(Message("has more than {} MiB in line {}, and no row has", _LONGEST_ROW >> 20, number))
        if not line.isspace():
            places.append(place)
            sizes.append(len(line))
            _count(sizes)
        place += len(line)

    def row(index: int) -> Any:
        file.seek(places[index])
        return _parsed(file.read(sizes[index]))

    return Rows(sizes, row)


def _array(file: BinaryIO) -> Rows:
    text = _whole(file)
    decode = json.JSONDecoder().raw_decode
    places, sizes = array("Q"), array("Q")
    place = text.index("[") + 1
    while True:
        while place < len(text) and text[place] in _BLANKS:
            place += 1
        if text[place : place + 1] == "]":
            break
        try:
            _, end = decode(text, place)
        except json.JSONDecodeError as error:
            raise DataProblem(
                Message("is not JSON: line {}, column {}: {}", error.lineno, error.colno, error.msg)
            ) from None
        except (ValueError, RecursionError):
            why = "is nested too deeply, or has a number that is too long"
            raise DataProblem(Message("cannot be read: row {} {}", len(sizes) + 1, why)) from None
        places.append(place)
        sizes.append(end - place)
        _count(sizes)
        place = end
    return Rows(sizes, lambda index: _parsed(text[places[index] : places[index] + sizes[index]].encode()))


def _table(file: BinaryIO, delimiter: str) -> Rows:
    csv.field_size_limit(_LONGEST_ROW)
    sizes = array("Q")
    rows: list[dict[str, str]] = []
    try:
        for row in csv.DictReader(io.StringIO(_whole(file), newline=""), delimiter=delimiter):
            rows.append({name: text for name, text in row.items() if isinstance(name, str) and isinstance(text, str)})
            sizes.append(sum(map(len, rows[-1].values())))
            _count(sizes)
    except csv.Error as error:
        raise DataProblem(Message("is not CSV: row {}: {}", len(rows) + 1, error)) from None
    return Rows(sizes, rows.__getitem__)


def _whole(file: BinaryIO) -> str:
    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise DataProblem(Message("is larger than {} MiB, and only JSONL is read in pieces", _LARGEST >> 20))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataProblem(Message("is not text in UTF-8 (byte {})", error.start)) from None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise RowProblem(Message("is not text in UTF-8")) from None
    except (ValueError, RecursionError):
        raise RowProblem(Message("is not JSON")) from None


def _count(sizes: array[int]) -> None:
    if len(sizes) > _MOST_ROWS:
        raise DataProblem(Message("has more than {} rows: give a part of it", f"{_MOST_ROWS:,}"))
