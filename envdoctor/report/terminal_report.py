"""The report for people: what was judged, the findings, and what could not be checked, as plain text."""

from collections.abc import Sequence

from envdoctor.report.blocks import Lines, Part, Section, part_lines
from envdoctor.report.closing import banners, beyond, closing, counts_line, first_line, not_shown, notices, unjudged
from envdoctor.report.header import environment, header
from envdoctor.report.page import Page
from envdoctor.report.report import Report


def render(
    report: Report,
    lang: str = "en",
    *,
    color: bool = False,
    width: int | None = None,
    verbosity: int = 0,
    detail: str = "usual",
    again: str = "",
) -> str:
    """Return the whole report with a final newline, or an empty text.

    ``width`` is the number of columns to wrap at, None for pipes. ``verbosity``: -2 nothing, -1 findings only (and why
    the run is incomplete, if it is), 0 the report, 1 also facts with their origin, rules that could not be checked by
    id, withheld fixes, ignored and superseded findings. ``lang`` is ``en`` or ``zh``. ``detail`` says how much of a
    comparison of revisions is told (:data:`~envdoctor.report.revision_section.DETAILS`). ``again`` is the command that
    lists the changes which end the errors.
    """
    if verbosity <= -2:
        return ""
    page = Page(report.registry, lang, width, verbosity, report.facts.value("os.platform") == "windows")
    usual = verbosity >= 0
    parts: list[Part] = [banners(unjudged(report, page), page)] if usual or report.status != "complete" else []
    parts += [*about(report, page), banners(beyond(report, page), page)] if usual else []
    if report.findings:
        from envdoctor.report.findings import brief, cards, foremost, plan_sections

        first = foremost(report)[0] if detail == "usual" and verbosity == 0 else report.shown()
        parts += [brief(report, page)] if detail == "stat" else cards(report, page, first)
        parts += plan_sections(report, page) if usual and detail != "stat" else []
    parts += sections(report, page, "all" if verbosity > 0 else detail) if usual else []
    parts += [_facts(report, page), *not_shown(report, page)] if verbosity > 0 else []
    parts.append(Section("", notices(report, page)))
    parts += [Section("", closing(report, page, again))] if usual else []
    return plain_text(parts, page, color)


def concise(report: Report, lang: str = "en") -> str:
    """Return one line a finding for logs and editors, ``train.yaml:9: error[id] message``, then the counts; without a
    place a line begins with ``-``. Why the run is incomplete stands in front."""
    from envdoctor.report.findings import is_known

    page = Page(report.registry, lang)
    lines = first_line(report, page)
    lines += [page.labelled(*gap) for gap in unjudged(report, page) if report.status != "complete"]
    lines += [f"{level}: {page.sentence(text)}" for level, text in report.notices if level != "note"]
    for case in report.shown():
        mark = f" ({page.say('in the baseline')})" if is_known(case) else ""
        lines.append(f"{next(iter(case.locations), '-')}: {case.severity}[{case.id}] {page.message(case)}{mark}")
    return "\n".join([*lines, counts_line(report, page)]) + "\n"


def plain_text(parts: Sequence[Part], page: Page, color: bool = False) -> str:
    """Return the parts with a blank line between them and a final newline, or nothing."""
    texts = ["\n".join(line.rstrip(" ") for line in part_lines(part, page, color)) for part in parts]
    text = "\n\n".join(filter(None, texts))
    return text + "\n" if text else ""


def about(report: Report, page: Page) -> list[Section]:
    """Return the sections about what was judged."""
    if report.revision is None:
        return [header(report, page)]
    from envdoctor.report.revision_section import revisions

    judged = [environment(report, page)] if report.target.kind != "none" else []
    return [revisions(report.revision, report.shown(), page), *judged]


def sections(report: Report, page: Page, detail: str = "usual") -> list[Section]:
    """Return the sections of a comparison, the experiments, the training data and a prediction."""
    parts = []
    if report.revision is not None:
        from envdoctor.report.findings import foremost
        from envdoctor.report.revision_section import changed_lines, differences

        first, others = foremost(report)
        parts += changed_lines(report.revision, first, others, page, detail)
        parts.append(differences(report.revision, report.shown(), page, detail))
    if report.probe is not None:
        from envdoctor.report.run_sections import experiments

        parts.append(experiments(report.probe, page))
    if report.data is not None:
        from envdoctor.report.run_sections import lengths

        parts.append(lengths(report.data, page))
    if report.memory is not None:
        from envdoctor.report.run_sections import memory

        parts.append(memory(report.memory, page, brief=report.command == "check"))
    return parts


def _facts(report: Report, page: Page) -> Section:
    """Return the facts with their origin; of packages only the usual ones and the ones that findings rest on."""
    from envdoctor.report.facts_text import fact_lines

    concerned = {fact.key for finding in report.findings for fact in finding.facts}
    concerned.update(f"pkg.{name}" for name in report.registry.first("pkg"))
    others = sum(fact.key.startswith("pkg.") and fact.key not in concerned for fact in report.facts)
    # as many items of a list as without -v, which asks for the rules here
    lines = fact_lines(
        report.facts,
        page._replace(verbosity=0),
        is_listed=lambda key: not key.startswith("pkg.") or key in concerned,
        unknown=False,
    )
    if others:
        lines.append(page.say("{n} more package(s): envdoctor facts", others))
    return Section(page.say("Facts"), [Lines(lines)])
