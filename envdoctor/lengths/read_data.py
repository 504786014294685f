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
from functools import cache
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple

from envdoctor.text.files import Files, because_of
from envdoctor.text.message import Message

# One row of training data as what goes into the model: conversations for a chat template, or plain text.
#
# The columns are those of the formats that trainers share: messages (OpenAI), conversations (ShareGPT), instruction,
# input, output and history (Alpaca), prompt and completion, chosen and rejected (preferences, two samples a row), text.

Turns = list[dict[str, str]]
#: A conversation, or a text that no template goes around.
Sample = Turns | str

_TURNS = ("messages", "conversations", "conversation")
_ASKED = ("instruction", "prompt", "query", "question", "problem")
_ANSWERED = ("output", "response", "completion", "answer", "solution")
_TEXTS = ("text", "content")
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "ipython": "tool",
}


class RowProblem(Exception):
    """A row is nothing to train on; the message is what follows its place in a sentence."""


def samples_of(row: Any) -> tuple[str, list[Sample]]:
    """The format of a row (conversations, instructions, preferences, text, other) and its samples."""
    if isinstance(row, str):
        return "text", [row]
    if not isinstance(row, dict):
        raise RowProblem(Message("is no object of columns"))
    before = [_turn("system", row["system"])] if isinstance(row.get("system"), str) and row["system"] else []
    turns = next((_turns("user", row[name]) for name in _TURNS if isinstance(row.get(name), list)), None)
    asked = before + (turns if turns is not None else _asked(row))
    if row.get("chosen") is not None and row.get("rejected") is not None:
        answers = [_turns("assistant", row[name]) for name in ("chosen", "rejected")]
        # Without a prompt of their own both hold the whole conversation.
        return "preferences", [answer if _begins(answer) else asked + answer for answer in answers]
    if turns is not None:
        return "conversations", [asked]
    answer = next((row[name] for name in _ANSWERED if row.get(name) is not None), None)
    if _first(row, _ASKED) is not None and (answer is not None or _first(row, _TEXTS) is None):
        return "instructions", [asked + _turns("assistant", answer)]
    text = _first(row, _TEXTS) if len(row) == 1 or "text" in row else None
    if isinstance(text, str):
        return "text", [text]
    values = [value for value in row.values() if isinstance(value, str)]
    if not values:
        raise RowProblem(Message("has no text in any column"))
    return "other", ["\n".join(values)]


def plain_text(sample: Sample) -> str:
    """The words of a sample, without a template."""
    return sample if isinstance(sample, str) else "\n".join(turn["content"] for turn in sample)


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _asked(row: dict[str, Any]) -> Turns:
    """The question, with what was said before it and what it is about."""
    turns: Turns = []
    for pair in row["history"] if isinstance(row.get("history"), list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            turns += _turns("user", pair[0]) + _turns("assistant", pair[1])
    question = _first(row, _ASKED)
    if isinstance(question, list):
        return turns + _turns("user", question)
    parts = [text for text in (_text(question), _text(row.get("input"))) if text]
    return turns + ([_turn("user", "\n".join(parts))] if parts else [])


def _begins(turns: Turns) -> bool:
    return len(turns) > 1 and turns[0]["role"] in ("user", "system")


def _turns(role: str, value: Any) -> Turns:
    """What was said, by a text, one message, or a list of them."""
    match value:
        case None:
            return []
        case list():
            return [turn for item in value for turn in _turns(role, item)]
        case dict():
            said = value.get("role", value.get("from"))
            content = value.get("content", value.get("value"))
            calls = value.get("tool_calls")
            extra = json.dumps(calls, ensure_ascii=False) if calls else ""
            return [_turn(said if isinstance(said, str) else role, _text(content) + extra)]
    return [_turn(role, value)]


def _turn(role: str, content: Any) -> dict[str, str]:
    return {"role": _ROLES.get(role.lower(), role.lower()), "content": _text(content)}


def _text(value: Any) -> str:
    """A text, or the texts of a content that is given in parts."""
    match value:
        case str():
            return value
        case list():
            return "".join(_text(part.get("text") if isinstance(part, dict) else part) for part in value)
        case None | dict():
            return ""
    return str(value)


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
    compiled = cache(lambda: environment.from_string(source))

    def render(sample: Sample) -> tuple[str, str]:
        if isinstance(sample, str):
            return sample, ""
        try:
            return compiled().render(messages=sample, tools=None, documents=None, **variables), ""
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
            text = "cannot be read: row {} is nested too deeply, or has a number that is too long"
            raise _Problem(Message(text, len(sizes) + 1)) from None
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
