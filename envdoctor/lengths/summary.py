"""The lengths of all rows as what decides about memory: how many are long, what is padding (by how the samples are put
together), the largest batch. Lengths in tokens, padding as shares of 1."""

import os
import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.lengths.section import DataSection, Padding, Spread
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

#: per_device_train_batch_size of transformers where nothing is known of the batch.
_BATCH = 8
#: Rows that are packed together: datasets.map's batch_size, and LLaMA-Factory's preprocessing_batch_size.
_PACKED_AT_ONCE = 1000
#: transformers.trainer_pt_utils.get_length_grouped_indices sorts within so many batches, drawn at random.
_GROUPED = 50

_LARGEST_TEMPLATE = 1 << 20
#: Tokenizers of models of vision and a quarter of a million words have 35 MB.
_LARGEST_TOKENIZER = 256 << 20


class DataError(MessageError):
    """The file cannot be used; the message is one sentence that names it."""


class Tokenizer(NamedTuple):
    """The tokenizer in a model's folder, which is ``shown`` as the user wrote it: ``file`` is the path of
    tokenizer.json, or None, then ``missing`` says why; ``template`` is the chat template, if there is one, and
    ``variables`` the special tokens that it may name."""

    shown: str
    file: str | None
    missing: str
    template: str | None
    variables: dict[str, str]


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
    return Tokenizer(shown, None if missing else file, missing, template, special_tokens(config))


def measure(
    path: str, shown: str, tokenizer: Tokenizer, place: Place, *, cutoff: int | None = None, batch: int | None = None
) -> DataSection:
    """The section of the report about the file at the absolute ``path``, ``shown`` as the user wrote it; of a row of
    preferences the longer sample counts. ``cutoff`` (tokens) and ``batch`` (samples) are the recipe's, None where
    unknown. Raises :class:`DataError`."""
    data = _read(_unpacked(path, shown, place), shown, tokenizer)
    rows = data["rows"]
    if not rows:
        number, why = data["unread"][0] if data["unread"] else (1, "is larger than all that is read")
        raise DataError("--data {}: no row of it could be read; row {} {}", shown, number, why)
    notes = _notes(data)
    answer = _tokenised(data, tokenizer, place)
    if isinstance(answer, str):
        notes.insert(0, Message("tokens could not be counted: {}", answer))
        looked_at, lengths = len(rows), list[int]()
        most = max(len(text.encode("utf-8", "surrogatepass")) for _, texts in rows for text in texts)
    else:
        counts, most = answer
        known = {index: count for (index, _), count in zip(rows, counts, strict=False)}
        looked_at, lengths = len(known), _of_all(data["sizes"], known)
    return {
        "path": shown,
        "rows": len(data["sizes"]),
        "looked_at": looked_at,
        "formats": [name for name, _ in Counter(data["formats"]).most_common()],
        "tokenizer": tokenizer.shown,
        "template": tokenizer.template is not None,
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
        jsonl = "datasets.Dataset.from_parquet(…).to_json(…)"
        raise DataError("--data {} is Parquet, and {} there: install it, or write it as JSONL, {}", shown, why, jsonl)
    why = last.get("problem") or Message("could not be read: {}: {}", answer.ending, answer.detail)
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


def fed_length(section: DataSection, packed: bool) -> int | None:
    """The longest sample as the recipe cuts it, in tokens: what a prediction of memory needs. None where the data says
    nothing of it: sequences that are packed are always full, and bytes only bound tokens from above."""
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
    """Return how many sequences of ``room`` tokens hold all: each sample, longest first, in the fullest it fits."""
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
    return 1 - sum(lengths) / sum(max(one) * len(one) for one in batches)
