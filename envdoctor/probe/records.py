"""Results as the records that rules read: the items of the fact ``probe``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.probe.catalogue import Probe
from envdoctor.probe.grouping import Group

#: Attention backends that a job may force; "default" leaves the choice to torch.
_FORCED = ("math", "flash", "efficient", "cudnn")


def records_of(
    groups: Sequence[Group], probes: Mapping[str, Probe], in_use: bool | Unknown
) -> tuple[Mapping[str, Value], ...]:
    """One record a group. ``in_use`` is whether training would use the device.

    A kernel that was forced, and that nothing ran when the choice was torch's own, is not in use either.
    """
    taken: dict[tuple[str, str, str | None], set[str]] = {}
    for group in groups:
        if group.backend in (None, "default"):
            taken.setdefault((group.name, group.device, group.dtype), set()).update(group.nodes)
    records = []
    for group in groups:
        own_choice = taken.get((group.name, group.device, group.dtype))
        spared = group.backend in _FORCED and own_choice is not None and not own_choice.intersection(group.nodes)
        used = False if spared and in_use is True else in_use
        records.append(_record(group, probes.get(group.name), used))
    return tuple(records)


def _record(group: Group, probe: Probe | None, in_use: bool | Unknown) -> dict[str, Value]:
    worst, told = group.worst, group.wrong
    attention = probe.attention if probe is not None else None
    return {
        "name": group.name,
        "device": group.device,
        "in_use": in_use,
        "dtype": _or_absent(group.dtype),
        "backend": _or_absent(group.backend),
        "attention": _or_absent(group.backend if attention == "backend" else attention),
        "node": _or_absent(", ".join(group.nodes)[:400]),
        "verdict": group.verdict,
        "signature": group.signature,
        "tensors": _or_absent(", ".join(group.tensors)),
        "masks": group.values("mask") if told else (),
        "stresses": group.values("stress") if told else (),
        "lengths": group.values("S") if told else (),
        "tile": _or_absent(group.tile if told else None),
        "model": _or_absent(group.model),
        "cured_by": group.values("cured_by") if told else (),
        "batch": _or_absent(group.batch if told else None),
        "ratio": ABSENT if group.ratio is None else round(group.ratio, 3),
        "wrong": group.times if told else 0,
        "cases": group.ran,
        "example": _or_absent(worst.title if told and worst is not None else None),
        "detail": _or_absent(group.why[:1000]),
        "settles": _or_absent(", ".join(probe.settles) if probe is not None else None),
        "ranks": ABSENT,
    }


def _or_absent(text: str | None) -> Value:
    return text if text else ABSENT
