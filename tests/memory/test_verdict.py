"""The verdict on an interval, and the GPU that decides."""

from __future__ import annotations

import pytest

from envdoctor.facts.values import Records, Unknown
from envdoctor.memory.verdict import GIB, gpu_of, need_of, room

HERE = Records(
    ({"name": "A", "memory_gib": 48.0, "free_gib": 40.0}, {"name": "B", "memory_gib": 48.0, "free_gib": 20.0})
)


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [(44.0, "fits"), (44.7, "fits"), (44.8, "tight"), (47.5, "tight"), (47.7, "does-not-fit")],
)
def test_tight_is_between(allocated: float, expected: str) -> None:
    assert need_of(allocated * GIB).verdict(48 * GIB) == expected


def test_what_there_is_room_for_fits() -> None:
    size = room(48 * GIB)
    assert need_of(size).process[1] == pytest.approx(48 * GIB)


def test_one_process_takes_the_first_gpu_and_several_wait_for_the_fullest() -> None:
    assert getattr(gpu_of(HERE, 1), "free", 0) == 40 * GIB
    assert getattr(gpu_of(HERE, 2), "free", 0) == 20 * GIB


def test_a_gpu_that_is_only_named_is_free() -> None:
    assert gpu_of(Records(({"name": "A6000", "memory_gib": 48},)), 1) == ("A6000", 48 * GIB, 48 * GIB)


def test_no_gpu_no_verdict() -> None:
    assert gpu_of(Records(()), 1) is None
    assert gpu_of(Unknown("no driver"), 1) is None
    assert gpu_of(Records(({"name": "A"},)), 1) is None
