"""What a comparison of two revisions says besides its findings: the verdict, what was compared, and what changed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from envdoctor.hub.snapshot import Unread
from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding
from envdoctor.report.blocks import Bar, Bars, Block, Content, Field, Paragraph, Section, Table
from envdoctor.report.page import Page, shortened
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
#: The colours that parts of a bar have.
_COLOURS = 6
#: Tensors, parameters, bytes.
Amount: TypeAlias = tuple[int, int, int]


class Side(NamedTuple):
    """One revision: what a person calls it, and its repository and commit where there are such."""

    label: str
    repo: str | None = None
    revision: str | None = None


class Introduced(NamedTuple):
    """The commit (with date and title) since which the finding of this fingerprint holds."""

    fingerprint: str
    commit: str


class Moved(NamedTuple):
    """The repository that was asked for, and its present name."""

    asked: str
    now: str


class Cost(NamedTuple):
    """What was asked of the Hub: requests, and bytes received."""

    requests: int
    bytes: int


class RevisionSection(NamedTuple):
    """``weights`` is identical, equal, changed, added, removed, none (neither has any) or unknown; ``weights_equal``
    says which of them are equal. ``unread`` are parts that could not be read, ``equal`` says what is equal, in words.
    ``tensors`` are all changed patterns when they were asked for; ``amounts`` tensors, parameters and bytes of each
    side, by dtype and by module. ``pin`` is the old revision, when a finding says to stay there."""

    weights: str
    weights_equal: str
    old: Side
    new: Side
    changes: tuple[Change, ...]
    unread: tuple[Unread, ...]
    equal: tuple[str, ...]
    amounts: Mapping[str, Mapping[str, Mapping[str, Amount]]]
    introduced: tuple[Introduced, ...]
    cost: Cost
    tensors: tuple[Change, ...] | None = None
    moved: Moved | None = None
    pin: str | None = None


def verdict(section: RevisionSection, findings: Sequence[Finding], page: Page) -> str:
    """One line: the weights, the first findings, and what to do."""
    weights = page.say(_WEIGHTS[section.weights])
    if section.weights == "identical" and section.weights_equal:
        weights = page.say("{name}: {value}", name=weights, value=page.sentence(section.weights_equal))
    parts = [weights]
    # What is known best comes first: a reproduced cause before a reported one.
    shown = sorted(findings, key=lambda f: (-SEVERITIES.index(f.severity), -CONFIDENCES.index(f.confidence)))
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


def revisions(section: RevisionSection, findings: Sequence[Finding], page: Page) -> Section:
    """The verdict first, then the two revisions."""
    blocks: list[Block] = [Paragraph("", "")]
    for label, side in ((page.say("Old"), section.old), (page.say("New"), section.new)):
        revision = side.revision if side.revision and side.revision not in side.label else ""
        blocks.append(Field(label, [page.bracket(side.label, revision)]))
    if section.moved is not None:
        blocks.append(Paragraph(page.say("{asked} has moved: it is now {now}", **section.moved._asdict())))
    return Section(verdict(section, findings, page), blocks)


def differences(section: RevisionSection, findings: Sequence[Finding], page: Page, detail: str = "usual") -> Section:
    """Counts by area, the changes themselves, what could not be read, what is equal, and what it cost."""
    blocks: list[Block] = []
    commits = dict(section.introduced)
    for finding in findings:
        if finding.fingerprint in commits:
            blocks.append(Field(page.say("Since"), [f"{finding.id}: {commits[finding.fingerprint]}"]))
    changed = [(area, sum(change.area == area for change in section.changes)) for area in AREAS]
    counts = [f"{page.value('change.area', area)} {number}" for area, number in changed if number]
    blocks += [Field(page.say("Changes"), [page.separated(counts)])] if counts else []
    told = {tuple(finding.item.get(key, "") for key in _IDENTITY) for finding in findings}
    lines = _changes(section, told, page, everything=detail == "all") if detail != "stat" else []
    blocks += [_table(section.changes, lines, page)] if section.changes else []
    blocks += _amounts(section.amounts, page, by="module" if detail == "all" else "dtype")
    if section.tensors:
        blocks.append(_table(section.tensors, [_line(change, page) for change in section.tensors], page))
    for part in section.unread:
        blocks.append(Field(page.say("Not read"), [f"{part.path}: {page.sentence(part.reason)}"]))
    if section.equal:
        blocks.append(Field(page.say("Equal"), [page.say("; ").join(map(page.sentence, section.equal))]))
    requests, received = section.cost
    if requests:
        size = f"{received / 1000:,.1f} kB" if received < 1_000_000 else f"{received / 1e6:,.1f} MB"
        cost = page.say("{requests} requests, {size} read, no weights", requests=requests, size=size)
        blocks.append(Paragraph(cost, ""))
    return Section(page.say("Changes"), blocks, bare=True)


def _table(changes: Sequence[Change], lines: list[str], page: Page) -> Table:
    """The changes column by column; ``lines`` tell those that a terminal shows."""
    rows = [
        (
            page.value("change.area", change.area),
            page.value("change.kind", change.kind),
            *(shortened(text or "", _LONGEST) for text in (change.path, _about(change), change.before, change.after)),
        )
        for change in changes
    ]
    columns = ("area", "kind", "path", "symbol", "before", "after")
    return Table([page.name(f"change.{column}") for column in columns], rows, lines)


def _changes(section: RevisionSection, told: set[tuple[str, ...]], page: Page, *, everything: bool) -> list[str]:
    """The changes; those that a finding told already only when all are asked for."""
    by_area: dict[str, list[Change]] = {}
    for change in section.changes:
        if everything or (change.area, change.kind, change.path, change.symbol) not in told:
            by_area.setdefault(change.area, []).append(change)
    lines: list[str] = []
    for area, changes in by_area.items():
        listed = changes if everything else changes[:_LISTED]
        lines += [_line(change, page) for change in listed]
        if len(listed) < len(changes):
            more = page.say("{n} more", n=len(changes) - len(listed))
            lines.append(page.say("{name}: {value}", name=page.value("change.area", area), value=more))
    return lines


def _amounts(amounts: Mapping[str, Mapping[str, Mapping[str, Amount]]], page: Page, *, by: str) -> list[Field]:
    """Each side: ``F16 6.24 G (12.5 GB) -> F32 6.24 G (25 GB)``, with bars of the bytes; by module when all is told."""
    if not {"old", "new"} <= amounts.keys():
        return []
    old, new = amounts["old"][by], amounts["new"][by]
    names = list(dict.fromkeys([*old, *new]))
    label = page.say("Parameters")
    if by == "dtype":
        sides = [
            Bar("", [(side[name][2], f"part{names.index(name) % _COLOURS}") for name in side], _amount(side))
            for side in (old, new)
        ]
        whole = max(sum(size for _, _, size in side.values()) for side in (old, new))
        return [Field(label, [f"{_amount(old)} -> {_amount(new)}", Bars(sides, whole)])]
    texts: list[Content] = []
    for name in names:
        before, after = (f"{side[name][1]:,}" if name in side else page.say("none") for side in (old, new))
        texts.append(f"{name}: {before}" + (f" -> {after}" if before != after else ""))
    return [Field(label, texts)] if texts else []


def _short(number: int, unit: str) -> str:
    """``7.62 G``, ``15.2 GB``: three digits and the prefix that fits."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number} {unit}".rstrip()


def _amount(side: Mapping[str, Amount]) -> str:
    """Parameters and bytes by dtype: ``F16 6.24 G (12.5 GB)``."""
    return ", ".join(
        f"{dtype} {_short(parameters, '')} ({_short(size, 'B')})" for dtype, (_, parameters, size) in side.items()
    )


def _line(change: Change, page: Page) -> str:
    """``code: definition-added modeling_chatglm.py ChatGLMModel.set_input_embeddings``, with before -> after."""
    times = f" x {change.count}" if change.count > 1 else ""
    about = f" {shortened(_about(change), 200)}" if change.symbol != change.path else ""
    kind = page.say("{name} {value}", name=page.value("change.kind", change.kind), value=shortened(change.path, 200))
    text = page.say("{name}: {value}", name=page.value("change.area", change.area), value=f"{kind}{about}{times}")
    before, after = (shortened(side, _LONGEST) if side else side for side in (change.before, change.after))
    if before is not None and after is not None:
        text += f": {before} -> {after}"
    elif before is not None or after is not None:
        text += f": {before if before is not None else after}"
    return page.bracket(text, shortened(page.sentence(change.detail), _LONGEST)) if change.detail else text


def _about(change: Change) -> str:
    """What within the file has changed; empty for the file itself."""
    return "" if change.symbol == change.path else change.symbol
