"""Faults that need a shape to show, of a batch, a length, a vocabulary, an optimizer, are found by the quick suite."""

from __future__ import annotations

import pytest
from planted import jobs, seen

from envdoctor.probe import Outcome

pytestmark = pytest.mark.torch

#: By fault: the experiment that has the shape, and what a case that fails says.
EXPECTED = {
    "the sixth sample reads the values of the fifth": ("attention", "inaccurate", "H8/2 flag L65"),
    "the last of four heads": ("attention", "inaccurate", "H8/2"),
    "the query gradient of the eighth sample": ("attention", "inaccurate", "H8/2 flag L65"),
    "keys beyond 1,024": ("attention", "inaccurate", "S2100"),
    "rows beyond 1,024": ("attention", "inaccurate", "L1100"),
    "a vocabulary's tail": ("arithmetic", "inaccurate", "odd cross entropy"),
    "products of a width that eight does not divide": ("arithmetic", "inaccurate", "odd linear"),
    "the weight gradient of a wide norm": ("rms-norm", "inaccurate", "rows of 2048"),
    "elements beyond 65,536 stay": ("optimizer-step", "step-differs", "AdamW"),
    "every 31st tensor stays": ("optimizer-step", "step-differs", "AdamW"),
}
WANTED = {fault: (fault, jobs(probe)) for fault, (probe, _, _) in EXPECTED.items()}


@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_of_some_shapes_is_found(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    _, signature, said = EXPECTED[fault]
    found = seen(outcomes[fault])
    failed = [case for case in found.cases if case.verdict.verdict == "fail"]
    assert any(said in case.title for case in failed), [case.title for case in failed]
    assert {case.verdict.signature for case in failed} == {signature}
    assert len(found.told) == 1 and found.told[0].gate
