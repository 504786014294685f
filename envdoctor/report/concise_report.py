"""The report with one line a finding, as compilers write theirs, for logs and editors."""

from envdoctor.report.closing import counts_line, first_line, unjudged
from envdoctor.report.findings import is_known
from envdoctor.report.page import Page
from envdoctor.report.report import Report


def render(report: Report, lang: str = "en") -> str:
    """Return lines ``train.yaml:9: error[id] message``, then the counts; without a place a line begins with ``-``.
    Why the run is incomplete stands in front."""
    page = Page(report.registry, lang)
    lines = first_line(report, page)
    lines += [page.labelled(*gap) for gap in unjudged(report, page) if report.status != "complete"]
    lines += [f"{level}: {page.sentence(text)}" for level, text in report.notices if level != "note"]
    for case in report.shown():
        mark = f" ({page.say('in the baseline')})" if is_known(case) else ""
        lines.append(f"{next(iter(case.locations), '-')}: {case.severity}[{case.id}] {page.message(case)}{mark}")
    return "\n".join([*lines, counts_line(report, page)]) + "\n"
