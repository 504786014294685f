"""``envdoctor check``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from envdoctor.cli.options import configuration_of, configuration_options, source_options, sources_of
from envdoctor.report.formats import names

if TYPE_CHECKING:
    from envdoctor.report.report import Report

__all__ = ["command"]

_SEVERITIES = ["error", "warning", "note"]
_CONFIDENCES = ["reproduced", "upstream", "reported", "inferred"]


@click.command("check")
@source_options
@configuration_options
@click.option(
    "--fail-on",
    type=click.Choice(_SEVERITIES),
    envvar="ENVDOCTOR_FAIL_ON",
    help="Lowest severity that fails the run.  [error]",
)
@click.option(
    "--fail-confidence",
    type=click.Choice(_CONFIDENCES),
    envvar="ENVDOCTOR_FAIL_CONFIDENCE",
    help="Lowest confidence that fails the run.  [reported]",
)
@click.option("--require", metavar="FACTS", multiple=True, help="Exit 3 unless these are known (gpu,model).")
@click.option("--exit-zero", is_flag=True, help="Exit 0 although there are findings.")
@click.option("--format", "format_", type=click.Choice(names()), default="terminal", show_default=True)
@click.option("--output", "outputs", metavar="FORMAT=FILE", multiple=True, help="Write a report to a file as well.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option(
    "--lang", type=click.Choice(["auto", "en", "zh"]), envvar="ENVDOCTOR_LANG", help="Language of the text.  [auto]"
)
@click.option("-v", "--verbose", count=True, help="Also facts with their origin, and rules that were not checked.")
@click.option("-q", "--quiet", count=True, help="Only findings; twice: nothing but the exit code.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Judge the installed environment for a model and a recipe.

    \b
    envdoctor check
    envdoctor check --model THUDM/glm-4-9b-chat-hf --set recipe.batch_size=2
    envdoctor check --python .venv/bin/python --format json
    """
    from envdoctor.app.check import check, open_matrix
    from envdoctor.cli.output import parse_outputs, write_file, write_stdout
    from envdoctor.judge.policy import Policy
    from envdoctor.report.formats import load

    outputs = parse_outputs(options["outputs"], names())
    configuration = configuration_of(options["config"], options["no_config"])
    policy = Policy(
        fail_on=options["fail_on"] or configuration.fail_on or "error",
        fail_confidence=options["fail_confidence"] or configuration.fail_confidence or "reported",
        ignores=configuration.ignores,
        severities=configuration.severities,
    )
    named = [name.strip() for text in (*configuration.require, *options["require"]) for name in text.split(",")]
    report = check(
        sources_of(configuration, options),
        policy=policy,
        matrix=open_matrix((*configuration.matrix, *options["matrix"])),
        require=[name for name in named if name],
        exit_zero=options["exit_zero"],
    )
    lang = options["lang"] or configuration.lang or "auto"
    verbosity = options["verbose"] - options["quiet"]
    for name, path in outputs:
        write_file(path, load(name)(report))
    if options["format_"] != "terminal":
        write_stdout(load(options["format_"])(report))
    elif verbosity > -2:
        write_stdout(_on_terminal(report, options["color"], lang, verbosity))
    return report.exit_code


def _on_terminal(report: Report, color: str, lang: str, verbosity: int) -> str:
    from envdoctor.report.color import choose_lang, choose_width, decide, in_notebook
    from envdoctor.report.terminal import render

    isatty, notebook = sys.stdout.isatty(), in_notebook(sys.modules)
    return render(
        report,
        color=decide(color, os.environ, isatty, notebook=notebook),
        width=choose_width(os.environ, isatty, notebook=notebook),
        verbosity=verbosity,
        lang=choose_lang(lang, os.environ, sys.stdout.encoding),
    )
