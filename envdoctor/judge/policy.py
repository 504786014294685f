"""What the user decided: the gate, the rules switched off or lowered, and what is accepted."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding, fingerprint_of

if TYPE_CHECKING:
    from datetime import date


class Ignore(NamedTuple):
    """One accepted finding: its rule id, why, until when (inclusive; None = for good), and for which record.

    ``where`` maps columns of the record (``conflict.package``) or fact keys to the value they must have; ``path`` is a
    folder or pattern that a place to edit must lie in. ``until_fixed``: it ends when a release without the problem is
    known. ``origin`` is the file it was written in.
    """

    id: str
    reason: str
    until: "date | None" = None
    where: Mapping[str, str] = {}
    origin: str = ""
    path: str | None = None
    until_fixed: bool = False


class Known(NamedTuple):
    """One finding of a baseline: rule, identity of the record, and how severe it was."""

    id: str
    item: Mapping[str, str]
    severity: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint of such a finding."""
        return fingerprint_of(self.id, self.item)


class Policy(NamedTuple):
    """``fail_on`` and ``fail_confidence`` set the gate; ``severities`` maps rule ids to ``off`` or a severity.

    ``today`` is the day by which ignores end; None: when they are looked at. ``baseline`` are findings that do not fail
    the run; None: there is none."""

    fail_on: str = "error"
    fail_confidence: str = "reported"
    ignores: tuple[Ignore, ...] = ()
    severities: Mapping[str, str] = {}
    today: "date | None" = None
    baseline: tuple[Known, ...] | None = None


def fails_gate(finding: Finding, policy: Policy) -> bool:
    """Whether this finding fails the run; preview rules, ignored, superseded and known findings never do."""
    return (
        finding.status == "active"
        and finding.ignored is None
        and finding.superseded_by is None
        and finding.baseline != "unchanged"
        and SEVERITIES.index(finding.severity) >= SEVERITIES.index(policy.fail_on)
        and CONFIDENCES.index(finding.confidence) >= CONFIDENCES.index(policy.fail_confidence)
    )


def exit_code(findings: Iterable[Finding], *, incomplete: bool, exit_zero: bool) -> int:
    """3 when the job could not be done, else 1 for findings at the gate unless ``exit_zero``, else 0."""
    return 3 if incomplete else int(not exit_zero and any(finding.gate for finding in findings))


def baseline_state(finding: Finding, baseline: Iterable[Known]) -> str:
    """``unchanged`` for a finding of the baseline; one that is more severe now is ``new``."""
    worst = SEVERITIES.index(finding.severity)
    known = (one.fingerprint for one in baseline if one.id == finding.id and SEVERITIES.index(one.severity) >= worst)
    return "unchanged" if finding.fingerprint in known else "new"


def ignore_reason(finding: Finding, policy: Policy, is_fixed: Callable[[str], bool]) -> tuple[Ignore, bool] | None:
    """The entry that accepts the finding and whether it is still in force; None when no entry names it.

    ``is_fixed`` tells of a rule whether a release without its problem is known.
    """
    expired: Ignore | None = None
    for entry in policy.ignores:
        if entry.id != finding.id or not _where_matches(entry.where, finding) or not _lies_in(entry.path, finding):
            continue
        in_time = entry.until is None or (policy.today or type(entry.until).today()) <= entry.until
        if in_time and not (entry.until_fixed and is_fixed(entry.id)):
            return entry, True
        expired = entry
    return (expired, False) if expired else None


def _lies_in(pattern: str | None, finding: Finding) -> bool:
    if pattern is None:
        return True
    folder = pattern.removeprefix("./").rstrip("/")
    paths = [place.path.removeprefix("./") for place in finding.locations]
    return any(path.startswith(folder + "/") or fnmatchcase(path, folder) for path in paths)


def _where_matches(where: Mapping[str, str], finding: Finding) -> bool:
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
