"""A few traces give every depth, batch and length."""

from typing import Any

import pytest
from traced_jobs import GIB

from envdoctor.facts import Records
from envdoctor.peak import ClosedForm, Residual, Trace

DEPTH = 40


def truth(layers: int, tokens: int, batch: int = 1) -> dict[str, dict[str, float]]:
    """Bytes of two segments of a step that is made up."""
    weights = 1000.0 + 50 * layers
    return {
        "forward/after": {"weights": weights, "logits and loss": batch * (7.0 * tokens)},
        "backward/last": {"weights": weights, "attention": batch * layers * (3.0 * tokens + 0.5 * tokens**2)},
    }


def size_of(layers: int, tokens: int, batch: int = 1) -> float:
    return max(sum(terms.values()) for terms in truth(layers, tokens, batch).values())


def trace(
    lengths: tuple[int, ...] = (64, 128, 256), depths: tuple[int, ...] = (3, 4), depth: int = DEPTH, **more: Any
) -> Trace:
    def point(layers: int, tokens: int) -> dict[str, Any]:
        found = truth(layers, tokens).items()
        segments = {name: [sum(terms.values()), f"operation of {name}", terms] for name, terms in found}
        kept = {"trained": 10 * layers + 2, "cache_bytes": layers * tokens * GIB / 256}
        return {"layers": layers, "tokens": tokens, **kept, "segments": segments}

    points = tuple(point(layers, tokens) for layers in depths for tokens in lengths)
    return Trace({"depth": depth, "parameters": 9, "weight_bytes": GIB, "layer_parameters": 1}, points)


@pytest.mark.parametrize(
    ("lengths", "batch", "tokens"),
    [
        *(((64, 128, 256), batch, tokens) for batch, tokens in ((1, 256), (1, 100), (3, 256), (2, 5000))),
        ((128,), 1, 128),  # one length answers for itself
    ],
)
def test_the_full_depth_and_every_batch_and_length(lengths: tuple[int, ...], batch: int, tokens: int) -> None:
    peak = ClosedForm(trace(lengths), 1).at(batch, tokens)
    assert peak.size == pytest.approx(size_of(DEPTH, tokens, batch))
    assert (peak.segment, peak.operation) == ("backward/last", "operation of backward/last")


def test_terms_stand_in_the_order_of_the_trace() -> None:
    """Not in that of a set, which changes from run to run."""
    names = [f"term {number}" for number in range(20)]
    point = {
        "layers": 1,
        "tokens": 64,
        "trained": 1,
        "segments": {"backward/last": [20, "mm", dict.fromkeys(names, 1.0)]},
    }
    form = ClosedForm(trace((64,), (1,), depth=1)._replace(points=(point,)), 1)
    assert list(form.at(1, 64).terms) == names


def test_the_segment_of_the_peak_changes_with_the_length_and_without_a_term() -> None:
    assert ClosedForm(trace(depths=(1, 2)), 1).at(1, 1).segment == "backward/last"
    form = ClosedForm(trace(depths=(1,), depth=1), 1)
    assert form.at(1, 4).segment == "forward/after"
    assert form.at(1, 4, ("logits and loss",)).segment == "backward/last"
    assert form.at(1, 256, ("logits and loss",)) == form.at(1, 256)


def test_what_the_allocator_holds_at_full_depth_is_a_share_of_the_peak() -> None:
    low, high, full = (size_of(layers, 64) for layers in (3, 4, DEPTH))

    def held(*sizes: float) -> float:
        of_one = trace((64,))
        points = tuple({**point, "held_bytes": size} for point, size in zip(of_one.points, sizes, strict=True))
        return ClosedForm(of_one._replace(points=points), 1).held

    assert held(low + 500, high + 500) == pytest.approx((full + 500) / full)
    assert held(low, 1.1 * high) == pytest.approx(1.1)  # no more than at a depth that was traced
    assert held(1.0, 1.0) == 1.0
    assert ClosedForm(trace(), 1).held == 1.0  # where nobody replayed it


def test_what_one_process_of_several_holds_is_counted_by_what_it_is() -> None:
    form = ClosedForm(trace(), 1, lambda terms: {**terms, "weights": terms["weights"] / 8})
    assert form.at(1, 256).terms["weights"] == pytest.approx((1000 + 50 * DEPTH) / 8)


def test_trained_parameters_and_the_cache_grow_with_the_layers(predicted: Any) -> None:
    found = predicted(trace(), method="infer", max_length=256)
    assert found["trained_parameters"] == 10 * DEPTH + 2
    assert {"name": "KV cache", "gib": DEPTH} in found["terms"]


@pytest.mark.parametrize(
    ("batch", "share", "offered"),
    [
        (8, 0.5, {"recipe.batch_size": 4, "recipe.max_length": 1024}),
        (8, 0.99, {"recipe.batch_size": 7, "recipe.max_length": 1920}),
        (8, 0.05, {}),
        (1, 0.5, {"recipe.max_length": 1024}),
    ],
)
def test_the_largest_batch_and_length_that_fit_are_offered(predicted: Any, batch: int, share: float, offered: Any):
    def of(whole: float) -> Trace:
        segments = {n: {"forward/last": [n, "op", {"attention": whole * n * GIB / 2048}]} for n in (512, 1024, 2048)}
        points = tuple({"layers": 1, "tokens": n, "trained": 1, "segments": found} for n, found in segments.items())
        return trace()._replace(model={**trace().model, "depth": 1}, points=points)

    free = predicted(of(80 * share))["process_gib"][1] + 0.01
    found = predicted(of(80), Records(({"name": "A", "memory_gib": free},)), batch_size=batch)
    changes = {name: value for change in found["changes"] for name, value in change["set"].items()}
    assert {name.replace("train_", ""): value for name, value in changes.items()} == offered
    assert {change["verdict"] for change in found["changes"]} <= {"fits"}


def test_an_allocator_whose_cache_is_emptied_holds_between_the_tensors_and_the_usual() -> None:
    tensors, held = ([(share, 0.0) for share in shares] for shares in ((0.9, 0.95, 1.0, 1.1), (1.0, 1.04, 1.1, 1.2)))
    emptied = Residual(*held).if_emptied(Residual(*tensors))
    assert [share for share, _ in emptied] == pytest.approx([0.9, 0.95, 1.05, 1.2])
    assert Residual(*tensors).if_emptied(Residual(*tensors)) == Residual(*tensors)


def test_a_margin_is_on_what_depends_on_the_batch() -> None:
    terms = {"weights": 10.0, "reference model": 5.0, "attention": 4.0, "logits and loss": 6.0}
    point = {"layers": 1, "tokens": 9, "segments": {"backward/last": [25.0, "op", terms]}}
    peak = ClosedForm(Trace({"depth": 1}, (point,)), 1).at(1, 9)
    assert (peak.size, peak.most(0.0), peak.most(0.3)) == (25.0, 25.0, 28.0)


def test_what_does_not_grow_with_the_length_does_not_grow_with_the_batch() -> None:
    segments = {n: {"forward/last": [0, "op", {"attention": 5000.0 + 10.0 * 8 * n}]} for n in (100, 200, 400)}
    points = tuple({"layers": 1, "tokens": n, "segments": found} for n, found in segments.items())
    form = ClosedForm(Trace({"depth": 1}, points), 8)
    assert form.at(4, 400).size == pytest.approx(5000 + 10 * 4 * 400) == pytest.approx(form.at(8, 200).size)
