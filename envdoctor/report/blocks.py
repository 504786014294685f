"""One document for every writer: a section gives blocks, and a writer knows blocks and nothing of sections.

Texts are in the language of the page already. Here is the writer of lines, for a terminal and for everything that
shows text as it is; ``markdown_report.py`` and ``html_report.py`` write blocks in their own ways.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from envdoctor.judge.finding import SEVERITIES, Evidence
from envdoctor.report.page import LABEL, Page, display_width, pad, paint


class Items(NamedTuple):
    """Short texts side by side. A terminal shows ``most`` of them unless all is asked for; ``keys``: they are the keys
    to the segments of a bar."""

    texts: Sequence[str]
    glue: str | None = None
    most: int | None = None
    keys: bool = False


class Commands(NamedTuple):
    """Shell commands to copy."""

    lines: Sequence[str]


class SourceList(NamedTuple):
    """The sources of the claim, and its confidence. A terminal shows the first source unless all is asked for."""

    confidence: str
    evidence: Sequence[Evidence]


class Bar(NamedTuple):
    """Segments (size, kind) side by side; ``words`` say what they show where ``text`` is not beside them."""

    text: str
    segments: Sequence[tuple[float, str]]
    words: str = ""


class Bars(NamedTuple):
    """Bars on one scale up to ``whole``. A terminal writes their texts alone unless they are ``drawn`` there too."""

    bars: Sequence[Bar]
    whole: float
    drawn: bool = False

    def drawn_to_100(self, bar: Bar) -> Iterator[tuple[float, float, str]]:
        """Yield where each segment begins and how wide it is, in percent of the whole."""
        begin, scale = 0.0, 100 / self.whole if self.whole > 0 else 0.0
        for size, kind in bar.segments:
            yield begin * scale, max(size * scale, 0.0), kind
            begin += size


Content: TypeAlias = str | Items | Commands | SourceList | Bars


class Field(NamedTuple):
    """Contents behind a label. ``bare``: they speak for themselves, and a terminal leaves the label out."""

    label: str
    contents: Sequence[Content]
    bare: bool = False


class Group(NamedTuple):
    """Contents below a line of their own."""

    title: str
    contents: Sequence[Content]


class Table(NamedTuple):
    """Rows below a head. ``lines`` say them on a terminal, where they may be fewer; None: rows in columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str] | None = None


class Paragraph(NamedTuple):
    """A text in full width; ``margin`` is what stands before it on a terminal."""

    text: str
    margin: str = "  "


class Lines(NamedTuple):
    """Lines that are laid out already."""

    lines: Sequence[str]


class Diff(NamedTuple):
    """Lines of a unified diff below a title. A terminal shows ``most`` of them from ``start`` on, then ``hint``, unless
    all is asked for. A page shows ``beside`` ones side by side; a terminal leaves these out."""

    title: str
    lines: Sequence[str]
    most: int | None = None
    hint: str = ""
    beside: bool = False
    start: int = 0

    def shown(self) -> Sequence[str]:
        """Return the lines that are shown unless all is asked for."""
        return self.lines if self.most is None else self.lines[self.start :][: self.most]

    def pairs(self) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield (kind, old, new) line by line: a removed line beside the added line in its place, None if there is
        none. The kind is same, changed or at (``new`` says where the lines are)."""
        gone: list[str] = []
        come: list[str] = []
        for line in self.lines:
            sign = line[:1]
            if sign != "+" and (sign != "-" or come):
                yield from (("changed", *both) for both in zip_longest(gone, come))
                gone, come = [], []
            if sign == "-":
                gone.append(line[1:])
            elif sign == "+":
                come.append(line[1:])
            else:
                yield ("at", None, line) if sign == "@" else ("same", line[1:], line[1:])
        yield from (("changed", *both) for both in zip_longest(gone, come))


class Banner(NamedTuple):
    """A text that begins with a label in the style of its level: error, warning, note or bold."""

    label: str
    text: str
    level: str = "bold"


class Folded(NamedTuple):
    """Blocks that ``-v`` or a click on the summary opens. Without ``-v`` a terminal shows ``hint``."""

    summary: str
    blocks: "Sequence[Block]"
    hint: str = ""


Block: TypeAlias = Field | Group | Table | Paragraph | Lines | Diff | Banner | Items | Commands | Folded


class Section(NamedTuple):
    """Blocks about one subject. ``bare``: a terminal leaves the title out, because the first label says it."""

    title: str
    blocks: Sequence[Block]
    bare: bool = False


class ReportedCase(NamedTuple):
    """One message of a finding, with the places to edit; ``facts`` are groups of facts that it alone rests on."""

    message: str
    places: Sequence[str]
    facts: Sequence[Sequence[str]]


class Card(NamedTuple):
    """Findings of one cause. The labels of its fields are phrases: a terminal shows them in English, where they are
    searched for. ``marks`` tell more of it in a few words, ``anchor`` names it within a page."""

    severity: str
    name: str
    times: int
    marks: Sequence[str]
    anchor: str
    cases: Sequence[ReportedCase]
    fields: Sequence[Field]


Part: TypeAlias = Section | Card


#: Columns of the labels of a finding, with its margin; of the bar that is the whole of its scale; of a table's column.
_CARD, _BAR, _COLUMN = 9, 50, 28
#: Messages and commands of one cause before "and N more", unless all are asked for.
_MOST = 20
#: The character that draws a segment of a bar, by its kind.
_SIGNS = {"more": "+", "free": "=", "taken": ""}


def part_lines(part: Part, page: Page, color: bool = False) -> list[str]:
    """Return the lines of a section or of findings of one cause, without a blank line around them."""
    if isinstance(part, Card):
        return _card(part, page, color)
    title = [] if part.bare or not part.title else page.lines(part.title, "", "  ")
    return title + block_lines(part.blocks, page, color)


def block_lines(blocks: Iterable[Block], page: Page, color: bool = False) -> list[str]:
    """Return the lines of blocks below each other."""
    return [line for block in blocks for line in _lines_of(block, page, color)]


def _card(card: Card, page: Page, color: bool) -> list[str]:
    times = f" x {card.times}" if card.times > 1 else ""
    lines = [f"{paint(card.severity, card.severity, color)}[{paint(card.name, 'bold', color)}]{times}"]
    listed = card.cases if page.verbosity > 0 else card.cases[:_MOST]
    for case in listed:
        lines += page.lines(case.message, "  ", "  ")
        lines += [f"  --> {place}" for place in case.places]
        lines += [line for facts in case.facts for line in page.items(facts, " " * 4, " " * 4)]
    if len(listed) < len(card.cases):
        lines += page.lines(page.say("{n} more: -v lists them", n=len(card.cases) - len(listed)), "  ")
    for field in card.fields:
        lines += _contents(field.contents, "  " + pad(field.label, _CARD - 2), " " * _CARD, page)
    return lines


def _lines_of(block: Block, page: Page, color: bool) -> list[str]:
    everything = page.verbosity > 0
    match block:
        case Field(bare=True):
            margins = [(part, "    " if isinstance(part, str) else "  ") for part in block.contents]
            return [line for content, rest in margins for line in _content(content, "  ", rest, page)]
        case Field():
            return _contents(block.contents, pad(block.label, LABEL), " " * LABEL, page)
        case Group():
            return [*page.lines(block.title, "  ", "    "), *_contents(block.contents, " " * 4, " " * 4, page)]
        case Table(lines=None):
            return ["  " + " ".join([*(pad(cell, _COLUMN) for cell in row[:-1]), row[-1]]) for row in block.rows]
        case Table():
            return [line for text in block.lines or () for line in page.lines(text, "  ", " " * 6)]
        case Paragraph():
            return page.lines(block.text, block.margin, block.margin + "  ")
        case Lines():
            return list(block.lines)
        case Diff(beside=False):
            shown = block.lines if everything else block.shown()
            painted = [paint(line, line[:1], color and line[:1] in ("+", "-", "@")) for line in shown]
            last = [block.hint] if block.hint and len(shown) < len(block.lines) else []
            return [*page.lines(block.title, "  "), *(f"    {line}" for line in [*painted, *last])]
        case Diff():
            return []
        case Banner():
            # painted after wrapping: colour codes take no columns
            first, *others = page.lines(block.text, "", "  ")
            style = block.level if block.level in SEVERITIES else "bold"
            return [paint(block.label, style, color and bool(block.label)) + first[len(block.label) :], *others]
        case Items():
            return page.items(block.texts, "", "", block.glue)
        case Commands():
            return _content(block, "  ", "  ", page)
        case Folded() if everything:
            return block_lines(block.blocks, page, color)
        case Folded():
            return [f"  {block.hint}"] if block.hint else []


def _contents(contents: Sequence[Content], first: str, rest: str, page: Page) -> list[str]:
    """Return the lines of contents below each other; the first one begins with the label."""
    lines: list[str] = []
    for content in contents:
        lines += _content(content, rest if lines else first, rest, page)
    return lines


def _content(content: Content, first: str, rest: str, page: Page) -> list[str]:
    everything = page.verbosity > 0
    match content:
        case Items():
            texts = content.texts if everything else content.texts[: content.most]
            return page.items(texts, first, rest, content.glue) if texts else []
        case Commands():
            commands = enumerate(content.lines if everything else content.lines[:_MOST])
            return [line for at, command in commands for line in page.command(command, rest if at else first, rest)]
        case SourceList():
            return _sources(content, first, rest, page)
        case Bars():
            return _bars(content, first, rest, page)
    return page.lines(content, first, rest)


def _bars(block: Bars, first: str, rest: str, page: Page) -> list[str]:
    """Return bars, or their texts. The length of a bar is rounded as a whole, so that bars can be compared."""
    if not block.drawn:
        return _contents([bar.text for bar in block.bars if bar.text], first, rest, page)
    lines: list[str] = []
    column = max(display_width(bar.text) for bar in block.bars) + 1
    for bar in block.bars:
        size, signs = 0.0, ""
        for part, kind in bar.segments:
            size += part
            signs += _SIGNS.get(kind, "#") * (round(size * _BAR / block.whole) - len(signs))
        lines.append(f"{rest if lines else first}{pad(bar.text, column)}|{signs}|")
    return lines


def _sources(sources: SourceList, first: str, rest: str, page: Page) -> list[str]:
    """Return the first source with the confidence; with ``-v`` all of them, with what each shows."""
    lines: list[str] = []
    everything = page.verbosity > 0
    for number, source in enumerate(sources.evidence if everything else sources.evidence[:1]):
        words = [sources.confidence] if number == 0 else []
        if everything and source.kind != sources.confidence:
            words.append(source.kind)
        checked = page.say("checked {date}", date=source.checked) if source.checked else ""
        shows = source.shows if everything else ""
        address = source.url.removeprefix("https://").removeprefix("www.")
        items = [", ".join(words or [source.kind]) + ":", address if shows else page.bracket(address, checked)]
        lines += page.items(items, rest if lines else first, rest, " ")
        if shows:
            lines += page.lines(page.bracket(shows, checked), rest + "  ", rest + "  ")
    return lines


def fenced(lines: Sequence[str], language: str = "") -> str:
    """Return lines as they are, behind a fence that no line can close."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *lines, fence])
