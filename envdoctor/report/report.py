"""The report: everything one run has to say, before any rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.judge.finding import Finding, NotChecked
from envdoctor.observe.target import Target

__all__ = ["Notice", "Report"]


@dataclass(frozen=True)
class Notice:
    """Something about the run itself: an expired ignore, an unreadable folder. ``level`` is error, warning or note."""

    level: str
    text: str


@dataclass(frozen=True)
class Report:
    """The outcome of one run.

    ``findings`` are in order (severity, effect, id, item) and hold those that gate, those that do not, the ignored and
    the superseded ones: the flags on each tell. ``status`` is incomplete when the job could not be done.
    ``rules_checked`` counts rules with a yes or a no.
    """

    command: str
    target: Target
    facts: FactSet
    registry: Registry
    matrix_version: str
    matrix_source: str
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    rules_checked: int
    exit_code: int
    status: str = "complete"
    notices: tuple[Notice, ...] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)
    elapsed_seconds: float = 0.0

    def shown(self) -> tuple[Finding, ...]:
        """Findings to show: neither ignored nor superseded."""
        return tuple(f for f in self.findings if f.ignored is None and f.superseded_by is None)
