"""Which of several GPUs is at fault: the same computation on each, compared by content."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["Card", "strange"]

#: Errors in units of the dtype's epsilon: every right kernel stays far below.
_WRONG = 8.0


class Card:
    """What one GPU gave: ``alike`` is a number that GPUs with bitwise the same result share, ``error`` against float64
    in units of the dtype's epsilon."""

    def __init__(self, label: str, name: str, alike: int, error: float) -> None:
        self.label = label
        self.name = name
        self.alike = alike
        self.error = error


def strange(cards: list[Card]) -> dict[str, Any]:
    """``equal``, ``signature``, ``soft`` and ``detail`` of an observation for the judge ``exact``.

    A card whose error is no rounding is wrong whatever the others say. Cards of one name run the same kernels, and must
    agree to the bit: the one that does not agree with more than half of them is named; without such a half it is said
    that they disagree, and nobody is accused. Cards of different names may round differently.
    """
    wrong = [card for card in cards if not card.error <= _WRONG]
    odd = [card for card in cards if card not in wrong and _is_odd(card, cards)]
    if wrong or odd:
        told = [f"{card.label}: {card.error:.3g} times rounding away from float64" for card in wrong]
        told += [f"{card.label}: differs from the other {card.name}" for card in odd]
        return {"equal": False, "signature": "card-differs", "detail": "; ".join(told)}
    for name, kinds in _kinds(cards).items():
        if len(kinds) > 1:
            labels = ", ".join(card.label for card in cards if card.name == name)
            text = f"{labels}: results that must be equal differ, each within rounding; which is right is not known"
            return {"equal": False, "signature": "cards-disagree", "soft": True, "detail": text}
    return {"equal": True, "detail": f"{len(cards)} alike"}


def _is_odd(card: Card, cards: list[Card]) -> bool:
    kinds = _kinds(cards)[card.name]
    most, count = kinds.most_common(1)[0]
    return bool(card.alike != most and 2 * count > sum(kinds.values()))


def _kinds(cards: list[Card]) -> dict[str, Any]:
    return {name: Counter(card.alike for card in cards if card.name == name) for name in {one.name for one in cards}}
