"""Which of several GPUs is at fault: the same computation on each, compared by content."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

#: Errors in units of the dtype's epsilon: every right kernel stays far below.
_WRONG = 8.0
#: Cards that are named where nobody is accused.
_MOST_NAMED = 8


class Card(NamedTuple):
    """What one GPU gave: ``alike`` is a value that GPUs with bitwise the same result share, ``error`` against float64
    in units of the dtype's epsilon."""

    label: str
    name: str
    alike: Any
    error: float


def strange(cards: list[Card]) -> dict[str, Any]:
    """``equal``, ``signature``, ``soft`` and ``detail`` of an observation for the judge ``exact``.

    A card whose error is no rounding is wrong whatever the others say. Cards of one name run the same kernels, and must
    agree to the bit: the one that does not agree with more than half of them is named; without such a half it is said
    that they disagree, and nobody is accused. Cards of different names may round differently.
    """
    told = [f"{card.label}: {words}" for card, words in accused(cards)]
    if told:
        return {"equal": False, "signature": "card-differs", "detail": "; ".join(told)}
    for name, kinds in _kinds(cards).items():
        if len(kinds) > 1:
            labels = [card.label for card in cards if card.name == name]
            named = ", ".join(labels[:_MOST_NAMED] + ["..."] * (len(labels) > _MOST_NAMED))
            text = f"results that must be equal differ, each within rounding; which is right is not known: {named}"
            return {"equal": False, "signature": "cards-disagree", "soft": True, "detail": text}
    return {"equal": True, "detail": f"{len(cards)} alike"}


def accused(cards: list[Card]) -> list[tuple[Card, str]]:
    """The cards that are at fault, with what is wrong: first those that are no rounding away, then the odd ones."""
    usual = {}
    for name, kinds in _kinds(cards).items():
        most, count = kinds.most_common(1)[0]
        usual[name] = most if 2 * count > sum(kinds.values()) else None
    wrong = [(card, f"{card.error:.3g} times rounding away from float64") for card in cards if not card.error <= _WRONG]
    return wrong + [
        (card, f"differs from the other {card.name}")
        for card in cards
        if card.error <= _WRONG and usual[card.name] not in (None, card.alike)
    ]


def _kinds(cards: list[Card]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for card in cards:
        kinds.setdefault(card.name, Counter())[card.alike] += 1
    return kinds
