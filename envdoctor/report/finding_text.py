"""Findings as text: what is wrong, where to edit, what was found, why, the fix to copy, and the proof.

Findings of one cause are one block: what they have in common is said once, below what each of them says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from shlex import quote

from envdoctor.facts.values import Origin
from envdoctor.judge.finding import Finding, FoundFact, OfferedFix
from envdoctor.report.color import paint
from envdoctor.report.layout import command_lines
from envdoctor.report.page import Page

_TEXT = " " * 9  # where the text behind the labels begins
_LONG = 20  # characters that nobody wants to read twice
#: Messages of one block before "and N more", unless all are asked for.
_MOST = 20


def of_one_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one rule with the same reason, fixes and proof, in the order in which each cause comes first."""
    causes: dict[object, list[Finding]] = {}
    for finding in findings:
        how_sure = (finding.severity, finding.confidence, finding.gate, finding.assumed, finding.caveats)
        fixes = tuple((fix.summary, fix.withheld is None) for fix in finding.fixes)
        causes.setdefault((finding.id, how_sure, finding.why, fixes), []).append(finding)
    return list(causes.values())


def offered(findings: Sequence[Finding]) -> list[tuple[OfferedFix, list[str]]]:
    """The fixes of one cause that are not withheld, each with the commands for all its findings."""
    places = [number for number, fix in enumerate(findings[0].fixes) if fix.withheld is None]
    alike = [[finding.fixes[number] for finding in findings] for number in places]
    return [(fixes[0], list(dict.fromkeys(command for fix in fixes for command in fix.commands))) for fixes in alike]


def finding_lines(
    findings: Sequence[Finding],
    page: Page,
    *,
    color: bool = False,
    probe_command: str | None = None,
    windows: bool = False,
) -> list[str]:
    """The block of findings of one cause, in the order of the design, without a blank line around it.

    ``probe_command`` runs the experiment that settles it. ``windows``: commands stay on one line, because its shells do
    not continue a line with a backslash.
    """
    finding = findings[0]
    level = paint(finding.severity, finding.severity, color)
    times = f" x {len(findings)}" if len(findings) > 1 else ""
    lines = [f"{level}[{paint(finding.id, 'bold', color)}]{times}", *_said(findings, page)]
    why = finding.why.in_language(page.lang)
    if why:
        lines += page.lines(why, _label("why"), _TEXT)
    for note in finding_notes(finding, page):
        lines += page.lines(note, _label("note"), _TEXT)
    command_width = None if windows else page.width
    lines += _fixes(findings, command_width, page)
    lines += _proof(finding, page)
    if probe_command:
        lines += command_lines(probe_command, command_width, _label("try"), _TEXT)
    if page.verbosity > 0:
        text = page.bracket(", ".join((finding.status, finding.confidence, finding.effect)), finding.origin)
        lines += page.lines(text, _label("rule"), _TEXT)
    return lines


def finding_text(finding: Finding, page: Page) -> str:
    """Everything about one finding in lines of plain text; the first one is the message."""
    return "\n".join(line.removeprefix("  ") for line in finding_lines([finding], page)[1:])


def _label(word: str) -> str:
    return f"  {word:<5}  "


def _said(findings: Sequence[Finding], page: Page) -> list[str]:
    """Each message once, with the places to edit and what was found there; what was found in all cases comes last."""
    cases: dict[str, dict[tuple[str, ...], list[Finding]]] = {}
    for finding in findings:
        message = page.message(finding)
        cases.setdefault(message, {}).setdefault(tuple(found_words(finding, message, page)), []).append(finding)
    every = [set(found) for found in (words for case in cases.values() for words in case)]
    common = [word for word in next(iter(next(iter(cases.values())))) if all(word in words for words in every)]
    alone = len(every) == 1
    listed = list(cases.items()) if page.verbosity > 0 else list(cases.items())[:_MOST]
    lines: list[str] = []
    for message, case in listed:
        lines += page.lines(message, "  ", "  ")
        places = dict.fromkeys(place for members in case.values() for finding in members for place in finding.locations)
        lines += [f"  --> {place}" for place in places]
        for words, members in case.items():
            own = _items(members, message, page) + [word for word in words if alone or word not in common]
            if own:
                lines += page.items(own, _label("found") if alone else " " * 4, _TEXT if alone else " " * 4)
    if len(listed) < len(cases):
        lines += page.lines(page.say("{n} more: -v lists them", n=len(cases) - len(listed)), "  ")
    return lines + (page.items(common, _label("found"), _TEXT) if common and not alone else [])


def found_words(finding: Finding, message: str, page: Page) -> list[str]:
    """The facts that made the rule apply, in words; not those that tell apart the records of one message."""
    record = _record(finding, page)
    known = [fact for fact in finding.facts if fact.value != "unknown"]
    if page.verbosity <= 0:
        identity = {f"{record}.{column}" for column in finding.item}
        # A value that the English message has is said in every language, as a rule by its own text there.
        said = f"{message} {finding.message.en} {finding.why.in_language(page.lang)}"
        known = [fact for fact in known if fact.key not in identity and not _told(fact, said, record, page)]
    return [_fact(fact, page) for fact in known]


def _fact(fact: FoundFact, page: Page) -> str:
    shown = fact.origin if page.verbosity > 0 or _tells_where(fact.origin) else ""
    return page.bracket(page.fact(fact.key, fact.value), page.sentence(shown))


def _record(finding: Finding, page: Page) -> str:
    """The list whose item the finding is about; empty for a finding about none."""
    lists = (page.registry.records_of(key) for key in finding.subjects) if finding.item else ()
    return next((spec.key for spec in lists if spec is not None), "")


def _told(fact: FoundFact, said: str, record: str, page: Page) -> bool:
    """Whether a fact needs no words: it is only the answer that the rule is about, or its value was said already."""
    spec = page.registry.find(fact.key)
    own = fact.key.partition(".")[0] == record
    if (spec is not None and spec.answer) or (own and fact.value == "absent"):
        return True
    return (own or len(fact.value) > _LONG) and _names(said, fact.value) and not _tells_where(fact.origin)


def _names(text: str, value: str) -> bool:
    """Whether a text has the value, as a word of its own: 5 is no part of 2.5.0."""
    return value in text and re.search(rf"(?<![\w.+]){re.escape(value)}(?![\w+])", text, re.ASCII) is not None


def _tells_where(origin: str) -> bool:
    """Whether an origin says where to look or what was typed: ``train.yaml:14``, ``--set``, or that it was
    taken of what is released."""
    return origin.startswith(("--", "what an install", "what uv")) or isinstance(origin, Origin)


def _items(findings: Sequence[Finding], message: str, page: Page) -> list[str]:
    """The records (the GPU, the file) that message and facts do not name: "for RTX 5090 (index 0, 1, 2)"."""
    record = _record(findings[0], page)
    spec = page.registry.find(record)
    names: list[str] = []
    for column in findings[0].item:
        text = ", ".join(dict.fromkeys(finding.item.get(column, "") for finding in findings))
        known = spec.columns.get(column) if spec is not None else None
        if (known is not None and known.answer) or (_names(message, text) and not text.isdigit()):
            continue
        first = spec is not None and spec.identity[:1] == (column,)
        names.append(text if first else page.fact(f"{record}.{column}", text))
    text = page.bracket(names[0], "; ".join(names[1:])) if names else ""
    return [page.say("for {item}", item=text)] if text else []


def finding_notes(finding: Finding, page: Page) -> list[str]:
    """What is to be said of how sure it is, and of whether it can fail the run."""
    notes = []
    for taken in finding.assumed:
        fact, reason = page.fact(taken.key, taken.value), taken.because.in_language(page.lang)
        notes.append(page.say("assumed {fact}: {reason}", fact=fact, reason=reason))
    notes += map(page.sentence, finding.caveats)
    if finding.settled_by and not finding.gate and finding.status == "active":
        command = " ".join(f"--set {quote(given)}" for given in finding.settled_by)
        notes.append(page.say("say what is so, and it is certain: {command}", command=command))
    if finding.baseline == "unchanged" and not finding.gate:
        notes.append(page.say("in the baseline: it does not fail the run"))
    if finding.status == "preview":
        notes.append(page.say("a preview rule: it never fails the run"))
    return notes


def _fixes(findings: Sequence[Finding], command_width: int | None, page: Page) -> list[str]:
    found = offered(findings)
    withheld = [(fix, page.sentence(fix.withheld)) for fix in findings[0].fixes if fix.withheld is not None]
    lines: list[str] = []
    for number, (fix, commands) in enumerate(found):
        lines += page.lines(fix_words(fix, page), _label("fix") if number == 0 else "     or  ", _TEXT)
        for command in commands if page.verbosity > 0 else commands[:_MOST]:
            lines += command_lines(command, command_width, _TEXT, _TEXT)
    if withheld and not found and page.verbosity <= 0:
        reason = page.say("none offered here: {reason}", reason=withheld[0][1])
        lines += page.lines(reason, _label("fix"), _TEXT)
    for fix, reason in withheld if page.verbosity > 0 else ():
        text = page.say("not offered: {fix}: {reason}", fix=fix_words(fix, page), reason=reason)
        lines += page.lines(text, _label("note"), _TEXT)
    return lines


def fix_words(fix: OfferedFix, page: Page) -> str:
    """The fix in words, with the changes that its own words do not name."""
    text = fix.summary.in_language(page.lang)
    words = re.findall(r"[A-Za-z0-9_.+-]+", text)
    settings = _settings(fix, words, page)
    changes = [*fix.constraints, *settings, *(f"{name}={value}" for name, value in fix.env.items())]
    more = page.separated([change for change in changes if change not in text])
    return text or more if fix.commands else page.bracket(text, more)


def _settings(fix: OfferedFix, words: Sequence[str], page: Page) -> list[str]:
    """What to write into the recipe; else ``batch size: 1``, for what the fix's own words do not name."""
    unsaid = [(key, value) for key, value in fix.set.items() if key not in fix.keys and value not in words]
    said = [page.say("{name}: {value}", name=page.name(key), value=page.value(key, value)) for key, value in unsaid]
    return [*fix.keys.values(), *said]


def _proof(finding: Finding, page: Page) -> list[str]:
    """The first source with the confidence; with -v all of them, with what each shows."""
    lines: list[str] = []
    everything = page.verbosity > 0
    for number, evidence in enumerate(finding.evidence if everything else finding.evidence[:1]):
        words = [finding.confidence] if number == 0 else []
        if everything and evidence.kind != finding.confidence:
            words.append(evidence.kind)
        checked = page.say("checked {date}", date=evidence.checked) if evidence.checked else ""
        shows = evidence.shows if everything else ""
        address = evidence.url.removeprefix("https://").removeprefix("www.")
        items = [", ".join(words or [evidence.kind]) + ":", address if shows else page.bracket(address, checked)]
        lines += page.items(items, _TEXT if number else _label("proof"), _TEXT, " ")
        if shows:
            lines += page.lines(page.bracket(shows, checked), _TEXT + "  ", _TEXT + "  ")
    return lines
