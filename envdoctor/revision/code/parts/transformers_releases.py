"""The transformers releases that have what code asks for, by the ledger of released packages."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Ledger
from envdoctor.knowledge.ledger_answers import Asked, Lacking, answer
from envdoctor.source.uses import Use
from envdoctor.versions.spans import spell_spans

__all__ = ["TransformersReleases"]


class TransformersReleases:
    """The last release of each minor that was read, as ``4.36``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._released = ledger, ledger.package("transformers")
        read = self._released.read if self._released is not None else ()
        self._last = {".".join(version.split(".")[:2]): version for version in read}

    def needed(self, uses: Iterable[Use]) -> dict[str, str]:
        """What a file takes whenever it is loaded, where not all releases have it, with those that do, such as
        ``>=4.36,<5.0``. What none has may be newer: its module counts."""
        found: dict[str, str] = {}
        for use in uses:
            if use.module.partition(".")[0] != "transformers" or use.guarded or use.within or use.branch:
                continue
            having = self._having(Asked(use.module, use.name, use.keyword))
            having = having if any(having) else self._having(Asked(use.module))
            what = f"{use.dotted}({use.keyword}=)" if use.keyword else use.dotted
            found[what] = spell_spans(list(self._last), having) or ""
        return {what: releases for what, releases in found.items() if releases}

    def _having(self, asked: Asked) -> list[bool]:
        """Whether each of the releases has it. One that cannot tell is like the one before it."""
        known: list[bool] = []
        for version in self._last.values():
            assert self._released is not None
            lacking = answer(self._ledger, self._released, asked, version, lambda _: None)
            unsure = isinstance(lacking, Unknown)
            known.append(known[-1] if unsure and known else not isinstance(lacking, Lacking))
        return known
