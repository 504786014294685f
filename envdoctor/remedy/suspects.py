"""Rules and known errors whose symptoms stand in a log: what may explain it, the most likely one first."""

from collections import Counter
from collections.abc import Iterator, Sequence

from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import text_of, title_of
from envdoctor.matrix.rules import SEVERITIES, Rule
from envdoctor.matrix.symptoms import Log, Seen, seen_in
from envdoctor.remedy.answer import Suspect
from envdoctor.remedy.situation import Situation

_MOST = 5
_NONE = Seen(-1, 0)


def suspects_in(situation: Situation, lines: Sequence[str], first: int) -> tuple[Suspect, ...]:
    """The rules of which a symptom stands in the lines and that the facts do not rule out, and known errors.

    Those that the facts confirm come first, then those whose symptom says most. Of several with one symptom (a loss of
    NaN) it says nothing for those about models of which the log does not speak: they are left away. ``first`` is the
    number of the first line.
    """
    log = Log.of(lines)
    found: list[tuple[tuple[object, ...], Suspect]] = []
    sharing: Counter[Seen] = Counter()
    of_a_model: dict[str, Seen] = {}
    for rule in situation.matrix.rules:
        texts = situation.matrix.texts(rule)
        seen = seen_in(log, texts.get("symptom", ()))
        if seen is None:
            continue
        outcome = evaluate(rule, situation.facts, situation.matrix.registry)
        if outcome.holds is False:
            continue
        keys = set(Rule.keys(rule))
        missing = tuple(sorted(key for key in keys if situation.facts.unknown(key)))
        sharing[seen] += 1
        of_model = {key for key in missing if key.startswith("model.")}
        if outcome.holds is None and all(any(one[0] in of_model for one in clause) for clause in rule.affects):
            of_a_model[rule.id] = seen
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
    for seen, rank, known in _known_errors(situation, log, lines, first):
        sharing[seen] += 1
        found.append((rank, known))
    told = [one for one in found if sharing[of_a_model.get(one[1].id, _NONE)] < 2]
    return tuple(suspect for _, suspect in sorted(told, key=lambda one: one[0])[:_MOST])


def _known_errors(
    situation: Situation, log: Log, lines: Sequence[str], first: int
) -> Iterator[tuple[Seen, tuple[object, ...], Suspect]]:
    """Errors whose kind of cause is known, and that no facts of an environment decide."""
    for row in situation.matrix.rows("known-errors", "error"):
        seen = seen_in(log, row["symptom"])
        if seen is not None:
            suspect = Suspect(
                id=row["id"],
                title=text_of(row["title"]),
                applies=None,
                line=first + seen.place,
                said=lines[seen.place].strip(),
                why=text_of(row["why"]),
                fix=text_of(row["fix"]),
                source=row["source"],
                rule=False,
            )
            yield seen, (True, -seen.letters, 1, 0, -seen.place, row["id"]), suspect
