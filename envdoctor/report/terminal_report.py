"""The report for people: what was judged, the findings, and what could not be checked, as plain text."""

from __future__ import annotations

from envdoctor.report.closing import beyond_lines, closing_lines, notice_lines, unjudged_lines, verbose_lines
from envdoctor.report.header import environment_lines, header_lines
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
) -> str:
    """The whole report, with a final newline, or nothing at all.

    ``width`` is the number of columns to wrap at, None for pipes. ``verbosity``: -2 nothing, -1 findings only (and why
    the run is incomplete, if it is), 0 the report, 1 also facts with their origin, rules that could not be checked by
    id, withheld fixes, ignored and superseded findings. ``lang`` is ``en`` or ``zh``. ``detail`` says how much of a
    comparison of revisions is told (:data:`~envdoctor.report.revision_text.DETAILS`).
    """
    if verbosity <= -2:
        return ""
    page = Page(report.registry, lang, width, verbosity)
    blocks: list[list[str]] = [unjudged_lines(report, page, color)]
    if verbosity >= 0 and report.revision is None:
        blocks.append(header_lines(report, page))
    elif verbosity >= 0:
        from envdoctor.report.revision_text import revision_header

        blocks.append(revision_header(report, page))
        if report.target.kind != "none":
            blocks.append(environment_lines(report, page))
    if verbosity >= 0:
        blocks.append(beyond_lines(report, page, color))
    if report.findings:
        blocks += _findings(report, page, color)
    if verbosity >= 0:
        blocks += section_lines(report, page, "all" if verbosity > 0 else detail)
    if verbosity > 0:
        blocks.append(_facts(report, page))
        blocks.append(verbose_lines(report, page))
    blocks.append(notice_lines(report, page, color))
    if verbosity >= 0:
        blocks.append(closing_lines(report, page))
    text = "\n\n".join("\n".join(line.rstrip(" ") for line in block) for block in blocks if block)
    return text + "\n" if text else ""


def section_lines(report: Report, page: Page, detail: str = "usual") -> list[list[str]]:
    """What a comparison, the experiments, the training data and a prediction add to the findings, a block each."""
    blocks = []
    if report.revision is not None:
        from envdoctor.report.revision_text import revision_summary

        blocks.append(revision_summary(report, page, detail))
    if report.probe is not None:
        from envdoctor.report.probe_text import probe_lines

        blocks.append(probe_lines(report.probe, page))
    if report.data is not None:
        from envdoctor.report.data_text import data_lines

        blocks.append(data_lines(report.data, page))
    if report.memory is not None:
        from envdoctor.report.memory_text import memory_lines

        blocks.append(memory_lines(report.memory, page, brief=report.command == "check"))
    return blocks


def _findings(report: Report, page: Page, color: bool) -> list[list[str]]:
    """The findings of one cause together, and the plan for all of them."""
    from envdoctor.report.finding_text import finding_lines, of_one_cause
    from envdoctor.report.plan_text import adds_to_fixes, plan_lines

    windows = report.facts.value("os.platform") == "windows"
    blocks: list[list[str]] = []
    for findings in of_one_cause(report.shown()):
        command = report.probe_commands.get(findings[0].probe or "")
        blocks.append(finding_lines(findings, page, color=color, probe_command=command, windows=windows))
    if report.plan is not None and page.verbosity >= 0 and adds_to_fixes(report):
        blocks.append(plan_lines(report, report.plan, page, windows=windows))
    return blocks


def _facts(report: Report, page: Page) -> list[str]:
    """Facts with their origin, without the packages that nobody asked about."""
    from envdoctor.report.facts_text import fact_lines

    concerned = {fact.key for finding in report.findings for fact in finding.facts}
    concerned.update(f"pkg.{name}" for name in report.registry.first("pkg"))
    others = sum(fact.key.startswith("pkg.") and fact.key not in concerned for fact in report.facts)

    def wanted(key: str) -> bool:
        return not key.startswith("pkg.") or key in concerned

    # as many items of a list as without -v, which asks for the rules here
    lines = [page.say("Facts"), *fact_lines(report.facts, page._replace(verbosity=0), wanted=wanted, unknown=False)]
    if others:
        lines.append(page.say("{n} more package(s): envdoctor facts", others))
    return lines
