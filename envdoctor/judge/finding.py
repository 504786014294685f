"""What the judge says: findings, the fixes they offer, and rules that could not be checked."""

from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.matrix.rules import CONFIDENCES, EFFECTS, SEVERITIES
from envdoctor.system.message import Message

__all__ = [
    "CONFIDENCES",
    "EFFECTS",
    "SEVERITIES",
    "Assumption",
    "Evidence",
    "Finding",
    "FoundFact",
    "NotChecked",
    "OfferedFix",
    "Plan",
    "Text",
    "fingerprint_of",
]


class Text(NamedTuple):
    """A text in English and, where somebody has written it, in Chinese."""

    en: str
    zh: str | None = None

    def __str__(self) -> str:
        return self.en

    def in_language(self, lang: str) -> str:
        """Return the Chinese text for ``zh`` when there is one, the English one otherwise."""
        return self.zh if lang == "zh" and self.zh else self.en


_NO_TEXT = Text("")


class FoundFact(NamedTuple):
    """A fact that made the rule apply: key, value as spelled for a person, origin ("torch/version.py", "--set")."""

    key: str
    value: str
    origin: str


class Assumption(NamedTuple):
    """A value that was not given and was taken for granted, with the rule's reason. ``default``: what a library takes
    by itself, and no guess."""

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
    ``predicted`` says what memory the run takes with it, where that is another.
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


class Plan(NamedTuple):
    """One set of changes for several findings that was judged as a whole: it ends the errors that ``clears`` names (by
    fingerprint) and brings no other, and what the installed packages require of each other is met as before. Warnings
    among them are about requirements of the training stack that were not met and are met with it.

    ``commands`` are run in their order; ``set`` goes into the recipe, ``keys`` has it in the recipe's words. ``leaves``
    names the errors that it does not end, ``note`` says why there is no better one.
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


class Finding(NamedTuple):
    """A rule that applied, with the facts that made it apply.

    ``title`` is what the rule says of anybody's versions, ``message`` of these. ``confidence`` is the rule's, lowered
    by guesses (``assumed``) and for other reasons (``caveats``). ``item`` holds the identity columns of the record a
    rule with ``each`` applied to; ``locations`` where the user would edit. ``fingerprint`` names it across runs.
    ``settled_by`` are the facts, as ``key=value``, that would take a guess or a doubt away, with the value that was
    taken or an example. ``gate`` is true when it fails the run; ``ignored`` is the reason given in the project's
    configuration; ``superseded_by`` names the finding that reports the same cause. ``baseline`` is new or unchanged
    where the run was compared with a baseline. ``targets`` are those that it holds for, of several; none: for all.
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
    title: Text = _NO_TEXT
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


def fingerprint_of(rule_id: str, item: Mapping[str, str]) -> str:
    """Return what names a finding across runs: rule and identity of the record, no path and no version."""
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
