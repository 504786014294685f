"""A few traces give every depth, batch and length."""

from __future__ import annotations

import pytest

from envdoctor.memory import ClosedForm, Trace
from envdoctor.memory.advice import largest, smaller
from envdoctor.memory.closed_form import Peak, kept_bytes, trained_parameters

DEPTH = 40


def truth(layers: int, tokens: int, batch: int = 1) -> dict[str, dict[str, float]]:
    """Bytes of two segments of a step that is made up."""
    weights = 1000.0 + 50 * layers
    return {
        "forward/after": {"weights": weights, "logits and loss": batch * (7.0 * tokens)},
        "backward/last": {"weights": weights, "attention": batch * layers * (3.0 * tokens + 0.5 * tokens**2)},
    }


def trace(lengths: tuple[int, ...] = (64, 128, 256), depths: tuple[int, ...] = (3, 4)) -> Trace:
    points = tuple(
        {
            "layers": layers,
            "tokens": tokens,
            "trained": 10 * layers + 2,
            "cache_bytes": 4 * layers * tokens,
            "segments": {
                name: [sum(terms.values()), f"operation of {name}", terms]
                for name, terms in truth(layers, tokens).items()
            },
        }
        for layers in depths
        for tokens in lengths
    )
    return Trace({"depth": DEPTH}, points)


@pytest.mark.parametrize(("batch", "tokens"), [(1, 256), (1, 100), (3, 256), (2, 5000)])
def test_the_full_depth_and_every_batch_and_length(batch: int, tokens: int) -> None:
    peak = ClosedForm(trace(), 1).at(batch, tokens)
    expected = max(sum(terms.values()) for terms in truth(DEPTH, tokens, batch).values())
    assert peak.size == pytest.approx(expected)
    assert (peak.segment, peak.operation) == ("backward/last", "operation of backward/last")


def test_the_segment_of_the_peak_changes_with_the_length() -> None:
    assert ClosedForm(trace(depths=(1, 2)), 1).at(1, 1).segment == "backward/last"
    form = ClosedForm(Trace({"depth": 1}, trace(depths=(1,)).points), 1)
    assert form.at(1, 4).segment == "forward/after"


def test_without_a_term_the_peak_may_be_elsewhere() -> None:
    form = ClosedForm(Trace({"depth": 1}, trace(depths=(1,)).points), 1)
    assert form.at(1, 4, "logits and loss").segment == "backward/last"
    assert form.at(1, 256, "logits and loss") == form.at(1, 256)


def test_what_the_allocator_holds_at_full_depth_is_a_share_of_the_peak() -> None:
    peaks = {
        layers: max(map(sum, (terms.values() for terms in truth(layers, 64).values()))) for layers in (3, 4, DEPTH)
    }

    def held(low: float, high: float) -> float:
        sizes = {3: low, 4: high}
        points = tuple({**point, "held_bytes": sizes[point["layers"]]} for point in trace((64,)).points)
        return ClosedForm(Trace({"depth": DEPTH}, points), 1).held

    assert held(peaks[3] + 500, peaks[4] + 500) == pytest.approx((peaks[DEPTH] + 500) / peaks[DEPTH])
    assert held(peaks[3], 1.1 * peaks[4]) == pytest.approx(1.1)  # no more than at a depth that was traced
    assert held(1.0, 1.0) == 1.0
    assert ClosedForm(trace(), 1).held > 1  # where nobody replayed it


def test_one_length_answers_for_itself() -> None:
    assert ClosedForm(trace((128,)), 1).at(1, 128).size == pytest.approx(
        sum(truth(DEPTH, 128)["backward/last"].values())
    )


def test_what_one_process_of_several_holds_is_counted_by_what_it_is() -> None:
    form = ClosedForm(trace(), 1, lambda terms: {**terms, "weights": terms["weights"] / 8})
    assert form.at(1, 256).terms["weights"] == pytest.approx((1000 + 50 * DEPTH) / 8)


def test_trained_parameters_and_the_cache_grow_with_the_layers() -> None:
    assert trained_parameters(trace()) == 10 * DEPTH + 2
    assert kept_bytes(trace()) == 4 * DEPTH * 256


@pytest.mark.parametrize(("most", "limit", "expected"), [(10, 4, 4), (10, 99, 10), (10, 0, 0), (0, 5, 0)])
def test_the_largest_that_fits(most: int, limit: int, expected: int) -> None:
    assert largest(lambda number: number <= limit, most) == expected


def test_smaller_batches_and_lengths_fit_and_the_next_ones_do_not() -> None:
    form = ClosedForm(trace((1024, 2048, 4096)), 1)
    limit = form.at(2, 4000).size + 1
    found = {
        name: value
        for saving in smaller(form, "recipe.batch_size", 8, 4000, lambda peak: peak.size <= limit)
        for name, value in saving.job.items()
    }
    assert found["batch"] == 2
    assert form.at(8, found["tokens"]).size <= limit < form.at(8, found["tokens"] + 128).size


def test_a_margin_is_on_what_depends_on_the_batch() -> None:
    peak = Peak(
        "backward/last", "op", {"weights": 10.0, "reference model": 5.0, "attention": 4.0, "logits and loss": 6.0}
    )
    assert (peak.size, peak.most(0.0), peak.most(0.3)) == (25.0, 25.0, 28.0)


def test_what_does_not_grow_with_the_length_does_not_grow_with_the_batch() -> None:
    segments = {n: {"forward/last": [0, "op", {"attention": 5000.0 + 10.0 * 8 * n}]} for n in (100, 200, 400)}
    points = tuple({"layers": 1, "tokens": n, "segments": found} for n, found in segments.items())
    form = ClosedForm(Trace({"depth": 1}, points), 8)
    assert form.at(4, 400).size == pytest.approx(5000 + 10 * 4 * 400)
    assert form.at(4, 400).size == pytest.approx(form.at(8, 200).size)
