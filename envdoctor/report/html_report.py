"""The report as one HTML page for people: no script, nothing from outside; for a phone, paper, and the dark."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence

from envdoctor import __version__
from envdoctor.judge.finding import SEVERITIES, Evidence, Finding
from envdoctor.report.closing import advices, first_words, missing_words
from envdoctor.report.finding_text import finding_notes, fix_words, found_words, of_one_cause, offered
from envdoctor.report.header import at_a_glance
from envdoctor.report.html_parts import Html, chips, folded, table, tag
from envdoctor.report.html_sections import memory_section, probe_section, revision_section
from envdoctor.report.page import Page
from envdoctor.report.plan_text import adds_to_fixes, plan_ends
from envdoctor.report.report import Report

#: Messages of one cause that are listed.
_MOST = 50
_NAMES = {"error": "error", "warning": "warning", "note": "note"}
_HEADINGS = {"error": "Errors", "warning": "Warnings", "note": "Notes"}


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
    return tag(
        "header",
        tag("p", f"envdoctor {report.command}", class_="name"),
        tag("h1", verdict, class_=kind),
        tag(
            "ul",
            *(
                tag("li", tag("b", str(number)), tag("span", name), class_=f"{level} {'none' if not number else ''}")
                for number, name, level in tiles
            ),
            class_="tiles",
        ),
    )


def _main(report: Report, page: Page) -> Html:
    glance = [tag("div", tag("dt", name), tag("dd", chips(items))) for name, items in at_a_glance(report, page)]
    warned = [tag("p", f"{label}: {text}", class_="banner") for label, text in first_words(report, page)]
    warned += [
        tag("p", page.sentence(text), class_=f"banner {level}") for level, text in report.notices if level != "note"
    ]
    parts = [*warned, tag("section", tag("dl", *glance), class_="card glance")]
    if report.revision is not None:
        parts.append(revision_section(report, report.revision, page))
    if report.data is not None:
        from envdoctor.report.data_text import data_lines

        parts.append(tag("section", tag("pre", "\n".join(data_lines(report.data, page)), tabindex="0"), class_="card"))
    if report.memory is not None:
        parts.append(memory_section(report.memory, page))
    parts.append(tag("div", *_findings(report, page), id="findings"))
    if report.plan is not None and adds_to_fixes(report):
        plan = [tag("h2", plan_ends(report, report.plan, page)), *_commands(report.plan.commands)]
        parts.append(tag("section", *plan, class_="card"))
    if report.probe is not None:
        parts.append(probe_section(report.probe, page))
    parts += _rest(report, page)
    foot = page.say("Matrix {version} ({source}).", version=report.matrix_version, source=report.matrix_source)
    code = page.say("exit code {code}", code=report.exit_code)
    return tag("main", *parts, tag("footer", f"envdoctor {__version__} · {foot} · {code}"))


def _findings(report: Report, page: Page) -> list[Html]:
    causes = of_one_cause(report.shown())
    if not causes:
        return [tag("p", page.say("No findings"), class_="card quiet")]
    sections = []
    for severity in reversed(SEVERITIES):
        cards = [_cause(report, found, page) for found in causes if found[0].severity == severity]
        if cards:
            heading = tag("h2", page.say(_HEADINGS[severity]), tag("small", str(len(cards))))
            sections.append(tag("section", heading, *cards))
    return sections


def _cause(report: Report, findings: Sequence[Finding], page: Page) -> Html:
    """The card of one cause: what is wrong, what was found, why, what to do, and the proof."""
    finding = findings[0]
    labels = [tag("b", page.say(_NAMES[finding.severity]), class_="level"), tag("code", finding.id)]
    more = [finding.effect, finding.confidence] + ([page.say("at the gate")] if finding.gate else [])
    card = [tag("p", *labels, *(tag("span", word) for word in more), class_="labels")]
    for one in findings[:_MOST]:
        message = page.message(one)
        card.append(tag("h3", message))
        places = [tag("code", str(place)) for place in one.locations]
        card += [tag("p", *places, class_="places")] if places else []
        found = found_words(one, message, page)
        card += [chips(found)] if found else []
    if len(findings) > _MOST:
        card.append(tag("p", page.say("{n} more", n=len(findings) - _MOST)))
    why = finding.why.in_language(page.lang)
    card += [tag("p", why)] if why else []
    card += [tag("p", note, class_="note") for note in finding_notes(finding, page)]
    card += _fixes(findings, page)
    probe = report.probe_commands.get(finding.probe or "")
    card += [tag("h4", page.say("What settles it")), *_commands([probe])] if probe else []
    if finding.evidence:
        proof = [tag("li", *_source(source, page)) for source in finding.evidence]
        card += [tag("h4", page.say("proof")), tag("ul", *proof, class_="proof")]
    return tag("article", *card, class_=f"card {finding.severity}", id=f"finding-{finding.fingerprint}")


def _fixes(findings: Sequence[Finding], page: Page) -> list[Html]:
    items = [
        tag("li", tag("p", fix_words(fix, page)), *_commands(commands[:_MOST])) for fix, commands in offered(findings)
    ]
    return [tag("h4", page.say("fixes")), tag("ol", *items)] if items else []


def _commands(commands: Sequence[str]) -> list[Html]:
    """Commands that a click selects whole."""
    return [tag("pre", "\n".join(commands), tabindex="0")] if commands else []


def _source(source: Evidence, page: Page) -> list[str]:
    shown = source.url.removeprefix("https://")
    address: str = tag("a", shown, href=source.url, rel="noreferrer") if source.url.startswith("https://") else shown
    checked = page.say("checked {date}", date=source.checked) if source.checked else ""
    return [address, " ", page.bracket(source.shows, checked)]


def _rest(report: Report, page: Page) -> list[Html]:
    """What is folded away: rules that could not be checked, what was accepted, what has the same cause."""
    parts = []
    if report.not_checked:
        helps = tag("ul", *(tag("li", text) for text in advices(report, page)))
        rows = [(entry.id, entry.severity, missing_words(entry, page)) for entry in report.not_checked]
        head = (page.say("rule"), page.say("severity"), page.say("Not checked"))
        text = page.say("{n} rule(s) could not be checked", len(report.not_checked))
        parts.append(
            tag(
                "section",
                tag("h2", text),
                helps,
                folded(page.say("{n} rule(s)", len(rows)), table(head, rows)),
                class_="card",
            )
        )
    ignored = [(one.id, page.message(one), one.ignored) for one in report.findings if one.ignored is not None]
    twins = [
        (one.id, page.message(one), one.superseded_by)
        for one in report.findings
        if one.superseded_by is not None and one.ignored is None
    ]
    notes = [page.sentence(text) for level, text in report.notices if level == "note"]
    head = (page.say("rule"), "", "")
    folds = [folded(page.say("Ignored") + f" ({len(ignored)})", table(head, ignored))] if ignored else []
    folds += (
        [folded(page.say("Same cause as another finding") + f" ({len(twins)})", table(head, twins))] if twins else []
    )
    folds += [tag("p", note) for note in notes]
    return [*parts, tag("section", *folds, class_="card quiet")] if folds else parts
