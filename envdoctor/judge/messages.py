"""Filling a rule's message with the facts that made it apply, and choosing translations that are up to date."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.facts.values import Fact, Records, Unknown, spell
from envdoctor.judge.finding import Text
from envdoctor.matrix.rules import digest
from envdoctor.system.message import Message

#: Characters of one value: some are lists of hundreds of files.
_LONGEST = 300
#: What is said of an environment, and of a list or lock that is not installed yet.
_PLANNED = (
    ("installed is ", "and it would get "),
    ("are installed", "would be installed"),
    ("is not installed", "would not be installed"),
    ("is installed", "would be installed"),
    ("the installed ", "the "),
    ("没有安装", "不会安装"),
    ("未安装", "不会安装"),
    ("已安装的", "会安装的"),
    ("安装的是", "会安装的是"),
    ("装有", "会装有"),
)
_PLACEHOLDER = r"\{([a-z_][\w.-]*)\}"


def text_of(table: Mapping[str, str] | str | None) -> Text:
    """Return the texts of one message; a translation of an older English wording is left out (``zh_of`` tells)."""
    if isinstance(table, str) or not table:
        return Text(table if isinstance(table, str) else "")
    english, chinese = table["en"], table.get("zh")
    if chinese and table.get("zh_of", digest(english)) != digest(english):
        chinese = None
    return Text(english, chinese)


def title_of(texts: Mapping[str, Any]) -> Text:
    """Return what a rule says of anybody's versions: its title, or its message with ``...`` in place of values."""
    if texts["title"]:
        return Text(texts["title"])
    return without_values(text_of(texts["message"]))


def without_values(text: Text) -> Text:
    """Return the text with ``...`` in place of values."""
    return Text(re.sub(_PLACEHOLDER, "...", text.en), text.zh and re.sub(_PLACEHOLDER, "...", text.zh))


def fill(text: Text, read: Callable[[str], Fact]) -> Text:
    """Replace ``{pkg.torch}`` and the like by the value as spelled for a person; of a list that is not installed yet
    nothing "is installed"."""
    is_planned = isinstance(read("refused").value, Records)

    def filled(wording: str, nameless: str, suffix: str = "") -> str:
        def replace(match: re.Match[str]) -> str:
            own = read(match[1] + suffix).value  # a column may have a text in both languages
            value = own if isinstance(own, str) else read(match[1]).value
            # A rule may apply to a model of which only a property was given.
            if match[1] == "model.name" and isinstance(value, Unknown):
                return nameless
            text = spell(value)
            return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

        for present, planned in _PLANNED if is_planned else ():
            wording = wording.replace(present, planned)
        return re.sub(_PLACEHOLDER, replace, wording)

    return Text(filled(text.en, Message("this model")), filled(text.zh, "该模型", "_zh") if text.zh else None)
