"""The lengths of all rows as what decides about memory: how many are long, what is padding (by how the samples are put
together), the largest batch. Lengths in tokens, padding as shares of 1."""

import os
import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.lengths.section import DataSection
from envdoctor.models.json_object import LARGEST, JsonProblem, parse_object
from envdoctor.observe.model.reading.model_file import read_bytes
from envdoctor.revision.template.parts.settings import special_tokens, templates_in
from envdoctor.sandbox.asking import Limits, Problem, ask_once
from envdoctor.sandbox.target import Place, Task, run_in_target
from envdoctor.text.files import Files
from envdoctor.text.message import Message, MessageError, unpacked

# The length of every row of a data file: some are tokenised, and the others are told from their sizes.
#
# A bounded child of envdoctor's reads the file and renders the chat template (``read_data.py``); a child of the
# target's interpreter tokenises (``payload/tokenizing.py``), with the target's release of ``tokenizers``. The rows of
# a Parquet file are written as lines first, by the target's pyarrow (``payload/unpacking.py``).

#: Rows of all sizes, and the largest, of which as many are tokenised as it takes to know the longest.
_SAMPLED = 1000
_LONGEST = 500
_READ_SECONDS = 60.0
_READ_MIB = 2048
#: Seconds after which no more of the largest rows are tokenised; a batch that has begun may end.
_TOKENISE_SECONDS = 20.0
_TOKENISE_LIMIT = 60.0
_TOKENISE_MIB = 2000
#: What a Parquet file begins with (https://parquet.apache.org/docs/file-format), and the bytes of its rows as JSON.
_PARQUET = b"PAR1"
_UNPACKED = 4 << 30
_UNPACK_SECONDS = 120.0

_LARGEST_TEMPLATE = 1 << 20
#: Tokenizers of models of vision and a quarter of a million words have 35 MB.
_LARGEST_TOKENIZER = 256 << 20


class DataError(MessageError):
    """The file cannot be used; the message is one sentence that names it."""


class Tokenizer(NamedTuple):
    """The tokenizer in a model's folder: ``file`` is the path of tokenizer.json, or None, then ``missing`` says why;
    ``template`` is the chat template, if there is one, and ``variables`` the special tokens that it may name."""

    file: str | None
    missing: str
    template: str | None
    variables: dict[str, str]


class Measured(NamedTuple):
    """``lengths`` of all rows in tokens, in their order; none where tokens could not be counted. ``looked_at`` of them
    were, and ``at_most`` is what the longest of the others can have; without lengths, the bytes of the longest text.
    ``formats`` are those of the rows, the usual first, ``notes`` sentences about what was not counted as it is."""

    lengths: Sequence[int]
    rows: int
    looked_at: int
    at_most: int
    formats: tuple[str, ...]
    notes: tuple[Message, ...]


def tokenizer_in(folder: str, shown: str) -> Tokenizer:
    """The tokenizer, as far as it can be used without running code of the model's; ``shown`` is the folder as the user
    wrote it."""
    file = os.path.join(folder, "tokenizer.json")
    missing = ""
    if not os.path.isfile(file):
        missing = Message("{} has no tokenizer.json, and code of a model is never run", shown)
    elif os.path.getsize(file) > _LARGEST_TOKENIZER:
        missing = Message("tokenizer.json of {} is larger than {} MiB", shown, _LARGEST_TOKENIZER >> 20)
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
    return Tokenizer(None if missing else file, missing, template, special_tokens(config))


def measure(path: str, shown: str, tokenizer: Tokenizer, place: Place) -> Measured:
    """The lengths of the samples in the file at the absolute ``path``, ``shown`` as the user wrote it; of a row of
    preferences the longer sample counts. Raises :class:`DataError`."""
    data = _read(_unpacked(path, shown, place), shown, tokenizer)
    sizes, rows = data["sizes"], data["rows"]
    notes = _notes(data)
    if not rows:
        number, why = data["unread"][0] if data["unread"] else (1, "is larger than all that is read")
        raise DataError("--data {}: no row of it could be read; row {} {}", shown, number, why)
    answer = _tokenised(data, tokenizer, place)
    usual = tuple(name for name, _ in Counter(data["formats"]).most_common())
    if isinstance(answer, str):
        most = max(len(text.encode("utf-8", "surrogatepass")) for _, texts in rows for text in texts)
        return Measured(
            (), len(sizes), len(rows), most, usual, (Message("tokens could not be counted: {}", answer), *notes)
        )
    counts, most = answer
    known = {index: count for (index, _), count in zip(rows, counts, strict=False)}
    return Measured(_of_all(sizes, known), len(sizes), len(known), most, usual, tuple(notes))


def _unpacked(path: str, shown: str, place: Place) -> str:
    """The file, or where the rows of a Parquet file were written. Raises :class:`DataError`."""
    try:
        with open(Files().open(path), "rb") as file:
            if file.read(len(_PARQUET)) != _PARQUET:
                return path
    except OSError:
        return path  # who reads it says why not
    out = os.path.join(place.scratch, "rows.jsonl")
    job = {"path": path, "out": out, "most": _UNPACKED}
    task = Task("unpacking.py", job, ("pyarrow",), _UNPACK_SECONDS, _READ_MIB)
    (answer,) = run_in_target([task], place)
    last = answer.records[-1] if answer.records else {}
    if last.get("case") == "rows":
        return out
    if last.get("case") == "needs":
        why = last.get("skip") or last.get("error")
        other = "write it as JSONL, datasets.Dataset.from_parquet(…).to_json(…)"
        raise DataError("--data {} is Parquet, and {} there: install it, or {}", shown, why, other)
    why = last.get("problem") or f"could not be read: {answer.ending}: {answer.detail}"
    raise DataError("--data {} {}", shown, why)


def _read(path: str, shown: str, tokenizer: Tokenizer) -> Any:
    rows = {"path": path, "sampled": _SAMPLED, "longest": _LONGEST}
    request = {**rows, "template": tokenizer.template, "variables": tokenizer.variables}
    limits = Limits(_READ_SECONDS, _READ_MIB, output=256 << 20)
    answer = ask_once("envdoctor.lengths.read_data:answer", request, limits, packages=True)
    if isinstance(answer, Problem):
        raise DataError("--data {} {}", shown, answer.clause())
    if "problem" in answer:
        raise DataError("--data {} {}", shown, answer["problem"])
    return answer


def _notes(data: Mapping[str, Any]) -> list[Message]:
    notes = []
    looked = len(data["rows"]) + len(data["unread"])
    if data["unread"]:
        number, why = data["unread"][0]
        text = "{} of {} rows that were looked at cannot be used; row {} {}"
        notes.append(Message(text, f"{len(data['unread']):,}", f"{looked:,}", number, why))
    if data["refused"]:
        number, why = data["refused"][0]
        text = "the chat template refused {} samples, of which the words alone were counted; row {}: {}"
        notes.append(Message(text, f"{len(data['refused']):,}", number, why))
    return notes


def _tokenised(data: Mapping[str, Any], tokenizer: Tokenizer, place: Place) -> tuple[list[int], int] | str:
    """The tokens of the first of the rows, and the most that any other row can have; or why there are none."""
    if tokenizer.file is None:
        return tokenizer.missing
    sizes, rows = data["sizes"], data["rows"]
    there = {index for index, _ in rows}
    job = {
        "tokenizer": tokenizer.file,
        "special": tokenizer.template is None,
        "rows": [{"size": sizes[index], "texts": texts} for index, texts in rows],
        "sampled": data["sampled"],
        "beyond": max((size for index, size in enumerate(sizes) if index not in there), default=0),
        "seconds": _TOKENISE_SECONDS,
    }
    task = Task("tokenizing.py", job, ("tokenizers",), _TOKENISE_LIMIT, _TOKENISE_MIB)
    (answer,) = run_in_target([task], place)
    counts: list[int] = []
    most = 0
    for record in answer.records:
        if record["case"] == "lengths":
            counts += record["lengths"]
        elif record["case"] == "left":
            most = record["most"]
        else:
            return unpacked(record.get("problem")) or str(record.get("skip") or record.get("error"))
    if not counts:
        return f"{answer.ending}: {answer.detail}"
    return counts, most if answer.ending == "ok" else max(sizes)


def _of_all(sizes: Sequence[int], known: Mapping[int, int]) -> list[int]:
    """Tokens of every row: where they were not counted, as dense as the counted row of the nearest size above, and no
    more than the most that was counted."""
    counted = sorted(known, key=sizes.__getitem__)
    most = max(known.values())
    steps = [sizes[index] for index in counted]
    lengths = []
    for index, size in enumerate(sizes):
        count = known.get(index)
        if count is None:
            like = counted[min(bisect_left(steps, size), len(counted) - 1)]
            count = min(most, round(known[like] * size / max(1, sizes[like])))
        lengths.append(count)
    return lengths


#: per_device_train_batch_size of transformers where nothing is known of the batch.
_BATCH = 8
#: Rows that are packed together: datasets.map's batch_size, and LLaMA-Factory's preprocessing_batch_size.
_PACKED_AT_ONCE = 1000
#: transformers.trainer_pt_utils.get_length_grouped_indices sorts within so many batches, drawn at random.
_GROUPED = 50


def summary(
    measured: Measured, *, path: str, tokenizer: str, template: bool, cutoff: int | None, batch: int | None
) -> DataSection:
    """The section of the report. ``cutoff`` (tokens) and ``batch`` (samples) are the recipe's, None where unknown."""
    section: DataSection = {
        "path": path,
        "rows": measured.rows,
        "looked_at": measured.looked_at,
        "formats": list(measured.formats),
        "tokenizer": tokenizer,
        "template": template,
        "p50": None,
        "p90": None,
        "p99": None,
        "longest": None,
        "longest_at_most": measured.at_most,
        "cutoff": cutoff,
        "cut": None,
        "padding": None,
        "longest_batch": None,
        "notes": list(measured.notes),
    }
    if not measured.lengths:
        return section
    ordered = sorted(measured.lengths)
    shares = (ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 90, 99))
    section["p50"], section["p90"], section["p99"] = shares
    longest = section["longest"] = ordered[-1]
    section["longest_at_most"] = max(longest, measured.at_most)
    room = longest if cutoff is None else min(longest, cutoff)
    section["cut"] = None if cutoff is None else sum(length > cutoff for length in ordered)
    batch = batch or _BATCH
    fed = [max(1, min(length, room)) for length in measured.lengths]
    section["padding"] = {
        "batch": batch,
        "random": round(random_waste(fed, batch), 3),
        "grouped": round(grouped_waste(fed, batch), 3),
        "packed": round(packed_waste(fed, cutoff or max(fed)), 3),
    }
    section["longest_batch"] = min(batch, len(ordered)) * room
    return section


def fed_length(section: DataSection, packed: bool) -> int | None:
    """The longest sample as the recipe cuts it, in tokens: what a prediction of memory needs. None where the data says
    nothing of it: sequences that are packed are always full, and bytes only bound tokens from above."""
    if packed:
        return section["cutoff"]
    limits = [section["longest_at_most"] if section["longest"] is not None or section["cutoff"] else None]
    known = [limit for limit in (*limits, section["cutoff"]) if limit is not None]
    return min(known, default=None)


def random_waste(lengths: Sequence[int], batch: int) -> float:
    """The share of padding when samples are drawn at random and padded to the longest of their batch."""
    return _waste(random.Random(0).sample(lengths, len(lengths)), batch)  # noqa: S311


def grouped_waste(lengths: Sequence[int], batch: int) -> float:
    """The same with ``group_by_length`` of transformers: samples of many batches are sorted."""
    drawn = random.Random(0).sample(lengths, len(lengths))  # noqa: S311
    size = max(1, min(len(drawn) // (batch * 4), _GROUPED)) * batch
    pieces = (sorted(drawn[start : start + size], reverse=True) for start in range(0, len(drawn), size))
    return _waste([length for piece in pieces for length in piece], batch)


def packed_waste(lengths: Sequence[int], room: int) -> float:
    """The share of padding when samples are packed into sequences of ``room`` tokens, each into the fullest where it
    fits, longest first. None of them is longer."""
    drawn = random.Random(0).sample(lengths, len(lengths))  # noqa: S311
    sequences = 0
    for start in range(0, len(drawn), _PACKED_AT_ONCE):
        rooms: list[int] = []
        for length in sorted(drawn[start : start + _PACKED_AT_ONCE], reverse=True):
            place = bisect_left(rooms, length)
            if place < len(rooms):
                insort(rooms, rooms.pop(place) - length)
            else:
                sequences += 1
                insort(rooms, room - length)
    return 1 - sum(drawn) / (sequences * room)


def _waste(lengths: Sequence[int], batch: int) -> float:
    batches = [lengths[start : start + batch] for start in range(0, len(lengths), batch)]
    return 1 - sum(lengths) / sum(max(one) * len(one) for one in batches)
