"""Filling a rule's message with the facts that made it apply, and choosing translations that are up to date."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envdoctor.facts.values import Fact, Unknown, spell
from envdoctor.judge.finding import Text
from envdoctor.knowledge.rules import digest

__all__ = ["fill", "text_of"]

_PLACEHOLDER = re.compile(r"\{([a-z_][\w.-]*)\}")


def text_of(table: Mapping[str, str] | None) -> Text:
    """The texts of one message; a translation of an older English wording is left out (``zh_of`` tells)."""
    if not table:
        return Text("")
    english, chinese = table["en"], table.get("zh")
    if chinese and table.get("zh_of", digest(english)) != digest(english):
        chinese = None
    return Text(english, chinese)


def fill(text: Text, read: Callable[[str], Fact]) -> Text:
    """Replace ``{pkg.torch}`` and the like by the value as spelled for a person."""

    def filled(wording: str, nameless: str) -> str:
        def replace(match: re.Match[str]) -> str:
            value = read(match[1]).value
            # A rule may apply to a model of which only a property was given.
            return nameless if match[1] == "model.name" and isinstance(value, Unknown) else spell(value)

        return _PLACEHOLDER.sub(replace, wording)

    return Text(filled(text.en, "this model"), filled(text.zh, "该模型") if text.zh else None)
