"""Rules whose symptoms stand in a log: what may explain it, the most likely one first."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.answers.answer import Suspect
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import text_of, title_of
from envdoctor.knowledge.rules import Rule
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
        keys = set(Rule.keys(rule))
        missing = tuple(sorted(key for key in keys if isinstance(situation.facts.value(key), Unknown)))
        fix = next(iter(texts["fix"]), None)
        suspect = Suspect(
            id=rule.id,
            title=title_of(texts),
            applies=outcome.holds,
            line=first + seen.place,
            said=lines[seen.place].strip(),
            why=text_of(texts["why"]),
            fix=text_of(fix["summary"]) if fix else None,
            source=next((one["url"] for one in texts["evidence"] if one["url"].startswith("https://")), ""),
            missing=missing,
        )
        severity = -SEVERITIES.index(rule.severity)
        order = (outcome.holds is not True, -seen.letters, severity, len(missing), -seen.place, rule.id)
        found.append((order, suspect))
    return tuple(suspect for _, suspect in sorted(found, key=lambda one: one[0])[:_MOST])
