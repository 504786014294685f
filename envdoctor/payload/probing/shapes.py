"""Which shapes are tried: rows drawn anew for each seed in which every two kinds of sizes meet, and the published ones.

A kind is a range between two tiles, or sizes of real models: a number is drawn from it for each row. So each power of
two up to 256 has numbers above and below, most of which neither 8 nor 16 divides. Needs no torch.

The published cases of attention are those by which bugs became known. Their order never changes, for the number of a
case is part of its seed; a block is appended, never inserted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

#: From one tile to the next, and tiles themselves.
SIZES: tuple[Sequence[int], ...] = (
    *(range(9, 16), range(17, 32), range(33, 64), range(65, 128), range(129, 256), range(257, 300)),
    (16, 32, 64, 128, 192, 256),
)
#: Of real models, from the table model-shapes: hidden sizes, head sizes, heads with those of keys, vocabularies.
HIDDEN: tuple[Sequence[int], ...] = (
    (576, 640, 768, 896, 960, 1152),
    (1536, 2048, 2304, 2560, 2880),
    (3584, 4096, 4544),
)
HEAD: tuple[Sequence[int], ...] = ((32, 40, 56), (64,), (80, 96, 100, 102, 112), (128,), (192, 256))
_HEADS: tuple[Sequence[tuple[int, int]], ...] = (((1, 1), (2, 2)), ((3, 3), (4, 4)), ((4, 2), (6, 2)), ((4, 1),))
WORDS: tuple[Sequence[int], ...] = (range(50, 100), (32000, 49152), (50257, 50265), (100289, 131072), (151669, 151936))

#: Numbers in q and k of a case of attention, kept by fewer samples: it takes some ten milliseconds.
_NUMBERS = 3 << 15
#: Rows of all heads of a case that is continued far from zero: over 1 to 4 healthy kernels reach 20, over 8 and more 2.
_ROWS = 8

_DEFAULTS = {"B": 2, "H": 2, "Hk": 2, "L": 192, "S": 192, "D": 64}
_DEFAULTS.update({"mask": "none", "layout": "bhsd", "dout": "hf", "stress": "unit", "gqa": ""})  # type: ignore[dict-item]
_MASKS = ("none", "causal", "alltrue", "bool_left", "inf_left", "min_left", "bool_right", "bool_key", "bool_left_dead")
_SHIFTS, _PADDED = ("unit", "shift-"), ("causal", "bool_left")


def drawn(seed: int, **axes: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows with a value of each axis, in which every two kinds of two axes meet at least once.

    Each row takes the first pair that has not met, and of twelve ways to fill in the rest the one that meets most.
    """
    choose, names = random.Random(seed), list(axes)  # noqa: S311 (shapes are no secret)
    pairs = list(combinations(range(len(names)), 2))
    kinds = [range(len(axes[name])) for name in names]
    unmet = {(a, i, b, j): None for a, b in pairs for i, j in product(kinds[a], kinds[b])}

    def meets(row: list[int]) -> list[tuple[int, int, int, int]]:
        return [pair for a, b in pairs if (pair := (a, row[a], b, row[b])) in unmet]

    while unmet:
        first, kind, second, other = next(iter(unmet))
        tries = [[choose.choice(few) for few in kinds] for _ in range(12)]
        for row in tries:
            row[first], row[second] = kind, other
        best = max(tries, key=lambda row: len(meets(row)))
        for pair in meets(best):
            del unmet[pair]
        yield {name: choose.choice(axes[name][kind]) for name, kind in zip(names, best)}


def each(*values: Any) -> tuple[tuple[Any], ...]:
    """Return an axis on which each value is a kind of its own."""
    return tuple((value,) for value in values)


def numbered(usual: dict[str, Any], varied: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``usual`` cases with what is ``varied``, numbered; as many keys as rows unless said otherwise."""
    return [{**usual, "S": case.get("L", usual["L"]), **case, "number": number} for number, case in enumerate(varied)]


def vary(**axes: Any) -> Iterator[dict[str, Any]]:
    """Yield every combination of the axes, the last varying first; a value that is not a tuple stays."""
    values = (axis if isinstance(axis, tuple) else (axis,) for axis in axes.values())
    for combination in product(*values):
        yield dict(zip(axes, combination))


def cases(suite: str, seed: int = 0) -> list[dict[str, Any]]:
    """Return all cases of the suite ``quick`` or ``full``, numbered: published ones, then some of this seed."""
    return numbered(_DEFAULTS, [*_published(suite != "quick"), *_drawn(seed), *_continued(seed)])


def _drawn(seed: int) -> Iterator[dict[str, Any]]:
    """Yield cases that nobody has published."""
    for case in drawn(
        seed,
        mask=each(
            "none",
            "causal",
            *(f"{how}_left" for how in ("bool", "inf", "min", "f32", "bias")),
            "bool_right",
            "bool_band",
        ),
        L=SIZES,
        D=HEAD,
        heads=_HEADS,
        B=((1,), (2,), (3, 4), range(5, 10)),
        more=((0,), range(1, 40)),
        layout=each("bhsd", "bshd", "packed", "offset"),
        dout=each("hf", "strided", "expand", "plain"),
        stress=each("unit", "x3", "shift-", "outlier"),
        gqa=each("repeat", "flag"),
    ):
        (heads, shared), more = case.pop("heads"), case.pop("more")
        if case["layout"] == "packed" and (heads != shared or more):
            case["layout"] = "bshd"  # one buffer has q, k and v of one shape
        if case["dout"] == "expand" and (case["mask"] == "min_left" or case["stress"] not in ("unit", "x3")):
            # Rows that see no key see all by this mask, and would send gradients to them. And ones for all rows add the
            # rounding of probabilities that are alike up: healthy kernels are 9 times off.
            case["dout"] = "hf"
        case["gqa"] = case["gqa"] if heads != shared else ""
        keys = case["L"] + more
        case["B"] = max(1, min(case["B"], _NUMBERS // (heads * (case["L"] + keys) * case["D"])))
        yield {**case, "H": heads, "Hk": shared, "S": keys}


def _continued(seed: int) -> Iterator[dict[str, Any]]:
    """Yield cases of few queries and up to thousands of keys: a text that is continued, or read in parts."""
    for case in drawn(
        seed + 1,
        L=((1,), (2, 3, 5), range(9, 64)),
        S=(range(65, 300), range(513, 700), (768, 1024), range(1025, 1300), range(2049, 2300)),
        mask=each("none", *(f"{how}_right" for how in ("bool", "inf", "min", "f32", "bias")), "bool_left", "bool_band"),
        heads=_HEADS,
        D=((32, 40), (64,), (96, 128)),
        layout=each("bhsd", "bshd", "offset"),
        stress=each("unit", "x3", "shift-"),
        gqa=each("repeat", "flag"),
    ):
        heads, shared = case.pop("heads")
        case.update(B=1 if case["S"] > 1024 else 2, H=heads, Hk=shared, gqa=case["gqa"] if heads != shared else "")
        if case["stress"] == "shift-":  # the offset cancels in dq: over few rows its rounding does so by chance
            case["L"] = max(case["L"], -(-_ROWS // (heads * case["B"])))
        yield case


def _published(full: bool) -> Iterator[dict[str, Any]]:
    """Yield length × mask, values, memory, head dimension, float32 mask, GQA, rectangular; then what bugs brought."""
    lengths = (33, 64, 65, 128, 192, 261, 640, 704) if full else (64, 192)
    yield from vary(L=lengths, mask=_MASKS, stress=(*_SHIFTS, "shift+") if full else _SHIFTS)
    yield from vary(mask=("none", *_PADDED), stress=("x3", "outlier"))
    yield from vary(
        mask=_PADDED, layout=("bhsd", "bshd", "packed", "offset"), dout=("hf", "strided", "expand", "plain")
    )
    yield from vary(D=(32, 80, 96, 128, 256), mask=(*_PADDED, "bool_band"), stress=_SHIFTS)
    yield from vary(L=(64, 261), mask=("f32_left", "f32_right", "bool_band"), stress=_SHIFTS)
    yield from vary(H=8, Hk=2, layout="bshd", mask=_PADDED, gqa=("repeat", "flag"), stress=_SHIFTS)
    for rows, keys in ((1, 128), (1, 97), (17, 129), (3, 1), (200, 3)):
        yield from vary(L=rows, S=keys, mask=("none", "bool_right"))
    # k and v as one head, or sample, seen as all, where S % 32 = 1 (pytorch#191937).
    for length, depth in ((97, 64), (65, 256), (192, 64), (33, 512), (129, 512))[: 5 if full else 2]:
        yield from vary(L=length, D=depth, layout=("expanded", "expanded_batch"), mask=_PADDED)
    # One query row with an offset (cudnn-frontend#1072), two rows (#160). Many heads, because the offset cancels in dq
    # but for its rounding along one direction: the ratio of two such errors over four rows alone reached 3.7.
    for rows, keys in ((1, 128), (2, 2), (1, 192))[: 3 if full else 2]:
        yield from vary(B=4, H=16, Hk=16, L=rows, S=keys, mask=("none", "bool_right"), stress="shift-")
    # One key head shared by all.
    yield from vary(H=4, Hk=1, L=97, layout="bshd", mask="bool_left", gqa=("repeat", "flag"), stress="shift-")
    yield from vary(D=256, layout="packed", mask=_PADDED, stress="shift-")  # TransformerEngine#3216
    # As many samples and heads as training has, and more keys than a tile or a block of them.
    yield from vary(B=8, H=4, Hk=4, L=64, mask="bool_left", layout="bshd")
    yield from vary(B=9, H=8, Hk=2, L=65, mask="bool_left", layout="bshd", gqa="flag")
    yield from vary(B=1, H=1, Hk=1, L=1100, mask="causal")
    yield from vary(B=1, L=16, S=2100, mask="none")
    if full:
        yield from vary(H=8, Hk=2, L=1, S=261, layout="bshd", mask="none", gqa=("repeat", "flag"))
        yield from vary(H=8, Hk=2, D=512, L=65, mask="causal", gqa=("repeat", "flag"))
        yield from vary(D=(16, 40, 72, 112, 160, 192, 512), mask=_PADDED, stress=_SHIFTS)
        yield from vary(L=(65, 97, 261), D=128, layout=("offset", "bshd", "packed"), mask="bool_left", stress="outlier")
        yield from vary(B=8, H=4, Hk=4, L=64, mask="causal", layout="bshd")
        yield from vary(B=1, L=1100, mask="bool_band")
        yield from vary(B=1, L=16, S=2100, mask="bool_key")
    # More rows with a mask than a block, and more heads of all samples than most grids take at once.
    yield from vary(B=1, H=1, Hk=1, L=1100, mask="bias_band")
    yield from vary(B=140, H=4, Hk=4, L=17, D=32, layout="bshd", mask=("bias_left", "bool_right"))
