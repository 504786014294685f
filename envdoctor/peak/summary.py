"""The lengths of all rows of a data file as what decides about memory, the section ``data`` of a report: how many are
long, what is padding (by how the samples are put together), the largest batch. Lengths in tokens, padding as shares.

Some rows are tokenised, and the others are told from their sizes. A bounded child of envdoctor's reads the file and
renders the chat template (``read_data.py``); a child of the target's interpreter tokenises (``payload/rows.py``),
with the target's release of ``tokenizers``. The rows of a Parquet file are written as lines first, by the target's
pyarrow (``payload/rows.py``).
"""

import os
import random
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from envdoctor.system.asking import ChildProblem, Limits, ask_once
from envdoctor.system.files import Files
from envdoctor.system.message import Message, MessageError, packed, unpacked
from envdoctor.system.target import Place, Task, run_in_target

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

#: per_device_train_batch_size of transformers where nothing is known of the batch.
_BATCH = 8
#: Rows that are packed together: datasets.map's batch_size, and LLaMA-Factory's preprocessing_batch_size.
_PACKED_AT_ONCE = 1000
#: transformers.trainer_pt_utils.get_length_grouped_indices sorts within so many batches, drawn at random.
_GROUPED = 50

#: Tokenizers of models of vision and a quarter of a million words have 35 MB.
_LARGEST_TOKENIZER = 256 << 20


class DataError(MessageError):
    """The file cannot be used; the message is one sentence that names it."""


class Padding(TypedDict):
    """Shares of padding in batches of ``batch`` samples, by how these are put together."""

    batch: int
    random: float
    grouped: float
    packed: float


class Spread(TypedDict):
    """Lengths are tokens of a sample: half of the rows have at most ``p50``, and ``cut`` are longer than the recipe's
    cutoff (None: it has none). ``longest_batch`` are the tokens of the largest batch, padding included. All of them are
    None where tokens could not be counted."""

    p50: int | None
    p90: int | None
    p99: int | None
    longest: int | None
    cut: int | None
    padding: Padding | None
    longest_batch: int | None


class DataSection(Spread):
    """``rows`` of the file, of which ``looked_at`` were read and tokenised; ``formats`` are theirs, the usual first.
    ``template``: the chat template of ``tokenizer`` (a folder) was counted.

    ``longest`` was counted; where ``longest_at_most`` is larger, a row that was not may have as many. Without tokens
    it is the number of bytes of the longest text. ``cutoff`` is the recipe's, in tokens.
    """

    path: str
    rows: int
    looked_at: int
    formats: list[str]
    tokenizer: str
    template: bool
    longest_at_most: int
    cutoff: int | None
    notes: list[str]


def measure(
    path: str, folder: str, place: Place, *, data: str, tokenizer: str, cutoff: int | None, batch: int | None
) -> DataSection:
    """Return the section of the report about the file at the absolute ``path``, in tokens of the model in ``folder``,
    without running code of the model's; ``data`` and ``tokenizer`` are as the user wrote them. Of a row of preferences
    the longer sample counts. ``cutoff`` (tokens) and ``batch`` (samples) are the recipe's, None if unknown. Raises
    :class:`DataError`."""
    job = {"path": _unpacked(path, data, place), "folder": folder}
    limits = Limits(_READ_SECONDS, _READ_MIB, output=256 << 20)
    content = ask_once("envdoctor.peak.read_data:answer", job, limits, packages=True)
    problem = content.clause() if isinstance(content, ChildProblem) else unpacked(content.get("problem"))
    if problem:
        raise DataError("--data {} {}", data, problem)
    rows, unread = content["rows"], content["unread"]
    if not rows:
        number, why = unread[0] if unread else (1, packed(Message("is larger than all that is read")))
        raise DataError("--data {}: no row of it could be read; row {} {}", data, number, unpacked(why))
    notes = _notes(content)
    answer = _tokenised(content, folder, tokenizer, place)
    if isinstance(answer, str):
        notes.insert(0, Message("tokens could not be counted: {}", answer))
        looked_at, lengths = len(rows), list[int]()
        most = max(len(text.encode("utf-8", "surrogatepass")) for _, texts in rows for text in texts)
    else:
        known, most = answer
        looked_at, lengths = len(known), _of_all(content["sizes"], known)
    return {
        "path": data,
        "rows": len(content["sizes"]),
        "looked_at": looked_at,
        "formats": content["formats"],
        "tokenizer": tokenizer,
        "template": content["template"],
        **spread(lengths, cutoff, batch or _BATCH),
        "longest_at_most": max([most, *lengths]),
        "cutoff": cutoff,
        "notes": list(notes),
    }


def spread(lengths: Sequence[int], cutoff: int | None, batch: int) -> Spread:
    """Return what the tokens of all samples say, in batches of ``batch`` samples; all None where there are none."""
    if not lengths:
        return Spread(p50=None, p90=None, p99=None, longest=None, cut=None, padding=None, longest_batch=None)
    ordered = sorted(lengths)
    room = ordered[-1] if cutoff is None else min(ordered[-1], cutoff)
    fed = [max(1, min(length, room)) for length in lengths]
    p50, p90, p99 = (ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 90, 99))
    return {
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "longest": ordered[-1],
        "cut": None if cutoff is None else sum(length > cutoff for length in ordered),
        "padding": padding(fed, batch, cutoff or max(fed)),
        "longest_batch": min(batch, len(ordered)) * room,
    }


def _unpacked(path: str, shown: str, place: Place) -> str:
    """Return the file, or the one that a Parquet file's rows were written to. Raises :class:`DataError`."""
    try:
        with open(Files().open(path), "rb") as file:
            if file.read(len(_PARQUET)) != _PARQUET:
                return path
    except OSError:
        return path  # who reads it says why not
    out = os.path.join(place.scratch, "rows.jsonl")
    job = {"path": path, "out": out, "most": _UNPACKED}
    task = Task("rows.py:unpack", job, ("pyarrow",), _UNPACK_SECONDS, _READ_MIB)
    (answer,) = run_in_target([task], place)
    last = answer.records[-1] if answer.records else {}
    if last.get("case") == "rows":
        return out
    if last.get("case") == "needs":
        why = last.get("skip") or last.get("error")
        jsonl = "datasets.Dataset.from_parquet(…).to_json(…)"
        raise DataError("--data {} is Parquet, and {} there: install it, or write it as JSONL, {}", shown, why, jsonl)
    why = unpacked(last.get("problem")) or Message("could not be read: {}: {}", answer.ending, answer.detail)
    raise DataError("--data {} {}", shown, why)


def _notes(data: Mapping[str, Any]) -> list[Message]:
    notes = []
    unread, refused = data["unread"], data["refused"]
    looked = f"{len(data['rows']) + len(unread):,}"
    for number, why in unread[:1]:
        text = "{} of {} rows that were looked at cannot be used; row {} {}"
        notes.append(Message(text, f"{len(unread):,}", looked, number, unpacked(why)))
    for number, why in refused[:1]:
        text = "the chat template refused {} samples, of which the words alone were counted; row {}: {}"
        notes.append(Message(text, f"{len(refused):,}", number, why))
    return notes


def _tokenised(data: Mapping[str, Any], folder: str, shown: str, place: Place) -> tuple[dict[int, int], int] | str:
    """Return the tokens of the first rows by number, and the most that any other row can have; or why not."""
    file = os.path.join(folder, "tokenizer.json")
    if not os.path.isfile(file):
        return Message("{} has no tokenizer.json, and code of a model is never run", shown)
    if os.path.getsize(file) > _LARGEST_TOKENIZER:
        return Message("tokenizer.json of {} is larger than {} MiB", shown, _LARGEST_TOKENIZER >> 20)
    sizes, rows = data["sizes"], data["rows"]
    there = {index for index, _ in rows}
    job = {
        "tokenizer": file,
        "special": not data["template"],
        "rows": [{"size": sizes[index], "texts": texts} for index, texts in rows],
        "sampled": data["sampled"],
        "beyond": max((size for index, size in enumerate(sizes) if index not in there), default=0),
        "seconds": _TOKENISE_SECONDS,
    }
    task = Task("rows.py:tokenize", job, ("tokenizers",), _TOKENISE_LIMIT, _TOKENISE_MIB)
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
    known = {index: count for (index, _), count in zip(rows, counts, strict=False)}
    return known, most if answer.ending == "ok" else max(sizes)


def _of_all(sizes: Sequence[int], known: Mapping[int, int]) -> list[int]:
    """Return the tokens of every row: an uncounted row is as dense as the counted row of the nearest size above, and
    has no more than the most that was counted."""
    counted = sorted(known, key=sizes.__getitem__)
    most = max(known.values())
    steps = [sizes[index] for index in counted]
    lengths = []
    for index, size in enumerate(sizes):
        like = index if index in known else counted[min(bisect_left(steps, size), len(counted) - 1)]
        count = known[like] if like == index else min(most, round(known[like] * size / max(1, sizes[like])))
        lengths.append(count)
    return lengths


def fed_length(section: DataSection, packed: bool) -> int | None:
    """Return the longest sample as the recipe cuts it, in tokens: a prediction of memory needs it. None if the data
    does not tell it: packed sequences are always full, and bytes only bound tokens from above."""
    cutoff = section["cutoff"]
    if packed or (section["longest"] is None and cutoff is None):
        return cutoff
    return min(section["longest_at_most"], cutoff or section["longest_at_most"])


def padding(lengths: Sequence[int], batch: int, room: int) -> Padding:
    """Return the shares of padding, to a thousandth: of samples that are drawn at random and padded to the longest of
    their batch; the same with ``group_by_length`` of transformers, where samples of many batches are sorted; and of
    samples that are packed into sequences of ``room`` tokens. None of them is longer."""
    drawn = random.Random(0).sample(lengths, len(lengths))  # noqa: S311
    size = max(1, min(len(drawn) // (batch * 4), _GROUPED)) * batch
    pieces = (sorted(drawn[start : start + size], reverse=True) for start in range(0, len(drawn), size))
    return {
        "batch": batch,
        "random": round(_waste(drawn, batch), 3),
        "grouped": round(_waste([length for piece in pieces for length in piece], batch), 3),
        "packed": round(1 - sum(drawn) / (_packed(drawn, room) * room), 3),
    }


def _packed(lengths: Sequence[int], room: int) -> int:
    """Return how many sequences of ``room`` tokens hold all: each sample, longest first, in the fullest one it fits."""
    sequences = 0
    for start in range(0, len(lengths), _PACKED_AT_ONCE):
        rooms: list[int] = []
        for length in sorted(lengths[start : start + _PACKED_AT_ONCE], reverse=True):
            place = bisect_left(rooms, length)
            if place < len(rooms):
                insort(rooms, rooms.pop(place) - length)
            else:
                sequences += 1
                insort(rooms, room - length)
    return sequences


def _waste(lengths: Sequence[int], batch: int) -> float:
    batches = [lengths[start : start + batch] for start in range(0, len(lengths), batch)]
    return 1 - sum(lengths) / sum(max(samples) * len(samples) for samples in batches)
