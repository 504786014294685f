"""One bad GPU of several is named, and none is accused where nobody can know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import jobs, pure, seen

from envdoctor.probe import Outcome

cards = pure("cards")


def card(number: int, alike: int = 0, error: float = 0.3, name: str = "H100") -> Any:
    return cards.Card(f"GPU {number} ({name})", name, alike, error)


EIGHT = [card(number) for number in range(8)]


def test_the_one_that_differs_from_seven_of_its_name_is_named():
    found = cards.strange([*EIGHT[:5], card(5, alike=1), *EIGHT[6:]])
    assert (found["signature"], found["detail"]) == ("card-differs", "GPU 5 (H100): differs from the other H100")


def test_a_card_that_is_far_from_float64_is_named_though_it_is_alone():
    found = cards.strange([card(0), card(1, alike=1, error=90.0)])
    assert found["signature"] == "card-differs" and found["detail"].startswith("GPU 1 (H100): 90 times rounding")
    assert cards.strange([card(0, error=float("nan")), card(1, alike=1)])["detail"].startswith("GPU 0")


def test_of_two_that_disagree_within_rounding_none_is_accused():
    found = cards.strange([card(0), card(1, alike=1)])
    assert (found["signature"], found["soft"]) == ("cards-disagree", True)


def test_cards_of_different_names_may_round_differently():
    assert cards.strange([card(0), card(1), card(2, alike=1, name="A100"), card(3, alike=1, name="A100")])["equal"]
    assert cards.strange(EIGHT)["equal"]


EXPECTED = {
    "eight-cards": (set(), ""),
    "bad-card": ({"probe-one-gpu-differs"}, "times rounding away from float64"),
    "bad-bit": ({"probe-one-gpu-differs"}, "GPU 5 (cpu): differs from the other cpu"),
    "now-and-then": ({"probe-one-gpu-differs"}, "GPU 5 (cpu): another result than before"),
    "bad-copy": ({"probe-gpu-copies-differ"}, "not what was sent from GPU 0 to 1, 0 to 2"),
    "bad-memory": ({"probe-one-gpu-differs"}, "memory of GPU 5 (cpu)"),
    "one-card": ({"probe-one-gpu-differs"}, "GPU 0 (cpu): another result than before"),
    "memory-errors": ({"probe-gpu-memory-errors"}, "GPU 5: ecc_uncorrected rose by 3"),
    "memory-unrepaired": ({"probe-gpu-memory-errors"}, "GPU 5: a repair of its memory failed"),
    "memory-errors-before": ({"probe-gpu-errors-counted"}, "GPU 5: 2 uncorrected memory errors since the driver"),
    "link-errors": ({"probe-gpu-errors-counted"}, "GPU 5: nvlink_errors rose by 9"),
}


(LONG,) = jobs("devices", "long")
WANTED = {
    **{name: (name, [replace(LONG, options={"soak": 0.3})]) for name in EXPECTED},
    "one": (None, jobs("devices", "full")),
}


@pytest.mark.torch
@pytest.mark.parametrize("fault", EXPECTED)
def test_a_planted_bad_card_of_eight_is_named(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    found, (rules, said) = seen(outcomes[fault]), EXPECTED[fault]
    assert found.roots == rules, [group.why for group in found.wrong]
    assert all(said in finding.message.en for finding in found.told)


@pytest.mark.torch
def test_with_one_device_it_says_what_it_needs(outcomes: dict[str, list[Outcome]]) -> None:
    skipped = [case for case in seen(outcomes["one"]).cases if case.verdict.verdict != "pass"]
    assert [case.verdict.verdict for case in skipped] == ["skip"] and "needs two GPUs" in skipped[0].verdict.why
