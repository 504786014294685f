"""Child script: look at a data file: the size of every row, and the texts of some as they go into the tokenizer.

It is asked with ``path``, ``template`` (the chat template, or null), ``variables`` (its special tokens), ``sampled``
(how many rows of all sizes) and ``longest`` (how many of the largest). It answers with a ``problem``, or ``sizes`` of
all rows, ``rows`` as pairs of a row's number and its texts (``sampled`` rows of all sizes, then the others from the
largest down), ``formats`` of the rows, ``unread`` and ``refused``, each a list of rows with the reason.
"""

from __future__ import annotations

import csv
import io
import json
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

from envdoctor.lengths.shapes import RowProblem, Sample, plain_text, samples_of
from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

#: Characters of all texts that are handed on.
_MOST_TEXT = 24 << 20
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


class _Problem(Exception):
    """A file is no data that can be read; the message is what follows its name in a sentence."""


class _Rows(NamedTuple):
    """``sizes`` of all rows (bytes, or characters where the file is read as text); ``row`` gives the content of one,
    and raises :class:`RowProblem`."""

    sizes: array[int]
    row: Callable[[int], Any]


def answer(**request: Any) -> dict[str, Any]:
    """What the parent is told."""
    try:
        return _looked_at(request)
    except _Problem as error:
        return {"problem": str(error)}
    except OSError as error:
        return {"problem": Message("cannot be read: {}", because_of(error))}


def _looked_at(request: dict[str, Any]) -> dict[str, Any]:
    render = _renderer(request["template"], request["variables"])
    with open(Files().open(request["path"]), "rb") as file:
        rows = _rows_of(file, request["path"])
        ordered = sorted(range(len(rows.sizes)), key=rows.sizes.__getitem__)
        sampled = _of_all_sizes(rows.sizes, ordered, request["sampled"])
        formats: Counter[str] = Counter()
        found: list[tuple[int, list[str]]] = []
        unread: list[tuple[int, str]] = []
        refused: list[tuple[int, str]] = []
        room = _MOST_TEXT
        for index in dict.fromkeys([*sampled, *ordered[: -request["longest"] - 1 : -1]]):
            try:
                name, samples = samples_of(rows.row(index))
            except (RowProblem, RecursionError) as error:
                why = str(error) if isinstance(error, RowProblem) else Message("is nested too deeply")
                unread.append((index + 1, why))
                continue
            formats[name] += 1
            texts = []
            for sample in samples:
                text, problem = render(sample)
                texts.append(text)
                if problem:
                    refused.append((index + 1, problem))
            room -= sum(map(len, texts))
            if room < 0:
                break
            found.append((index, texts))
    there = set(sampled)
    known = {"formats": formats, "sampled": sum(index in there for index, _ in found)}
    return {"sizes": list(rows.sizes), "rows": found, **known, "unread": sorted(unread), "refused": sorted(refused)}


def _of_all_sizes(sizes: Sequence[int], ordered: Sequence[int], number: int) -> list[int]:
    """Rows at random, half of them by how many there are and half by how large they are: each from its own stretch of
    the rows, which are ``ordered`` by size."""
    draw = random.Random(0)  # noqa: S311
    half = number // 2
    until = list(accumulate(sizes[index] for index in ordered))
    by_number = [int((place + draw.random()) * len(ordered) / half) for place in range(half)]
    by_size = [bisect_right(until, (place + draw.random()) * until[-1] / half) for place in range(half)]
    return list(dict.fromkeys(ordered[min(place, len(ordered) - 1)] for place in (*by_number, *by_size)))


def _renderer(source: str | None, variables: dict[str, str]) -> Callable[[Sample], tuple[str, str]]:
    """What makes the text of a sample, and says why the template did not where it refused."""
    if source is None:
        return lambda sample: (plain_text(sample), "")
    from envdoctor.sandbox.templates import template_environment

    environment = template_environment()
    compiled: list[Any] = []

    def render(sample: Sample) -> tuple[str, str]:
        if isinstance(sample, str):
            return sample, ""
        try:
            if not compiled:
                compiled.append(environment.from_string(source))
            return compiled[0].render(messages=sample, tools=None, documents=None, **variables), ""
        except Exception as error:
            return plain_text(sample), f"{type(error).__name__}: {error}"[:200]

    return render


def _rows_of(file: BinaryIO, name: str) -> _Rows:
    """The rows of JSONL, of a JSON array, or of CSV by its ``name``. Raises :class:`_Problem`."""
    first = file.read(256)
    for mark, problem in _OTHERS.items():
        if first.startswith(mark):
            raise _Problem(problem)
    file.seek(0)
    if name.endswith((".csv", ".tsv")):
        rows = _table(file, "\t" if name.endswith(".tsv") else ",")
    elif first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        rows = _array(file)
    else:
        rows = _lines(file)
    if not rows.sizes:
        raise _Problem(Message("holds no rows"))
    return rows


def _lines(file: BinaryIO) -> _Rows:
    places, sizes = array("Q"), array("Q")
    place = number = 0
    while line := file.readline(_LONGEST_ROW + 1):
        number += 1
        if len(line) > _LONGEST_ROW:
            raise _Problem(Message("has more than {} MiB in line {}, and no row has", _LONGEST_ROW >> 20, number))
        if not line.isspace():
            places.append(place)
            sizes.append(len(line))
            _count(sizes)
        place += len(line)

    def row(index: int) -> Any:
        file.seek(places[index])
        return _parsed(file.read(sizes[index]))

    return _Rows(sizes, row)


def _array(file: BinaryIO) -> _Rows:
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
            raise _Problem(
                Message("is not JSON: line {}, column {}: {}", error.lineno, error.colno, error.msg)
            ) from None
        except (ValueError, RecursionError):
            why = "is nested too deeply, or has a number that is too long"
            raise _Problem(Message("cannot be read: row {} {}", len(sizes) + 1, why)) from None
        places.append(place)
        sizes.append(end - place)
        _count(sizes)
        place = end
    return _Rows(sizes, lambda index: _parsed(text[places[index] : places[index] + sizes[index]].encode()))


def _table(file: BinaryIO, delimiter: str) -> _Rows:
    csv.field_size_limit(_LONGEST_ROW)
    sizes = array("Q")
    rows: list[dict[str, str]] = []
    try:
        for row in csv.DictReader(io.StringIO(_whole(file), newline=""), delimiter=delimiter):
            rows.append({name: text for name, text in row.items() if isinstance(name, str) and isinstance(text, str)})
            sizes.append(sum(map(len, rows[-1].values())))
            _count(sizes)
    except csv.Error as error:
        raise _Problem(Message("is not CSV: row {}: {}", len(rows) + 1, error)) from None
    return _Rows(sizes, rows.__getitem__)


def _whole(file: BinaryIO) -> str:
    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise _Problem(Message("is larger than {} MiB, and only JSONL is read in pieces", _LARGEST >> 20))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Problem(Message("is not text in UTF-8 (byte {})", error.start)) from None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise RowProblem(Message("is not text in UTF-8")) from None
    except (ValueError, RecursionError):
        raise RowProblem(Message("is not JSON")) from None


def _count(sizes: array[int]) -> None:
    if len(sizes) > _MOST_ROWS:
        raise _Problem(Message("has more than {} rows: give a part of it", f"{_MOST_ROWS:,}"))
