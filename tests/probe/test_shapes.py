"""Faults that need a shape to show, of a batch, a length, a vocabulary, an optimizer, are found by the quick suite."""

from itertools import combinations, product

import pytest
from planted import few, jobs, pure, seen

from envdoctor.experiments import Outcome

shapes = pure("shapes")

#: By fault: the experiment that has the shape, and what a case that fails says.
EXPECTED = {
    "the sixth sample reads the values of the fifth": ("attention", "inaccurate", "B9 H8/2 flag L65"),
    "the last of four heads": ("attention", "inaccurate", "H8/2"),
    "the query gradient of the eighth sample": ("attention", "inaccurate", "H8/2 flag L65"),
    "keys beyond 1,024": ("attention", "inaccurate", "S2100"),
    "rows beyond 1,024": ("attention", "inaccurate", "L1100"),
    "a vocabulary's tail": ("arithmetic", "inaccurate", "cross_entropy"),
    "products of a width that eight does not divide": ("arithmetic", "inaccurate", "linear"),
    "the weight gradient of a wide norm": ("rms-norm", "inaccurate", "rows of"),
    "elements beyond 65,536 stay": ("optimizer-step", "step-differs", "AdamW"),
    "every 31st tensor stays": ("optimizer-step", "step-differs", "AdamW"),
}
WANTED = {
    fault: (fault, few(probe) if probe == "attention" else jobs(probe)) for fault, (probe, _, _) in EXPECTED.items()
}


@pytest.mark.parametrize("seed", range(3))
def test_every_two_kinds_of_sizes_meet_and_each_seed_draws_others(seed: int) -> None:
    axes = {"length": shapes.SIZES, "width": shapes.HIDDEN, "mask": shapes.each("none", "causal")}
    rows = list(shapes.drawn(seed, **axes))
    for first, second in combinations(axes, 2):
        for one, other in product(axes[first], axes[second]):
            assert any(row[first] in one and row[second] in other for row in rows)
    assert rows == list(shapes.drawn(seed, **axes)) != list(shapes.drawn(seed + 1, **axes))


@pytest.mark.parametrize("tile", [16, 32, 64, 128, 256])
def test_sizes_lie_below_at_and_above_every_tile(tile: int) -> None:
    assert all(any(size in kind for kind in shapes.SIZES) for size in (tile - 1, tile, tile + 1))


@pytest.mark.torch
@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_of_some_shapes_is_found(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    _, signature, said = EXPECTED[fault]
    result = seen(outcomes[fault])
    failed = [case for case in result.cases if case.verdict.verdict == "fail"]
    assert any(said in case.title for case in failed), [case.title for case in failed]
    assert {case.verdict.signature for case in failed} == {signature}
    assert len(result.told) == 1 and result.told[0].gate
