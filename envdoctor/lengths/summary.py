"""The lengths of all rows as what decides about memory: how many are long, what is padding (by how the samples are put
together), the largest batch. Lengths in tokens, padding as shares of 1."""

import random
from bisect import bisect_left, insort
from collections.abc import Sequence

from envdoctor.lengths.measuring import Measured
from envdoctor.lengths.section import DataSection

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
