"""Which safetensors release can read the dtypes of a revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envdoctor.revision.change import Change
from envdoctor.revision.tensor_groups import pattern_of
from envdoctor.revision.weight_layouts import Layout, Spec

__all__ = ["dtype_releases", "needs_changes", "needs_of"]


def dtype_releases(table: Mapping[str, Any]) -> dict[str, str]:
    """dtype to the first release that reads it, from the table safetensors-dtypes."""
    return {row["key"]: row["since"] for row in table.get("row", ())}


def needs_of(tensors: Mapping[str, Spec], dtypes: Mapping[str, str]) -> str | None:
    """The oldest release that reads every dtype; None without tensors, or for a dtype that the table lacks."""
    return _newest({spec.dtype for spec in tensors.values()}, dtypes)


def _newest(used: Iterable[str], dtypes: Mapping[str, str]) -> str | None:
    releases = [dtypes.get(dtype) for dtype in used]
    if not releases or None in releases:
        return None
    return max((release for release in releases if release), key=_release)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def needs_changes(old: Layout, new: Layout, dtypes: Mapping[str, str], all_read: bool) -> list[Change]:
    """``needs-newer-safetensors`` when the new headers hold a dtype that no release for the old ones reads.

    Unless all headers were read, the old revision may have the dtype in a file that did not change; a dtype that the
    changed files did not have is still news of them.
    """
    before, after = needs_of(old.tensors, dtypes), needs_of(new.tensors, dtypes)
    if before is None or after is None or _release(after) <= _release(before):
        return []
    newer = [(name, spec) for name, spec in new.tensors.items() if dtypes[spec.dtype] == after]
    name, spec = newer[0]
    detail = pattern_of(name)[0] + ("" if all_read else "; files that did not change were not read")
    return [
        Change("weights", "needs-newer-safetensors", new.where[name], spec.dtype, before, after, len(newer), detail)
    ]
