"""``envdoctor facts``."""

from typing import Any

import click

from envdoctor.cli.options import (
    CommandOptions,
    code_option,
    configuration_options,
    recipe_option,
    source_options,
    stated_targets,
    target_options,
    words_argument,
)


@click.command("facts")
@words_argument
@source_options
@target_options
@recipe_option
@code_option
@configuration_options
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--for-issue", is_flag=True, help="A redacted Markdown block for a bug report.")
@click.option("--public", is_flag=True, help="Leave out paths and host identifiers.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Print every fact with its origin.

    \b
    envdoctor facts
    envdoctor facts --format json > here.json    # judge it elsewhere: envdoctor check --facts here.json
    envdoctor facts --for-issue                  # paste it into a bug report
    """
    from envdoctor.app.facts import collect_facts
    from envdoctor.cli.output import write_stdout

    if len(stated_targets(options)) > 1:
        raise click.UsageError("facts are those of one target: give each --target- option once")
    asked = CommandOptions(options)
    gathered = collect_facts(asked.sources(), asked.matrix, links=True)
    facts, registry = gathered.facts, asked.matrix.registry
    if options["for_issue"]:
        from envdoctor.report.issue_block import render as render_issue

        write_stdout(render_issue(facts, registry))
    elif options["format_"] == "json":
        from envdoctor.report.facts_json import render as render_json

        write_stdout(render_json(facts, registry, public=options["public"]))
    else:
        from envdoctor.report.facts_text import render as render_text
        from envdoctor.report.page import Page

        write_stdout(render_text(facts, Page(registry), gathered.target, public=options["public"]))
    for text in asked.taken:
        click.echo(f"note: {text}", err=True)
    for notice in gathered.notices:
        click.echo(f"{notice.level}: {notice.text}", err=True)
    return 0
