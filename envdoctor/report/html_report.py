"""The report as one HTML page for people: no script, nothing from outside; for a phone, paper, and the dark.

Text is always escaped, and nothing is drawn that does not stand in the page itself.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES
from envdoctor.report.closing import advices, banners, beyond, matrix_words, not_shown, notices, unjudged
from envdoctor.report.document import (
    Banner,
    Bars,
    Block,
    Card,
    Commands,
    Content,
    Field,
    Folded,
    Group,
    Items,
    Lines,
    Paragraph,
    Section,
    Sources,
    Table,
)
from envdoctor.report.findings import cards, plan_sections
from envdoctor.report.header import header
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.terminal_report import about, sections

#: Messages and commands of one cause that are listed, and rows of a table.
_MOST, _MOST_ROWS = 50, 1_000
_HEADINGS = {"error": "Errors", "warning": "Warnings", "note": "Notes"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: object) -> Html:
    """An element. Children are escaped unless they are :class:`Html`; an attribute of None is left out, and a trailing
    underscore (``class_``) is dropped."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{name}{named}>{inner}</{name}>")


def render(report: Report, lang: str = "en") -> str:
    """The page. Its policy allows its own style and nothing else, so that no text in it can do anything."""
    from hashlib import sha256

    with open(os.path.join(os.path.dirname(__file__), "html_report.css"), encoding="utf-8") as file:
        style = file.read()
    page = Page(report.registry, lang)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"envdoctor {report.command}: {report.target.path or report.target.kind}"
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html('<meta name="referrer" content="no-referrer">'),
        tag("title", title),
        tag("style", Html(style)),
    ]
    body = [tag("a", page.say("Findings"), href="#findings", class_="skip"), _top(report, page), _main(report, page)]
    document = tag("html", tag("head", *head), tag("body", *body), lang="zh-CN" if lang == "zh" else "en")
    return f"<!doctype html>\n{document}\n"


def _top(report: Report, page: Page) -> Html:
    """The verdict in words, and the counts that it rests on."""
    shown = Counter(finding.severity for finding in report.shown())
    at_gate = sum(finding.gate for finding in report.findings)
    kind = "incomplete" if report.status != "complete" else "stop" if report.exit_code else "go"
    verdict = page.say("Nothing stops this run")
    if kind == "incomplete":
        verdict = page.say("Incomplete: the check could not be finished.")
    elif kind == "stop":
        verdict = page.say("Stopped by {n} finding(s)", at_gate)
    elif at_gate:
        verdict = page.bracket(verdict, f"--exit-zero; {page.say('{n} at the gate', n=at_gate)}")
    tiles = [(shown[level], page.say(_HEADINGS[level]), level) for level in reversed(SEVERITIES)]
    tiles += [(report.rules_checked, page.say("rules checked"), "plain")]
    tiles += [(len(report.not_checked), page.say("not checked"), "plain")]
    counts = [
        tag("li", tag("b", str(number)), tag("span", name), class_=f"{level} {'none' if not number else ''}")
        for number, name, level in tiles
    ]
    name = tag("p", f"envdoctor {report.command}", class_="name")
    return tag("header", name, tag("h1", verdict, class_=kind), tag("ul", *counts, class_="tiles"))


def _main(report: Report, page: Page) -> Html:
    first = banners([*unjudged(report, page), *beyond(report, page)], page)
    told = [notice for notice in notices(report, page) if isinstance(notice, Banner)]
    parts = _blocks([*first.blocks, *(notice for notice in told if notice.level != "note")], page)
    judged = [header(report, page)] if report.target.kind != "none" else []
    compared = about(report, page)[:1] if report.revision is not None else []
    parts += [_section(section, page) for section in (*compared, *judged)]
    parts.append(tag("div", *_findings(report, page), id="findings"))
    parts += [_section(section, page) for section in (*plan_sections(report, page), *sections(report, page))]
    folded = [Folded(f"{section.title} ({_rows(section)})", section.blocks) for section in not_shown(report, page)]
    last: list[Block] = [*map(Paragraph, advices(report, page)), *folded]
    last += [notice for notice in told if notice.level == "note"]
    if last:
        title = page.say("{n} rule(s) could not be checked", len(report.not_checked))
        parts.append(_section(Section(title if report.not_checked else "", last), page))
    code = page.say("exit code {code}", code=report.exit_code)
    return tag("main", *parts, tag("footer", f"envdoctor {__version__} · {matrix_words(report, page)} · {code}"))


def _rows(section: Section) -> int:
    return sum(len(block.rows) for block in section.blocks if isinstance(block, Table))


def _findings(report: Report, page: Page) -> list[Html]:
    found = cards(report, page)
    if not found:
        return [tag("p", page.say("No findings"), class_="card quiet")]
    parts = []
    for severity in reversed(SEVERITIES):
        alike = [_card(card, page) for card in found if card.severity == severity]
        if alike:
            heading = tag("h2", page.say(_HEADINGS[severity]), tag("small", str(len(alike))))
            parts.append(tag("section", heading, *alike))
    return parts


# --- blocks ----------------------------------------------------------------------------------------------------------


def _card(card: Card, page: Page) -> Html:
    labels = [tag("b", page.say(card.severity), class_="level"), tag("code", card.name)]
    parts = [tag("p", *labels, *(tag("span", mark) for mark in card.marks), class_="labels")]
    for case in card.cases[:_MOST]:
        parts.append(tag("h3", case.message))
        parts += [tag("p", *(tag("code", place) for place in case.places), class_="places")] if case.places else []
        parts += [_chips(found) for found in case.found]
    if len(card.cases) > _MOST:
        parts.append(tag("p", page.say("{n} more", n=len(card.cases) - _MOST)))
    parts.append(_fields([field._replace(label=page.say(field.label.strip())) for field in card.fields], page))
    return tag("article", *parts, class_=f"card {card.severity}", id=f"finding-{card.anchor}")


def _section(section: Section, page: Page) -> Html:
    """A card; the label that says its title goes without words."""
    title = [tag("h2", section.title)] if section.title else []
    blocks = [
        block._replace(label="") if isinstance(block, Field) and block.label == section.title else block
        for block in section.blocks
    ]
    return tag("section", *title, *_blocks(blocks, page), class_="card")


def _blocks(blocks: Iterable[Block], page: Page) -> list[Html]:
    parts: list[Html] = []
    for kind, alike in groupby(blocks, type):
        if kind is Field:
            parts.append(_fields([block for block in alike if isinstance(block, Field)], page))
        else:
            parts += [_block(block, page) for block in alike]
    return parts


def _fields(fields: Sequence[Field], page: Page) -> Html:
    return tag(
        "dl", *(tag("div", tag("dt", label), tag("dd", *_contents(contents, page))) for label, contents, _ in fields)
    )


def _block(block: Block, page: Page) -> Html:
    match block:
        case Group():
            return tag("div", tag("h3", block.title), *_contents(block.contents, page), class_="group")
        case Table():
            return _table(block, page)
        case Paragraph():
            return tag("p", block.text)
        case Lines():
            return tag("pre", "\n".join(block.lines), tabindex="0")
        case Banner():
            rest = block.text.removeprefix(block.label)
            return tag("p", tag("b", block.label), rest, class_=f"banner {block.level}")
        case Folded():
            return tag("details", tag("summary", block.summary), *_blocks(block.blocks, page))
        case Field():
            return _fields([block], page)
    return _content(block, page)


def _contents(contents: Sequence[Content], page: Page) -> list[Html]:
    return [_content(content, page) for content in contents]


def _content(content: Content, page: Page) -> Html:
    match content:
        case Items():
            return _chips(content.texts, keys=content.keys)
        case Commands():  # a click selects all of them
            lines = "\n".join(content.lines[:_MOST])
            return tag("pre", lines, tabindex="0") if lines else Html()
        case Sources():
            return tag("ul", *(tag("li", *_source(*source, page)) for source in content.evidence), class_="proof")
        case Bars():
            return Html("".join(_bars(content)))
    return tag("p", content)


def _chips(items: Sequence[str], keys: bool = False) -> Html:
    """Short texts side by side; as keys each with the colour of its part."""
    listed = [tag("li", item, class_=f"part{number % 6}" if keys else None) for number, item in enumerate(items)]
    return tag("ul", *listed, class_="chips key" if keys else "chips")


def _source(kind: str, url: str, shows: str, date: str, page: Page) -> list[str]:
    shown = url.removeprefix("https://")
    address: str = tag("a", shown, href=url, rel="noreferrer") if url.startswith("https://") else shown
    checked = page.say("checked {date}", date=date) if date else ""
    return [address, " ", page.bracket(shows, checked)]


def _table(table: Table, page: Page) -> Html:
    """A table that scrolls within itself on a narrow screen."""
    rows = [tag("tr", *(tag("td", cell) for cell in row)) for row in table.rows[:_MOST_ROWS]]
    if len(table.rows) > _MOST_ROWS:
        rows.append(tag("tr", tag("td", page.say("{n} more", n=len(table.rows) - _MOST_ROWS))))
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in table.head)))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="wide", tabindex="0", role="group")


def _bars(block: Bars) -> list[Html]:
    """Bars of segments on one scale, each with what it shows in words."""
    drawn = []
    for bar in block.bars:
        x, parts = 0.0, []
        for size, kind in bar.segments:
            width = 100 * size / block.whole if block.whole > 0 else 0.0
            parts.append(tag("rect", x=f"{x:.3f}", y="0", width=f"{max(width, 0):.3f}", height="10", class_=kind))
            x += width
        box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none", "class_": "bar", "role": "img"}
        svg = tag("svg", *parts, **box, aria_label=bar.words or bar.text)
        drawn.append(tag("div", *([tag("span", bar.text)] if bar.text else []), svg, class_="measure"))
    return drawn
