"""The comparison of two revisions as text: the verdict, what was compared, and what changed besides the findings."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.judge.finding import CONFIDENCES, SEVERITIES
from envdoctor.report.layout import shortened
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.revision_section import RevisionSection
from envdoctor.revision.comparer import AREAS, Change

#: How much of the changes is told: counts, those worth a line, or every single one with all tensors.
DETAILS = ("stat", "usual", "all")
#: Changes of an area that are listed before "and N more", unless all are asked for.
_LISTED = 12
_LONGEST = 160
_IDENTITY = ("area", "kind", "path", "symbol")
#: Findings whose message stands in the verdict line.
_TOLD = 2
_WEIGHTS = {
    "none": "no weight files",
    "identical": "weights identical",
    "equal": "weights equal in other files",
    "changed": "weights changed",
    "added": "weights added",
    "removed": "weights removed",
    "unknown": "weights could not be compared",
}


def verdict(report: Report, section: RevisionSection, page: Page) -> str:
    """One line: the weights, the first findings, and what to do."""
    weights = page.say(_WEIGHTS[section.weights])
    if section.weights == "identical" and section.weights_equal:
        weights = page.say("{name}: {value}", name=weights, value=page.sentence(section.weights_equal))
    parts = [weights]
    # What is known best comes first: a reproduced cause before a reported one.
    shown = sorted(report.shown(), key=lambda f: (-SEVERITIES.index(f.severity), -CONFIDENCES.index(f.confidence)))
    if shown:
        causes = {finding.id: finding for finding in reversed(shown) if finding.severity == shown[0].severity}
        told = [finding for finding in shown if causes.get(finding.id) is finding][:_TOLD]
        parts += map(page.message, told)
        more = len(shown) - len(told)
        parts += [page.say("{n} more finding(s)", more)] if more else []
    elif section.changes:
        parts.append(page.say("nothing changed that is known to hurt a fine-tune"))
    elif not section.unread:
        parts.append(page.say("nothing else changed"))
    if section.unread:
        parts.append(page.say("{n} part(s) could not be read", len(section.unread)))
    if section.pin:
        parts.append(page.say("pin {revision}", revision=section.pin[:7]))
    return page.say("; ").join(parts)


def revision_header(report: Report, page: Page) -> list[str]:
    """The verdict first, then the two revisions and the environment they were joined with."""
    section = report.revision
    assert section is not None
    lines = [*page.lines(verdict(report, section, page), "", "  "), ""]
    for label, side in ((page.say("Old"), section.old), (page.say("New"), section.new)):
        revision = side.revision if side.revision and side.revision not in side.label else ""
        lines += page.labelled(label, page.bracket(side.label, revision))
    if section.moved is not None:
        lines += page.lines(page.say("{asked} has moved: it is now {now}", **section.moved._asdict()))
    return lines


def revision_summary(report: Report, page: Page, detail: str = "usual") -> list[str]:
    """Counts by area, the changes themselves, what could not be read, what is equal, and what it cost."""
    section = report.revision
    assert section is not None
    lines: list[str] = []
    commits = dict(section.introduced)
    for finding in report.shown():
        if finding.fingerprint in commits:
            lines += page.labelled(page.say("Since"), f"{finding.id}: {commits[finding.fingerprint]}")
    changed = [(area, sum(change.area == area for change in section.changes)) for area in AREAS]
    counts = [f"{page.value('change.area', area)} {number}" for area, number in changed if number]
    if counts:
        lines += page.labelled(page.say("Changes"), page.separated(counts))
    if detail != "stat":
        told = {tuple(finding.item.get(key, "") for key in _IDENTITY) for finding in report.shown()}
        lines += _changes(section, told, page, everything=detail == "all")
    lines += _amounts(section.amounts, page, by="module" if detail == "all" else "dtype")
    for change in section.tensors or ():
        lines += page.lines(_line(change, page), "  ", "      ")
    for part in section.unread:
        lines += page.labelled(page.say("Not read"), f"{part.path}: {page.sentence(part.reason)}")
    if section.equal:
        lines += page.labelled(page.say("Equal"), page.say("; ").join(map(page.sentence, section.equal)))
    requests, received = section.cost
    if requests:
        size = f"{received / 1000:,.1f} kB" if received < 1_000_000 else f"{received / 1e6:,.1f} MB"
        lines += page.lines(
            page.say("{requests} requests, {size} read, no weights", requests=requests, size=size), "", ""
        )
    return lines


def _changes(section: RevisionSection, told: set[tuple[str, ...]], page: Page, *, everything: bool) -> list[str]:
    """The changes; those that a finding told already only when all are asked for."""
    by_area: dict[str, list[Change]] = {}
    for change in section.changes:
        if everything or (change.area, change.kind, change.path, change.symbol) not in told:
            by_area.setdefault(change.area, []).append(change)
    lines: list[str] = []
    for area, changes in by_area.items():
        listed = changes if everything else changes[:_LISTED]
        for change in listed:
            lines += page.lines(_line(change, page), "  ", "      ")
        if len(listed) < len(changes):
            more = page.say("{n} more", n=len(changes) - len(listed))
            text = page.say("{name}: {value}", name=page.value("change.area", area), value=more)
            lines += page.lines(text, "  ", "      ")
    return lines


def _amounts(
    amounts: Mapping[str, Mapping[str, Mapping[str, tuple[int, int, int]]]], page: Page, *, by: str
) -> list[str]:
    """Each side: ``F16 6.24 G (12.5 GB) -> F32 6.24 G (25 GB)``; by module when all is told."""
    if not {"old", "new"} <= amounts.keys():
        return []
    old, new = amounts["old"][by], amounts["new"][by]
    label = page.say("Parameters")
    if by == "dtype":
        return page.labelled(label, f"{amount_words(old)} -> {amount_words(new)}")
    texts = []
    for name in dict.fromkeys([*old, *new]):
        before, after = (f"{side[name][1]:,}" if name in side else page.say("none") for side in (old, new))
        texts.append(f"{name}: {before}" + (f" -> {after}" if before != after else ""))
    return page.listed(label, texts)


def _short(number: int, unit: str) -> str:
    """``7.62 G``, ``15.2 GB``: three digits and the prefix that fits."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number} {unit}".rstrip()


def amount_words(side: Mapping[str, tuple[int, int, int]]) -> str:
    """Parameters and bytes by dtype: ``F16 6.24 G (12.5 GB)``."""
    return ", ".join(
        f"{dtype} {_short(parameters, '')} ({_short(size, 'B')})" for dtype, (_, parameters, size) in side.items()
    )


def _line(change: Change, page: Page) -> str:
    """``code: definition-added modeling_chatglm.py ChatGLMModel.set_input_embeddings``, with before -> after."""
    times = f" x {change.count}" if change.count > 1 else ""
    about = "" if change.symbol == change.path else f" {shortened(change.symbol, 200)}"
    kind = page.say("{name} {value}", name=page.value("change.kind", change.kind), value=shortened(change.path, 200))
    text = page.say("{name}: {value}", name=page.value("change.area", change.area), value=f"{kind}{about}{times}")
    before, after = (shortened(side, _LONGEST) if side else side for side in (change.before, change.after))
    if before is not None and after is not None:
        text += f": {before} -> {after}"
    elif before is not None or after is not None:
        text += f": {before if before is not None else after}"
    return page.bracket(text, shortened(page.sentence(change.detail), _LONGEST)) if change.detail else text
