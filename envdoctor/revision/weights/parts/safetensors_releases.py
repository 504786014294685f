"""Which safetensors release can read the dtypes of a revision."""

from collections.abc import Mapping, Sequence

from envdoctor.facts.values import Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.revision.comparer import Change
from envdoctor.revision.weights.parts.layouts import Layout, Spec
from envdoctor.revision.weights.parts.name_patterns import pattern_of
from envdoctor.text.message import Message
from envdoctor.versions.dotted import rank

#: What the table safetensors-dtypes starts with: a need for it is no news.
_OLDEST = "0.4.0"


def dtype_releases(matrix: Matrix) -> dict[str, str]:
    """dtype to the first release that reads it."""
    return {row["key"]: row["since"] for row in matrix.rows("safetensors-dtypes")}


def needs_of(tensors: Mapping[str, Spec], dtypes: Mapping[str, str]) -> str | None:
    """The oldest release that reads every dtype; None without tensors, or for a dtype that the table lacks."""
    used = {spec.dtype for spec in tensors.values()}
    return max((dtypes[dtype] for dtype in used), key=rank, default=None) if used <= dtypes.keys() else None


def newest_need(needs: Sequence[str | None], read_all: bool) -> Value:
    """The newest release that is needed; with headers left out a lower bound, given when it asks for anything new."""
    known = [need for need in needs if need is not None]
    if not known:
        return Unknown(Message("no safetensors header of the new revision was read"))
    newest = max(known, key=rank)
    if not read_all and rank(newest) <= rank(_OLDEST):
        return Unknown(Message("not every header was read: files that did not change are left alone"))
    return newest


def needs_changes(old: Layout, new: Layout, dtypes: Mapping[str, str], all_read: bool) -> list[Change]:
    """``needs-newer-safetensors`` when the new headers hold a dtype that no release for the old ones reads.

    Unless all headers were read, the old revision may have the dtype in a file that did not change; a dtype that the
    changed files did not have is still news of them.
    """
    before, after = needs_of(old.tensors, dtypes), needs_of(new.tensors, dtypes)
    if before is None or after is None or rank(after) <= rank(before):
        return []
    newer = [(name, spec) for name, spec in new.tensors.items() if dtypes[spec.dtype] == after]
    name, spec = newer[0]
    detail = pattern_of(name)[0]
    if not all_read:
        detail = Message("{}; files that did not change were not read", detail)
    return [
        Change("weights", "needs-newer-safetensors", new.where[name], spec.dtype, before, after, len(newer), detail)
    ]
