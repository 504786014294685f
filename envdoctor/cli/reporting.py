"""Options and steps of every command that ends in a report: the gate, the formats, the files, the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from envdoctor.report.formats import names

if TYPE_CHECKING:
    from envdoctor.app.configuration import Configuration
    from envdoctor.judge.policy import Known, Policy
    from envdoctor.report.report import Report

__all__ = ["policy_of", "present", "report_options"]

Function = TypeVar("Function", bound=Callable[..., Any])

_SEVERITIES = ["error", "warning", "note"]
_FILE = click.Path(path_type=Path)
_CONFIDENCES = ["reproduced", "upstream", "reported", "inferred"]


def report_options(function: Function) -> Function:
    """The gate, and how the report is written."""
    for option in reversed(
        [
            click.option(
                "--fail-on",
                type=click.Choice(_SEVERITIES),
                envvar="ENVDOCTOR_FAIL_ON",
                help="Lowest severity that fails the run.  [error]",
            ),
            click.option(
                "--fail-confidence",
                type=click.Choice(_CONFIDENCES),
                envvar="ENVDOCTOR_FAIL_CONFIDENCE",
                help="Lowest confidence that fails the run.  [reported]",
            ),
            click.option("--exit-zero", is_flag=True, help="Exit 0 although there are findings."),
            click.option(
                "--baseline",
                metavar="FILE",
                type=_FILE,
                help="Findings that are known do not fail the run.",
            ),
            click.option(
                "--write-baseline",
                metavar="FILE",
                type=_FILE,
                help="Accept what is found; beside --baseline only drop what is gone.",
            ),
            click.option("--only-new", is_flag=True, help="Show only what is not in the baseline."),
            click.option("--format", "format_", type=click.Choice(names()), default="terminal", show_default=True),
            click.option("--statistics", "format_", flag_value="statistics", help="Only counts by rule."),
            click.option(
                "--output", "outputs", metavar="FORMAT=FILE", multiple=True, help="Write a report to a file as well."
            ),
            click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True),
            click.option(
                "--lang",
                type=click.Choice(["auto", "en", "zh"]),
                envvar="ENVDOCTOR_LANG",
                help="Language of the text.  [auto]",
            ),
            click.option(
                "-v", "--verbose", count=True, help="Also facts with their origin, and rules that were not checked."
            ),
            click.option("-q", "--quiet", count=True, help="Only findings; twice: nothing but the exit code."),
        ]
    ):
        function = option(function)
    return function


def policy_of(configuration: Configuration, options: dict[str, Any]) -> Policy:
    """The gate and what the project accepts: command line over environment variables over configuration."""
    from envdoctor.judge.policy import Policy

    baseline = None
    if options["baseline"] is not None:
        from envdoctor.app.baseline import read_baseline

        baseline = read_baseline(options["baseline"])
    if options["only_new"] and options["baseline"] is None:
        raise click.UsageError("--only-new needs --baseline FILE, which says what is old")
    return Policy(
        fail_on=options["fail_on"] or configuration.fail_on or "error",
        fail_confidence=options["fail_confidence"] or configuration.fail_confidence or "reported",
        ignores=configuration.ignores,
        severities=configuration.severities,
        baseline=baseline,
    )


def present(
    report: Report, configuration: Configuration, policy: Policy, options: dict[str, Any], *, detail: str = "usual"
) -> int:
    """Write the report's files, then the report itself; the exit code of the run."""
    from envdoctor.cli.output import parse_outputs, write_stdout
    from envdoctor.report.color import choose_lang
    from envdoctor.report.formats import load

    verbosity = options["verbose"] - options["quiet"]
    if verbosity > 0:
        report = replace(report, all_facts=True)
    if options["write_baseline"] is not None:
        report = _accepted(report, policy.baseline, options["write_baseline"])
    if options["only_new"]:
        report = replace(
            report, findings=tuple(one for one in report.findings if one.baseline != "unchanged" or one.gate)
        )
    lang = choose_lang(options["lang"] or configuration.lang or "auto", os.environ, sys.stdout.encoding)
    for name, path in parse_outputs(options["outputs"], names()):
        from envdoctor.app.whole_file import write_whole

        write_whole(path, load(name)(report, lang))
    if options["format_"] != "terminal":
        write_stdout(load(options["format_"])(report, lang))
    elif verbosity > -2:
        write_stdout(_on_terminal(report, lang, options["color"], verbosity, detail))
    return report.exit_code


def _accepted(report: Report, before: tuple[Known, ...] | None, path: Path) -> Report:
    """The report after its findings were written as a baseline; they fail this run no more."""
    from envdoctor.app.baseline import accepted, write_baseline

    known = write_baseline(path, report, before)
    click.echo(f"{path}: {len(known)} finding(s) accepted", err=True)
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
