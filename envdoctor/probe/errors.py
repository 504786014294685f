"""Errors against length: what a plot needs, one point for each experiment, dtype, backend and number of keys."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from envdoctor.probe.grouping import Case, text_of
from envdoctor.probe.section import ProbeError

_LONGEST = 9


def errors_by_length(cases: Iterable[Case]) -> list[ProbeError]:
    """The worst of the cases at each point, in the order of length; cases without a length or a measure are none."""
    points: dict[tuple[str | int | None, ...], list[Case]] = {}
    for case in cases:
        length, seen = case.param("S") or "", case.observation
        if case.verdict.verdict == "skip" or not (length.isascii() and length.isdigit() and len(length) <= _LONGEST):
            continue
        where = [text_of(seen, name) for name in ("probe", "device", "dtype", "backend")]
        points.setdefault((*where, int(length)), []).append(case)
    found: list[ProbeError] = []
    for (name, device, dtype, backend, keys), alike in points.items():
        ratios = [ratio for case in alike if (ratio := case.verdict.ratio) is not None and math.isfinite(ratio)]
        lost = any(case.verdict.signature.startswith("nan-") for case in alike)
        point: Any = {"name": name, "device": device, "dtype": dtype, "backend": backend, "length": keys}
        point.update(cases=len(alike), wrong=sum(case.verdict.wrong for case in alike), not_finite=lost)
        point["ratio"] = max(ratios, default=None)
        found.append(point)
    return sorted(found, key=lambda point: (point["name"], str(point["dtype"]), str(point["backend"]), point["length"]))
