"""One difference between two snapshots, as the rules see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.hub.snapshot import Unread

__all__ = ["AREAS", "Change", "Compared"]

#: Which part of a repository a change is in. Kinds are listed in the module of each area.
AREAS = ("weights", "config", "generation", "tokenizer", "template", "code", "preprocessor", "files", "licence")


class Change(NamedTuple):
    """One difference.

    ``kind`` is a dashed word of its area (``gradient-checkpointing-noop``), ``path`` the file in the new snapshot (the
    old one when it is gone), ``symbol`` what it is about: a class and method, a canonical config key, a tensor name
    pattern with ``{i}`` for running numbers, a token. ``before`` and ``after`` are short texts for people; None where
    there is nothing. ``count`` is how many things it stands for (tensors of a pattern). ``detail`` adds a clause.
    """

    area: str
    kind: str
    path: str
    symbol: str
    before: str | None = None
    after: str | None = None
    count: int = 1  # type: ignore[assignment]  # tuple.count is of no use here
    detail: str | None = None


class Compared(NamedTuple):
    """The outcome of comparing one area.

    ``changes`` in the order of the files; ``unread`` are parts that could not be read or decided (then the area is not
    "unchanged"); ``facts`` are summary facts (``revision.weights`` = "identical"), ``equal`` are short statements for
    the summary of what is equal ("7 of 7 weight files (12.5 GB)"). ``listing`` has every single difference where
    ``changes`` tells one cause once, and ``amounts`` what each side holds (tensors, parameters, bytes), by dtype and by
    module.
    """

    changes: tuple[Change, ...] = ()
    unread: tuple[Unread, ...] = ()
    facts: tuple[tuple[str, object], ...] = ()
    equal: tuple[str, ...] = ()
    listing: tuple[Change, ...] = ()
    amounts: Mapping[str, Mapping[str, Mapping[str, tuple[int, int, int]]]] = {}
