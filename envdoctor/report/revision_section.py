"""A comparison of two revisions, besides its findings: what was compared and what changed, with its lines; and its
first line: how bad it is, about what, and what was not judged or not read. It reassures only if each change has a
stated reason to have no effect. And the commits to choose from, as lines or as JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from envdoctor.judge.finding import CONFIDENCES, SEVERITIES, Finding, Text
from envdoctor.report.blocks import Bar, Bars, Block, Content, Diff, Field, Folded, Paragraph, Section, Table
from envdoctor.report.page import Page, display_width, pad, shortened
from envdoctor.revision.comparer import AREAS, UNNAMED, Change
from envdoctor.revision.hub.snapshot import Unread
from envdoctor.system.message import Message, joined, sentence

#: How much of the changes is shown: counts, those worth a line, these with every line of code, or every single one.
DETAILS = ("stat", "usual", "patch", "all")
#: Unless all are asked for: changes of an area before "and N more", functions whose lines are shown; lines of all of
#: them, and the most and the fewest of one.
_LISTED, _FUNCTIONS, _SHOWN = 4, 5, 40
_MOST_SHOWN, _LEAST_SHOWN = 20, 8
#: Characters of a before or after text in a table, and in a line unless all is asked for.
_LONGEST, _BRIEF = 160, 60
#: Areas whose values a page shows side by side.
_SETTINGS = ("config", "generation", "tokenizer", "preprocessor")
#: The colours that parts of a bar have.
_COLOURS = 6
#: Tensors, parameters, bytes.
Amount: TypeAlias = tuple[int, int, int]
#: Area, kind, path and symbol of a change.
Place: TypeAlias = tuple[str, str, str, str]


class Side(NamedTuple):
    """One revision: its name for people, and its repository and commit if it has them."""

    label: str
    repo: str | None = None
    revision: str | None = None


class Cost(NamedTuple):
    """The use of the Hub: requests, and bytes received. ``values``: how many of these bytes may be weights, None if no
    weight was read."""

    requests: int
    bytes: int
    values: int | None = None


class Mended(NamedTuple):
    """A finding of OLD that NEW mends: the comparison of NEW with OLD would have it. ``commit`` brought the mend, if it
    is known."""

    rule: str
    message: Text
    commit: str | None = None


class RevisionSection(NamedTuple):
    """``weights`` is identical, equal, changed, added, removed, none (neither has any) or unknown; ``weights_equal``
    says which of them are equal. ``unread`` are parts that could not be read, ``equal`` says what is equal, in words.
    ``tensors`` are all changed patterns when they were asked for; ``amounts`` tensors, parameters and bytes of each
    side, by dtype and by module. ``pin`` is the old revision, when a finding says to stay there. ``unjudged`` are the
    changes without a finding and without an excuse; ``effects`` say, by area and kind, why a change has no effect.
    ``introduced`` has the commit (with date and title) since which a finding holds, by its fingerprint, ``moved`` the
    repository that was ``asked`` for and its name ``now``. ``documents``: texts about the model changed: README.md.
    """

    weights: str
    weights_equal: str
    old: Side
    new: Side
    changes: tuple[Change, ...]
    unread: tuple[Unread, ...]
    equal: tuple[str, ...]
    amounts: Mapping[str, Mapping[str, Mapping[str, Amount]]]
    introduced: Mapping[str, str]
    cost: Cost
    tensors: tuple[Change, ...] | None = None
    moved: Mapping[str, str] | None = None
    pin: str | None = None
    unjudged: tuple[Change, ...] = ()
    effects: Mapping[str, Text] = {}
    mended: tuple[Mended, ...] = ()
    documents: bool = False

    def effect_of(self, change: Change) -> Text | None:
        """Return why the change has no effect, or None if no table says so."""
        return self.effects.get(f"{change.area} {change.kind}")

    def judged(self) -> list[tuple[Change, str]]:
        """Return each change with ``judged`` (a finding tells it), ``no-effect`` or ``not-judged``."""
        unjudged = set(self.unjudged)
        states = ("judged", "no-effect")
        return [
            (change, "not-judged" if change in unjudged else states[self.effect_of(change) is not None])
            for change in self.changes
        ]


def change_of(finding: Finding) -> Place:
    """Return the change that a finding tells; empty names if it tells no change."""
    area, kind, path, symbol = (finding.item.get(name, "") for name in ("area", "kind", "path", "symbol"))
    return area, kind, path, symbol


def differences(section: RevisionSection, findings: Sequence[Finding], page: Page, detail: str = "usual") -> Section:
    """Return counts by area, the changes, what could not be read, what is equal, and what the comparison cost."""
    blocks: list[Block] = []
    changed = Counter(change.area for change in section.changes)
    counts = [f"{page.value('change.area', area)} {changed[area]}" for area in AREAS if changed[area]]
    blocks += [Field(page.say("Changes"), [page.separated(counts)])] if counts else []
    places = {change_of(finding) for finding in findings}
    lines = _changes(section, places, page, everything=detail == "all") if detail != "stat" else []
    blocks += [_table(section, lines, page)] if section.changes else []
    blocks += _amounts(section.amounts, page, by="module" if detail == "all" else "dtype")
    if section.tensors:
        listed = section._replace(changes=section.tensors, unjudged=())
        blocks.append(_table(listed, [_line(change, page) for change in section.tensors], page))
    unread = not_read(section, page)
    blocks += [Field(page.say("Not read"), unread)] if unread else []
    if section.equal:
        blocks.append(Field(page.say("Equal"), [page.say("; ").join(map(page.sentence, section.equal))]))
    requests, received, values = section.cost
    if requests:
        size = f"{received / 1000:,.1f} kB" if received < 1_000_000 else f"{received / 1e6:,.1f} MB"
        text = "{requests} requests, {size} read, of weights only what --values compares"
        text = text if values is not None else "{requests} requests, {size} read, no weights"
        blocks.append(Paragraph(page.say(text, requests=requests, size=size), ""))
    return Section(page.say("Changes"), blocks, bare=True)


def changed_lines(
    section: RevisionSection, findings: Sequence[Finding], others: Sequence[Finding], page: Page, detail: str = "usual"
) -> list[Section]:
    """Return the changed lines of functions and templates: of each cause its first place, then the other places, then
    changes without a finding. Unless all is asked for, fold the rest away, and count the ``others`` among the findings
    there. Add, for a page, the values of settings side by side."""
    if detail == "stat":
        return []
    everything = detail in ("patch", "all")
    first = {place[:2]: place for place in reversed([change_of(finding) for finding in findings])}
    places = list(dict.fromkeys([*reversed(first.values()), *map(change_of, [*findings, *others])]))
    order = {place: number for number, place in enumerate(places)}
    states = ("not-judged", "judged", "no-effect")
    functions: dict[tuple[str, str], Change] = {}
    ranks = [(order.get(change[:4], len(order) + states.index(state)), state) for change, state in section.judged()]
    ranked = sorted(zip(ranks, section.changes, strict=True), key=lambda pair: pair[0][0])
    for (_, state), change in ranked:
        if change.hunk and (everything or state != "no-effect"):
            functions.setdefault((change.path, about(change)), change)
    leading = sum(change[:4] in first.values() for change in functions.values())
    most = len(functions) if everything else min(leading if others else _FUNCTIONS, len(functions))
    lines = max(_LEAST_SHOWN, min(_MOST_SHOWN, _SHOWN // max(most, 1)))
    blocks: list[Block] = []
    for (path, symbol), change in functions.items():
        title = page.bracket(f"{path} {symbol}".rstrip(), amount(change.hunk))
        diff = Diff(title, change.hunk) if everything else Diff(title, change.hunk, lines, start=_start(change))
        rest = len(diff.lines) - len(diff.shown())
        blocks.append(diff._replace(hint=page.say("{n} more line(s): --patch", rest)) if rest else diff)
    gaps = {(edit.path, about(edit)) for edit, state in section.judged() if state == states[0] or edit.kind == UNNAMED}
    hidden = list(functions)[most:]
    words = [page.say("{n} more finding(s)", len(others))] if others else []
    words += [page.say("{n} more place(s) changed", len(hidden))] if hidden else []
    words += [page.say("{n} of them not judged", n) for n in [sum(place in gaps for place in hidden)] if n]
    if words and not everything:
        hint = page.say("{what}: --patch shows the lines, -v lists all", what=page.separated(words))
        blocks[most:] = [Folded(page.separated(words), blocks[most:], hint)]
    values: dict[str, list[str]] = {}
    # Settings that only went come last, so that they do not stand beside settings that came under other names.
    for change in sorted(section.changes, key=lambda change: change.after is None):
        sides = [("-", change.before), ("+", change.after)]
        if change.area in _SETTINGS and about(change) and not change.hunk:
            words = [f"{sign}{about(change)}: {text}" for sign, text in sides if text is not None]
            values.setdefault(change.path, []).extend(words)
    beside = [Diff(path, words, beside=True) for path, words in values.items()]
    sections = [Section(page.say("Changed lines"), blocks)] if blocks else []
    return [*sections, Section(page.say("Changed values"), beside, bare=True)] if beside else sections


def _start(change: Change) -> int:
    """Return the first line of the hunk with the longest word of the change's ``after``, else of its ``before``."""
    words = [max(re.findall(r"[\w.]+", text), key=len, default="") for text in (change.after, change.before) if text]
    lines = list(enumerate(change.hunk))
    at = [at for word in words if word for at, line in lines if line[:1] in "+-" and word in line] or [0]
    return max((start for start, line in lines[: at[0]] if line.startswith("@@")), default=0)


def amount(hunk: Sequence[str]) -> str:
    """Return how many lines came and went: ``+1 −1``; empty without lines."""
    come, gone = (sum(line.startswith(sign) for line in hunk) for sign in "+-")
    return f"+{come} −{gone}" if hunk else ""


def _table(section: RevisionSection, lines: list[str], page: Page) -> Table:
    """Return the changes column by column, with what judged them; a terminal shows ``lines`` instead."""
    rows = []
    for change, state in section.judged():
        labels = (page.value("change.area", change.area), page.value("change.kind", change.kind))
        texts = (change.path, about(change), change.before, change.after)
        cells = [shortened(text or "", _LONGEST) for text in texts]
        rows.append((*labels, *cells, _standing(section, change, state, page)))
    columns = ("area", "kind", "path", "symbol", "before", "after")
    return Table([*(page.name(f"change.{column}") for column in columns), page.say("effect")], rows, lines)


def _standing(section: RevisionSection, change: Change, state: str, page: Page) -> str:
    """Return ``not judged``, ``no effect: the same tensors lie in other files``, or "" if a finding tells it."""
    effect = section.effect_of(change)
    if state == "no-effect" and effect is not None:
        return page.labelled(page.say("no effect"), effect.in_language(page.lang))
    return page.say("not judged") if state == "not-judged" else ""


def _changes(section: RevisionSection, places: set[Place], page: Page, *, everything: bool) -> list[str]:
    """Return the changes, unjudged ones first; those that a finding tells only if ``everything`` is set."""
    by_area: dict[tuple[str, str], list[str]] = {}
    for change, state in sorted(section.judged(), key=lambda pair: pair[1] != "not-judged"):
        if everything or change[:4] not in places:
            line = _line(change, page, _LONGEST if everything else _BRIEF)
            words = filter(None, [line, _standing(section, change, state, page)])
            unjudged = page.say("not judged") if state == "not-judged" else ""
            by_area.setdefault((change.area, unjudged), []).append(page.say("; ").join(words))
    lines: list[str] = []
    for (area, unjudged), of_area in by_area.items():
        lines += of_area if everything else of_area[:_LISTED]
        if len(of_area) > _LISTED and not everything:
            more = page.bracket(page.say("{n} more", n=len(of_area) - _LISTED), unjudged)
            lines.append(page.labelled(page.value("change.area", area), more))
    return lines


def not_judged(section: RevisionSection, page: Page) -> list[str]:
    """Return a line for each change that was not judged."""
    return [_line(change, page) for change in section.unjudged]


def not_read(section: RevisionSection, page: Page) -> list[str]:
    """Return a line for each reason why parts were not read."""
    causes: dict[str, list[str]] = {}
    for part in section.unread:
        causes.setdefault(page.sentence(part.reason), []).append(part.path)
    return [page.labelled(page.separated(paths), reason) for reason, paths in causes.items()]


def _amounts(amounts: Mapping[str, Mapping[str, Mapping[str, Amount]]], page: Page, *, by: str) -> list[Field]:
    """Return both sides by dtype, ``F16 6.24 G (12.5 GB) -> F32 6.24 G (25 GB)``, with bars of bytes; or by module."""
    if not {"old", "new"} <= amounts.keys():
        return []
    old, new, label = amounts["old"][by], amounts["new"][by], page.say("Parameters")
    names = list(dict.fromkeys([*old, *new]))
    if by == "dtype":
        sides = []
        for side in (old, new):
            segments = [(side[name][2], f"part{names.index(name) % _COLOURS}") for name in side]
            sides.append(Bar("", segments, _amount(side)))
        whole = max(sum(size for size, _ in bar.segments) for bar in sides)
        return [Field(label, [f"{sides[0].words} -> {sides[1].words}", Bars(sides, whole)])]
    texts: list[Content] = []
    for name in names:
        before, after = (f"{side[name][1]:,}" if name in side else page.say("none") for side in (old, new))
        texts.append(f"{name}: {before}" + (f" -> {after}" if before != after else ""))
    return [Field(label, texts)] if texts else []


def _short(number: int, unit: str) -> str:
    """Return a number in three digits with the prefix that fits: ``7.62 G``, ``15.2 GB``."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number} {unit}".rstrip()


def _amount(side: Mapping[str, Amount]) -> str:
    """Return parameters and bytes by dtype: ``F16 6.24 G (12.5 GB)``."""
    sizes = [(dtype, _short(parameters, ""), _short(size, "B")) for dtype, (_, parameters, size) in side.items()]
    return ", ".join(f"{dtype} {parameters} ({size})" for dtype, parameters, size in sizes)


def _line(change: Change, page: Page, longest: int = _LONGEST) -> str:
    """Return ``code: definition-added modeling_chatglm.py ChatGLMModel.set_input_embeddings``, with before -> after."""
    times = f" x {change.count}" if change.count > 1 else ""
    name = f" {shortened(about(change), 200)}" if change.symbol != change.path else ""
    kind = page.say("{name} {value}", name=page.value("change.kind", change.kind), value=shortened(change.path, 200))
    text = page.labelled(page.value("change.area", change.area), f"{kind}{name}{times}")
    if change.hunk:
        return page.bracket(text, amount(change.hunk))
    before, after = (shortened(side, longest) if side else side for side in (change.before, change.after))
    sides = " -> ".join(side for side in (before, after) if side is not None)
    text += f": {sides}" if before is not None or after is not None else ""
    return page.bracket(text, shortened(page.sentence(change.detail), _LONGEST)) if change.detail else text


def about(change: Change) -> str:
    """Return the part of the file that has changed; empty for the file itself."""
    return "" if change.symbol == change.path else change.symbol


#: Characters of the line where possible, of a finding, of why a part was not read, of a name; changes that are named.
_LINE, _LONGEST_MESSAGE, _CAUSE, _NAME, _NAMED = 160, 200, 140, 60, 2
_WEIGHTS = {
    "none": "no weight files",
    "identical": "weights identical",
    "equal": "weights equal in other files",
    "changed": "weights changed",
    "added": "weights added",
    "removed": "weights removed",
    "unknown": "weights could not be compared",
}
#: Parts that a line which is too long drops, in this order.
_LEFT_OUT = ("sizes", "second cause", "mended", "names")


def verdict(section: RevisionSection, findings: Sequence[Finding], page: Page) -> str:
    """Return one line of about 160 characters: the worst first, then the weights, the pin, and OLD -> NEW. Findings,
    parts that could not be read and changes that were not judged are all in it, at least by their number."""
    # Higher confidence comes first: a reproduced cause before a reported one.
    ranked = sorted(findings, key=lambda f: (-SEVERITIES.index(f.severity), -CONFIDENCES.index(f.confidence)))
    lines = [_verdict_line(section, ranked, page, _LEFT_OUT[:number]) for number in range(len(_LEFT_OUT) + 1)]
    return next((line for line in lines if len(line) <= _LINE), lines[-1])


def _verdict_line(section: RevisionSection, ranked: Sequence[Finding], page: Page, without: Sequence[str]) -> str:
    worst = list({case.id: case for case in reversed(ranked) if case.severity == ranked[0].severity}.values())[::-1]
    lines = [shortened(page.message(case), _LONGEST_MESSAGE) for case in worst[: 1 if "second cause" in without else 2]]
    if lines:
        lines[0] = page.labelled(page.say(worst[0].severity), lines[0])
        more = len(ranked) - len(lines)
        lines += [page.say("{n} more finding(s)", more)] if more else []
    doubts = [*_unread_words(section, page), *_not_judged(section, page, with_names="names" not in without)]
    # What was not read or not judged may be worse than a note.
    parts = [*doubts, *lines] if worst and worst[0].severity == "note" else [*lines, *doubts]
    weights = page.say(_WEIGHTS[section.weights])
    if section.weights == "identical" and "sizes" not in without:
        weights = page.labelled(weights, page.sentence(section.weights_equal))
    lines = [weights] if section.weights != "none" or not parts else []
    if not parts:  # all was read and nothing was left unjudged
        calm = all(section.effect_of(change) is not None for change in section.changes)
        matters = section.changes or section.documents
        calmest = page.say("nothing that matters changed" if matters else "nothing changed")
        parts = [calmest if calm else page.say("what changed is ignored or in the baseline")]
    parts = [*parts, *lines]
    if section.mended and "mended" not in without:
        parts.append(page.say("going back would be {n} error(s)", len(section.mended)))
    parts += [page.say("pin {revision}", revision=section.pin[:7])] if section.pin else []
    # Short names that tell the two revisions apart: what follows the ``@``, or the folder's last name.
    names = [side.label.rpartition(" @ ")[2] for side in (section.old, section.new)]
    last = [name.rstrip("/").rpartition("/")[2] for name in names]
    old, new = (shortened(name, _NAME) for name in (last if last[0] != last[1] and all(last) else names))
    return page.bracket(page.say("; ").join(parts), page.say("{old} -> {new}", old=old, new=new))


def revisions(section: RevisionSection, findings: Sequence[Finding], page: Page) -> Section:
    """Return the verdict, the two revisions, and the commits that brought findings and mends."""
    blocks: list[Block] = [Paragraph("", "")]
    for label, side in ((page.say("Old"), section.old), (page.say("New"), section.new)):
        revision = side.revision if side.revision and side.revision not in side.label else ""
        blocks.append(Field(label, [page.bracket(side.label, revision)]))
    if section.moved is not None:
        blocks.append(Paragraph(page.say("{asked} has moved: it is now {now}", **section.moved)))
    commits = section.introduced
    since = [f"{finding.id}: {commits[finding.fingerprint]}" for finding in findings if finding.fingerprint in commits]
    blocks += [Field(page.say("Since"), since)] if since else []
    for mend in section.mended:  # … (remote-code-checkpointing-does-nothing; since 37fe000 …)
        text = page.say("going back to OLD would be an error: {message}", message=mend.message.in_language(page.lang))
        by = [mend.rule, *([page.labelled(page.say("Since"), mend.commit)] if mend.commit else [])]
        blocks.append(Field(page.say("Mended"), [page.bracket(text, page.say("; ").join(by))]))
    return Section(verdict(section, findings, page), blocks)


def _unread_words(section: RevisionSection, page: Page) -> Iterator[str]:
    """Yield the parts that were not read, with the first cause, once."""
    for part in section.unread[:1]:
        alike = sum(other.reason == part.reason for other in section.unread)
        others, text = len(section.unread) - alike, shortened(part.path, _NAME)
        text = page.say("{name} and {n} more", name=text, n=alike - 1) if alike > 1 else text
        text = page.bracket(text, shortened(page.sentence(part.reason), _CAUSE))
        text = page.say("{name} and {n} more", name=text, n=others) if others else text
        yield page.say("not read: {parts}", parts=text)


def _not_judged(section: RevisionSection, page: Page, *, with_names: bool) -> Iterator[str]:
    """Yield the changes that were not judged: their areas, and names or a number in each."""
    order = ("code", *AREAS)  # code and weights before settings, and changes with their lines before others
    changes = sorted(section.unjudged, key=lambda change: (order.index(change.area), not change.hunk))
    is_told = any(change.area == "weights" for change in section.changes)
    if not changes and section.weights in ("changed", "added", "removed") and not is_told:
        yield page.say("changed, not judged: {parts}", parts=page.value("change.area", "weights"))
    if not changes:
        return
    areas: dict[str, list[str]] = {}
    for change in changes[:_NAMED] if with_names else changes:
        name = page.bracket(shortened(about(change) or change.path, _NAME), amount(change.hunk))
        areas.setdefault(page.value("change.area", change.area), []).append(name)
    texts = [page.say("{n} in {area}", n=len(names), area=area) for area, names in areas.items()]
    if with_names:
        texts = [f"{area} {page.separated(names)}" for area, names in areas.items()]
    text = page.separated(texts)
    if with_names and len(changes) > _NAMED:
        text = page.say("{name} and {n} more", name=text, n=len(changes) - _NAMED)
    yield page.say("changed, not judged: {parts}", parts=text)


_LONGEST_TITLE = 72
_WIDEST = 44


def commit_lines(page: Any, lang: str = "en") -> str:
    """Return a line for each commit (id, day, kinds of files, title), and what to type next. ``page`` is clean."""
    head = Message("{}, newest first", page.repo) if page.rows else Message("{}: no commits there", page.repo)
    if page.offline:
        head = Message("{} in the local cache; the day is that of the download", page.repo)
    columns = [(sentence(lang, _kinds(row, page.offline)), shortened(row.title, _LONGEST_TITLE)) for row in page.rows]
    columns = [pair[::-1] if page.offline else pair for pair in columns]
    width = min(max((display_width(first) for first, _ in columns), default=0), _WIDEST)
    lines = [sentence(lang, head)]
    for row, (first, second) in zip(page.rows, columns, strict=True):
        mark = "*" if row.cached and not page.offline else " "
        lines.append(f"{row.id[:7]}{mark} {row.day:10}  {pad(first, width)}  {second}".rstrip())
    command = f"envdoctor diff-revision {page.repo}"
    notes = [Message("Compare two of them: {}", f"{command} OLD NEW")] if page.rows else []
    if any(row.cached for row in page.rows) and not page.offline:
        notes.insert(0, Message("* in the local cache"))
    if page.following:
        notes.append(Message("Older ones: {}", f"{command}@{page.following[:10]} {page.until or ''} --list"))
    return "\n".join([*lines, "", *(" ".join(sentence(lang, note).split()) for note in notes)])


def commits_json(page: Any) -> str:
    """Return the commits, which are clean, as JSON, with the changed files by kind; an unknown value is null."""
    commits = []
    for row in page.rows:
        files = None if row.unread and not page.offline else dict(row.files)
        about = {"id": row.id, "day": row.day or None, "title": row.title, "cached": row.cached}
        commits.append({**about, "files": files})
    document = {"schema": "envdoctor.commits/1", "repo": page.repo, "commits": commits, "next": page.following}
    return json.dumps(document, indent=1)


def _kinds(row: Any, offline: bool) -> Message:
    """Return the kinds of the changed files; offline, the kinds of the cached files and the missing weights."""
    names = joined(row.files, ", ")
    if row.unread is not None and offline:
        return joined([names, row.unread])
    if row.unread is not None:
        return Message("not known: {}", row.unread)
    return Message("{} only", names) if list(row.files) == ["docs"] else names or Message("nothing")
