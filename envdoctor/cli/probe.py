"""``envdoctor probe``."""

import os
from pathlib import Path
from typing import Any

import click

from envdoctor.cli import options as shared
from envdoctor.cli import usage
from envdoctor.cli.options import REPORT, CommandRun, Option

_FILE = click.Path(path_type=Path, dir_okay=False)
#: Options that say what to run, which a replay does not.
_LIVE = ("python", "record", "only", "model", "recipe", "all_gpus", "all_ranks", "force", "seed")
_SUITES = "quick: default backend, bf16; full: every backend and dtype, minutes; card: all GPUs, a minute."


@usage.command(
    "probe",
    Option("--suite", _SUITES, choices=("quick", "full", "long", "card"), default="quick", common=True),
    Option("--only", "These experiments, in whatever suite they are.", "NAME,...", multiple=True, common=True),
    Option("--list", "Name the experiments, and what each finds out.", kind="flag", name="list_"),
    shared.python_option.about("Interpreter to run them in."),
    shared.model_option.about("Build the tiny model from this one's config."),
    shared.recipe_option,
    shared.set_option.about("A fact, e.g. recipe.dtype=bf16 (repeatable)."),
    Option("--device", "Where to run them.", choices=("auto", "cpu", "cuda"), default="auto", common=True),
    Option("--all-gpus", "Show every GPU to the experiments, not one.", kind="flag"),
    Option("--all-ranks", "Under torchrun, srun or mpirun: on every rank, one GPU each; rank 0 reports.", kind="flag"),
    shared.seconds_option._replace(flag="--wait", default=300.0, help="How long other ranks are waited for."),
    Option("--force", "Also on a GPU that others use, or that is nearly full.", kind="flag"),
    shared.no_gpu_option,
    Option("--seed", "Draw the inputs of that run again.", "N", click.IntRange(0, 2147483647)),
    Option("--record", "Write every observation, to judge it again anywhere.", "FILE", _FILE, group=REPORT),
    Option("--replay", "Judge a recording; nothing is run.", "FILE", _FILE),
    Option(
        "--reproducer",
        "Write a script that shows the worst failure alone.",
        "FILE",
        _FILE,
        group=REPORT,
        common=True,
    ),
    shared.configuration_options,
    shared.report_options,
    group=shared.JUDGED,
)
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
    from envdoctor.cli.output import write_stdout
    from envdoctor.report.run_sections import catalogue_text
    from envdoctor.system.message import Message

    if options["list_"]:
        write_stdout(catalogue_text(catalogue().values()))
        return 0
    source_of, shell = click.get_current_context().get_parameter_source, click.core.ParameterSource.COMMANDLINE
    live = [f"--{name}" for name in _LIVE if source_of(name) is shell]
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
    with run.doing(Message("reading"), silent) as progress:
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
