"""Which of the machine's GPUs a CUDA process would see: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Records, Unknown, Value

__all__ = ["missing", "visible"]

Item = Mapping[str, Value]


def visible(environ: Mapping[str, str], items: Sequence[Item], incomplete: str | None = None) -> Records:
    """The items that ``CUDA_VISIBLE_DEVICES`` leaves, in its order, as a CUDA process numbers them.

    ``items`` are all GPUs in NVML's order. Where the variable cannot be translated into NVML's order the list stays as
    it is and says that it may hold too much. The meaning of the variable is that of the CUDA programming guide:
    empty or -1 hides everything, the first invalid entry ends the list, a repeated entry leaves nothing, a UUID may be
    shortened as long as it is unique.
    """
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return Records(tuple(items), incomplete)
    entries = [entry.strip() for entry in setting.split(",")][:4096]
    if entries[0].startswith("MIG-"):
        return _unfiltered(items, "CUDA_VISIBLE_DEVICES names a MIG slice, and slices are not read")
    if entries[0].startswith("GPU-"):
        return _by_uuid(entries, items, incomplete)
    return _by_ordinal(environ, entries, items, incomplete)


def missing(environ: Mapping[str, str], items: Sequence[Item], incomplete: str | None = None) -> Value:
    """Entries of ``CUDA_VISIBLE_DEVICES`` that name no GPU, comma-separated; absent when each names one.

    Words that are no device at all (``-1``, ``NoDevFiles``, ``none``) hide the GPUs on purpose and are not among them.
    """
    entries = [entry.strip() for entry in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")][:4096]
    lost: list[str] = []
    uuids = [item.get("uuid") for item in items]
    for entry in entries:
        if entry.startswith("MIG-"):
            return Unknown("CUDA_VISIBLE_DEVICES names a MIG slice, and slices are not read")
        if entry.startswith("GPU-"):
            if not all(isinstance(uuid, str) for uuid in uuids):
                return Unknown("CUDA_VISIBLE_DEVICES names UUIDs, and the GPUs' UUIDs could not be read")
            found = any(str(uuid).startswith(entry) for uuid in uuids)
        else:
            number = re.match(r"\+?(\d{1,9})", entry)
            found = number is None or int(number[1]) < len(items)
        if not found:
            lost.append(entry[:60])
    if lost and incomplete is not None:
        return Unknown(incomplete)
    return ",".join(dict.fromkeys(lost))[:200] if lost else ABSENT


def _by_uuid(entries: Sequence[str], items: Sequence[Item], incomplete: str | None) -> Records:
    uuids = [item.get("uuid") for item in items]
    if not all(isinstance(uuid, str) for uuid in uuids):
        return _unfiltered(items, "CUDA_VISIBLE_DEVICES names UUIDs, and the GPUs' UUIDs could not be read")
    chosen: list[int] = []
    for entry in entries:
        matches = [index for index, uuid in enumerate(uuids) if str(uuid).startswith(entry)]
        if not entry.startswith("GPU-") or len(matches) != 1:
            break
        if matches[0] in chosen:
            return Records((), incomplete)
        chosen.append(matches[0])
    return Records(tuple(items[index] for index in chosen), incomplete)


def _by_ordinal(
    environ: Mapping[str, str], entries: Sequence[str], items: Sequence[Item], incomplete: str | None
) -> Records:
    chosen: list[int] = []
    for entry in entries:
        # Like C's strtoul: leading digits count, and what does not begin with a number is no device.
        match = re.match(r"\+?(\d{1,9})", entry)
        if match is None or int(match.group(1)) >= len(items):
            break
        if int(match.group(1)) in chosen:
            return Records((), incomplete)
        chosen.append(int(match.group(1)))
    everything = len(chosen) == len(items)
    if chosen and not everything and not _same_order(environ, items):
        return _unfiltered(
            items,
            "CUDA_VISIBLE_DEVICES counts in CUDA's own order (fastest first), which is not known for GPUs of several "
            "kinds; CUDA_DEVICE_ORDER=PCI_BUS_ID makes it certain",
        )
    return Records(tuple(items[index] for index in chosen), incomplete)


def _same_order(environ: Mapping[str, str], items: Sequence[Item]) -> bool:
    """Whether CUDA's ordinals are NVML's, as far as anything that is reported can differ."""
    if environ.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID":
        return True
    kinds = {str(item.get("name")) for item in items}
    return len(kinds) == 1 and not any(isinstance(item.get("name"), Unknown) for item in items)


def _unfiltered(items: Sequence[Item], reason: str) -> Records:
    return Records(tuple(items), reason)
