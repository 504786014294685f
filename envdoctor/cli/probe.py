"""``envdoctor probe``."""

import os
from pathlib import Path
from typing import Any

import click

from envdoctor.cli.options import (
    configuration_options,
    model_option,
    no_gpu_option,
    python_option,
    recipe_option,
    seconds_option,
    set_option,
)
from envdoctor.cli.reporting import CommandRun, report_options

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("probe")
@click.option(
    "--suite",
    type=click.Choice(["quick", "full", "long", "card"]),
    default="quick",
    show_default=True,
    help="quick: default backend, bf16; full: every backend and dtype, minutes; card: all GPUs, a minute.",
)
@click.option("--only", metavar="NAME,...", multiple=True, help="These experiments, in whatever suite they are.")
@click.option("--list", "list_", is_flag=True, help="Name the experiments, and what each finds out.")
@python_option("Interpreter to run them in.")
@model_option("Build the tiny model from this one's config.")
@recipe_option
@set_option("A fact, e.g. recipe.dtype=bf16 (repeatable).")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--all-gpus", is_flag=True, help="Show every GPU to the experiments, not one.")
@click.option(
    "--all-ranks", is_flag=True, help="Under torchrun, srun or mpirun: on every rank, one GPU each; rank 0 reports."
)
@seconds_option("--wait", 300, "How long other ranks are waited for.")
@click.option("--force", is_flag=True, help="Also on a GPU that others use, or that is nearly full.")
@no_gpu_option
@click.option("--seed", metavar="N", type=click.IntRange(0, 2147483647), help="Draw the inputs of that run again.")
@click.option("--record", metavar="FILE", type=_FILE, help="Write every observation, to judge it again anywhere.")
@click.option("--replay", metavar="FILE", type=_FILE, help="Judge a recording; nothing is run.")
@click.option("--reproducer", metavar="FILE", type=_FILE, help="Write a script that shows the worst failure alone.")
@configuration_options
@report_options
def command(**options: Any) -> int:
    """Run tiny numeric experiments with the installed torch: does this machine compute right numbers?

    They run in children of the target's interpreter, on the accelerator when there is one, else on the CPU; each is
    ended when it takes too long or too much memory. Errors are measured against float64 and divided by what rounding
    must cost, so that there is no tolerance to choose.

    \b
    envdoctor probe
    envdoctor probe --suite full --only attention --reproducer bug.py
    envdoctor probe --record here.jsonl          # elsewhere: envdoctor probe --replay here.jsonl
    torchrun --nproc-per-node 8 -m envdoctor probe --all-ranks
    """
    from envdoctor.app.errors import UsageProblem
    from envdoctor.app.probe import ProbeRequest, catalogue, probe
    from envdoctor.app.whole_file import write_whole
    from envdoctor.cli.output import progress_line, write_stdout
    from envdoctor.report.probe_section import catalogue_text

    if options["list_"]:
        write_stdout(catalogue_text(catalogue().values()))
        return 0
    source_of, typed = click.get_current_context().get_parameter_source, click.core.ParameterSource.COMMANDLINE
    live_options = ("python", "record", "only", "model", "recipe", "all_gpus", "all_ranks", "force", "seed")
    live = [f"--{name}" for name in live_options if source_of(name) is typed]
    if options["replay"] and live:
        raise UsageProblem("--replay runs nothing: {} has no effect on it", ", ".join(live).replace("_", "-"))
    if options["reproducer"] is not None and options["reproducer"].exists():
        raise UsageProblem("--reproducer: {} exists and is not overwritten", options["reproducer"])
    here = None
    if options["all_ranks"]:
        from envdoctor.app.ranks import launched

        if options["all_gpus"]:
            raise UsageProblem("--all-ranks and --all-gpus: a rank has one GPU")
        if options["suite"] == "card":
            raise UsageProblem("--all-ranks and --suite card: it tries all GPUs of a machine, run it once on each")
        here = launched(os.environ)
    silent = here is not None and here.rank > 0  # rank 0 speaks for all
    run = CommandRun(options)
    only = [name.strip() for text in options["only"] for name in text.split(",")]
    request = ProbeRequest(
        **{name: options[name] for name in ("suite", "device", "all_gpus", "force", "replay", "wait", "seed")},
        only=[name for name in only if name],
        record=None if silent else options["record"],
        sources=run.sources(no_cache=True),
        workers=None if here is None else 1,  # the other ranks of the machine want cores as well
        here=here,
    )
    with progress_line(silent or options["quiet"] > 0) as progress:
        report = probe(request, **run.judging, progress=progress)
    if silent:
        return 0
    if options["reproducer"] is not None:
        script = report.probe["reproducer"] if report.probe is not None else None
        if script is not None:
            write_whole(options["reproducer"], "\n".join([*script, ""]))
        elif options["quiet"] == 0:
            click.echo(f"{options['reproducer']} was not written: nothing failed that a script could show", err=True)
    return run.present(report)
