"""Find the rules and the known errors whose symptom stands in a log: the facts say which of them may be the cause."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records, spell
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.evaluate import evaluate, text_of, title_of, without_values
from envdoctor.judge.finding import Text
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import SEVERITIES, Rule, placeholders
from envdoctor.matrix.symptoms import Log, Seen, seen_in
from envdoctor.remedy.question import Situation, Suspect

#: What torch says of a GPU's memory when it runs out, in lower case; GiB by its units.
_SIZE = r"(\d{1,5}(?:\.\d{1,3})?) ([gmk]ib|bytes)"
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE} of which {_SIZE} is free")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
#: Characters between both: other processes are listed there.
_BETWEEN = 500
_UNITS = {"gib": 1.0, "mib": 1024.0, "kib": 1024.0**2, "bytes": 1024.0**3}
#: How many are shown.
_MOST_SUSPECTS = 5


def suspects_in(situation: Situation, lines: Sequence[str], first: int) -> tuple[Suspect, ...]:
    """Return the rules with a symptom in the lines that the facts do not rule out, and known errors; if there are none,
    the rules that the facts do rule out.

    Rules that the facts confirm come first, then those with the longest symptom. If several rules share a symptom (a
    loss of NaN), those about models that the log does not mention are left out. ``first`` is the number of the first
    line.
    """
    log, matrix = Log.of(lines), situation.matrix
    rows = matrix.rows("known-errors", "error")  # their kind of cause is known, and no facts decide them
    known_errors = [(mark, row) for row in rows if (mark := seen_in(log, row["symptom"])) is not None]
    facts, shown = _log_facts_and_rules(log, situation, known_errors)
    entries: list[tuple[tuple[object, ...], Seen | None, Suspect]] = []
    ruled_out: list[tuple[tuple[object, ...], Suspect]] = []
    sharing: Counter[Seen | None] = Counter()
    bounds: dict[str, tuple[object, ...]] = {}
    # A rule that only words of the log support says no more than a known error with its symptom.
    guesses: dict[str, Seen] = {}
    kinds: set[Seen] = set()
    for rule, texts, sign in shown:
        outcome = evaluate(rule, facts, matrix.registry)
        missing = tuple(sorted(key for key in set(rule.keys()) if facts.unknown(key)))
        of_model = {key for key in missing if key.startswith("model.")}
        is_open = outcome.holds is None and all(any(term[0] in of_model for term in clause) for clause in rule.affects)
        fixes = _alike(_useful(rule, texts["fix"], facts, matrix)) if outcome.holds is None else texts["fix"][:1]
        suspect = Suspect(
            id=rule.id,
            title=title_of(texts, {} if outcome.holds is False else _values(texts, facts)),
            applies=outcome.holds,
            line=first + sign.place,
            said=lines[sign.place].strip(),
            why=without_values(text_of(texts["why"])),
            fix=_together([without_values(text_of(fix["summary"])) for fix in fixes]),
            packages=_constrained(fixes[0]) if fixes else frozenset(),
            source=next((entry["url"] for entry in texts["evidence"] if entry["url"].startswith("https://")), ""),
            missing=missing,
        )
        severity = -SEVERITIES.index(rule.severity)
        order = (outcome.holds is not True, suspect.remark, -sign.letters, severity, len(missing), -sign.place, rule.id)
        if outcome.holds is False:
            ruled_out.append((order, suspect))
            continue
        bounds.update(dict.fromkeys(rule.supersedes, order[:3]))
        keys = {condition[0] for clause in rule.affects for condition in clause}.difference(missing)
        weak = all(fact.source in ("default", "told") or fact.is_guess for fact in map(facts.get, keys))
        guesses |= {rule.id: sign} if weak and outcome.holds is None else {}
        sharing[sign] += 1
        entries.append((order, sign if is_open else None, suspect))
    known_errors.sort(key=lambda pair: pair[0].letters)
    most = {key: mark.letters for mark, row in known_errors for key in _kinds(mark, row)}
    for mark, row in known_errors:
        if all(mark.letters == most[key] for key in _kinds(mark, row)):
            sharing[mark] += 1
            kinds.update(filter(None, (seen_in(log, [form]) for form in row["symptom"])))
            title, reason, fix = (text_of(row[part]) for part in ("title", "why", "fix"))
            line, text = first + mark.place, lines[mark.place].strip()
            suspect = Suspect(row["id"], title, None, line, text, reason, fix, row["source"], rule=False)
            entries.append(((True, suspect.remark, -mark.letters, 1, 0, -mark.place, row["id"]), None, suspect))
    entries = [entry for entry in entries if bounds.get(entry[-1].id, entry[0]) >= entry[0][:3]]
    entries = [entry for entry in entries if guesses.get(entry[-1].id) not in kinds]
    ranking = [(order, suspect) for order, of_a_model, suspect in entries if sharing[of_a_model] < 2] or ruled_out
    return tuple(suspect for _, suspect in sorted(ranking, key=lambda pair: pair[0])[:_MOST_SUSPECTS])


def _kinds(mark: Seen, row: Mapping[str, Any]) -> Sequence[object]:
    """Return the keys under which a known error must have the longest symptom: its line (a title may name memory too),
    and its effect."""
    effect = row.get("effect")
    return [(mark.place, mark.title and effect), *filter(None, [effect])]


def _constrained(fix: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the packages that a fix installs."""
    return frozenset(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in fix["constraints"])


def _useful(rule: Rule, fixes: Iterable[Mapping[str, Any]], facts: FactSet, matrix: Matrix) -> list[Mapping[str, Any]]:
    """Return the fixes that may help: with the release that a fix names, the rule does not hold for certain."""
    useful = []
    for fix in fixes:
        pins = [line.partition("==")[::2] for line in fix["constraints"] if "==" in line and "{" not in line]
        pinned = [Fact(f"pkg.{name}", version, "the fix", "given") for name, version in pins]
        if not pinned or not evaluate(rule, with_facts(facts, pinned, matrix), matrix.registry).holds:
            useful.append(fix)
    return useful


def _alike(fixes: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the first fix, with the fixes that install other releases of the same packages."""
    names = _constrained(fixes[0]) if fixes else frozenset()
    return [fix for fix in fixes if names and _constrained(fix) == names] or fixes[:1]


def _together(texts: Sequence[Text]) -> Text | None:
    """Return several texts as one; None without any."""
    if len(texts) < 2:
        return next(iter(texts), None)
    chinese = [text.zh for text in texts if text.zh]
    return Text("; ".join(text.en for text in texts), "；".join(chinese) if len(chinese) == len(texts) else None)


def _log_facts_and_rules(
    log: Log, situation: Situation, known_errors: Iterable[tuple[Seen, Mapping[str, Any]]]
) -> tuple[FactSet, list[tuple[Rule, Mapping[str, Any], Seen]]]:
    """Return the facts with those of the log, and the rules that have a symptom in it or hold and may cause a known
    error in it. A word of the log counts as a fact if it gives all that the rule's message says."""
    matrix = situation.matrix
    facts, shown = _with_memory_of(log, situation.facts, matrix), []
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        symptoms = texts.get("symptom", ())
        mark = seen_in(log, symptoms)
        if mark is not None and mark.told:
            changed = with_facts(facts, (Fact(key, word, "log", "given") for key, word in mark.told), matrix)
            if all(value for key, value in _values(texts, changed).items() if not key.startswith("pkg.")):
                facts = changed
            else:
                mark = seen_in(log, (form for form in symptoms if "{" not in "".join(form["lines"])))
        caused = (
            mark for mark, row in known_errors if rule.effect == row.get("effect") or rule.id in row.get("rules", ())
        )
        if mark is None and (cause := next(caused, None)) and evaluate(rule, facts, matrix.registry).holds:
            mark = cause
        if mark is not None:
            shown.append((rule, texts, mark))
    return facts, shown


def _with_memory_of(log: Log, facts: FactSet, matrix: Matrix) -> FactSet:
    """Return the facts with the memory that others hold by a message of torch: the total without what is free and what
    this process has."""
    match = _TOTAL.search(log.text)
    use = _OWN.search(log.text, match.end(), match.end() + _BETWEEN) if match is not None else None
    if match is None or use is None:
        return facts
    total, free, own = (
        float(size) / _UNITS[unit] for size, unit in (match.groups()[:2], match.groups()[2:], use.groups())
    )
    gpus, told = facts.records("gpu"), {"taken_gib": round(max(0.0, total - free - own), 3)}
    records = Records(tuple({**item, **told} for item in gpus), gpus.incomplete) if gpus else Records((told,))
    return with_facts(facts, [Fact("gpu", records, "log", "given")], matrix)


def _values(texts: Mapping[str, Any], facts: FactSet) -> dict[str, str]:
    """Return the facts in a rule's message, "" for unknown ones."""
    keys = placeholders(text_of(texts["message"]).en)
    return {key: spell(facts.value(key)) if facts.known(key) else "" for key in keys}
