"""The first line of a comparison of two revisions: how bad it is, about what, and what was not judged or not read.

It calms only where each change has a stated reason to have no effect.
"""

from collections.abc import Iterator, Sequence

from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding
from envdoctor.report.blocks import Block, Field, Paragraph, Section
from envdoctor.report.page import Page, shortened
from envdoctor.report.revision_section import Mended, RevisionSection, about, amount
from envdoctor.revision.comparer import AREAS, Change
from envdoctor.revision.hub.snapshot import Unread

#: Characters of the line where possible, of a finding, of why a part was not read, of a name; changes that are named.
_LINE, _LONGEST, _CAUSE, _NAME, _NAMED = 160, 200, 140, 60, 2
_WEIGHTS = {
    "none": "no weight files",
    "identical": "weights identical",
    "equal": "weights equal in other files",
    "changed": "weights changed",
    "added": "weights added",
    "removed": "weights removed",
    "unknown": "weights could not be compared",
}


#: What the line goes without where it is too long, one after the other.
_LEFT_OUT = ("sizes", "second cause", "mended", "names")


def verdict(section: RevisionSection, findings: Sequence[Finding], page: Page) -> str:
    """Return one line of about 160 characters: the worst first, then the weights, the pin, and OLD -> NEW.

    Findings, parts that could not be read and changes that were not judged are all in it, at least by their number.
    """
    # What is known best comes first: a reproduced cause before a reported one.
    ranked = sorted(findings, key=lambda f: (-SEVERITIES.index(f.severity), -CONFIDENCES.index(f.confidence)))
    lines = [_line(section, ranked, page, _LEFT_OUT[:number]) for number in range(len(_LEFT_OUT) + 1)]
    return next((line for line in lines if len(line) <= _LINE), lines[-1])


def _line(section: RevisionSection, ranked: Sequence[Finding], page: Page, without: Sequence[str]) -> str:
    worst = list({one.id: one for one in reversed(ranked) if one.severity == ranked[0].severity}.values())[::-1]
    told = [shortened(page.message(one), _LONGEST) for one in worst[: 1 if "second cause" in without else 2]]
    if told:
        told[0] = page.labelled(page.say(worst[0].severity), told[0])
        more = len(ranked) - len(told)
        told += [page.say("{n} more finding(s)", more)] if more else []
    doubts = [*_unread(section.unread, page), *_not_judged(section, page, with_names="names" not in without)]
    # A note is worth knowing; what was not read or not judged may be worse.
    parts = [*doubts, *told] if worst and worst[0].severity == "note" else [*told, *doubts]
    is_calm = not parts
    parts = parts or [_calm(section, page)]
    weights = page.say(_WEIGHTS[section.weights])
    if section.weights == "identical" and section.weights_equal and "sizes" not in without:
        weights = page.labelled(weights, page.sentence(section.weights_equal))
    parts += [weights] if section.weights != "none" or is_calm else []
    if section.mended and "mended" not in without:
        parts.append(page.say("going back would be {n} error(s)", len(section.mended)))
    parts += [page.say("pin {revision}", revision=section.pin[:7])] if section.pin else []
    old, new = _sides(section)
    return page.bracket(page.say("; ").join(parts), page.say("{old} -> {new}", old=old, new=new))


def revisions(section: RevisionSection, findings: Sequence[Finding], page: Page) -> Section:
    """Return the verdict, the two revisions, and which commit brought what was found and what is mended."""
    blocks: list[Block] = [Paragraph("", "")]
    for label, side in ((page.say("Old"), section.old), (page.say("New"), section.new)):
        revision = side.revision if side.revision and side.revision not in side.label else ""
        blocks.append(Field(label, [page.bracket(side.label, revision)]))
    if section.moved is not None:
        blocks.append(Paragraph(page.say("{asked} has moved: it is now {now}", **section.moved._asdict())))
    commits = dict(section.introduced)
    since = [f"{finding.id}: {commits[finding.fingerprint]}" for finding in findings if finding.fingerprint in commits]
    blocks += [Field(page.say("Since"), since)] if since else []
    blocks += [Field(page.say("Mended"), [_mend(one, page)]) for one in section.mended]
    return Section(verdict(section, findings, page), blocks)


def _mend(mended: Mended, page: Page) -> str:
    """Return ``going back to OLD would be an error: … (remote-code-checkpointing-does-nothing; since 37fe000 …)``"""
    text = page.say("going back to OLD would be an error: {message}", message=mended.message.in_language(page.lang))
    since = [page.labelled(page.say("Since"), mended.commit)] if mended.commit else []
    return page.bracket(text, page.say("; ").join([mended.rule, *since]))


def _calm(section: RevisionSection, page: Page) -> str:
    """Return the verdict without a finding, if all was read and nothing was left unjudged."""
    if not section.changes:
        return page.say("nothing changed")
    if all(section.effect_of(change) is not None for change in section.changes):
        return page.say("nothing that matters changed")
    return page.say("what changed is ignored or in the baseline")


def _unread(parts: Sequence[Unread], page: Page) -> Iterator[str]:
    """Yield what was not read, with the first cause, once."""
    if not parts:
        return
    alike = sum(part.reason == parts[0].reason for part in parts)
    text = shortened(parts[0].path, _NAME)
    text = page.say("{name} and {n} more", name=text, n=alike - 1) if alike > 1 else text
    text = page.bracket(text, shortened(page.sentence(parts[0].reason), _CAUSE))
    text = page.say("{name} and {n} more", name=text, n=len(parts) - alike) if alike < len(parts) else text
    yield page.say("not read: {parts}", parts=text)


def _not_judged(section: RevisionSection, page: Page, *, with_names: bool) -> Iterator[str]:
    """Yield what changed and was not judged: the areas, and in each what it is about."""
    changes = sorted(section.unjudged, key=_rank)
    if not changes and _unexplained(section):
        yield page.say("changed, not judged: {parts}", parts=page.value("change.area", "weights"))
    if not changes:
        return
    areas: dict[str, list[str]] = {}
    for change in changes[:_NAMED] if with_names else changes:
        name = page.bracket(shortened(about(change) or change.path, _NAME), amount(change.hunk))
        areas.setdefault(page.value("change.area", change.area), []).append(name)
    told = page.separated(
        [
            f"{area} {page.separated(names)}" if with_names else page.say("{n} in {area}", n=len(names), area=area)
            for area, names in areas.items()
        ]
    )
    if with_names and len(changes) > _NAMED:
        told = page.say("{name} and {n} more", name=told, n=len(changes) - _NAMED)
    yield page.say("changed, not judged: {parts}", parts=told)


def _unexplained(section: RevisionSection) -> bool:
    """Return whether the weights differ although no change says so."""
    is_told = any(change.area == "weights" for change in section.changes)
    return section.weights in ("changed", "added", "removed") and not is_told


def _rank(change: Change) -> tuple[int, bool]:
    """Return the key that sorts code and weights before settings, and changes with their lines before others."""
    order = ("code", *AREAS)
    return order.index(change.area) if change.area in order else len(order), not change.hunk


def _sides(section: RevisionSection) -> tuple[str, str]:
    """Return short names that tell the two revisions apart: what follows the ``@``, or the folder's last name."""
    names = [side.label.rpartition(" @ ")[2] for side in (section.old, section.new)]
    last = [name.rstrip("/").rpartition("/")[2] for name in names]
    one, two = last if last[0] != last[1] and all(last) else names
    return shortened(one, _NAME), shortened(two, _NAME)
