"""The replay of torch's caching allocator: what c10/cuda/CUDACachingAllocator.cpp does with these requests."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import envdoctor

MIB = 1 << 20


@pytest.fixture
def allocator() -> Any:
    """Payload is read as the target's interpreter reads it: on its own."""
    path = Path(envdoctor.__file__).parent / "payload" / "tracing" / "allocator.py"
    spec = importlib.util.spec_from_file_location("allocator", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Allocator()


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([1], 2),  # small ones share 2 MiB
        ([MIB, MIB], 2),
        ([MIB, MIB, 1], 4),
        ([MIB + 1], 20),  # from 1 to 10 MiB: 20 MiB
        ([9 * MIB, 9 * MIB], 20),
        ([9 * MIB, 9 * MIB, 9 * MIB], 40),
        ([10 * MIB], 10),  # from 10 MiB: their own, in steps of 2
        ([11 * MIB], 12),
    ],
)
def test_segments(allocator: Any, sizes: list[int], held: int) -> None:
    for size in sizes:
        allocator.take(size)
    assert allocator.held == held * MIB


def test_what_was_freed_is_taken_again_and_the_smallest_that_is_large_enough(allocator: Any) -> None:
    large, small = allocator.take(64 * MIB), allocator.take(32 * MIB)
    allocator.give(large)
    allocator.give(small)
    assert allocator.take(30 * MIB).size == 30 * MIB
    assert allocator.take(64 * MIB) is large
    assert allocator.held == 96 * MIB


def test_a_small_tensor_in_a_large_block_keeps_the_next_large_one_out(allocator: Any) -> None:
    allocator.give(allocator.take(64 * MIB))
    kept = allocator.take(20 * MIB)
    allocator.take(64 * MIB)
    assert allocator.held == 128 * MIB
    allocator.give(kept)
    allocator.take(64 * MIB)
    assert allocator.held == 128 * MIB  # the free neighbours are one block again


def test_neighbours_join_on_both_sides(allocator: Any) -> None:
    whole = allocator.take(60 * MIB)
    allocator.give(whole)
    parts = [allocator.take(20 * MIB) for _ in range(3)]
    for place in (0, 2, 1):
        allocator.give(parts[place])
    assert allocator.take(60 * MIB).size == 60 * MIB and allocator.held == 60 * MIB
