"""Blocks as lines of text for a terminal, and for everything that shows text as it is."""

from collections.abc import Iterable, Sequence

from envdoctor.judge.finding import SEVERITIES
from envdoctor.report import blocks
from envdoctor.report.blocks import Block, Card, Content, Part
from envdoctor.report.color import paint
from envdoctor.report.page import LABEL, Page, display_width, pad

#: Columns of the labels of a finding, with its margin; of the bar that is the whole of its scale; of a table's column.
_CARD, _BAR, _COLUMN = 9, 50, 28
#: Messages and commands of one cause before "and N more", unless all are asked for.
_MOST = 20
#: What a segment of a bar is drawn with, by its kind.
_SIGNS = {"more": "+", "free": "=", "taken": ""}


def part_lines(part: Part, page: Page, color: bool = False) -> list[str]:
    """Return the lines of a section or of findings of one cause, without a blank line around them."""
    if isinstance(part, Card):
        return _card(part, page, color)
    title = [] if part.bare or not part.title else page.lines(part.title, "", "  ")
    return title + block_lines(part.blocks, page, color)


def block_lines(given: Iterable[Block], page: Page, color: bool = False) -> list[str]:
    """Return the lines of blocks below each other."""
    return [line for block in given for line in _block(block, page, color)]


def _card(card: Card, page: Page, color: bool) -> list[str]:
    times = f" x {card.times}" if card.times > 1 else ""
    level, name = paint(card.severity, card.severity, color), paint(card.name, "bold", color)
    lines = [f"{level}[{name}]{times}"]
    listed = card.cases if page.verbosity > 0 else card.cases[:_MOST]
    for case in listed:
        lines += page.lines(case.message, "  ", "  ")
        lines += [f"  --> {place}" for place in case.places]
        lines += [line for found in case.found for line in page.items(found, " " * 4, " " * 4)]
    if len(listed) < len(card.cases):
        lines += page.lines(page.say("{n} more: -v lists them", n=len(card.cases) - len(listed)), "  ")
    for field in card.fields:
        lines += _contents(field.contents, "  " + pad(field.label, _CARD - 2), " " * _CARD, page)
    return lines


def _block(block: Block, page: Page, color: bool) -> list[str]:
    match block:
        case blocks.Field():
            if block.bare:
                return [line for content in block.contents for line in _bare(content, page)]
            return _contents(block.contents, pad(block.label, LABEL), " " * LABEL, page)
        case blocks.Group():
            return [*page.lines(block.title, "  ", "    "), *_contents(block.contents, " " * 4, " " * 4, page)]
        case blocks.Table(lines=None):
            return ["  " + " ".join([*(pad(cell, _COLUMN) for cell in row[:-1]), row[-1]]) for row in block.rows]
        case blocks.Table():
            return [line for text in block.lines or () for line in page.lines(text, "  ", " " * 6)]
        case blocks.Paragraph():
            return page.lines(block.text, block.margin, block.margin + "  ")
        case blocks.Lines():
            return list(block.lines)
        case blocks.Diff(beside=False):
            shown = block.shown(page.verbosity > 0)
            painted = [paint(line, line[:1], color and line[:1] in ("+", "-", "@")) for line in shown]
            last = [block.hint] if block.hint and len(shown) < len(block.lines) else []
            return [*page.lines(block.title, "  "), *(f"    {line}" for line in [*painted, *last])]
        case blocks.Diff():
            return []
        case blocks.Banner():
            # painted after wrapping: colour codes take no columns
            first, *others = page.lines(block.text, "", "  ")
            style = block.level if block.level in SEVERITIES else "bold"
            return [paint(block.label, style, color and bool(block.label)) + first[len(block.label) :], *others]
        case blocks.Items():
            return page.items(block.texts, "", "", block.glue)
        case blocks.Commands():
            return _content(block, "  ", "  ", page)
        case blocks.Folded() if page.verbosity > 0:
            return block_lines(block.blocks, page, color)
        case blocks.Folded():
            return [f"  {block.hint}"] if block.hint else []


def _bare(content: Content, page: Page) -> list[str]:
    return _content(content, "  ", "    " if isinstance(content, str) else "  ", page)


def _contents(contents: Sequence[Content], first: str, rest: str, page: Page) -> list[str]:
    """Return the lines of contents below each other; the first line begins with the label."""
    lines: list[str] = []
    for content in contents:
        lines += _content(content, rest if lines else first, rest, page)
    return lines


def _content(content: Content, first: str, rest: str, page: Page) -> list[str]:
    match content:
        case blocks.Items():
            texts = content.texts if page.verbosity > 0 else content.texts[: content.most]
            return page.items(texts, first, rest, content.glue) if texts else []
        case blocks.Commands():
            listed = content.lines if page.verbosity > 0 else content.lines[:_MOST]
            starts = [first, *[rest] * len(listed)]
            written = zip(starts, listed, strict=False)
            return [line for start, command in written for line in page.command(command, start, rest)]
        case blocks.SourceList():
            return _sources(content, first, rest, page)
        case blocks.Bars():
            return _bars(content, first, rest, page)
    return page.lines(content, first, rest)


def _bars(block: blocks.Bars, first: str, rest: str, page: Page) -> list[str]:
    """Return bars whose lengths are rounded as a whole, so that they can be compared; or their texts."""
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


def _sources(sources: blocks.SourceList, first: str, rest: str, page: Page) -> list[str]:
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
