"""Findings as cards: what is wrong, where to edit, the fix to copy, what was found, why, and the proof; and the plan.

Findings of one cause are one card: each has its message, and below them stands once what they have in common. Services
for code review show a finding at a file below the working folder, the first to edit.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from envdoctor.facts.values import Origin
from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding, FoundFact, OfferedFix, Plan
from envdoctor.report import blocks
from envdoctor.report.page import Page
from envdoctor.report.report import Report

_LONG = 20  # characters of a text that is too long to be repeated
#: Causes that a comparison of two revisions shows first, and other places of one cause that are named.
_FOREMOST, _NAMED = 5, 6


def of_one_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the findings by rule, certainty, reason and fixes, in the order in which each cause comes first."""
    causes: dict[object, list[Finding]] = {}
    for finding in findings:
        how_sure = (finding.severity, finding.confidence, finding.gate, finding.assumed, finding.caveats)
        fixes = tuple((fix.summary, fix.withheld is None) for fix in finding.fixes)
        causes.setdefault((finding.id, how_sure, finding.why, fixes), []).append(finding)
    return list(causes.values())


def foremost(report: Report) -> tuple[list[Finding], list[Finding]]:
    """Return the findings to show first, and the others. Of a comparison, every error comes first, then causes up to
    five: named ones before code that was not judged, then by confidence, then by how many places changed."""
    if report.revision is None:
        return list(report.shown()), []
    from envdoctor.revision.comparer import UNNAMED

    causes: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.shown():
        causes.setdefault((finding.id, finding.item.get("kind", "")), []).append(finding)

    def rank(alike: list[Finding]) -> tuple[int, bool, int, int]:
        level, certainty = SEVERITIES.index(alike[0].severity), CONFIDENCES.index(alike[0].confidence)
        return -level, alike[0].item.get("kind") == UNNAMED, -certainty, -len(alike)

    ranked = sorted(causes.values(), key=rank)
    first = max(_FOREMOST, sum(alike[0].severity == "error" for alike in ranked))
    leading, others = ([finding for alike in part for finding in alike] for part in (ranked[:first], ranked[first:]))
    return leading, others


def cards(report: Report, page: Page, findings: Iterable[Finding]) -> list[blocks.Card]:
    """Return a card for each cause of these findings of a report. In a comparison, a card leaves out the fields that an
    earlier card has word for word."""
    causes = of_one_cause(findings)
    fitting = ""
    if report.memory is not None:
        from envdoctor.report.run_sections import fitting_words

        fitting = fitting_words(report.memory, page)
    deck = [finding_card(cause, page, report.probe_commands.get(cause[0].probe or ""), fitting) for cause in causes]
    earlier: list[blocks.Field] = []
    for place, card in enumerate(deck if report.revision is not None else ()):
        deck[place] = card._replace(fields=[field for field in card.fields if field not in earlier])
        earlier += deck[place].fields
    return deck


def brief(report: Report, page: Page) -> blocks.Section:
    """Return a line for each finding that is shown."""
    labels = [(f"{finding.severity}[{finding.id}]", finding) for finding in report.shown()]
    return blocks.Section(
        "", [blocks.Banner(label, f"{label} {page.message(finding)}", finding.severity) for label, finding in labels]
    )


def finding_card(
    findings: Sequence[Finding], page: Page, probe_command: str | None = None, fitting: str = ""
) -> blocks.Card:
    """Return the card of one cause. ``probe_command`` runs the experiment that settles it; ``fitting`` is a change with
    which the run fits into memory."""
    finding = findings[0]
    # Code of one cause is shown at its first place, with the names of the others, unless all is asked for.
    alike: dict[object, list[Finding]] = {}
    for number, peer in enumerate(findings):
        is_code = peer.item.get("area") == "code" and page.verbosity <= 0
        alike.setdefault(peer.item.get("kind") if is_code else number, []).append(peer)
    cases, common = _cases([first for first, *_ in alike.values()], page)
    also = {page.message(first): [peer.item.get("symbol", "") for peer in others] for first, *others in alike.values()}
    for place, case in enumerate(cases):
        if names := also.get(case.message, []):
            text = page.say("also in {names}", names=page.separated(page.some(names, _NAMED)))
            cases[place] = case._replace(facts=[*case.facts, [text]])
    why = finding.why.in_language(page.lang)
    of_memory = any(fact.key == "memory.verdict" for fact in finding.facts)
    fields = [blocks.Field("fix", [fitting])] if of_memory and fitting else _fixes(findings, page)
    fields += [blocks.Field("found", [blocks.Items(common)])] if common else []
    fields += [blocks.Field("why", [why])] if why else []
    fields += [blocks.Field("note", [note]) for note in _notes(finding, page)]
    fields += (
        [blocks.Field("proof", [blocks.SourceList(finding.confidence, finding.evidence)])] if finding.evidence else []
    )
    fields += [blocks.Field("try", [blocks.Commands([probe_command])])] if probe_command else []
    if page.verbosity > 0:
        about = ", ".join((finding.status, finding.confidence, finding.effect))
        fields.append(blocks.Field("rule", [page.bracket(about, finding.origin)]))
    marks = [finding.effect, finding.confidence, *([page.say("at the gate")] if finding.gate else [])]
    return blocks.Card(finding.severity, finding.id, len(findings), marks, finding.fingerprint, cases, fields)


def finding_text(finding: Finding, page: Page) -> str:
    """Return everything about one finding as lines of plain text; the first line is the message."""
    return "\n".join(line.removeprefix("  ") for line in blocks.part_lines(finding_card([finding], page), page)[1:])


def _cases(findings: Sequence[Finding], page: Page) -> tuple[list[blocks.ReportedCase], list[str]]:
    """Return each message once, with the places to edit and the facts there; and the facts that all cases share."""
    messages: dict[str, dict[tuple[str, ...], list[Finding]]] = {}
    for finding in findings:
        message = page.message(finding)
        messages.setdefault(message, {}).setdefault(tuple(_fact_words(finding, message, page)), []).append(finding)
    every = [words for groups in messages.values() for words in groups]
    common = [word for word in every[0] if all(word in words for words in every)]
    cases = []
    for message, groups in messages.items():
        places = _places(place for members in groups.values() for finding in members for place in finding.locations)
        own = [
            _items(members, message, page) + [word for word in words if len(every) == 1 or word not in common]
            for words, members in groups.items()
        ]
        cases.append(blocks.ReportedCase(message, places, list(filter(None, own))))
    if len(every) > 1:
        return cases, common
    alone = [word for case in cases for words in case.facts for word in words]
    return [case._replace(facts=()) for case in cases], alone


def _places(places: Iterable[Origin]) -> list[str]:
    """Return the places to edit, a text for each file: ``train.yaml:9, 31``."""
    files: dict[str, dict[str, None]] = {}
    for place in places:
        line = str(place.line) if place.cell is None else f"cell {place.cell}:{place.line}"
        files.setdefault(place.path, {})[line] = None
    return [f"{path}:{', '.join(lines)}" for path, lines in files.items()]


def _fact_words(finding: Finding, message: str, page: Page) -> list[str]:
    """Return the facts that made the rule apply, in words, without the columns that only tell records apart."""
    record = _record(finding, page)
    facts = [fact for fact in finding.facts if fact.value != "unknown"]
    if page.verbosity <= 0:
        identity = {f"{record}.{column}" for column in finding.item}
        # A value in the English message is in every language's message, as a rule by the text of that language.
        text = f"{message} {finding.message.en} {finding.why.in_language(page.lang)}"
        facts = [fact for fact in facts if fact.key not in identity and not _needs_no_words(fact, text, record, page)]
    shown = [fact.origin if page.verbosity > 0 or _tells_where(fact.origin) else "" for fact in facts]
    if page.verbosity <= 0:  # the folder of a place to edit is shown above
        shown = [os.path.basename(origin) if origin in finding.locations else origin for origin in shown]
    pairs = zip(facts, map(page.sentence, shown), strict=True)
    return [page.bracket(page.fact(fact.key, fact.value), origin) for fact, origin in pairs]


def _record(finding: Finding, page: Page) -> str:
    """Return the key of the list whose item the finding is about; empty if it is about no item."""
    lists = (page.registry.records_of(key) for key in finding.subjects) if finding.item else ()
    return next((spec.key for spec in lists if spec is not None), "")


def _needs_no_words(fact: FoundFact, text: str, record: str, page: Page) -> bool:
    """Return whether a fact needs no words: it only answers the rule's question, or the text has its value already."""
    spec = page.registry.find(fact.key)
    own = fact.key.partition(".")[0] == record
    if (spec is not None and spec.answer) or (own and fact.value == "absent"):
        return True
    return (own or len(fact.value) > _LONG) and _names(text, fact.value) and not _tells_where(fact.origin)


def _names(text: str, value: str) -> bool:
    """Return whether a text has the value as a word of its own: 5 is not in 2.5.0."""
    return value in text and re.search(rf"(?<![\w.+]){re.escape(value)}(?![\w+])", text, re.ASCII) is not None


def _tells_where(origin: str) -> bool:
    """Return whether an origin is a place, an option or a release: ``train.yaml:14``, ``--set``."""
    return origin.startswith(("--", "what an install", "what uv")) or isinstance(origin, Origin)


def _items(findings: Sequence[Finding], message: str, page: Page) -> list[str]:
    """Return the records (the GPU, the file) that message and facts do not name: "for RTX 5090 (index 0, 1, 2)"."""
    record = _record(findings[0], page)
    spec = page.registry.find(record)
    names: list[str] = []
    for column in findings[0].item:
        text = ", ".join(dict.fromkeys(finding.item.get(column, "") for finding in findings))
        cell_spec = spec.columns.get(column) if spec is not None else None
        if (cell_spec is not None and cell_spec.answer) or (_names(message, text) and not text.isdigit()):
            continue
        first = spec is not None and spec.identity[:1] == (column,)
        names.append(text if first else page.fact(f"{record}.{column}", text))
    text = page.bracket(names[0], "; ".join(names[1:])) if names else ""
    return [page.say("for {item}", item=text)] if text else []


def is_known(finding: Finding) -> bool:
    """Return whether the finding is in the baseline, so that it does not fail the run."""
    return finding.baseline == "unchanged" and not finding.gate


def _notes(finding: Finding, page: Page) -> list[str]:
    """Return the notes on how sure the finding is, and on whether it can fail the run."""
    notes = []
    for guess in finding.assumed:
        fact, reason = page.fact(guess.key, guess.value), guess.because.in_language(page.lang)
        notes.append(page.say("assumed {fact}: {reason}", fact=fact, reason=reason))
    notes += map(page.sentence, finding.caveats)
    if finding.settled_by and not finding.gate and finding.status == "active":
        command = " ".join(f"--set {quote(setting)}" for setting in finding.settled_by)
        notes.append(page.say("to be certain, state the fact: {command}", command=command))
    if is_known(finding):
        notes.append(page.say("in the baseline: it does not fail the run"))
    if finding.status == "preview":
        notes.append(page.say("a preview rule: it never fails the run"))
    return notes


def _fixes(findings: Sequence[Finding], page: Page) -> list[blocks.Field]:
    """Return the fixes; if none is offered, the reason of the first, with ``-v`` of each that is withheld."""
    fields: list[blocks.Field] = []
    for first in findings[0].fixes:
        if first.withheld is None:
            alike = (fix for finding in findings for fix in finding.fixes if fix.summary == first.summary)
            commands = list(dict.fromkeys(command for fix in alike for command in fix.commands))
            fields.append(
                blocks.Field("   or" if fields else "fix", [_fix_words(first, page), blocks.Commands(commands)])
            )
    withheld = [fix for fix in findings[0].fixes if fix.withheld is not None]
    for fix in withheld if page.verbosity > 0 else ():
        words, reason = _fix_words(fix, page), page.sentence(fix.withheld or "")
        fields.append(blocks.Field("note", [page.say("not offered: {fix}: {reason}", fix=words, reason=reason)]))
    if withheld and not fields:
        reason = page.sentence(withheld[0].withheld or "")
        fields.append(blocks.Field("fix", [page.say("none offered here: {reason}", reason=reason)]))
    return fields


def _fix_words(fix: OfferedFix, page: Page) -> str:
    """Return the fix in words, with the changes that its own words do not name."""
    text = fix.summary.in_language(page.lang)
    words = re.findall(r"[A-Za-z0-9_.+-]+", text)
    # the line to write into the recipe; else "batch size: 1", for settings that the fix's own words do not name
    settings = {key: value for key, value in fix.set.items() if key not in fix.keys and value not in words}
    changes = [*fix.constraints, *fix.keys.values(), *_setting_words(settings, page)]
    changes += [f"{name}={value}" for name, value in fix.env.items()]
    more = page.separated([change for change in changes if change not in text])
    line = text or more if fix.commands else page.bracket(text, more)
    return line if fix.predicted is None else page.say("; ").join([line, page.sentence(fix.predicted)])


def _setting_words(settings: Mapping[str, str], page: Page) -> list[str]:
    """Return each setting in words: ``batch size: 1``."""
    return [page.labelled(page.name(key), page.value(key, settings[key])) for key in settings]


# --- the plan --------------------------------------------------------------------------------------------------------


def plan_sections(report: Report, page: Page) -> list[blocks.Section]:
    """Return one set of changes for all errors: the changes, the findings they end, and the commands. Empty if a fix of
    the one error says the same."""
    plan = report.plan
    if plan is None:
        return []
    cleared, rest = ([case for case in report.findings if case.fingerprint in of] for of in (plan.clears, plan.leaves))
    fixes = (fix for finding in cleared for fix in finding.fixes if fix.withheld is None)
    alone = any(fix.set or (fix.commands and fix.commands == plan.commands) for fix in fixes)
    if plan.note is None and not plan.again and len(cleared) <= 1 and alone:
        return []
    ended, others = (page.separated(list(dict.fromkeys(case.id for case in findings))) for findings in (cleared, rest))
    ends = page.say("Plan: these changes together end {n} finding(s) and bring no error", len(cleared))
    last = page.say("It leaves: {findings}", findings=others) if rest else ""
    last = page.sentence(plan.note) if plan.note is not None else last
    words = {key: value for key, value in plan.set.items() if key not in plan.keys}
    settings = map(blocks.Paragraph, [*plan.keys.values(), *_setting_words(words, page)])
    notes = [blocks.Paragraph(line) for line in (*again_words(plan, page), last) if line]
    return [blocks.Section(page.labelled(ends, ended), [*settings, blocks.Commands(plan.commands), *notes])]


def again_words(plan: Plan, page: Page) -> list[str]:
    """Return the sentence about packages that are to be installed again with another torch, if there are any."""
    text = "if compiled for the torch before, install again after it: {names}"
    return [page.say(text, names=page.separated(list(plan.again)))] if plan.again else []


#: Shown where a finding names no file of the project, for consumers that refuse a finding without a place.
PROJECT = Origin("pyproject.toml", 1)


def project_place(finding: Finding) -> Origin | None:
    """Return the first place to edit that lies in the project, its path with ``/`` and relative to the working folder.
    A line of a notebook's cell is not one of the file: the first line stands for it."""
    for place in finding.locations:
        path = os.path.normpath(place.path)
        try:
            path = os.path.relpath(path) if os.path.isabs(path) else path
        except (OSError, ValueError):  # no working folder, another drive, a name that no file can have
            continue
        if not os.path.isabs(path) and path.split(os.sep)[0] != os.pardir:
            return Origin(path.replace(os.sep, "/"), place.line if place.cell is None else 1)
    return None


def unique_fingerprints(findings: Iterable[Finding]) -> list[str]:
    """Return each finding's fingerprint, numbered if several are alike: consumers drop the second of equal ones."""
    counts: Counter[str] = Counter()
    names = []
    for finding in findings:
        counts[finding.fingerprint] += 1
        count = counts[finding.fingerprint]
        names.append(finding.fingerprint if count == 1 else f"{finding.fingerprint}-{count}")
    return names
