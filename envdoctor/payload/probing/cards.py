"""Which of several GPUs is at fault: the same computation on each, compared by content."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

#: Errors in units of the dtype's epsilon: every right kernel stays far below.
_WRONG = 8.0
#: Cards that are named where nobody is accused.
_MOST_NAMED = 8

#: What is measured of a card: in words, the unit, and below which share of what is published of it, and of what half of
#: the cards of its name have, it is slow. Copies within a card reach 80 to 90 % of what is published; those from the
#: host what slot and host give, PCIe 3.0 instead of 5.0 is a quarter; a link with one lane of sixteen is below both.
#: Of 450 GB/s of NVLinks 376 were measured (https://github.com/NVIDIA/nccl/issues/1264).
SPEEDS = {
    "memory": ("in its memory", "GB/s", 0.6, 0.8),
    "sent": ("from the host", "GB/s", 0.2, 0.6),
    "received": ("to the host", "GB/s", 0.2, 0.6),
    "product": ("in bf16 products", "TFLOPS", 0.0, 0.8),
    "pair": ("from GPU to GPU", "GB/s", 0.5, 0.4),
    "lanes": ("of PCIe under load", "lanes", 0.3, 0.9),
    "nvlinks": ("up", "NVLinks", 0.0, 0.9),
    "sm_mhz": ("under load", "MHz", 0.2, 0.8),
}


class GpuCard(NamedTuple):
    """What one GPU gave: ``alike`` is a value that GPUs with bitwise the same result share, ``error`` against float64
    in units of the dtype's epsilon, ``words`` what it did wrong by itself, whatever the others gave."""

    label: str
    name: str
    alike: Any = ""
    error: float = 0.0
    words: str = ""


def strange(cards: list[GpuCard]) -> dict[str, Any]:
    """Return ``equal``, ``signature``, ``soft`` and ``detail`` of an observation for the judge ``exact``.

    A card whose error is no rounding is wrong whatever the others say. Cards of one name run the same kernels, and must
    agree to the bit: the one that does not agree with more than half of them is named; without such a half it is said
    that they disagree, and nobody is accused. Cards of different names may round differently.
    """
    clauses = [f"{card.label}: {words}" for card, words in accused(cards)]
    if clauses:
        return {"equal": False, "signature": "card-differs", "detail": "; ".join(clauses)}
    for name, kinds in _kinds(cards).items():
        if len(kinds) > 1:
            labels = [card.label for card in cards if card.name == name]
            named = ", ".join(labels[:_MOST_NAMED] + ["..."] * (len(labels) > _MOST_NAMED))
            text = f"results that must be equal differ, each within rounding; which is right is not known: {named}"
            return {"equal": False, "signature": "cards-disagree", "soft": True, "detail": text}
    return {"equal": True, "detail": f"{len(cards)} alike"}


def accused(cards: list[GpuCard]) -> list[tuple[GpuCard, str]]:
    """Return the cards at fault, with what is wrong: first those that are no rounding away, then the odd ones."""
    usual = {}
    for name, kinds in _kinds(cards).items():
        most, count = kinds.most_common(1)[0]
        usual[name] = most if 2 * count > sum(kinds.values()) else None
    wrong = [(card, card.words) for card in cards if card.words]
    for card in (card for card in cards if not card.words):
        if not card.error <= _WRONG:
            wrong.append((card, f"{card.error:.3g} times rounding away from float64"))
        elif usual[card.name] not in (None, card.alike):
            wrong.append((card, f"differs from the other {card.name}"))
    return wrong


def slow(
    names: dict[str, str], measured: dict[str, dict[str, float]], published: dict[str, dict[str, Any]]
) -> list[str]:
    """Return clauses about cards that are slower than is published of them, or than half of those of their name.

    ``names`` by label; ``measured`` by what was and by label, ``published`` by label, in the units of ``SPEEDS``.
    """
    clauses = []
    for what, by_label in measured.items():
        words, unit, of_published, of_others = SPEEDS[what]
        for label, value in by_label.items():
            alike = sorted(other for peer, other in by_label.items() if names[peer] == names[label])
            usual, most = alike[len(alike) // 2], published.get(label, {}).get(what)
            if most and value < of_published * most:
                clauses.append(f"{label}: {value:.3g} {unit} {words}, {most:g} are published")
            elif len(alike) > 2 and value < of_others * usual:
                clauses.append(f"{label}: {value:.3g} {unit} {words}, others of its name have {usual:.3g}")
    return clauses


def _kinds(cards: list[GpuCard]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for card in cards:
        kinds.setdefault(card.name, Counter())[card.alike] += 1
    return kinds
