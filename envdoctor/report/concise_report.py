"""The report with one line a finding, as compilers write theirs, for logs and editors."""

from envdoctor.report.closing import counts_line, first_line, unjudged
from envdoctor.report.findings import is_known
from envdoctor.report.page import Page
from envdoctor.report.report import Report


def render(report: Report, lang: str = "en") -> str:
    """Return lines ``train.yaml:9: error[id] message``, then the counts; without a place a line begins with ``-``.
    Why the run is incomplete stands in front."""
    page = Page(report.registry, lang)
    gaps = unjudged(report, page) if report.status != "complete" else []
    lines = [*first_line(report, page), *(page.labelled(*gap) for gap in gaps)]
    lines += [f"{level}: {page.sentence(text)}" for level, text in report.notices if level != "note"]
    for finding in report.shown():
        where = str(finding.locations[0]) if finding.locations else "-"
        mark = f" ({page.say('in the baseline')})" if is_known(finding) else ""
        lines.append(f"{where}: {finding.severity}[{finding.id}] {page.message(finding)}{mark}")
    return "\n".join([*lines, counts_line(report, page)]) + "\n"
