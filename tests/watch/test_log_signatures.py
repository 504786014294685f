"""Signatures in the Trainer's log, and memory that grows: without torch."""

import math
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

WATCH = Path(__file__).resolve().parents[2] / "envdoctor" / "experiments" / "watch"
NAN, INF = math.nan, math.inf


def _signatures() -> Any:
    """The module by its file: importing the package itself asks for torch."""
    spec = spec_from_file_location("watch_signatures", WATCH / "signatures.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


signatures = _signatures()
event_of_log: Callable[[Any], str | None] = signatures.event_of_log


@pytest.mark.parametrize(
    ("entry", "event"),
    [
        ({"loss": 4.58, "grad_norm": 1.42}, None),
        ({"loss": 0.0, "grad_norm": NAN}, "zero-loss-nan-norm"),
        ({"loss": "0.0", "grad_norm": "nan"}, "zero-loss-nan-norm"),  # newer releases log texts
        ({"loss": 0.0, "grad_norm": 0.0}, "zero-loss-zero-norm"),
        ({"loss": 2.0, "grad_norm": NAN}, "nan-gradient"),
        ({"loss": 2.0, "grad_norm": INF}, "infinite-norm"),
        ({"loss": NAN, "grad_norm": 1.0}, "nan-loss"),
        ({"loss": -INF}, "nan-loss"),
        ({"eval_loss": NAN}, "nan-eval-loss"),
        ({"eval_loss": 4.563}, None),
        ({"loss": 0.0}, None),  # nothing is known of the gradient
        ({"grad_norm": 0.0}, None),
        ({"loss": None, "grad_norm": {}}, None),
        ({}, None),
    ],
)
def test_a_log_entry_shows_its_event(entry, event):
    assert event_of_log(entry) == event


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("sizes", "leak"),
    [
        ([100, 200, 210, 220, 240], (0.039, 4)),  # 40 MiB
        ([100, 500, 500, 500, 500], None),  # the first visit fills caches
        ([0, 100, 200, 190, 300], None),  # it came down once
        ([0, 100, 101, 102, 103], None),  # too little to be told from the allocator's blocks
        ([0, 100, 200, 300], None),  # not often enough
    ],
)
def test_memory_that_grows_at_every_visit_of_a_shape_is_a_leak(sizes, leak):
    watched = signatures.Memory()
    result = [watched.add("memory-grows", (2, 64), size * MIB) for size in sizes][-1]
    assert (result and (result[1]["watch.grown_gib"], result[1]["watch.visits"])) == leak


def test_longer_batches_that_need_more_are_no_leak():
    watched = signatures.Memory()
    assert not any(watched.add("memory-grows", (2, 64 * n), n * 100 * MIB) for n in range(1, 50))


def test_the_number_of_shapes_is_bounded():
    watched = signatures.Memory()
    for length in range(2 * signatures.SHAPES):
        watched.add("memory-grows", (1, length), 1)
    assert len(watched._visits["memory-grows"]) <= signatures.SHAPES


def test_memory_that_the_allocator_holds_unused_is_followed_until_a_larger_batch_comes():
    memory = signatures.Memory()
    steps = [memory.step((2, 64), GIB, (2 + number) * GIB) for number in range(9)]
    assert [result[0] for result in steps if result] == ["reserved-memory-grows"] and steps[-1][1]["watch.visits"] == 8
    memory = signatures.Memory()
    grown = [memory.step((2, 64 + number), GIB, (2 + number) * GIB) for number in range(50)]
    assert not any(grown) and not any(memory.step((2, 64), GIB, 60 * GIB) for _ in range(20))


def test_an_evaluation_that_keeps_its_outputs_is_seen_and_the_next_one_begins_again():
    memory, event = signatures.Memory(), "evaluation-memory-grows"
    seen = [memory.add(event, (8, 64), number * 100 * MIB) for number in range(5)]
    assert [result[0] for result in seen if result] == [event]
    memory.forget(event)
    assert not any(memory.add(event, (8, 64), number * 100 * MIB) for number in range(4))
