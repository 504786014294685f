"""A comment for an issue, as a maintainer would post it: facts, findings with their evidence, what was not given."""

from collections.abc import Iterator

from envdoctor.facts.factset import public_facts, redact
from envdoctor.facts.values import Absent, Origin, Records, Unknown, spell
from envdoctor.report.closing import help_steps, is_given
from envdoctor.report.findings import finding_card, of_one_cause
from envdoctor.report.header import gpu_groups
from envdoctor.report.markdown_report import field_lines, plain
from envdoctor.report.page import Page
from envdoctor.report.report import Report

#: GitHub takes 65,536 characters; a longer comment would not be read to its end.
_LONGEST, _ROWS, _FIXES = 60_000, 40, 2
#: Facts that the issue shows: they are not asked for again, though some rules want more of them.
_SHOWN = {"model": "model.name", "recipe": "recipe_file"}
#: Facts about a recipe that are not settings.
_OF_THE_RECIPE = ("recipe_file", "recipe_key", "recipe.arguments")


def render(report: Report, lang: str = "en") -> str:
    """Return Markdown, short enough for a comment, in which no text from outside can be a link, mention or heading."""
    page = Page(report.registry, lang)
    head = page.say("What this report says of the environment, as envdoctor reads it:")
    lines = [head, "", *_table(report, page), ""]
    shown = report.shown()
    for findings in of_one_cause(finding for finding in shown if finding.severity != "note"):
        card = finding_card(findings, page)  # without the facts that were found, which the table says
        lines += [f"**{card.severity}**: {plain(case.message)} ({_code(card.name)})" for case in card.cases] + [""]
        fixes = [field for field in card.fields if field.label in ("fix", "   or")][:_FIXES]
        fields = [part for part in card.fields if part.label in ("why", "note", "proof") or part in fixes]
        lines += [*(line for field in fields for line in field_lines(field, page)), ""]
    notes = [page.message(findings[0]) for findings in of_one_cause(f for f in shown if f.severity == "note")]
    lines += [*(f"- {plain(note)}" for note in notes), ""] if notes else []
    failed = [notice.text for notice in report.notices if notice.level == "error"]
    lines += [*(f"- {plain(redact(page.sentence(text)))}" for text in failed), ""] if failed else []
    if not shown and not failed:
        lines += [page.say("Nothing in it is known to be wrong; {n} rule(s) were checked.", report.rules_checked), ""]
    lines += _missing(report, page)
    text = "\n".join(lines)
    if len(text) > _LONGEST:
        text = text[:_LONGEST].rpartition("\n\n")[0] + "\n\n" + page.say("The rest is left out.")
    return text.rstrip("\n") + "\n"


def _table(report: Report, page: Page) -> Iterator[str]:
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
        yield f"| {plain(page.name(key))} | {_code(words)} | {line} |"
    if len(rows) > _ROWS:
        yield f"| {page.say('{n} more fact(s)', len(rows) - _ROWS)} | | |"


def _missing(report: Report, page: Page) -> Iterator[str]:
    """Yield the help that would make more rules decidable, with its command, and the parts that could not be read."""
    steps = [(name, count) for names, count in help_steps(report.not_checked) for name in names]
    questions = []
    for name, count in dict(reversed(steps)).items():
        advice = report.registry.help_texts.get(name, {})
        asks, keys = advice.get("asks"), advice.get("keys", ())
        shown = name in _SHOWN and report.facts.known(_SHOWN[name])
        if asks and not shown and not (keys and all(is_given(report, key) for key in keys)):
            more = page.say("{n} more rule(s)", count)
            questions.append((-count, f"- {page.bracket(asks.get(page.lang, asks['en']), more)}"))
    unread = [notice.text for notice in report.notices if notice.level == "warning"]
    if questions or unread:
        yield page.say("Not given, or not to be read from it:")
        yield ""
    yield from (f"- {plain(redact(page.sentence(text)))}" for text in unread)
    yield from (line for _, line in sorted(questions))


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "/") + "`"
