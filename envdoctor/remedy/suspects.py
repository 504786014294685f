"""Rules and known errors whose symptoms stand in a log: what may explain it, the most likely one first."""

from collections import Counter
from collections.abc import Sequence

from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import text_of, title_of
from envdoctor.matrix.rules import SEVERITIES
from envdoctor.matrix.symptoms import Log, Seen, seen_in
from envdoctor.remedy.answer import Suspect
from envdoctor.remedy.question import Situation

_MOST = 5


def suspects_in(situation: Situation, lines: Sequence[str], first: int) -> tuple[Suspect, ...]:
    """Return the rules of which a symptom stands in the lines and that the facts do not rule out, and known errors.

    Those that the facts confirm come first, then those whose symptom says most. Of several with one symptom (a loss of
    NaN) it says nothing for those about models of which the log does not speak: they are left away. ``first`` is the
    number of the first line.
    """
    log, facts, matrix = Log.of(lines), situation.facts, situation.matrix
    found: list[tuple[tuple[object, ...], Seen | None, Suspect]] = []
    sharing: Counter[Seen | None] = Counter()
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        seen = seen_in(log, texts.get("symptom", ()))
        outcome = evaluate(rule, facts, matrix.registry) if seen is not None else None
        if seen is None or outcome is None or outcome.holds is False:
            continue
        missing = tuple(sorted(key for key in set(rule.keys()) if facts.unknown(key)))
        sharing[seen] += 1
        of_model = {key for key in missing if key.startswith("model.")}
        is_open = outcome.holds is None and all(any(one[0] in of_model for one in clause) for clause in rule.affects)
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
        found.append((order, seen if is_open else None, suspect))
    for row in matrix.rows("known-errors", "error"):  # whose kind of cause is known, and which no facts decide
        seen = seen_in(log, row["symptom"])
        if seen is not None:
            sharing[seen] += 1
            title, why, fix = (text_of(row[part]) for part in ("title", "why", "fix"))
            said = lines[seen.place].strip()
            known = Suspect(row["id"], title, None, first + seen.place, said, why, fix, row["source"], rule=False)
            found.append(((True, -seen.letters, 1, 0, -seen.place, row["id"]), None, known))
    told = [(order, suspect) for order, of_a_model, suspect in found if sharing[of_a_model] < 2]
    return tuple(suspect for _, suspect in sorted(told, key=lambda one: one[0])[:_MOST])
