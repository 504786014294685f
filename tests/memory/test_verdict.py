"""The verdict on an interval, and the GPU that decides."""

from __future__ import annotations

import pytest

from envdoctor.facts import Records, Unknown
from envdoctor.memory.verdict import GIB, gpu_of, need_of

HERE = Records(
    ({"name": "A", "memory_gib": 48.0, "free_gib": 40.0}, {"name": "B", "memory_gib": 48.0, "free_gib": 20.0})
)


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [(43.0, "fits"), (43.6, "fits"), (43.7, "tight"), (47.6, "tight"), (47.8, "does-not-fit")],
)
def test_tight_is_between(allocated: float, expected: str) -> None:
    assert need_of(allocated * GIB).verdict(48 * GIB) == expected


def test_what_may_take_more_only_raises_the_upper_end() -> None:
    assert need_of(40 * GIB, 44.8 * GIB).process == (need_of(40 * GIB).process[0], need_of(44.8 * GIB).process[1])
    assert need_of(40 * GIB, 44.8 * GIB).verdict(48 * GIB) == "tight"


def test_what_the_allocator_holds_only_raises_the_upper_end() -> None:
    usual, held = need_of(40 * GIB), need_of(40 * GIB, held=1.1)
    assert held.process[0] == usual.process[0] and held.reserved[1] == pytest.approx(1.1 * usual.reserved[1])


def test_one_process_takes_the_first_gpu_and_several_wait_for_the_fullest() -> None:
    assert getattr(gpu_of(HERE, 1), "free", 0) == 40 * GIB
    assert getattr(gpu_of(HERE, 2), "free", 0) == 20 * GIB


def test_a_gpu_that_is_only_named_is_free() -> None:
    assert gpu_of(Records(({"name": "A6000", "memory_gib": 48},)), 1) == ("A6000", 48 * GIB, 48 * GIB)


def test_no_gpu_no_verdict() -> None:
    assert gpu_of(Records(()), 1) is None
    assert gpu_of(Unknown("no driver"), 1) is None
    assert gpu_of(Records(({"name": "A"},)), 1) is None
