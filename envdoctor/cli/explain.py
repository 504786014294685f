"""``envdoctor explain ID``."""

from __future__ import annotations

import os
from typing import Any

import click

from envdoctor.cli.options import configuration_of, configuration_options

__all__ = ["command"]


@click.command("explain")
@click.argument("rule_id", metavar="ID")
@configuration_options
@click.option(
    "--lang", type=click.Choice(["auto", "en", "zh"]), envvar="ENVDOCTOR_LANG", help="Language of the text.  [auto]"
)
def command(rule_id: str, **options: Any) -> int:
    """Print everything known about a rule: conditions, reasons, fixes, evidence, tests."""
    from envdoctor.app.explain import explain
    from envdoctor.cli.output import write_stdout
    from envdoctor.knowledge.matrix import load_matrix
    from envdoctor.report.color import choose_lang
    from envdoctor.report.explanation import render

    configuration = configuration_of(options["config"], options["no_config"])
    matrix = load_matrix((*configuration.matrix, *options["matrix"]))
    lang = choose_lang(options["lang"] or configuration.lang or "auto", os.environ)
    explanation = explain(rule_id, matrix)
    rule, texts, renamed_from = explanation
    write_stdout(render(rule, texts, matrix.registry, lang=lang, renamed_from=renamed_from))
    return 0
