"""What a comparison of two revisions says besides its findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.hub.snapshot import Unread
from envdoctor.revision.comparer import Change


class Side(NamedTuple):
    """One revision: what a person calls it, and its repository and commit where there are such."""

    label: str
    repo: str | None = None
    revision: str | None = None


class Introduced(NamedTuple):
    """The commit (with date and title) since which the finding of this fingerprint holds."""

    fingerprint: str
    commit: str


class Moved(NamedTuple):
    """The repository that was asked for, and its present name."""

    asked: str
    now: str


class Cost(NamedTuple):
    """What was asked of the Hub: requests, and bytes received."""

    requests: int
    bytes: int


class RevisionSection(NamedTuple):
    """``weights`` is identical, equal, changed, added, removed, none (neither has any) or unknown; ``weights_equal``
    says which of them are equal. ``unread`` are parts that could not be read, ``equal`` says what is equal, in words.
    ``tensors`` are all changed patterns when they were asked for; ``amounts`` tensors, parameters and bytes of each
    side, by dtype and by module. ``pin`` is the old revision, when a finding says to stay there."""

    weights: str
    weights_equal: str
    old: Side
    new: Side
    changes: tuple[Change, ...]
    unread: tuple[Unread, ...]
    equal: tuple[str, ...]
    amounts: Mapping[str, Mapping[str, Mapping[str, tuple[int, int, int]]]]
    introduced: tuple[Introduced, ...]
    cost: Cost
    tensors: tuple[Change, ...] | None = None
    moved: Moved | None = None
    pin: str | None = None
