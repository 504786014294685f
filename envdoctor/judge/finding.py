"""Findings, the fixes they offer, and rules that could not be checked; and what the user decided: the gate, the rules
switched off or lowered, and the findings that are accepted."""

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.matrix.rules import CONFIDENCES, EFFECTS, SEVERITIES
from envdoctor.system.message import Message

if TYPE_CHECKING:
    from datetime import date

__all__ = ["CONFIDENCES", "EFFECTS", "SEVERITIES"]


class Text(NamedTuple):
    """A text in English and, if it has been translated, in Chinese."""

    en: str
    zh: str | None = None

    def __str__(self) -> str:
        return self.en

    def in_language(self, lang: str) -> str:
        """Return the Chinese text for ``zh`` when there is one, the English one otherwise."""
        return self.zh if lang == "zh" and self.zh else self.en


class FoundFact(NamedTuple):
    """A fact that made the rule apply: key, value as spelled for a person, origin ("torch/version.py", "--set")."""

    key: str
    value: str
    origin: str


class Assumption(NamedTuple):
    """A value that was not given and was taken for granted, with the rule's reason. ``default``: a library takes it by
    itself, so it is not a guess."""

    key: str
    value: str
    because: Text
    default: bool = False


class Evidence(NamedTuple):
    """A source of the claim. ``kind`` is issue, release-notes, source, artefact, docs, reproduced or article."""

    kind: str
    url: str
    shows: str
    checked: str


class OfferedFix(NamedTuple):
    """One way out.

    ``kind`` is constraint, uninstall, set, env, command or advice; ``safety`` is safe, review or manual. ``commands``
    can be pasted into a shell. ``withheld`` says why a fix of the rule is not offered for this environment (then it has
    no commands and is shown only on request). ``keys`` are the settings in the words of the user's recipe,
    ``predicted`` says what memory the run takes with it, where that is another, or which error about the package stays.
    ``pins`` are the releases that its commands install.
    """

    kind: str
    safety: str
    summary: Text
    constraints: tuple[str, ...] = ()
    set: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    commands: tuple[str, ...] = ()
    withheld: Message | None = None
    uninstall: tuple[str, ...] = ()
    keys: Mapping[str, str] = {}
    predicted: Message | None = None
    pins: Mapping[str, str] = {}


class Plan(NamedTuple):
    """One set of changes for several findings that was judged as a whole: it ends the errors that ``clears`` names (by
    fingerprint) and brings no other, and what the installed packages require of each other is met as before. Warnings
    among them are about requirements of the training stack that were not met and are met with it.

    ``commands`` are run in their order; ``set`` goes into the recipe, ``keys`` has it in the recipe's words. ``leaves``
    names the errors that it does not end, ``note`` says why there is no better one. ``again`` are packages that stay
    and may be compiled for the torch that it replaces.
    """

    constraints: tuple[str, ...] = ()
    uninstall: tuple[str, ...] = ()
    set: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    commands: tuple[str, ...] = ()
    clears: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    note: Message | None = None
    keys: Mapping[str, str] = {}
    again: tuple[str, ...] = ()


class Finding(NamedTuple):
    """A rule that applied, with the facts that made it apply.

    ``title`` is what the rule says of any versions, ``message`` of these. ``confidence`` is the rule's, lowered
    by guesses (``assumed``) and for other reasons (``caveats``). ``item`` holds the identity columns of the record a
    rule with ``each`` applied to; ``locations`` where the user would edit. ``fingerprint`` names it across runs.
    ``settled_by`` are the facts, as ``key=value``, that would take a guess or a doubt away, with the value that was
    taken or an example. ``gate`` is true when it fails the run; ``ignored`` is the reason given in the project's
    configuration; ``superseded_by`` names the finding that reports the same cause. ``baseline`` is new or unchanged
    where the run was compared with a baseline. ``targets`` are the targets that it holds for; empty: all of them. Not
    ``settled``: it may be gone with a release that an installer may take instead; no fix is built on it.
    """

    id: str
    status: str
    severity: str
    confidence: str
    effect: str
    message: Text
    why: Text
    subjects: tuple[str, ...]
    facts: tuple[FoundFact, ...]
    fingerprint: str
    title: Text = Text("")
    assumed: tuple[Assumption, ...] = ()
    caveats: tuple[Message, ...] = ()
    settled_by: tuple[str, ...] = ()
    item: Mapping[str, str] = {}
    locations: tuple[Origin, ...] = ()
    fixes: tuple[OfferedFix, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    probe: str | None = None
    origin: str = ""
    gate: bool = False
    ignored: str | None = None
    superseded_by: str | None = None
    baseline: str | None = None
    targets: tuple[str, ...] = ()
    settled: bool = True


def fingerprint_of(rule_id: str, item: Mapping[str, str]) -> str:
    """Return the name of a finding across runs, from its rule and the identity of its record: no path, no version."""
    import hashlib  # 3 ms and 4 MiB: only a run with findings pays

    parts = [rule_id, *(f"{key}={value}" for key, value in sorted(item.items()))]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


class NotChecked(NamedTuple):
    """A rule that could not be decided: the facts that were missing with the reason of each, or why it was not read.

    ``missing`` maps fact key to the reason; ``help`` holds the ids of the advice in the registry that would supply
    them.
    """

    id: str
    severity: str
    missing: Mapping[str, Message]
    help: tuple[str, ...] = ()
    reason: Message | None = None


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
    """One finding of a baseline: rule, identity of the record, how severe it was, and the rule that superseded it."""

    id: str
    item: Mapping[str, str]
    severity: str
    superseded_by: str | None = None

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the finding."""
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
    """Return ``unchanged`` for a finding of the baseline, but ``new`` if it is more severe now."""
    worst = SEVERITIES.index(finding.severity)
    keys = (row.fingerprint for row in baseline if row.id == finding.id and SEVERITIES.index(row.severity) >= worst)
    return "unchanged" if finding.fingerprint in keys else "new"


def stale(baseline: Iterable[Known], findings: Collection[Finding], passed: Collection[str]) -> list[Known]:
    """Return the entries that match nothing although their rule, or the one that superseded it, was evaluated."""
    fingerprints = {finding.fingerprint for finding in findings}
    decided = {finding.id for finding in findings}.union(passed)
    unmatched = [entry for entry in baseline if entry.fingerprint not in fingerprints]
    return [entry for entry in unmatched if not decided.isdisjoint((entry.id, entry.superseded_by))]


def ignore_reason(finding: Finding, policy: Policy, is_fixed: Callable[[str], bool]) -> tuple[Ignore, bool] | None:
    """Return the entry that accepts the finding and whether it is still in force; None when no entry names it.

    ``is_fixed`` tells whether a release without the problem of a rule is known.
    """
    expired: Ignore | None = None
    for entry in policy.ignores:
        folder = (entry.path or "").removeprefix("./").rstrip("/")
        paths = [place.path.removeprefix("./") for place in finding.locations]
        is_in = entry.path is None or any(path.startswith(folder + "/") or fnmatchcase(path, folder) for path in paths)
        if entry.id != finding.id or not is_in or not _where_matches(entry.where, finding):
            continue
        in_time = entry.until is None or (policy.today or type(entry.until).today()) <= entry.until
        if in_time and not (entry.until_fixed and is_fixed(entry.id)):
            return entry, True
        expired = entry
    return (expired, False) if expired else None


def _where_matches(where: Mapping[str, str], finding: Finding) -> bool:
    """Return whether every key of ``where`` has that value in the finding's record or facts (compared as text)."""
    facts = {fact.key: fact.value for fact in finding.facts}
    tops = {subject.partition(".")[0] for subject in finding.subjects if "." in subject}
    for key, text in where.items():
        head, _, column = key.partition(".")
        value = facts.get(key, finding.item.get(column) if head in tops else None)
        if value is None or value.lower() != str(text).lower():
            return False
    return True
