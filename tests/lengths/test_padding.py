"""Padding of batches: by hand where they are few, and by its order where they are many."""

from __future__ import annotations

import random

import pytest

from envdoctor.lengths.padding import grouped_waste, packed_waste, random_waste


@pytest.mark.parametrize("waste", [random_waste, grouped_waste])
def test_a_single_batch_is_padded_to_its_longest(waste):
    assert waste([1, 2, 3, 4], 4) == pytest.approx(1 - 10 / 16)
    assert waste([1, 2, 3, 4], 1) == 0 and waste([5] * 7, 4) == 0


def test_the_last_batch_may_be_smaller():
    assert random_waste([1, 3, 3], 2) in (pytest.approx(1 - 7 / 9), pytest.approx(1 - 7 / 7), pytest.approx(1 - 7 / 8))
    assert grouped_waste([1, 3, 3], 2) == pytest.approx(0)


def test_packing_fills_sequences_and_none_is_split():
    assert packed_waste([6, 4, 5, 5, 10], 10) == pytest.approx(0)
    assert packed_waste([6, 6, 3], 10) == pytest.approx(1 - 15 / 20)


def test_grouping_pads_less_than_chance_and_packing_least():
    draw = random.Random(1)
    lengths = [min(2048, int(draw.lognormvariate(5, 1)) + 1) for _ in range(5000)]
    assert packed_waste(lengths, 2048) < grouped_waste(lengths, 8) < random_waste(lengths, 8)
