"""``envdoctor compare A.json B.json ...``."""

from typing import Any

import click

from envdoctor.cli.options import configuration_options
from envdoctor.cli.reporting import CommandRun, report_options


@click.command("compare")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@configuration_options
@report_options
def command(files: tuple[str, ...], **options: Any) -> int:
    """Compare the machines of a job by the facts files that each of them wrote.

    \b
    envdoctor facts --format json > "$(hostname).json"     # on every machine
    envdoctor compare node*.json
    """
    from envdoctor.app.compare import compare

    run = CommandRun(options)
    return run.present(compare(files, **run.judging))
