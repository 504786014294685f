"""Child script: look at a data file: the size of every row, and the texts of some as they go into the tokenizer.

It is asked with ``path`` and ``folder``, the model's, for its chat template. It answers with a ``problem``, or
``sizes`` of all rows, ``rows`` as pairs of a row's number and its texts (``sampled`` rows of all sizes, then the others
from the largest down), ``formats`` of the rows, the usual first, ``template`` (whether there is one), and ``unread``
and ``refused``, each a list of rows with the reason.
"""

from __future__ import annotations

import csv
import io
import json
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, BinaryIO

from envdoctor.facts.values import Unknown
from envdoctor.observe.model.files import LARGEST, JsonProblem, parse_object, read_bytes
from envdoctor.revision.template.chat_template import special_tokens, templates_in
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, MessageError, packed
from envdoctor.system.templates import template_environment

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
    **dict.fromkeys(("gpt", "model", "bot", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "function", "function_response", "ipython"), "tool"),
}


class DataProblem(MessageError):
    """A file cannot be read, or a row is nothing to train on; the message is what follows its name or place."""


def samples_of(row: Any) -> tuple[str, list[Sample]]:
    """Return the format of a row (conversations, instructions, preferences, text, other) and its samples."""
    if isinstance(row, str):
        return "text", [row]
    if not isinstance(row, dict):
        raise DataProblem("is no object of columns")
    before = _turns("system", row["system"]) if isinstance(row.get("system"), str) and row["system"] else []
    turns = next((_turns("user", row[name]) for name in _TURNS if isinstance(row.get(name), list)), None)
    question = before + (turns if turns is not None else _asked(row))
    if row.get("chosen") is not None and row.get("rejected") is not None:
        answers = [_turns("assistant", row[name]) for name in ("chosen", "rejected")]
        # Without a prompt of their own both hold the whole conversation.
        whole = [len(turns) > 1 and turns[0]["role"] in ("user", "system") for turns in answers]
        return "preferences", [
            turns if is_whole else question + turns for turns, is_whole in zip(answers, whole, strict=True)
        ]
    if turns is not None:
        return "conversations", [question]
    answer = _first(row, _ANSWERED)
    if _first(row, _ASKED) is not None and (answer is not None or _first(row, _TEXTS) is None):
        return "instructions", [question + _turns("assistant", answer)]
    text = _first(row, _TEXTS) if len(row) == 1 or "text" in row else None
    if isinstance(text, str):
        return "text", [text]
    values = [value for value in row.values() if isinstance(value, str)]
    if not values:
        raise DataProblem("has no text in any column")
    return "other", ["\n".join(values)]


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _asked(row: dict[str, Any]) -> Turns:
    """Return the question, with what was said before it and what it is about."""
    turns: Turns = []
    for pair in row["history"] if isinstance(row.get("history"), list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            turns += _turns("user", pair[0]) + _turns("assistant", pair[1])
    question = _first(row, _ASKED)
    if isinstance(question, list):
        return turns + _turns("user", question)
    parts = [text for text in (_text(question), _text(row.get("input"))) if text]
    return turns + (_turns("user", "\n".join(parts)) if parts else [])


def _turns(role: str, value: Any) -> Turns:
    """Return the turns of a conversation from a text, one message, or a list of them."""
    match value:
        case None:
            return []
        case list():
            return [turn for item in value for turn in _turns(role, item)]
        case dict():
            speaker, calls = value.get("role", value.get("from")), value.get("tool_calls")
            role = speaker if isinstance(speaker, str) else role
            extra = json.dumps(calls, ensure_ascii=False) if calls else ""
            value = _text(value.get("content", value.get("value"))) + extra
    return [{"role": _ROLES.get(role.lower(), role.lower()), "content": _text(value)}]


def _text(value: Any) -> str:
    """Return a text, or the joined texts of a content that is given in parts."""
    match value:
        case str():
            return value
        case list():
            return "".join(_text(part.get("text") if isinstance(part, dict) else part) for part in value)
        case None | dict():
            return ""
    return str(value)


#: Rows of all sizes, and the largest, of which as many are tokenised as it takes to know the longest.
_SAMPLED = 1000
_LONGEST = 500
#: Characters of all texts that are handed on.
_MOST_TEXT = 24 << 20
#: Bytes of one row; a book has one or two million.
_LONGEST_ROW = 16 << 20
#: Bytes of a file that has to be read as a whole.
_LARGEST = 512 << 20
_MOST_ROWS = 4_000_000
_LARGEST_TEMPLATE = 1 << 20
_OTHERS = {
    b"ARRO": "is Arrow, which is not read: write it as JSONL, datasets.Dataset.from_file(…).to_json(…)",
    b"\x1f\x8b": "is compressed: unpack it first",
    b"\x28\xb5\x2f\xfd": "is compressed: unpack it first",
    b"PK\x03\x04": "is an archive: unpack it first",
    b"\xff\xfe": "is UTF-16, and data sets are read as UTF-8",
    b"\xfe\xff": "is UTF-16, and data sets are read as UTF-8",
}
_BLANKS = " \t\r\n,"


def answer(path: str, folder: str) -> dict[str, Any]:
    """Return what the parent is told."""
    try:
        with open(Files().open(path), "rb") as file:
            return _looked_at(*_rows_of(file, path), *_template_in(folder))
    except DataProblem as error:
        return {"problem": packed(error.message)}
    except OSError as error:
        return {"problem": packed(Message("cannot be read: {}", because_of(error)))}


def _template_in(folder: str) -> tuple[str | None, dict[str, str]]:
    """Return the chat template, if there is one, and the special tokens that it may name."""
    content = read_bytes(folder, "tokenizer_config.json", LARGEST)
    try:
        config = {} if isinstance(content, Unknown) else parse_object(content).data
    except JsonProblem:
        config = {}
    own = read_bytes(folder, "chat_template.jinja", _LARGEST_TEMPLATE)
    if isinstance(own, Unknown):
        template = (templates_in(config.get("chat_template")) or {}).get("default")
    else:
        template = own.decode("utf-8-sig", "replace")
    return template, special_tokens(config)


def _looked_at(
    sizes: Sequence[int], row: Callable[[int], Any], template: str | None, variables: dict[str, str]
) -> dict[str, Any]:
    compiled = cache(lambda: template_environment().from_string(template))
    ordered = sorted(range(len(sizes)), key=sizes.__getitem__)
    draw = random.Random(0)  # noqa: S311
    half = _SAMPLED // 2
    until = list(accumulate(sizes[index] for index in ordered))
    by_number = [int((place + draw.random()) * len(ordered) / half) for place in range(half)]
    by_size = [bisect_right(until, (place + draw.random()) * until[-1] / half) for place in range(half)]
    sampled = dict.fromkeys(ordered[min(place, len(ordered) - 1)] for place in (*by_number, *by_size))
    formats: Counter[str] = Counter()
    rows: list[tuple[int, list[str]]] = []
    unread: list[tuple[int, Message]] = []
    refused: list[tuple[int, str]] = []
    room = _MOST_TEXT
    for index in dict.fromkeys([*sampled, *ordered[: -_LONGEST - 1 : -1]]):
        try:
            name, samples = samples_of(row(index))
        except (DataProblem, RecursionError) as error:
            why = error.message if isinstance(error, DataProblem) else Message("is nested too deeply")
            unread.append((index + 1, why))
            continue
        formats[name] += 1
        # The words of a sample, without a template.
        texts = [text if isinstance(text, str) else "\n".join(turn["content"] for turn in text) for text in samples]
        for place, sample in enumerate(samples):
            if template is not None and not isinstance(sample, str):
                try:
                    texts[place] = compiled().render(messages=sample, tools=None, documents=None, **variables)
                except Exception as error:
                    refused.append((index + 1, f"{type(error).__name__}: {error}"[:200]))
        room -= sum(map(len, texts))
        if room < 0:
            break
        rows.append((index, texts))
    return {
        "sizes": list(sizes),
        "rows": rows,
        "sampled": sum(index in sampled for index, _ in rows),
        "formats": [name for name, _ in formats.most_common()],
        "template": template is not None,
        "unread": [(number, packed(why)) for number, why in sorted(unread)],
        "refused": sorted(refused),
    }


def _rows_of(file: BinaryIO, name: str) -> tuple[Sequence[int], Callable[[int], Any]]:
    """Return the sizes of all rows (bytes, or characters if the file is read as text) of JSONL, of a JSON array, or of
    CSV by its ``name``; and a function that returns the content of a row. Both raise :class:`DataProblem`."""
    first = file.read(256)
    for mark, problem in _OTHERS.items():
        if first.startswith(mark):
            raise DataProblem(problem)
    file.seek(0)
    pieces: Iterator[tuple[int, Any]]
    content: Callable[[Any, int], Any]
    if name.endswith((".csv", ".tsv")):
        pieces, content = _table(file, "\t" if name.endswith(".tsv") else ","), lambda row, size: row
    elif first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        text = _whole(file)
        pieces, content = _items(text), lambda place, size: _parsed(text[place : place + size].encode())
    else:
        pieces, content = _lines(file), lambda place, size: _parsed(_piece(file, place, size))
    sizes, places = array("Q"), list[Any]()
    try:
        for size, place in pieces:
            if len(sizes) == _MOST_ROWS:
                raise DataProblem("has more than {} rows: give a part of it", f"{_MOST_ROWS:,}")
            sizes.append(size)
            places.append(place)
    except json.JSONDecodeError as error:
        raise DataProblem("is not JSON: line {}, column {}: {}", error.lineno, error.colno, error.msg) from None
    except csv.Error as error:
        raise DataProblem("is not CSV: row {}: {}", len(sizes) + 1, error) from None
    except (ValueError, RecursionError):
        problem = "cannot be read: row {} is nested too deeply, or has a number that is too long"
        raise DataProblem(problem, len(sizes) + 1) from None
    if not sizes:
        raise DataProblem("holds no rows")
    return sizes, lambda index: content(places[index], sizes[index])


def _lines(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield the size and place of each row of JSONL."""
    place = 0
    for number, line in enumerate(iter(lambda: file.readline(_LONGEST_ROW + 1), b""), 1):
        if len(line) > _LONGEST_ROW:
            raise DataProblem("has more than {} MiB in line {}, and no row has", _LONGEST_ROW >> 20, number)
        if not line.isspace():
            yield len(line), place
        place += len(line)


def _items(text: str) -> Iterator[tuple[int, int]]:
    """Yield the size and place of each item of a JSON array."""
    decode = json.JSONDecoder().raw_decode
    place = text.index("[") + 1
    while True:
        while place < len(text) and text[place] in _BLANKS:
            place += 1
        if text[place : place + 1] == "]":
            return
        _, end = decode(text, place)
        yield end - place, place
        place = end


def _table(file: BinaryIO, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the size of each row of CSV, and its cells by the names of their columns."""
    csv.field_size_limit(_LONGEST_ROW)
    for row in csv.DictReader(io.StringIO(_whole(file), newline=""), delimiter=delimiter):
        cells = {name: cell for name, cell in row.items() if isinstance(name, str) and isinstance(cell, str)}
        yield sum(map(len, cells.values())), cells


def _piece(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)


def _whole(file: BinaryIO) -> str:
    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise DataProblem("is larger than {} MiB, and only JSONL is read in pieces", _LARGEST >> 20)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataProblem("is not text in UTF-8 (byte {})", error.start) from None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise DataProblem("is not text in UTF-8") from None
    except (ValueError, RecursionError):
        raise DataProblem("is not JSON") from None
