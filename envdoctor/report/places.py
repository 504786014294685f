"""Where a finding is shown in a project: files below the working folder, as services for code review name them."""

import os
from collections import Counter
from collections.abc import Iterable

from envdoctor.facts.values import Origin
from envdoctor.judge.finding import Finding

#: Shown where a finding names no file of the project, for consumers that refuse a finding without a place.
PROJECT = Origin("pyproject.toml", 1)


def project_place(finding: Finding) -> Origin | None:
    """Return the first place to edit that lies in the project, its path with ``/`` and relative to the working folder.
    A line inside a notebook's cell is no line of the file: the first one stands for it."""
    for place in finding.locations:
        path = os.path.normpath(place.path)
        try:
            path = os.path.relpath(path) if os.path.isabs(path) else path
        except (OSError, ValueError):  # no working folder, another drive, a name that no file can have
            continue
        if not os.path.isabs(path) and path.split(os.sep)[0] != os.pardir:
            return Origin(path.replace(os.sep, "/"), place.line if place.cell is None else 1)
    return None


def unique_fingerprints(findings: Iterable[Finding]) -> list[str]:
    """Return each finding's fingerprint, numbered if several are alike: consumers drop the second of equal ones."""
    seen: Counter[str] = Counter()
    names = []
    for finding in findings:
        seen[finding.fingerprint] += 1
        count = seen[finding.fingerprint]
        names.append(finding.fingerprint if count == 1 else f"{finding.fingerprint}-{count}")
    return names
