"""The report as GitLab's Code Quality (https://docs.gitlab.com/ci/testing/code_quality/)."""

import json

from envdoctor.report.findings import PROJECT, is_known, project_place, unique_fingerprints
from envdoctor.report.page import Page
from envdoctor.report.report import Report

_SEVERITIES = {"error": "critical", "warning": "major", "note": "info"}


def render(report: Report, lang: str = "en") -> str:
    """Return a list of the shown findings. A description begins with ``check_name``, which GitLab does not show."""
    page = Page(report.registry, lang)
    shown = report.shown()
    issues = []
    for finding, fingerprint in zip(shown, unique_fingerprints(shown), strict=True):
        where = project_place(finding) or PROJECT
        mark = f" ({page.say('in the baseline')})" if is_known(finding) else ""
        about = {"description": f"{finding.id}: {page.message(finding)}{mark}", "check_name": finding.id}
        place = {"path": where.path, "lines": {"begin": where.line}}
        severity = _SEVERITIES["note" if mark else finding.severity]
        standing = {"fingerprint": fingerprint, "severity": severity, "location": place}
        issues.append({**about, **standing})
    return json.dumps(issues, ensure_ascii=True, indent=1) + "\n"
