"""What the experiments say besides the findings: the section ``probe`` of a report, as it stands in its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class ProbeChild(TypedDict):
    """One child: what it ran, its verdicts by name, how it ended, and what it took (seconds, MiB)."""

    name: str
    title: str
    device: str
    dtype: str | None
    backend: str | None
    options: dict[str, Any]
    counts: dict[str, int]
    ending: str
    detail: str
    seconds: float
    cpu_seconds: float | None
    peak_mib: float | None
    import_s: object


class ProbeGroup(TypedDict):
    """Cases of one experiment that came out alike, none of them right: how many of how many, and what they share.

    ``ratio`` is the worst error in units of unavoidable rounding; ``lse`` least and largest logsumexp of a row;
    ``ranks`` the machines and ranks of a job, where it was so on some of them only.
    """

    name: str
    device: str
    dtype: str | None
    backend: str | None
    model: str | None
    verdict: str
    signature: str
    wrong: int
    cases: int
    tensors: list[str]
    ratio: float | None
    nodes: list[str]
    masks: list[str]
    stresses: list[str]
    lengths: list[str]
    tile: str | None
    lse: list[float] | None
    example: str | None
    why: str
    ranks: str | None


class ProbeSection(TypedDict):
    """``seconds`` is the whole run, ``peak_mib`` the largest single child. ``in_use``: whether training would use this
    device; None when that is not known, for the reason ``in_use_unknown``. ``unusable`` is why nothing could run.
    ``skipped`` has ``name``, ``why`` and ``cases`` of what was not measured. ``errors`` are points of a plot, the worst
    error of the cases with ``length`` keys in units of unavoidable rounding (``ratio``, None when none is finite), by
    ``name``, ``device``, ``dtype`` and ``backend``, with the number of ``cases``, how many are ``wrong``, and
    ``not_finite``, whether some case had values that are not finite. ``reproducer`` are the lines of a script that
    shows the worst failure alone."""

    suite: str
    device: str | None
    in_use: bool | None
    in_use_unknown: str | None
    environment: dict[str, dict[str, Any]]
    unusable: str | None
    jobs: int
    cases: int
    seconds: float
    peak_mib: float | None
    probes: list[ProbeChild]
    groups: list[ProbeGroup]
    skipped: list[dict[str, Any]]
    wrong: int
    wrong_cases: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    info: list[dict[str, Any]]
    reproducer: Sequence[str] | None
