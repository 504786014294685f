"""The lengths of all rows as what decides about memory: how many are long, what is padding, the largest batch."""

from __future__ import annotations

from envdoctor.lengths.measuring import Measured
from envdoctor.lengths.padding import grouped_waste, packed_waste, random_waste
from envdoctor.lengths.section import DataSection, Padding

#: per_device_train_batch_size of transformers where nothing is known of the batch.
_BATCH = 8


def summary(
    measured: Measured, *, path: str, tokenizer: str, template: bool, cutoff: int | None, batch: int | None
) -> DataSection:
    """The section of the report. ``cutoff`` (tokens) and ``batch`` (samples) are the recipe's, None where unknown."""
    section: DataSection = {
        "path": path,
        "rows": measured.rows,
        "looked_at": measured.looked_at,
        "formats": list(measured.formats),
        "tokenizer": tokenizer,
        "template": template,
        "p50": None,
        "p90": None,
        "p99": None,
        "longest": None,
        "longest_at_most": measured.at_most,
        "cutoff": cutoff,
        "cut": None,
        "padding": None,
        "longest_batch": None,
        "notes": list(measured.notes),
    }
    if not measured.lengths:
        return section
    ordered = sorted(measured.lengths)
    up_to = {share: ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 90, 99)}
    section["p50"], section["p90"], section["p99"] = up_to[50], up_to[90], up_to[99]
    longest = section["longest"] = ordered[-1]
    section["longest_at_most"] = max(longest, measured.at_most)
    room = longest if cutoff is None else min(longest, cutoff)
    section["cut"] = None if cutoff is None else sum(length > cutoff for length in ordered)
    section["padding"] = _padding([max(1, min(length, room)) for length in measured.lengths], batch or _BATCH, cutoff)
    section["longest_batch"] = min(batch or _BATCH, len(ordered)) * room
    return section


def fed_length(section: DataSection, packed: bool) -> int | None:
    """The longest sample as the recipe cuts it, in tokens: what a prediction of memory needs. None where the data says
    nothing of it: sequences that are packed are always full, and bytes only bound tokens from above."""
    if packed:
        return section["cutoff"]
    limits = [section["longest_at_most"] if section["longest"] is not None or section["cutoff"] else None]
    known = [limit for limit in (*limits, section["cutoff"]) if limit is not None]
    return min(known, default=None)


def _padding(lengths: list[int], batch: int, cutoff: int | None) -> Padding:
    return {
        "batch": batch,
        "random": round(random_waste(lengths, batch), 3),
        "grouped": round(grouped_waste(lengths, batch), 3),
        "packed": round(packed_waste(lengths, cutoff or max(lengths)), 3),
    }
