"""One bad GPU of several is named, and none is accused where nobody can know."""

from dataclasses import replace
from typing import Any

import pytest
from observing import shipped
from planted import PROBES, jobs, pure, seen

from envdoctor.experiments import Outcome

cards = pure("cards")


def card(number: int, alike: int = 0, error: float = 0.3, name: str = "H100") -> Any:
    return cards.GpuCard(f"GPU {number} ({name})", name, alike, error)


EIGHT = [card(number) for number in range(8)]


def eight(**bad: Any) -> list[Any]:
    """Eight cards of one name; of the sixth this is otherwise."""
    return [*EIGHT[:5], card(5)._replace(**bad), *EIGHT[6:]]


@pytest.mark.parametrize(
    ("cards_", "signature", "detail"),
    [
        (eight(alike=1), "card-differs", "GPU 5 (H100): differs from the other H100"),
        # Far from float64, though it is alone.
        ([card(0), card(1, alike=1, error=90.0)], "card-differs", "GPU 1 (H100): 90 times rounding"),
        ([card(0, error=float("nan")), card(1, alike=1)], "card-differs", "GPU 0"),
        # What it did wrong by itself, whatever the others gave.
        (eight(words="3 numbers come back changed"), "card-differs", "GPU 5 (H100): 3 numbers come back changed"),
        # Of two that disagree within rounding none is accused.
        ([card(0), card(1, alike=1)], "cards-disagree", ""),
    ],
)
def test_the_card_that_differs_is_named_and_none_where_nobody_can_know(
    cards_: list[Any], signature: str, detail: str
) -> None:
    result = cards.strange(cards_)
    assert result["signature"] == signature and result.get("detail", "").startswith(detail)
    assert bool(result.get("soft")) == (signature == "cards-disagree")


def test_cards_of_different_names_may_round_differently() -> None:
    assert cards.strange([card(0), card(1), card(2, alike=1, name="A100"), card(3, alike=1, name="A100")])["equal"]
    assert cards.strange(EIGHT)["equal"]


NAMES = {f"GPU {number}": "H100" for number in range(4)}


@pytest.mark.parametrize(
    ("measured", "published", "told"),
    [
        ({"GPU 0": 50, "GPU 1": 51, "GPU 2": 50, "GPU 3": 1.9}, {}, ["GPU 3: 1.9 GB/s from the host, others of its"]),
        ({"GPU 0": 3.0}, {"GPU 0": {"sent": 64}}, ["GPU 0: 3 GB/s from the host, 64 are published"]),
        ({"GPU 0": 13.5}, {"GPU 0": {"sent": 64}}, []),  # PCIe 3.0 in the host
        ({"GPU 0": 50, "GPU 1": 20}, {}, []),  # of two nobody knows which is slow
        ({"GPU 0": 50, "GPU 1": 35, "GPU 2": 48}, {}, []),
    ],
)
def test_a_slow_card_is_named(measured: dict[str, float], published: Any, told: list[str]) -> None:
    result = cards.slow(NAMES, {"sent": measured}, published)
    assert [text[: len(wanted)] for text, wanted in zip(result, told, strict=True)] == told


#: The card that is bad.
BAD = "GPU 5 (NVIDIA H100 80GB HBM3): "
#: By the fault, the rules that speak and what they say; with "card" before it, of the suite that looks for more.
EXPECTED: dict[str, tuple[set[str], str]] = {
    "eight-cards": (set(), ""),
    "bad-card": ({"probe-one-gpu-differs"}, "times rounding away from float64"),
    "bad-bit": ({"probe-one-gpu-differs"}, BAD + "differs from the other NVIDIA"),
    "now-and-then": ({"probe-one-gpu-differs"}, BAD + "another result than before"),
    "bad-copy": ({"probe-gpu-copies-differ"}, "not what was sent from GPU 0 to 1, 0 to 2"),
    "bad-memory": ({"probe-one-gpu-differs"}, BAD + "4 numbers of"),
    "one-card": ({"probe-one-gpu-differs"}, "GPU 0 (cpu): another result than before"),
    "memory-errors": ({"probe-gpu-memory-errors"}, "GPU 5: ecc_uncorrected rose by 3"),
    "memory-unrepaired": ({"probe-gpu-memory-errors"}, "GPU 5: a repair of its memory failed"),
    "memory-errors-before": ({"probe-gpu-errors-counted"}, "GPU 5: 2 uncorrected memory errors since the driver"),
    "xid-before": ({"probe-gpu-errors-counted"}, "GPU 5: Xid [79] in the kernel's log"),
    "link-errors": ({"probe-gpu-errors-counted"}, "GPU 5: nvlink_errors rose by 9"),
    "card eight-cards": (set(), ""),
    "card bad-head": ({"probe-one-gpu-differs"}, BAD + "head 2 of 4 equal ones"),
    "card bad-gradient": ({"probe-one-gpu-differs"}, "times rounding away from float64"),
    "card slow-host": ({"card-slow"}, BAD + "1.1 GB/s from the host, 64 are published"),
    "card slow-memory": ({"card-slow"}, BAD + "1.5e+03 GB/s in its memory, 3350 are published"),
    "card slow-products": ({"card-slow"}, BAD + "420 TFLOPS in bf16 products, others of its name"),
    "card slow-pair": ({"card-slow"}, "GPU 2 to 3: 95 GB/s from GPU to GPU, 450 are published"),
    "card one-lane": ({"card-slow"}, BAD + "1 lanes of PCIe under load, 16 are published"),
    "card lost-link": ({"card-slow"}, BAD + "16 NVLinks up, others of its name have 18"),
    "card low-clock": ({"card-slow"}, BAD + "300 MHz under load, 1980 are published"),
    "card hot-card": ({"card-slow"}, BAD + "slowed down by heat (hardware)"),
}
#: What the suite ``card`` could not tell, which is no finding and no pass.
PARTIAL = {
    "ecc-off": "GPU 5: ECC is switched off",
    "mig-on": "GPU 5: MIG is on",
    "refused-counter": "GPU 5: pcie_replays: the driver does not permit it",
    "silent-driver": "GPU 5: driver: the driver gave no answer in 20 s",
    "other-tenant": "GPU 5: 2 other processes compute on it",
    "no-peer": "14 of 56 pairs of GPUs have no way but by the host",
    "full-memory": "GPU 5: of its memory 0 GiB were filled, not",
    "unknown-card": "all 8 GPUs: no published speeds of NVIDIA X1 are known",
    "a-slice": "all 8 GPUs: a slice: the rest of its card was not tried",
}


(LONG,) = jobs("devices", "long")
ROWS = shipped().rows("gpu-speeds")
STRICT = replace(LONG, suite="card", speeds=ROWS, options={"soak": 0.3, "limit": 60})
USUAL = replace(LONG, options={"soak": 0.3})
WANTED = {
    **{name: (name.removeprefix("card "), [STRICT if " " in name else USUAL]) for name in EXPECTED},
    **{f"card {name}": (name, [STRICT]) for name in PARTIAL},
    "card late": ("eight-cards", [replace(STRICT, options={"soak": 1, "limit": 1e-9})]),
    "card none": (None, jobs("devices", "card")),
    "one": (None, jobs("devices", "full")),
}


@pytest.mark.torch
@pytest.mark.parametrize("fault", EXPECTED)
def test_a_planted_bad_card_of_eight_or_a_bad_link_is_named(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    result, (rules, said) = seen(outcomes[fault]), EXPECTED[fault]
    assert result.roots == rules, [group.why for group in result.wrong]
    assert all(said in finding.message.en for finding in result.told)
    assert not fault.startswith("card") or "partial" not in {case.verdict.verdict for case in result.cases}


def partial(outcomes: list[Outcome]) -> list[str]:
    return [str(case.verdict.why) for case in seen(outcomes).cases if case.verdict.verdict == "partial"]


@pytest.mark.torch
@pytest.mark.parametrize("fault", PARTIAL)
def test_what_the_card_suite_could_not_tell_is_said(outcomes: dict[str, list[Outcome]], fault: str) -> None:
    (said,) = partial(outcomes[f"card {fault}"])
    assert PARTIAL[fault] in said and seen(outcomes[f"card {fault}"]).told == []


@pytest.mark.torch
def test_what_was_not_begun_in_time_is_said(outcomes: dict[str, list[Outcome]]) -> None:
    (said,) = partial(outcomes["card late"])
    for step in ("speeds", "copies", "memory", "matmul", "flash attention", "products under load"):
        assert f"{step}: not begun after 1e-09 s" in said


@pytest.mark.torch
def test_without_a_card_the_card_suite_has_no_answer(outcomes: dict[str, list[Outcome]]) -> None:
    assert partial(outcomes["card none"]) == ["torch sees no GPU here: the suite card tries nothing else"]
    assert [job.probe for name in PROBES for job in PROBES[name].jobs("card", "cpu")] == ["devices"]
    assert [job.probe for name in PROBES for job in PROBES[name].jobs("card", "cuda")] == ["all-reduce", "devices"]


@pytest.mark.torch
def test_with_one_device_it_says_what_it_needs(outcomes: dict[str, list[Outcome]]) -> None:
    skipped = [case for case in seen(outcomes["one"]).cases if case.verdict.verdict != "pass"]
    assert [case.verdict.verdict for case in skipped] == ["skip"] and "needs two GPUs" in skipped[0].verdict.why
