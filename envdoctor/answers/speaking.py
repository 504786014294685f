"""Rules that speak of the same names as an error message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envdoctor.answers.answer import Named
from envdoctor.answers.situation import Situation
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import title_of

#: A word that is shorter says too little, and so does one that people use of other things ("tokenizer").
_SHORTEST = 5
_TELLING = re.compile(r"[_.A-Z\d]")
_MOST = 3
_SAID = ("message", "why", "details", "title")


def rules_about(situation: Situation, words: Iterable[str], packages: Iterable[str]) -> tuple[Named, ...]:
    """The rules in whose texts one of the words stands, that rest on one of the packages; those that the facts rule out
    are left away."""
    words = [word for word in words if len(word) >= _SHORTEST and _TELLING.search(word, 1)]
    packages = {f"pkg.{package}" for package in packages}
    if not words:
        return ()
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
    found: list[Named] = []
    for rule in situation.matrix.rules:
        if rule.scope != "environment" or not packages.intersection(rule.keys()):
            continue
        texts = situation.matrix.texts(rule)
        if not any(pattern.search(text) for text in _texts(texts)):
            continue
        outcome = evaluate(rule, situation.facts, situation.matrix.registry)
        if outcome.holds is not False:
            found.append(Named(rule.id, title_of(texts), outcome.holds))
    found.sort(key=lambda one: one.applies is not True)
    return tuple(found[:_MOST])


def _texts(texts: Mapping[str, Any]) -> Iterator[str]:
    for part in _SAID:
        said = texts[part]
        yield said if isinstance(said, str) else (said or {}).get("en", "")
    for fix in texts["fix"]:
        yield (fix["summary"] or {}).get("en", "")
    for entry in texts["evidence"]:
        yield entry["shows"]
