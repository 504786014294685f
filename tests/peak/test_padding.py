"""Padding of batches: by hand where they are few, and by its order where they are many."""

import random

import pytest

from envdoctor.peak.summary import padding


@pytest.mark.parametrize(
    ("way", "lengths", "batch", "shares"),
    [
        *((way, [1, 2, 3, 4], 4, [1 - 10 / 16]) for way in ("random", "grouped")),
        *((way, [1, 2, 3, 4], 1, [0]) for way in ("random", "grouped")),
        *((way, [5] * 7, 4, [0]) for way in ("random", "grouped")),
        ("random", [1, 3, 3], 2, [1 - 7 / 9, 1 - 7 / 7, 1 - 7 / 8]),  # the last batch may be smaller
        ("grouped", [1, 3, 3], 2, [0]),
        ("packed", [6, 4, 5, 5, 10], 8, [0]),
        ("packed", [6, 6, 3], 8, [1 - 15 / 20]),  # none is split
    ],
)
def test_what_of_a_few_batches_is_padding(way, lengths, batch, shares):
    assert any(padding(lengths, batch, room=10)[way] == pytest.approx(share, abs=0.0005) for share in shares)


def test_grouping_pads_less_than_chance_and_packing_least():
    draw = random.Random(1)
    shares = padding([min(2048, int(draw.lognormvariate(5, 1)) + 1) for _ in range(5000)], 8, room=2048)
    assert shares["packed"] < shares["grouped"] < shares["random"]
