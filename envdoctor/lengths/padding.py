"""What of a batch is padding, by how the samples are put together. Lengths in tokens, answers as shares of 1."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Sequence

#: Rows that are packed together: datasets.map's batch_size, and LLaMA-Factory's preprocessing_batch_size.
_PACKED_AT_ONCE = 1000
#: transformers.trainer_pt_utils.get_length_grouped_indices sorts within so many batches, drawn at random.
_GROUPED = 50


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
