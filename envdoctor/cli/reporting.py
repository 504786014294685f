"""Options and steps of every command that ends in a report: the gate, the formats, the files, the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envdoctor.cli.options import CommandOptions, Option, Options, lang_option
from envdoctor.report.formats import names

if TYPE_CHECKING:
    from envdoctor.app.configuration import Configuration
    from envdoctor.judge.policy import Known, Policy
    from envdoctor.report.report import Report

#: The gate, and how the report is written.
report_options = Options(
    Option(
        "--fail-on",
        "Lowest severity that fails the run.  [error]",
        choices=("error", "warning", "note"),
        variable="ENVDOCTOR_FAIL_ON",
    ),
    Option(
        "--fail-confidence",
        "Lowest confidence that fails the run.  [reported]",
        choices=("reproduced", "upstream", "reported", "inferred"),
        variable="ENVDOCTOR_FAIL_CONFIDENCE",
    ),
    Option("--exit-zero", "Exit 0 although there are findings.", kind="flag"),
    Option("--baseline", "Findings that are known do not fail the run.", "FILE", kind="path"),
    Option("--write-baseline", "Accept what is found; beside --baseline only drop what is gone.", "FILE", kind="path"),
    Option("--only-new", "Show only what is not in the baseline.", kind="flag"),
    Option("--format", choices=tuple(names()), default="terminal", name="format_"),
    Option("--output", "Write a report to a file as well.", "FORMAT=FILE", multiple=True, name="outputs"),
    Option("--color", choices=("auto", "always", "never"), default="auto"),
    lang_option,
    Option("-v, --verbose", "Also facts with their origin, and rules that were not checked.", kind="count"),
    Option("-q, --quiet", "Only findings; twice: nothing but the exit code.", kind="count"),
)


class CommandRun(CommandOptions):
    """What every command that judges does with its options: a wrong one is said before the work, not after it.

    ``judging`` is what commands of :mod:`envdoctor.app` take. Raises :class:`~envdoctor.app.errors.UsageProblem`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        from envdoctor.cli.output import parse_outputs

        self._outputs = parse_outputs(options["outputs"], names())
        super().__init__(options)
        self._policy = _policy(self.configuration, options)
        self.judging = {"policy": self._policy, "matrix": self.matrix, "exit_zero": options["exit_zero"]}

    def present(self, report: Report, *, detail: str = "usual") -> int:
        """Write the report's files, then the report itself; the exit code of the run."""
        from envdoctor.cli.output import write_stdout
        from envdoctor.report.formats import load
        from envdoctor.report.report import Notice

        options = self._options
        verbosity = options["verbose"] - options["quiet"]
        if self.taken:
            report = report.changed(notices=(*(Notice("note", text) for text in self.taken), *report.notices))
        if verbosity > 0:
            report = report.changed(all_facts=True)
        if options["write_baseline"] is not None:
            report = _accepted(report, self._policy.baseline, options["write_baseline"])
        if options["only_new"]:
            shown = tuple(finding for finding in report.findings if finding.baseline != "unchanged" or finding.gate)
            report = report.changed(findings=shown)
        lang = self.lang
        for name, path in self._outputs:
            from envdoctor.app.whole_file import write_whole

            write_whole(path, load(name)(report, lang))
        if options["format_"] != "terminal":
            write_stdout(load(options["format_"])(report, lang))
        elif verbosity > -2:
            write_stdout(_on_terminal(report, lang, options["color"], verbosity, detail))
        return report.exit_code


def _policy(configuration: Configuration, options: dict[str, Any]) -> Policy:
    """Return the gate and what the project accepts: command line over environment variables over configuration."""
    from envdoctor.app.errors import UsageProblem
    from envdoctor.judge.policy import Policy

    baseline = None
    if options["baseline"] is not None:
        from envdoctor.app.baseline import read_baseline

        baseline = read_baseline(options["baseline"])
    if options["only_new"] and options["baseline"] is None:
        raise UsageProblem("--only-new needs --baseline FILE, which says what is old")
    return Policy(
        fail_on=options["fail_on"] or configuration.fail_on or "error",
        fail_confidence=options["fail_confidence"] or configuration.fail_confidence or "reported",
        ignores=configuration.ignores,
        severities=configuration.severities,
        baseline=baseline,
    )


def _accepted(report: Report, before: tuple[Known, ...] | None, path: Path) -> Report:
    """Return the report after its findings were written as a baseline; they no longer fail this run."""
    from envdoctor.app.baseline import accepted, write_baseline

    known = write_baseline(path, report, before)
    shown = len(known) if before is not None else min(len(known), len(list(report.shown())))
    behind = f", and {len(known) - shown} that they stand for" if shown < len(known) else ""
    print(f"{path}: {shown} finding(s) accepted{behind}", file=sys.stderr)
    return report if before is not None else accepted(report, known)


def _on_terminal(report: Report, lang: str, color: str, verbosity: int, detail: str) -> str:
    from envdoctor.report.color import choose_width, decide, in_notebook
    from envdoctor.report.terminal_report import render

    isatty, notebook = sys.stdout.isatty(), in_notebook(sys.modules)
    return render(
        report,
        lang,
        color=decide(color, os.environ, isatty, notebook=notebook),
        width=choose_width(os.environ, isatty, notebook=notebook),
        verbosity=verbosity,
        detail=detail,
    )
