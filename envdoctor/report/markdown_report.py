"""The report as Markdown, for a job summary or a comment: findings open, what could not be checked folded away. And a
comment for an issue, as a maintainer would post it: facts, findings with their evidence, what was not given.

GitHub drops a job summary of more than 1 MiB altogether (actions/runner: FileCommandManager.cs).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

from envdoctor.facts.factset import public_facts, redact
from envdoctor.facts.values import Absent, Origin, Records, Unknown, spell
from envdoctor.report import blocks as document
from envdoctor.report.closing import advices, beyond, counts_line, first_line, help_steps, is_given, unjudged
from envdoctor.report.findings import cards, finding_card, foremost, of_one_cause, plan_sections
from envdoctor.report.header import gpu_groups
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.terminal_report import about, sections

#: Bytes of the whole text; messages and commands of one cause that are listed; notices.
_LARGEST, _MOST, _MOST_NOTICES = 900 * 1024, 20, 100
_ADDRESS = r"https://[^\s<>()]+"
_SIGNS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}
#: GitHub takes 65,536 characters; a longer comment would not be read to its end.
_LONGEST_COMMENT, _ROWS, _FIXES = 60_000, 40, 2
#: Facts that the issue shows: they are not asked for again, though some rules want more of them.
_ISSUE_SHOWS = {"model": "model.name", "recipe": "recipe_file"}
#: Facts about a recipe that are not settings.
_OF_THE_RECIPE = ("recipe_file", "recipe_key", "recipe.arguments")


def render(report: Report, lang: str = "en") -> str:
    """Return the whole report; findings that do not fit any more are counted."""
    page = Page(report.registry, lang)
    blocks = [f"## envdoctor {report.command}"]
    blocks += [f"**{_plain(line)}**" for line in (*first_line(report, page), counts_line(report, page))]
    blocks += [f"> {_plain(label)}: {_plain(text)}" for label, text in (*unjudged(report, page), *beyond(report, page))]
    blocks += write(about(report, page), page)
    first, others = (cards(report, page, findings) for findings in foremost(report))
    size = 0
    texts: list[str] = []
    for number, card in enumerate([*first, *others]):
        texts.append(_card(card, page))
        size += len(texts[-1].encode())
        if size > _LARGEST // 2:
            rest = sum(other.times for other in [*first, *others][number:])
            texts[-1:] = [_plain(page.say("{n} more finding(s)", rest))]
            break
    blocks += texts[: len(first)]
    blocks += _folded(page.say("{n} more finding(s)", sum(card.times for card in others)), texts[len(first) :])
    blocks += write([*plan_sections(report, page), *sections(report, page)], page)
    notices = report.notices[:_MOST_NOTICES]
    blocks += [f"{_SIGNS.get(level, '')} {_plain(page.sentence(text))}" for level, text in notices]
    if len(report.notices) > _MOST_NOTICES:
        blocks.append(_plain(page.say("{n} more", n=len(report.notices) - _MOST_NOTICES)))
    helps = [f"- {_plain(text)}" for text in advices(report, page)]
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
        texts += [f"### {_plain(part.title)}", *_diffs(part.blocks, page)]
    return texts


def _diffs(blocks: Sequence[document.Block], page: Page) -> list[str]:
    texts: list[str] = []
    for block in blocks:
        match block:
            case document.Diff():
                texts += [f"**{_plain(block.title)}**", document.fenced(block.shown(), "diff")]
                texts += [_plain(block.hint)] if block.hint else []
            case document.Folded():
                texts += _folded(block.summary, _diffs(block.blocks, page)) or [_plain(block.summary)]
            case _:
                texts += [_plain(line.strip()) for line in document.block_lines([block], page)]
    return texts


def _folded(summary: str, texts: Sequence[str]) -> list[str]:
    """Return the texts that fit behind a summary."""
    sizes = accumulate(len(text.encode()) for text in texts)
    fitting = [text for text, size in zip(texts, sizes, strict=True) if size < _LARGEST // 4]
    return ["\n\n".join([f"<details><summary>{_plain(summary)}</summary>", *fitting, "</details>"])] if texts else []


def _card(card: document.Card, page: Page) -> str:
    lines = [f"### {_SIGNS[card.severity]} {card.severity}: `{_code(card.name)}`", ""]
    for case in card.cases[:_MOST]:
        places = ", ".join(f"`{_code(place)}`" for place in case.places)
        lines.append(f"- **{_plain(case.message)}**" + (f" ({places})" if places else ""))
        lines += [f"  <br>{_plain(page.separated(list(facts)))}" for facts in case.facts]
    if len(card.cases) > _MOST:
        lines.append(f"- {_plain(page.say('{n} more', n=len(card.cases) - _MOST))}")
    return "\n".join([*lines, *(line for field in card.fields for line in _field_lines(field, page))])


def _field_lines(field: document.Field, page: Page) -> list[str]:
    """Return one field of a finding: its first content in the line of the label."""
    first, *others = (_content(content, page) for content in field.contents)
    return [f"- {_plain(page.say(field.label.strip()))}: {first}", *filter(None, others)]


def _content(content: document.Content, page: Page) -> str:
    match content:
        case document.Items():
            return _plain(page.separated(list(content.texts)))
        case document.Commands():
            return "\n" + document.fenced(content.lines[:_MOST], "sh") + "\n" if content.lines else ""
        case document.SourceList():
            # A link, or the text alone if Markdown would not take the address whole.
            links = [
                f"[{_plain(source.kind)}]({source.url})" if re.fullmatch(_ADDRESS, source.url) else _plain(source.url)
                for source in content.evidence
                if source.url.startswith("https://")
            ]
            return f"{page.separated(links)} ({content.confidence})" if links else content.confidence
        case str():
            return _plain(content)
    return ""


def _plain(text: str) -> str:
    """Return the text, escaped so that Markdown, HTML and GitHub (``@name``, ``#1``) see no markup in it."""
    text = re.sub(r"([\\`*_{}\[\]#|~$!])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(text: str) -> str:
    return text.replace("`", "'")


def issue_comment(report: Report, lang: str = "en") -> str:
    """Return Markdown, short enough for a comment, in which no text from outside can be a link, mention or heading."""
    page = Page(report.registry, lang)
    head = page.say("What this report says of the environment, as envdoctor reads it:")
    lines = [head, "", *_fact_table(report, page), ""]
    shown = report.shown()
    for findings in of_one_cause(finding for finding in shown if finding.severity != "note"):
        card = finding_card(findings, page)  # without the facts that were found, which the table says
        lines += [f"**{card.severity}**: {_plain(case.message)} ({_cell(card.name)})" for case in card.cases] + [""]
        fixes = [field for field in card.fields if field.label in ("fix", "   or")][:_FIXES]
        fields = [part for part in card.fields if part.label in ("why", "note", "proof") or part in fixes]
        lines += [*(line for field in fields for line in _field_lines(field, page)), ""]
    notes = [page.message(findings[0]) for findings in of_one_cause(f for f in shown if f.severity == "note")]
    lines += [*(f"- {_plain(note)}" for note in notes), ""] if notes else []
    failed = [notice.text for notice in report.notices if notice.level == "error"]
    lines += [*(f"- {_plain(redact(page.sentence(text)))}" for text in failed), ""] if failed else []
    if not shown and not failed:
        lines += [page.say("Nothing in it is known to be wrong; {n} rule(s) were checked.", report.rules_checked), ""]
    lines += _asked(report, page)
    text = "\n".join(lines)
    if len(text) > _LONGEST_COMMENT:
        text = text[:_LONGEST_COMMENT].rpartition("\n\n")[0] + "\n\n" + page.say("The rest is left out.")
    return text.rstrip("\n") + "\n"


def _fact_table(report: Report, page: Page) -> Iterator[str]:
    facts = public_facts(report.facts, report.registry)
    order = [f"pkg.{name}" for name in report.registry.first("pkg")]
    place = {key: number for number, key in enumerate([*order, *(spec.key for spec in report.registry)])}
    rows = []
    for fact in report.facts:
        if fact.key in _OF_THE_RECIPE:
            continue
        value = facts.value(fact.key)
        is_repeated = fact.key == "python.minor" and "python.version" in facts
        if fact.source in ("given", "recipe", "preset") and not isinstance(value, Unknown) and not is_repeated:
            groups = gpu_groups(facts) if fact.key == "gpu" else []
            words = page.separated(groups) if isinstance(value, Records) else spell(value)
            if isinstance(value, Absent):
                words = page.say("not installed" if fact.key.startswith("pkg.") else "none")
            is_placed = isinstance(fact.origin, Origin) and report.target.kind == "report"
            line = str(getattr(fact.origin, "line", "")) if is_placed else ""
            rows.append((place.get(fact.key, len(place)), fact.key, words, line))
    rows.sort()
    yield f"| {page.say('fact')} | {page.say('value')} | {page.say('line')} |"
    yield "|---|---|---|"
    for _, key, words, line in rows[:_ROWS]:
        yield f"| {_plain(page.name(key))} | {_cell(words)} | {line} |"
    if len(rows) > _ROWS:
        yield f"| {page.say('{n} more fact(s)', len(rows) - _ROWS)} | | |"


def _asked(report: Report, page: Page) -> Iterator[str]:
    """Yield the help that would make more rules decidable, with its command, and the parts that could not be read."""
    steps = [(name, count) for names, count in help_steps(report.not_checked) for name in names]
    questions = []
    for name, count in dict(reversed(steps)).items():
        advice = report.registry.help_texts.get(name, {})
        asks, keys = advice.get("asks"), advice.get("keys", ())
        shown = name in _ISSUE_SHOWS and report.facts.known(_ISSUE_SHOWS[name])
        if asks and not shown and not (keys and all(is_given(report, key) for key in keys)):
            more = page.say("{n} more rule(s)", count)
            questions.append((-count, f"- {page.bracket(asks.get(page.lang, asks['en']), more)}"))
    unread = [notice.text for notice in report.notices if notice.level == "warning"]
    if questions or unread:
        yield page.say("Not given, or not to be read from it:")
        yield ""
    yield from (f"- {_plain(redact(page.sentence(text)))}" for text in unread)
    yield from (line for _, line in sorted(questions))


def _cell(text: str) -> str:
    return f"`{_code(text)}`".replace("|", "/")
