"""Which of the machine's GPUs a CUDA process would see: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.text.message import Message

Item = Mapping[str, Value]

#: Like C's strtoul: leading digits count, and what does not begin with a number is no device.
_ORDINAL = r"\+?(\d{1,9})"


def visible(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Records:
    """The items that ``CUDA_VISIBLE_DEVICES`` leaves, in its order, as a CUDA process numbers them.

    ``items`` are all GPUs in NVML's order. Where the variable cannot be translated into NVML's order the list stays as
    it is and says that it may hold too much. The meaning of the variable is that of the CUDA programming guide:
    empty or -1 hides everything, the first invalid entry ends the list, a repeated entry leaves nothing, a UUID may be
    shortened as long as it is unique.
    """
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return Records(tuple(items), incomplete)
    entries = _entries(environ)
    by_uuid = entries[0].startswith("GPU-")
    unread = _not_read(entries[:1], items)
    if unread is not None:
        return Records(tuple(items), unread)
    chosen: list[int] = []
    for entry in entries:
        places = _places(entry, items) if entry.startswith("GPU-") == by_uuid else []
        if len(places) != 1:
            break
        if places[0] in chosen:
            return Records((), incomplete)
        chosen += places
    if not by_uuid and 0 < len(chosen) < len(items) and not _same_order(environ, items):
        incomplete = Message(
            "CUDA_VISIBLE_DEVICES counts in CUDA's own order (fastest first), which is not known for GPUs "
            "of several kinds; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain"
        )
        return Records(tuple(items), incomplete)
    return Records(tuple(items[place] for place in chosen), incomplete)


def missing(environ: Mapping[str, str], items: Sequence[Item], incomplete: Message | None = None) -> Value:
    """Entries of ``CUDA_VISIBLE_DEVICES`` that name no GPU, comma-separated; absent when each names one.

    Words that are no device at all (``-1``, ``NoDevFiles``, ``none``) hide the GPUs on purpose and are not among them.
    """
    entries = _entries(environ)
    unread = _not_read(entries, items)
    if unread is not None:
        return Unknown(unread)
    devices = [entry for entry in entries if entry.startswith("GPU-") or re.match(_ORDINAL, entry)]
    lost = [entry[:60] for entry in devices if not _places(entry, items)]
    if lost and incomplete is not None:
        return Unknown(incomplete)
    return ",".join(dict.fromkeys(lost))[:200] if lost else ABSENT


def _entries(environ: Mapping[str, str]) -> list[str]:
    return [entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")][:4096]


def _not_read(entries: Sequence[str], items: Sequence[Item]) -> Message | None:
    """Why an entry cannot be held against the GPUs."""
    for entry in entries:
        if entry.startswith("MIG-"):
            return Message("CUDA_VISIBLE_DEVICES names a MIG slice, and slices are not read")
        if entry.startswith("GPU-") and not all(isinstance(item.get("uuid"), str) for item in items):
            return Message("CUDA_VISIBLE_DEVICES names UUIDs, and the GPUs' UUIDs could not be read")
    return None


def _places(entry: str, items: Sequence[Item]) -> list[int]:
    """Places of the GPUs that an entry names: by the beginning of their UUID, or by its leading digits."""
    if entry.startswith("GPU-"):
        return [place for place, item in enumerate(items) if str(item.get("uuid")).startswith(entry)]
    number = re.match(_ORDINAL, entry)
    return [int(number[1])] if number and int(number[1]) < len(items) else []


def _same_order(environ: Mapping[str, str], items: Sequence[Item]) -> bool:
    """Whether CUDA's ordinals are NVML's, as far as anything that is reported can differ."""
    if environ.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID":
        return True
    kinds = {str(item.get("name")) for item in items}
    return len(kinds) == 1 and not any(isinstance(item.get("name"), Unknown) for item in items)
