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
        """Return the fingerprint of such a finding."""
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
    """Return whether this finding fails the run; preview rules, ignored, superseded and known findings never do."""
    return (
        finding.status == "active"
        and finding.ignored is None
        and finding.superseded_by is None
        and finding.baseline != "unchanged"
        and SEVERITIES.index(finding.severity) >= SEVERITIES.index(policy.fail_on)
        and CONFIDENCES.index(finding.confidence) >= CONFIDENCES.index(policy.fail_confidence)
    )


def exit_code(findings: Iterable[Finding], *, incomplete: bool, exit_zero: bool) -> int:
    """Return 3 if the job could not be done, else 1 for findings at the gate unless ``exit_zero``, else 0."""
    return 3 if incomplete else int(not exit_zero and any(finding.gate for finding in findings))


def baseline_state(finding: Finding, baseline: Iterable[Known]) -> str:
    """Return ``unchanged`` for a finding of the baseline; one that is more severe now is ``new``."""
    worst = SEVERITIES.index(finding.severity)
    known = (one.fingerprint for one in baseline if one.id == finding.id and SEVERITIES.index(one.severity) >= worst)
    return "unchanged" if finding.fingerprint in known else "new"


def ignore_reason(finding: Finding, policy: Policy, is_fixed: Callable[[str], bool]) -> tuple[Ignore, bool] | None:
    """Return the entry that accepts the finding and whether it is still in force; None when no entry names it.

    ``is_fixed`` tells of a rule whether a release without its problem is known.
    """
    expired: Ignore | None = None
    for entry in policy.ignores:
        folder = (entry.path or "").removeprefix("./").rstrip("/")
        paths = [place.path.removeprefix("./") for place in finding.locations]
        lies_in = entry.path is None or any(one.startswith(folder + "/") or fnmatchcase(one, folder) for one in paths)
        if entry.id != finding.id or not lies_in or not _where_matches(entry.where, finding):
            continue
        in_time = entry.until is None or (policy.today or type(entry.until).today()) <= entry.until
        if in_time and not (entry.until_fixed and is_fixed(entry.id)):
            return entry, True
        expired = entry
    return (expired, False) if expired else None


def _where_matches(where: Mapping[str, str], finding: Finding) -> bool:
    """Return whether every key of ``where`` has that value in the finding's record or facts (compared as text)."""
    known = {fact.key: fact.value for fact in finding.facts}
    tops = {subject.partition(".")[0] for subject in finding.subjects if "." in subject}
    for key, wanted in where.items():
        head, _, column = key.partition(".")
        value = known.get(key, finding.item.get(column) if head in tops else None)
        if value is None or value.lower() != str(wanted).lower():
            return False
    return True
