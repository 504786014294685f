"""``envdoctor diff-revision``."""

from typing import Any

import click

from envdoctor.cli.options import configuration_options, environment_options, hash_option, hub_options
from envdoctor.cli.reporting import CommandRun, report_options

#: How much of the changes is told, by option: the first one that was given decides.
_DETAILS = {"tensors": "all", "patch": "patch", "stat": "stat"}


@click.command("diff-revision")
@click.argument("repo", metavar="REPO|DIR")
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--stat", is_flag=True, help="A line for each finding, and counts of changes.")
@click.option("--patch", is_flag=True, help="Every changed line of code and templates.")
@click.option("--tensors", is_flag=True, help="Every change, every tensor pattern.")
@click.option("--values", is_flag=True, help="Read weights: which tensors differ, and by how much.")
@click.option(
    "--max-values",
    type=click.IntRange(1, 10_000),
    metavar="GB",
    default=4,
    show_default=True,
    help="How much of them --values may fetch from the Hub.",
)
@click.option("--history", is_flag=True, help="Name the commit that introduced each finding.")
@click.option("--pin", is_flag=True, help="Compare the revision in envdoctor-pins.json with main.")
@click.option("--list", "listed", is_flag=True, help="List the commits from NEW back to OLD, to choose from.")
@hub_options
@hash_option
@click.option(
    "--max-header", type=click.IntRange(1, 100), metavar="MB", default=100, help="Largest safetensors header to read."
)
@click.option("--no-environment", is_flag=True, help="Do not join the changes with the installed packages.")
@environment_options
@configuration_options
@report_options
def command(**options: Any) -> int:
    """Compare two revisions of a model: what changed, and can it hurt a fine-tune?

    No code of the model is run, and no weight is read unless --values asks for it. OLD and NEW are a branch, tag,
    commit, refs/pr/N or a date (@2024-01-31); without them the revision in the local cache (what you trained with) is
    compared with main. With folders, REPO is the old one and OLD the new one.

    \b
    envdoctor diff-revision THUDM/chatglm3-6b
    envdoctor diff-revision THUDM/chatglm3-6b --list
    envdoctor diff-revision THUDM/chatglm3-6b b098244 main --history
    envdoctor diff-revision ./january ./today
    """
    from envdoctor.app.diff_revision import RevisionRequest, diff_revision
    from envdoctor.cli.output import progress_line

    run = CommandRun(options)
    request = RevisionRequest(
        **{name: options[name] for name in ("repo", "old", "new", "offline", "timeout", "history", "pin", "tensors")},
        largest_header=options["max_header"] * 1_000_000,
        values=options["max_values"] * 10**9 if options["values"] else None,
        environment=not options["no_environment"],
        sources=run.sources(),
    )
    if options["listed"]:
        return _list(request, run, options)
    with progress_line(options["quiet"] > 0) as progress:
        report = diff_revision(request, **run.judging, progress=progress)
    detail = next((name for option, name in _DETAILS.items() if options[option]), "usual")
    return run.present(report, detail=detail)


def _list(request: Any, run: CommandRun, options: dict[str, Any]) -> int:
    """Print a page of commits; return 3 if the changes of some commit are unknown, unless offline."""
    from envdoctor.app.commit_list import list_commits
    from envdoctor.app.errors import UsageProblem
    from envdoctor.cli.output import progress_line, write_stdout
    from envdoctor.report.commit_list import render, render_json

    if options["format_"] not in ("terminal", "json"):
        raise UsageProblem("--list has no format {}: terminal or json", options["format_"])
    with progress_line(options["quiet"] > 0) as progress:
        commits = list_commits(request, matrix=run.matrix, progress=progress)
    write_stdout(render_json(commits) if options["format_"] == "json" else render(commits, run.lang))
    return 3 if commits.incomplete and not commits.offline else 0
