"""``envdoctor diff-revision``."""

from typing import Any

import click

from envdoctor.cli.options import configuration_options, environment_options, hash_option, hub_options
from envdoctor.cli.reporting import Run, report_options


@click.command("diff-revision")
@click.argument("repo", metavar="REPO|DIR")
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--stat", is_flag=True, help="Counts of changes only.")
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
    envdoctor diff-revision THUDM/chatglm3-6b b098244 main --history
    envdoctor diff-revision ./january ./today
    """
    from envdoctor.app.diff_revision import Request, diff_revision
    from envdoctor.cli.output import progress_line

    run = Run(options)
    request = Request(
        **{name: options[name] for name in ("repo", "old", "new", "offline", "timeout", "history", "pin", "tensors")},
        largest_header=options["max_header"] * 1_000_000,
        values=options["max_values"] * 10**9 if options["values"] else None,
        environment=not options["no_environment"],
        sources=run.sources(),
    )
    with progress_line(options["quiet"] > 0) as progress:
        report = diff_revision(request, **run.judging, progress=progress)
    detail = "all" if options["tensors"] else "stat" if options["stat"] else "usual"
    return run.present(report, detail=detail)
