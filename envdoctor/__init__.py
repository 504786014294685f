"""envdoctor: the environment compatibility doctor for LLM fine-tuning.

The public Python API is in :mod:`envdoctor.app`; ``check``, ``diff_revision`` and the others are also reachable here,
and are imported only when they are used. This file imports nothing: ``python -m envdoctor`` reads it while the working
directory is still on the path.
"""

TYPE_CHECKING = False  # as in typing, which is not imported for it

__version__ = "0.2.0"
__all__ = [
    "Explanation",
    "Finding",
    "Guard",
    "JobError",
    "Report",
    "Sources",
    "UsageProblem",
    "Watch",
    "__version__",
    "check",
    "collect_facts",
    "compare",
    "diff_revision",
    "explain",
    "guard",
    "memory",
    "pin",
    "plan",
    "probe",
]

if TYPE_CHECKING:
    from envdoctor.app.api import Explanation, check, compare, diff_revision, explain, memory, plan, probe
    from envdoctor.app.diff_revision import pin
    from envdoctor.app.errors import JobError, UsageProblem
    from envdoctor.app.facts import Sources, collect_facts
    from envdoctor.app.guard import guard
    from envdoctor.app.guard_callback import Guard
    from envdoctor.experiments.watch import Watch
    from envdoctor.judge.finding import Finding
    from envdoctor.report.report import Report

_LAZY = {
    "Explanation check compare diff_revision explain memory plan probe": "envdoctor.app.api",
    "Finding": "envdoctor.judge.finding",
    "Guard": "envdoctor.app.guard_callback",
    "JobError UsageProblem": "envdoctor.app.errors",
    "Report": "envdoctor.report.report",
    "Sources collect_facts": "envdoctor.app.facts",
    "Watch": "envdoctor.experiments.watch",
    "guard": "envdoctor.app.guard",
    "pin": "envdoctor.app.diff_revision",
}


def __getattr__(name: str) -> object:
    for names, module in _LAZY.items():
        if name in names.split():
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
