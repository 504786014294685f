"""``envdoctor compare A.json B.json ...``."""

from __future__ import annotations

from typing import Any

import click

from envdoctor.cli.options import configuration_of, configuration_options
from envdoctor.cli.reporting import policy_of, present, report_options

__all__ = ["command"]


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
    from envdoctor.cli.output import parse_outputs
    from envdoctor.knowledge.matrix import load_matrix
    from envdoctor.report.formats import names

    parse_outputs(options["outputs"], names())
    configuration = configuration_of(options["config"], options["no_config"])
    policy = policy_of(configuration, options)
    report = compare(
        files,
        policy=policy,
        matrix=load_matrix((*configuration.matrix, *options["matrix"])),
        exit_zero=options["exit_zero"],
    )
    return present(report, configuration, policy, options)
