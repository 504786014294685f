"""Which rule a person means, by its id or by a former one, and what the matrix holds about it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.app.baseline import stale
from envdoctor.app.errors import UsageProblem
from envdoctor.judge.judging import Judgement
from envdoctor.judge.messages import text_of, title_of
from envdoctor.judge.policy import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule, with_conditions
from envdoctor.report.report import Notice
from envdoctor.system.message import Message
from envdoctor.system.nearest import did_you_mean


class _NamedRule(NamedTuple):
    """The rule that was asked for, with its texts, fixes, evidence and tests; ``renamed_from`` is the id that was
    given, when the rule has another one now."""

    rule: Rule
    texts: Mapping[str, Any]
    renamed_from: str | None = None


def rule_named(rule_id: str, matrix: Matrix) -> _NamedRule:
    """Return the rule of that id, present or former. Raises :class:`UsageProblem`."""
    rule, retired = matrix.find(rule_id), matrix.retired(rule_id)
    if rule is not None:
        return _NamedRule(rule, matrix.texts(rule))
    if retired is not None:
        if (successor := matrix.find(retired.now or "")) is not None:
            return _NamedRule(successor, matrix.texts(successor), rule_id)
        raise UsageProblem("{} was withdrawn on {}: {}", rule_id, retired.date, retired.because)
    hint = did_you_mean(rule_id, matrix.origins(), Message("`envdoctor matrix list` names them"))
    raise UsageProblem("there is no rule {}; {}", rule_id, hint)


def explain(rule_id: str, matrix: Matrix) -> _NamedRule:
    """Return everything the matrix holds about a rule, also under a former id. Raises :class:`UsageProblem`."""
    named = rule_named(rule_id, matrix)
    return named._replace(rule=with_conditions(named.rule))


def rules_with(words: Iterable[str], matrix: Matrix) -> Iterator[tuple[Rule, str]]:
    """Yield the rules that have all these words in id, title, message, subject or severity, with their titles."""
    lowered = [word.lower() for word in words]
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        title, message = title_of(texts), text_of(texts["message"])
        said = (title.en, title.zh or "", message.en, message.zh or "", rule.origin)
        named = (rule.id, rule.status, rule.severity, rule.confidence, rule.effect)
        if all(word in " ".join((*named, *said)).lower() for word in lowered):
            yield rule, title.en


def under_present_names(policy: Policy, matrix: Matrix) -> tuple[Policy, list[Notice]]:
    """Return the policy with every rule under its present id, and notices of former ids. Raises :class:`UsageProblem`
    for the severity of a rule that never was."""
    notices: list[Notice] = []
    known = matrix.origins() if policy.severities or policy.ignores else {}

    def present(rule_id: str, where: str) -> str:
        now = rule_id if rule_id in known else _now(rule_id, matrix)
        if now != rule_id:
            notices.append(Notice("note", Message("{} {} names {} by its former id", where, rule_id, now)))
        return now

    for rule_id in policy.severities:
        if rule_id not in known and matrix.retired(rule_id) is None:
            hint = did_you_mean(rule_id, known, Message("`envdoctor matrix list` names them"))
            raise UsageProblem("rules: {}: there is no such rule; {}", rule_id, hint)
    renamed = policy._replace(
        baseline=policy.baseline and tuple(one._replace(id=_now(one.id, matrix)) for one in policy.baseline),
        severities={present(rule_id, "rules:"): level for rule_id, level in policy.severities.items()},
        ignores=tuple(
            entry._replace(id=present(entry.id, Message("{}: the ignore of", entry.origin))) for entry in policy.ignores
        ),
    )
    return renamed, notices


def _now(rule_id: str, matrix: Matrix) -> str:
    retired = matrix.retired(rule_id)
    return rule_id if retired is None or retired.now is None else retired.now


def ignore_notices(judgement: Judgement, policy: Policy, matrix: Matrix) -> Iterator[Notice]:
    """Yield notices of ignores that ended, name no rule or match nothing, and of what is gone from the baseline."""
    for entry in judgement.expired:
        fixed = matrix.fixed_in(entry.id) if entry.until_fixed else {}
        release = ", ".join(f"{key.removeprefix('pkg.')} {version}" for key, version in fixed.items())
        text = "{}: the ignore of {} ended on {}: the finding is back"
        ended = "{}: the ignore of {} ended with {}, which has the fix"
        yield Notice("warning", Message(ended if release else text, entry.origin, entry.id, release or entry.until))
    known = matrix.origins() if policy.ignores else {}
    for entry in (one for one in policy.ignores if one.id not in known):
        yield Notice("warning", Message("{}: the ignore of {} names no rule of this matrix", entry.origin, entry.id))
    for entry in judgement.dead:
        yield Notice("note", Message("{}: the ignore of {} matched nothing: it can be removed", entry.origin, entry.id))
    gone = stale(policy.baseline or (), judgement.findings, judgement.passed)
    if gone:
        text = Message(
            "findings of the baseline that are gone: {}; --write-baseline beside --baseline drops them", len(gone)
        )
        yield Notice("note", text)
