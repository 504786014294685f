"""``envdoctor check``."""

from typing import Any

from envdoctor.cli import options as shared
from envdoctor.cli.options import Option, Options
from envdoctor.system.message import Message

OPTIONS = Options(
    shared.words_argument,
    shared.source_options,
    shared.target_options,
    shared.recipe_option,
    shared.method_option,
    shared.code_option,
    shared.hash_option,
    shared.configuration_options,
    shared.report_options,
    Option(
        "--require",
        "Exit 3 unless these are known and there (gpu,model); known: nothing is newer than the matrix.",
        "FACTS",
        multiple=True,
        group=shared.GATE,
    ),
    Option("--probe", "Run the experiments that findings name (with the target's torch).", kind="flag"),
    Option("--all-ranks", "Under torchrun, srun or mpirun: compare all processes; rank 0 reports.", kind="flag"),
    shared.seconds_option._replace(flag="--wait", default=120.0, help="How long other ranks are waited for."),
    group=shared.RUN,
)


def run(**options: Any) -> int:
    """Judge the installed environment for a model, a recipe and your own code.

    \b
    envdoctor check
    envdoctor check --model THUDM/glm-4-9b-chat-hf --set recipe.batch_size=2
    envdoctor check --recipe train.yaml --recipe ds_z3.json
    envdoctor check train.py requirements.txt       # a file, a folder or a model is taken as what it is
    envdoctor check --code train.py
    envdoctor check --lock uv.lock --target-python 3.11 --target-gpu A100,H100
    envdoctor check --python .venv/bin/python --format json
    torchrun --nproc-per-node 8 -m envdoctor check --all-ranks
    """
    from envdoctor.app.check import check
    from envdoctor.app.reporting import check_targets

    judging = shared.CommandRun(options)
    sources, others = judging.sources(), None
    if options["all_ranks"]:
        from envdoctor.app.ranks import all_ranks

        others = all_ranks(sources, judging.matrix, options["wait"])
        if others is None:
            return 0  # rank 0 speaks for all
    names = [name.strip() for text in (*judging.configuration.require, *options["require"]) for name in text.split(",")]
    with judging.doing(Message("checking")) as progress:
        report = check_targets(
            shared.stated_targets(options),
            lambda target: check(
                sources._replace(target=target),
                **judging.judging,
                require=[name for name in names if name],
                probe=options["probe"],
                progress=progress,
                others=others,
            ),
        )
    return judging.present(report)


def __getattr__(name: str) -> Any:
    """Return the command for click: for help, completion and messages of errors."""
    if name != "check":
        raise AttributeError(name)
    from envdoctor.cli.group import command

    return command("check", OPTIONS)(run)
