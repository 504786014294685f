"""The report as Markdown, for a job summary or a comment: findings open, what could not be checked folded away.

GitHub drops a job summary of more than 1 MiB altogether (actions/runner: FileCommandManager.cs).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.judge.finding import Finding
from envdoctor.report.closing import advices, counts_line, first_words
from envdoctor.report.finding_text import finding_notes, fix_words, found_words, of_one_cause, offered
from envdoctor.report.header import header_lines
from envdoctor.report.page import Page
from envdoctor.report.plan_text import adds_to_fixes, plan_lines
from envdoctor.report.report import Report
from envdoctor.report.terminal_report import section_lines

#: Bytes of the whole text.
_LARGEST = 900 * 1024
#: Messages and commands of one cause that are listed.
_MOST = 20
_SIGNS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def render(report: Report, lang: str = "en") -> str:
    """The whole report; findings that do not fit any more are counted."""
    page = Page(report.registry, lang)
    blocks = [f"## envdoctor {report.command}", f"**{plain(counts_line(report, page))}**"]
    blocks += [f"> {plain(label)}: {plain(text)}" for label, text in first_words(report, page)]
    blocks.append(_fenced(header_lines(report, page)))
    size = 0
    causes = of_one_cause(report.shown())
    for number, findings in enumerate(causes):
        block = _cause(findings, page)
        size += len(block.encode())
        if size > _LARGEST // 2:
            blocks.append(plain(page.say("{n} more finding(s)", sum(map(len, causes[number:])))))
            break
        blocks.append(block)
    plan = plan_lines(report, report.plan, page) if report.plan is not None and adds_to_fixes(report) else []
    blocks += [_fenced(lines) for lines in (plan, *section_lines(report, page)) if lines]
    blocks += [f"{_SIGNS.get(level, '')} {plain(page.sentence(text))}" for level, text in report.notices[:100]]
    helps = [f"- {plain(text)}" for text in advices(report, page)]
    if helps:
        summary = plain(page.say("{n} rule(s) could not be checked", len(report.not_checked)))
        blocks.append("\n".join(["<details><summary>" + summary + "</summary>\n", *helps, "\n</details>"]))
    return "\n\n".join(blocks) + "\n"


def _cause(findings: Sequence[Finding], page: Page) -> str:
    """Findings of one cause: what they say, what was found, why, what to do, the proof."""
    finding = findings[0]
    lines = [f"### {_SIGNS[finding.severity]} {finding.severity}: `{_code(finding.id)}`", ""]
    for one in findings[:_MOST]:
        places = ", ".join(f"`{_code(str(place))}`" for place in one.locations)
        found = plain(page.separated(found_words(one, page.message(one), page)))
        lines.append(f"- **{plain(page.message(one))}**" + (f" ({places})" if places else ""))
        lines += [f"  <br>{found}"] if found else []
    if len(findings) > _MOST:
        lines.append(f"- {plain(page.say('{n} more', n=len(findings) - _MOST))}")
    lines += ["", plain(finding.why.in_language(page.lang))]
    lines += [f"- {plain(note)}" for note in finding_notes(finding, page)]
    for fix, commands in offered(findings):
        lines += ["", f"**{plain(fix_words(fix, page))}**"]
        lines += ["", _fenced(commands[:_MOST], "sh")] if commands else []
    links = [f"{source.kind}: <{source.url}>" for source in finding.evidence if _is_address(source.url)]
    lines += ["", f"{finding.confidence}; " + ", ".join(links)] if links else []
    return "\n".join(lines)


def _is_address(url: str) -> bool:
    return re.fullmatch(r"https://[^\s<>]+", url) is not None


def plain(text: str) -> str:
    """The text with nothing in it that Markdown, HTML or GitHub (``@name``, ``#1``) would take for its own."""
    text = re.sub(r"([\\`*_{}\[\]#|~$!])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(text: str) -> str:
    return text.replace("`", "'").replace("|", "\\|")


def _fenced(lines: Sequence[str], language: str = "") -> str:
    """Lines as they are, behind a fence that none of them can close."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + language, *lines, fence])
