"""Padding of batches: by hand where they are few, and by its order where they are many."""

from __future__ import annotations

import random

import pytest

from envdoctor.lengths.summary import grouped_waste, packed_waste, random_waste


@pytest.mark.parametrize(
    ("waste", "lengths", "batch", "shares"),
    [
        *((waste, [1, 2, 3, 4], 4, [1 - 10 / 16]) for waste in (random_waste, grouped_waste)),
        *((waste, [1, 2, 3, 4], 1, [0]) for waste in (random_waste, grouped_waste)),
        *((waste, [5] * 7, 4, [0]) for waste in (random_waste, grouped_waste)),
        (random_waste, [1, 3, 3], 2, [1 - 7 / 9, 1 - 7 / 7, 1 - 7 / 8]),  # the last batch may be smaller
        (grouped_waste, [1, 3, 3], 2, [0]),
        (packed_waste, [6, 4, 5, 5, 10], 10, [0]),
        (packed_waste, [6, 6, 3], 10, [1 - 15 / 20]),  # none is split
    ],
)
def test_what_of_a_few_batches_is_padding(waste, lengths, batch, shares):
    assert any(waste(lengths, batch) == pytest.approx(share) for share in shares)


def test_grouping_pads_less_than_chance_and_packing_least():
    draw = random.Random(1)
    lengths = [min(2048, int(draw.lognormvariate(5, 1)) + 1) for _ in range(5000)]
    assert packed_waste(lengths, 2048) < grouped_waste(lengths, 8) < random_waste(lengths, 8)
