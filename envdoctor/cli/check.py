"""``envdoctor check``."""

from __future__ import annotations

from typing import Any

import click

from envdoctor.cli.options import (
    code_option,
    configuration_options,
    hash_option,
    recipe_option,
    seconds_option,
    source_options,
    stated_targets,
    target_options,
)
from envdoctor.cli.reporting import Run, report_options


@click.command("check")
@source_options
@target_options
@recipe_option
@code_option
@hash_option
@configuration_options
@report_options
@click.option("--probe", is_flag=True, help="Run the experiments that findings name (with the target's torch).")
@click.option(
    "--require",
    metavar="FACTS",
    multiple=True,
    help="Exit 3 unless these are known and there (gpu,model); known: nothing is newer than the matrix.",
)
@click.option(
    "--all-ranks", is_flag=True, help="Under torchrun, srun or mpirun: compare all processes; rank 0 reports."
)
@seconds_option("--wait", 120, "How long other ranks are waited for.")
def command(**options: Any) -> int:
    """Judge the installed environment for a model, a recipe and your own code.

    \b
    envdoctor check
    envdoctor check --model THUDM/glm-4-9b-chat-hf --set recipe.batch_size=2
    envdoctor check --recipe train.yaml --recipe ds_z3.json
    envdoctor check --code train.py
    envdoctor check --lock uv.lock --target-python 3.11 --target-gpu A100,H100
    envdoctor check --python .venv/bin/python --format json
    torchrun --nproc-per-node 8 -m envdoctor check --all-ranks
    """
    from envdoctor.app.check import check
    from envdoctor.app.targets import check_targets
    from envdoctor.cli.progress import progress_line

    run = Run(options)
    sources, others = run.sources(), None
    if options["all_ranks"]:
        from envdoctor.app.ranks import all_ranks

        others = all_ranks(sources, run.matrix, options["wait"])
        if others is None:
            return 0  # rank 0 speaks for all
    named = [name.strip() for text in (*run.configuration.require, *options["require"]) for name in text.split(",")]
    with progress_line(options["quiet"] > 0 or not options["probe"]) as progress:
        report = check_targets(
            stated_targets(options),
            lambda target: check(
                sources._replace(target=target),
                **run.judging,
                require=[name for name in named if name],
                probe=options["probe"],
                progress=progress,
                others=others,
            ),
        )
    return run.present(report)
