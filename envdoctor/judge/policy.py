"""What the user decided: the gate, the rules switched off or lowered, and what is accepted with a reason."""

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding

__all__ = ["Ignore", "Policy", "fails_gate", "ignore_reason", "where_matches"]


class Ignore(NamedTuple):
    """One accepted finding: its rule id, why, until when (inclusive; None = for good), and for which record.

    ``where`` maps columns of the record (``conflict.package``) or fact keys to the value they must have.
    ``origin`` is the file it was written in.
    """

    id: str
    reason: str
    until: date | None = None
    where: Mapping[str, str] = {}
    origin: str = ""


class Policy(NamedTuple):
    """``fail_on`` and ``fail_confidence`` set the gate; ``severities`` maps rule ids to ``off`` or a severity.

    ``today`` is the day by which ignores end; None: when they are looked at."""

    fail_on: str = "error"
    fail_confidence: str = "reported"
    ignores: tuple[Ignore, ...] = ()
    severities: Mapping[str, str] = {}
    today: date | None = None


def fails_gate(finding: Finding, policy: Policy) -> bool:
    """Whether this finding fails the run; preview rules, ignored and superseded findings never do."""
    return (
        finding.status == "active"
        and finding.ignored is None
        and finding.superseded_by is None
        and SEVERITIES.index(finding.severity) >= SEVERITIES.index(policy.fail_on)
        and CONFIDENCES.index(finding.confidence) >= CONFIDENCES.index(policy.fail_confidence)
    )


def ignore_reason(finding: Finding, policy: Policy) -> tuple[Ignore, bool] | None:
    """The entry that accepts the finding and whether it is still in force; None when no entry names it."""
    expired: Ignore | None = None
    for entry in policy.ignores:
        if entry.id != finding.id or not where_matches(entry.where, finding):
            continue
        if entry.until is None or (policy.today or date.today()) <= entry.until:
            return entry, True
        expired = entry
    return (expired, False) if expired else None


def where_matches(where: Mapping[str, str], finding: Finding) -> bool:
    """Whether every key of ``where`` has that value in the finding's record or facts (compared as text)."""
    known = {fact.key: fact.value for fact in finding.facts}
    for key, wanted in where.items():
        head, _, column = key.partition(".")
        value = known.get(key)
        if value is None and any(subject.startswith(head + ".") for subject in finding.subjects):
            value = finding.item.get(column)
        if value is None or value.lower() != str(wanted).lower():
            return False
    return True
