"""Rules whose symptoms stand in a log: what may explain it, the most likely one first."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.answers.answer import Suspect
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Text
from envdoctor.judge.messages import title_of
from envdoctor.knowledge.symptoms import Log, seen_in
from envdoctor.knowledge.vocabulary import SEVERITIES

__all__ = ["suspects_in"]

_MOST = 5


def suspects_in(situation: Situation, lines: Sequence[str], first: int) -> tuple[Suspect, ...]:
    """The rules of which a symptom stands in the lines and that the facts do not rule out.

    Those that the facts confirm come first, then those whose symptom says most. ``first`` is the number of the first
    line.
    """
    log = Log.of(lines)
    found: list[tuple[tuple[object, ...], Suspect]] = []
    for rule in situation.matrix.rules:
        texts = situation.matrix.texts(rule)
        seen = seen_in(log, texts.get("symptom", ()))
        if seen is None:
            continue
        outcome = evaluate(rule, situation.facts, situation.matrix.registry)
        if outcome.holds is False:
            continue
        said = lines[seen.place].strip()
        missing = sorted({key for key in rule.keys() if isinstance(situation.facts.value(key), Unknown)})
        severity = -SEVERITIES.index(rule.severity)
        order = (outcome.holds is not True, -seen.letters, severity, len(missing), -seen.place, rule.id)
        found.append((order, _suspect(rule.id, texts, outcome.holds, first + seen.place, said, tuple(missing))))
    return tuple(suspect for _, suspect in sorted(found, key=lambda one: one[0])[:_MOST])


def _suspect(rule_id: str, texts: object, holds: bool | None, line: int, said: str, missing: tuple[str, ...]) -> Suspect:
    assert isinstance(texts, dict)
    fix = next(iter(texts["fix"]), None)
    source = next((one["url"] for one in texts["evidence"] if one["url"].startswith("https://")), "")
    return Suspect(
        rule_id, title_of(texts), holds, line, said, _text(texts["why"]), _text(fix["summary"]) if fix else None, source, missing
    )


def _text(words: dict[str, str]) -> Text:
    return Text(words["en"], words.get("zh"))
