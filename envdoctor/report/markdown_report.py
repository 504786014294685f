"""The report as Markdown, for a job summary or a comment: findings open, what could not be checked folded away.

GitHub drops a job summary of more than 1 MiB altogether (actions/runner: FileCommandManager.cs).
"""

import re
from collections.abc import Sequence
from itertools import accumulate

from envdoctor.report import blocks as document
from envdoctor.report.closing import advices, beyond, counts_line, first_line, unjudged
from envdoctor.report.findings import cards, foremost, plan_sections
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.terminal_report import about, sections

#: Bytes of the whole text; messages and commands of one cause that are listed; notices.
_LARGEST, _MOST, _MOST_NOTICES = 900 * 1024, 20, 100
_ADDRESS = r"https://[^\s<>()]+"
_SIGNS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def render(report: Report, lang: str = "en") -> str:
    """Return the whole report; findings that do not fit any more are counted."""
    page = Page(report.registry, lang)
    blocks = [f"## envdoctor {report.command}"]
    blocks += [f"**{plain(line)}**" for line in (*first_line(report, page), counts_line(report, page))]
    blocks += [f"> {plain(label)}: {plain(text)}" for label, text in (*unjudged(report, page), *beyond(report, page))]
    blocks += write(about(report, page), page)
    first, others = (cards(report, page, findings) for findings in foremost(report))
    size = 0
    texts: list[str] = []
    for number, card in enumerate([*first, *others]):
        texts.append(_card(card, page))
        size += len(texts[-1].encode())
        if size > _LARGEST // 2:
            rest = sum(other.times for other in [*first, *others][number:])
            texts[-1:] = [plain(page.say("{n} more finding(s)", rest))]
            break
    blocks += texts[: len(first)]
    blocks += _folded(page.say("{n} more finding(s)", sum(card.times for card in others)), texts[len(first) :])
    blocks += write([*plan_sections(report, page), *sections(report, page)], page)
    notices = report.notices[:_MOST_NOTICES]
    blocks += [f"{_SIGNS.get(level, '')} {plain(page.sentence(text))}" for level, text in notices]
    if len(report.notices) > _MOST_NOTICES:
        blocks.append(plain(page.say("{n} more", n=len(report.notices) - _MOST_NOTICES)))
    helps = [f"- {plain(text)}" for text in advices(report, page)]
    if helps:
        summary = page.say("{n} rule(s) could not be checked", len(report.not_checked))
        blocks += _folded(summary, ["\n".join(helps)])
    return "\n\n".join(blocks) + "\n"


def write(parts: Sequence[document.Section], page: Page) -> list[str]:
    """Return the parts as Markdown: columns and bars stand in a fence, as on a terminal."""
    texts: list[str] = []
    for part in parts:
        if not (part.blocks and isinstance(part.blocks[0], document.Diff) and not part.blocks[0].beside):
            lines = document.part_lines(part, page)
            texts += [document.fenced(lines)] if lines else []
            continue
        texts += [f"### {plain(part.title)}", *_diffs(part.blocks, page)]
    return texts


def _diffs(blocks: Sequence[document.Block], page: Page) -> list[str]:
    texts: list[str] = []
    for block in blocks:
        match block:
            case document.Diff():
                texts += [f"**{plain(block.title)}**", document.fenced(block.shown(), "diff")]
                texts += [plain(block.hint)] if block.hint else []
            case document.Folded():
                texts += _folded(block.summary, _diffs(block.blocks, page)) or [plain(block.summary)]
            case _:
                texts += [plain(line.strip()) for line in document.block_lines([block], page)]
    return texts


def _folded(summary: str, texts: Sequence[str]) -> list[str]:
    """Return the texts that fit behind a summary."""
    sizes = accumulate(len(text.encode()) for text in texts)
    fitting = [text for text, size in zip(texts, sizes, strict=True) if size < _LARGEST // 4]
    return ["\n\n".join([f"<details><summary>{plain(summary)}</summary>", *fitting, "</details>"])] if texts else []


def _card(card: document.Card, page: Page) -> str:
    lines = [f"### {_SIGNS[card.severity]} {card.severity}: `{_code(card.name)}`", ""]
    for case in card.cases[:_MOST]:
        places = ", ".join(f"`{_code(place)}`" for place in case.places)
        lines.append(f"- **{plain(case.message)}**" + (f" ({places})" if places else ""))
        lines += [f"  <br>{plain(page.separated(list(facts)))}" for facts in case.facts]
    if len(card.cases) > _MOST:
        lines.append(f"- {plain(page.say('{n} more', n=len(card.cases) - _MOST))}")
    return "\n".join([*lines, *(line for field in card.fields for line in field_lines(field, page))])


def field_lines(field: document.Field, page: Page) -> list[str]:
    """Return one field of a finding: its first content in the line of the label."""
    first, *others = (_content(content, page) for content in field.contents)
    return [f"- {plain(page.say(field.label.strip()))}: {first}", *filter(None, others)]


def _content(content: document.Content, page: Page) -> str:
    match content:
        case document.Items():
            return plain(page.separated(list(content.texts)))
        case document.Commands():
            return "\n" + document.fenced(content.lines[:_MOST], "sh") + "\n" if content.lines else ""
        case document.SourceList():
            # A link, or the text alone if Markdown would not take the address whole.
            links = [
                f"[{plain(source.kind)}]({source.url})" if re.fullmatch(_ADDRESS, source.url) else plain(source.url)
                for source in content.evidence
                if source.url.startswith("https://")
            ]
            return f"{page.separated(links)} ({content.confidence})" if links else content.confidence
        case str():
            return plain(content)
    return ""


def plain(text: str) -> str:
    """Return the text, escaped so that Markdown, HTML and GitHub (``@name``, ``#1``) see no markup in it."""
    text = re.sub(r"([\\`*_{}\[\]#|~$!])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(text: str) -> str:
    return text.replace("`", "'")
