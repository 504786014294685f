"""The report for people: what was judged, the findings, and what could not be checked, as plain text."""

from __future__ import annotations

from envdoctor.report.closing import closing_lines, notice_lines, verbose_lines
from envdoctor.report.finding_text import finding_lines, merged
from envdoctor.report.header import environment_lines, header_lines
from envdoctor.report.names import KEY_PACKAGES
from envdoctor.report.phrases import phrase
from envdoctor.report.report import Report
from envdoctor.text.clean import clean

__all__ = ["render"]


def render(
    report: Report,
    *,
    color: bool = False,
    width: int | None = None,
    verbosity: int = 0,
    lang: str = "en",
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
    blocks: list[list[str]] = []
    compared = "revision" in report.sections
    if verbosity >= 0:
        if compared:
            from envdoctor.report.revision_text import revision_header

            blocks.append(revision_header(report, width, lang))
            if report.target.kind != "none":
                blocks.append(environment_lines(report, width, lang, verbosity))
        else:
            blocks.append(header_lines(report, width, lang, verbosity))
    for finding, items in merged(report.shown()):
        blocks.append(
            finding_lines(
                finding,
                items=items,
                color=color,
                width=width,
                lang=lang,
                verbosity=verbosity,
                probe_command=report.sections.get("probe_commands", {}).get(finding.probe),
                windows=report.facts.value("os.platform") == "windows",
            )
        )
    if compared and verbosity >= 0:
        from envdoctor.report.revision_text import revision_summary

        blocks.append(revision_summary(report, width, lang, "all" if verbosity > 0 else detail))
    if "probe" in report.sections and verbosity >= 0:
        from envdoctor.report.probe_text import probe_lines

        blocks.append(probe_lines(report, width, lang, verbosity))
    if verbosity > 0:
        blocks.append(_facts(report, width, lang))
        blocks.append(verbose_lines(report, width, lang)[1:])
    blocks.append(notice_lines(report, color, width, lang, errors_only=verbosity < 0))
    if verbosity >= 0:
        blocks.append(closing_lines(report, width, lang, verbosity))
    text = "\n\n".join("\n".join(line.rstrip(" ") for line in block) for block in blocks if block)
    return text + "\n" if text else ""


def _facts(report: Report, width: int | None, lang: str) -> list[str]:
    """Facts with their origin, without the packages that nobody asked about."""
    from envdoctor.report.facts_text import fact_lines

    concerned = {fact.key for finding in report.findings for fact in finding.facts}
    concerned.update(f"pkg.{name}" for name in KEY_PACKAGES)
    others = sum(fact.key.startswith("pkg.") and fact.key not in concerned for fact in report.facts)

    def wanted(key: str) -> bool:
        return not key.startswith("pkg.") or key in concerned

    lines = [phrase(lang, "facts_title")]
    lines += fact_lines(report.facts, report.registry, width=width, lang=lang, wanted=wanted, unknown=False)
    if others:
        lines.append(clean(phrase(lang, "other_packages", others)))
    return lines
