"""The report as one HTML page for people: no script, nothing from outside; for a phone, paper, and the dark.

``html_report.html`` says how blocks are written; every text in it is escaped, and nothing is drawn that does not stand
in the page itself.
"""

import os
from base64 import b64encode
from collections import Counter

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES
from envdoctor.report.blocks import Block, Folded, Paragraph, Section, Table
from envdoctor.report.closing import advices, banners, beyond, matrix_words, not_shown, notices, unjudged
from envdoctor.report.findings import cards, foremost, plan_sections
from envdoctor.report.header import header
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.report.terminal_report import about, sections

#: Messages and commands of one cause that are listed, and rows of a table.
_MOST, _MOST_ROWS = 50, 1_000
_HEADINGS = {"error": "Errors", "warning": "Warnings", "note": "Notes"}


def render(report: Report, lang: str = "en") -> str:
    """Return the page. Its policy allows its own style and nothing else, so that no text in it can do anything."""
    from hashlib import sha256

    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    page = Page(report.registry, lang)
    templates = FileSystemLoader(os.path.dirname(__file__))
    environment = Environment(loader=templates, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.tests["a"] = lambda block, name: type(block).__name__ == name
    style = templates.get_source(environment, "html_report.css")[0]
    shown = Counter(finding.severity for finding in report.shown())
    tiles = [(shown[level], page.say(_HEADINGS[level]), level) for level in reversed(SEVERITIES)]
    tiles += [(report.rules_checked, page.say("rules checked"), "plain")]
    tiles += [(len(report.not_checked), page.say("not checked"), "plain")]
    # Before the findings: what a reader might miss, and what was judged.
    warned = [notice for notice in notices(report, page) if notice.level != "note"]
    first = banners([*unjudged(report, page), *beyond(report, page)], page)
    compared = about(report, page)[:1] if report.revision is not None else []
    judged = [header(report, page)] if report.target.kind != "none" else []
    # Folded away: rules that could not be checked, accepted findings, findings of the same cause.
    folded: list[Block] = [*map(Paragraph, advices(report, page))]
    for section in not_shown(report, page):
        rows = sum(len(block.rows) for block in section.blocks if isinstance(block, Table))
        folded.append(Folded(f"{section.title} ({rows})", section.blocks))
    folded += [notice for notice in notices(report, page) if notice.level == "note"]
    open_ = page.say("{n} rule(s) could not be checked", len(report.not_checked)) if report.not_checked else ""
    last = [Section(open_, folded)] if folded else []
    leading, others = (cards(report, page, findings) for findings in foremost(report))
    causes = [(page.say(_HEADINGS[level]), [card for card in leading if card.severity == level]) for level in _HEADINGS]
    foot = (f"envdoctor {__version__}", matrix_words(report, page), page.say("exit code {code}", code=report.exit_code))
    return environment.get_template("html_report.html").render(
        page=page,
        style=style,
        digest=b64encode(sha256(style.encode()).digest()).decode(),
        title=f"envdoctor {report.command}: {report.target.path or report.target.kind}",
        name=f"envdoctor {report.command}",
        skip=page.say("Findings"),
        verdict=_verdict(report, page),
        tiles=tiles,
        first=[Section("", [*first.blocks, *warned]), *compared, *judged],
        causes=[(heading, alike) for heading, alike in causes if alike],
        others=others,
        more=page.say("{n} more finding(s)", sum(card.times for card in others)),
        nothing=page.say("No findings"),
        last=[*plan_sections(report, page), *sections(report, page), *last],
        foot=" · ".join(foot),
        most=_MOST,
        most_rows=_MOST_ROWS,
    )


def _verdict(report: Report, page: Page) -> tuple[str, str]:
    """Return whether the run may go on, as the name of a style and in words."""
    at_gate = sum(finding.gate for finding in report.findings)
    if report.status != "complete":
        return "incomplete", page.say("Incomplete: the check could not be finished.")
    if report.exit_code:
        return "stop", page.say("Stopped by {n} finding(s)", at_gate)
    if report.revision is not None and report.revision.unjudged and not at_gate:
        return "incomplete", page.say("{n} change(s) not judged", len(report.revision.unjudged))
    more = f"--exit-zero; {page.say('{n} at the gate', n=at_gate)}" if at_gate else ""
    return "go", page.bracket(page.say("Nothing stops this run"), more)
