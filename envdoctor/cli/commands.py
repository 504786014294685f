"""The commands that parse, call a page of :mod:`envdoctor.app`, and write its outcome. ``check`` and the commands about
rules have modules of their own."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from envdoctor.app.configuration import write_whole
from envdoctor.app.errors import UsageProblem
from envdoctor.cli import options as shared
from envdoctor.cli.group import command
from envdoctor.cli.options import REPORT, CommandRun, Option
from envdoctor.cli.output import progress_line, say_notices, write_stdout
from envdoctor.report.page import choose_lang
from envdoctor.report.report import cleaned
from envdoctor.system.clean import clean
from envdoctor.system.message import Message, say

#: How much of the changes is shown, by option: the first one that was given decides.
_DETAILS = {"tensors": "all", "patch": "patch", "stat": "stat"}


@command(
    "memory",
    shared.words_argument,
    shared.python_option.about("Interpreter to trace the model in."),
    shared.lock_option.about("Lock or requirements: its releases, where nothing is installed."),
    shared.facts_option,
    shared.target_python_option.about("Python that the list of --lock is installed with: 3.11.")._replace(common=False),
    shared.target_platform_option.about("System that the list of --lock is installed on: linux-x86_64."),
    shared.as_of_option,
    shared.model_option.about("Model: its name, or its config.json, is enough."),
    shared.recipe_option,
    shared.method_option._replace(common=True),
    Option("--data", "Training data (JSONL, JSON, CSV): its longest sample is the length.", "FILE", common=True),
    Option("--tokenizer", "Tokenizer that counts --data, unless it is the model's.", "REPO|DIR"),
    Option(
        "--gpu, --target-gpu",
        "A GPU by its name, e.g. A6000 or A100-80GB; free as a whole.",
        "NAME",
        name="gpu_name",
        common=True,
    ),
    Option("--gpu-memory", "Free memory of the GPU.", "GIB", click.FloatRange(0, min_open=True)),
    shared.set_option.about("A fact, e.g. recipe.max_length=4096 (repeatable)."),
    shared.no_gpu_option,
    shared.no_cache_option.about("Neither read nor write envdoctor's cache of traces."),
    shared.configuration_options,
    shared.report_options,
    group=shared.RUN,
)
def memory(**options: Any) -> int:
    """Predict the peak of GPU memory with the installed code, before anything runs: will it fit?

    The model is built from its config.json without weights, and one step of the recipe runs on tensors without data, in
    a child of the target's interpreter. Without torch, or by a model's name alone, coefficients of such steps answer.
    Code of the model's repository is never run.

    \b
    envdoctor memory --model Qwen/Qwen2.5-7B-Instruct --gpu 4090 --method qlora
    envdoctor memory --recipe train.yaml --gpu A100-80GB
    envdoctor memory --lock requirements.txt --recipe train.yaml --gpu 4090
    envdoctor memory --model DIR --gpu A6000 --set recipe.method=lora --set recipe.max_length=4096
    envdoctor memory --recipe train.yaml --data train.jsonl --gpu A100-80GB
    """
    from envdoctor.app.memory import memory as predict

    run = shared.CommandRun(options)
    option_names = {"gpu.name": "gpu_name", "gpu.memory_gib": "gpu_memory"}
    assignments = [(key, [options[name]]) for key, name in option_names.items() if options[name] is not None]
    data, tokenizer = options["data"], options["tokenizer"]
    if tokenizer is not None and data is None:
        raise click.UsageError("--tokenizer counts the tokens of --data: give both")
    if "," in (options["gpu_name"] or ""):
        raise click.UsageError("the memory is that of one machine: give one --gpu (of several alike: 2xA100-80GB)")
    sources = run.sources(assignments=(*assignments, *options["assignments"]))
    with run.doing(Message("predicting")) as progress:
        report = predict(sources, data=data, tokenizer=tokenizer, **run.judging, progress=progress)
    return run.present(report)


@command(
    "plan",
    shared.source_options,
    shared.target_options,
    shared.recipe_option,
    shared.method_option,
    shared.code_option,
    shared.configuration_options,
    Option("--out", "Write the list there.", "FILE", "path", common=True),
    shared.lang_option,
    group=shared.REPORT,
)
@click.argument("requirements", metavar="[REQUIREMENT]...", nargs=-1)
def plan(requirements: tuple[str, ...], out: Path | None, **options: Any) -> int:
    """Which versions to install for a model: resolved by uv, judged by every rule. Nothing is installed.

    \b
    envdoctor plan --model zai-org/glm-4-9b-chat-hf                # for this machine
    envdoctor plan --model Qwen/Qwen2.5-7B --target-python 3.11 --target-platform linux-x86_64 \\
        --target-gpu A100 --target-driver 535 --out requirements.txt
    envdoctor plan --recipe train.yaml 'datasets<4' wandb          # with more of your own
    envdoctor plan --model Qwen/Qwen2.5-7B --python .venv/bin/python   # the least change that ends its errors

    Exit code 1: no such set was found, or an error is left, with the reason.
    """
    from envdoctor.app.plan import plan as planned

    run = shared.CommandOptions(options)
    page = run.page()
    with run.doing(Message("checking")) as progress:
        outcome = planned(run.sources(), requirements, matrix=run.matrix, progress=progress, lang=page.lang)
    if outcome.because:
        click.echo(clean(f"envdoctor: {outcome.because}", None), err=True)
    if outcome.lines and out is not None:
        write_whole(out, outcome.text)
        for line in (page.say("{file}: {n} line(s)", len(outcome.lines), file=out), *outcome.remarks):
            click.echo(clean(line, None))
    else:
        click.echo(outcome.text, nl=False)
    return 1 if outcome.because else 0


@command(
    "fix",
    shared.python_option.about("Interpreter (or virtual environment) to fix."),
    shared.model_option.about("Model: ORG/NAME or a folder."),
    shared.recipe_option,
    shared.code_option,
    shared.set_option.about("A fact, e.g. recipe.batch_size=2 (repeatable; the last one wins)."),
    Option("--yes", "Apply it without asking.", kind="flag", common=True),
    Option("--dry-run", "Show what would be done, and change nothing.", kind="flag", common=True),
    Option("--write", "Change the recipe too, as the shown lines say.", kind="flag", common=True),
    shared.no_gpu_option,
    shared.no_cache_option.about("Neither read nor write envdoctor's cache."),
    shared.configuration_options,
    shared.lang_option,
    group=shared.JUDGED,
)
def fix(yes: bool, dry_run: bool, write: bool, **options: Any) -> int:
    """Apply the plan: shown, confirmed, installed by uv or pip, and undone unless the environment is whole then.

    Every file that the installer will touch is copied first. Afterwards the environment is judged again, and what
    people import of it is really imported, in a bounded child. If something fails, or you interrupt it, everything is
    put back to the byte; after a kill the next `envdoctor fix` does that.

    \b
    envdoctor fix --python .venv/bin/python --dry-run
    envdoctor fix --python .venv/bin/python --yes
    envdoctor fix --recipe train.yaml --write          # settings of the recipe too

    Exit codes: 0 whole now, 1 something is left or was put back, 2 wrong use, 3 it could not be done.
    """
    from envdoctor.app.fix import Talk
    from envdoctor.app.fix import fix as applied

    run = shared.CommandOptions(options)
    page = run.page()

    def confirm(question: str) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            raise click.UsageError("fix asks before it changes anything: where nobody can answer, give --yes")
        progress("")
        return click.confirm(clean(question))

    def say(line: str) -> None:
        progress("")
        click.echo(clean(line, None))

    with run.doing(Message("checking")) as progress:
        gate: dict[str, Any] = {"policy": run.configuration.policy(), "matrix": run.matrix, "lang": page.lang}
        return applied(run.sources(), Talk(say, confirm, progress), dry_run=dry_run, write=write, **gate)


@command(
    "diff-revision",
    Option("--stat", "A line for each finding, and counts of changes.", kind="flag", group=shared.REPORT),
    Option("--patch", "Every changed line of code and templates.", kind="flag", group=shared.REPORT, common=True),
    Option("--tensors", "Every change, every tensor pattern.", kind="flag", group=shared.REPORT),
    Option("--values", "Read weights: which tensors differ, and by how much.", kind="flag", common=True),
    Option(
        "--max-values", "How much of them --values may fetch from the Hub.", "GB", click.IntRange(1, 10_000), default=4
    ),
    Option("--history", "Name the commit that introduced each finding.", kind="flag", common=True),
    Option("--pin", "Compare the revision in envdoctor-pins.json with main.", kind="flag", common=True),
    Option("--list", "List the commits from NEW back to OLD, to choose from.", kind="flag", name="listed", common=True),
    shared.hub_options,
    shared.hash_option,
    Option("--max-header", "Largest safetensors header to read.", "MB", click.IntRange(1, 100), default=100),
    Option("--no-environment", "Do not join the changes with the installed packages.", kind="flag"),
    shared.environment_options,
    shared.configuration_options,
    shared.report_options,
    group=shared.JUDGED,
)
@click.argument("repo", metavar="REPO|DIR")
@click.argument("old", required=False)
@click.argument("new", required=False)
def diff_revision(**options: Any) -> int:
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
    from envdoctor.app.diff_revision import RevisionRequest
    from envdoctor.app.diff_revision import diff_revision as compared

    run = shared.CommandRun(options)
    request = RevisionRequest(
        **{name: options[name] for name in ("repo", "old", "new", "offline", "timeout", "history", "pin", "tensors")},
        largest_header=options["max_header"] * 1_000_000,
        values=options["max_values"] * 10**9 if options["values"] else None,
        environment=not options["no_environment"],
        sources=run.sources(),
    )
    if options["listed"]:
        return _list(request, run, options)
    with run.doing(Message("comparing")) as progress:
        report = compared(request, **run.judging, progress=progress)
    return run.present(report, detail=next((name for option, name in _DETAILS.items() if options[option]), "usual"))


def _list(request: Any, run: shared.CommandRun, options: dict[str, Any]) -> int:
    """Print a page of commits; return 3 if the changes of some commit are unknown, unless offline."""
    from envdoctor.app.diff_revision import list_commits
    from envdoctor.report.revision_section import commit_lines, commits_json

    if options["format_"] not in ("terminal", "json"):
        raise UsageProblem("--list has no format {}: terminal or json", options["format_"])
    with run.doing(Message("reading")) as progress:
        commits = cleaned(list_commits(request, matrix=run.matrix, progress=progress))
    write_stdout(commits_json(commits) if options["format_"] == "json" else commit_lines(commits, run.lang))
    return 3 if not commits.offline and any(row.unread is not None for row in commits.rows) else 0


@command("pin", shared.hub_options, shared.hash_option, shared.lang_option)
@click.argument("repo", metavar="REPO|DIR")
@click.argument("revision", required=False)
@click.option("--no-cache", is_flag=True, hidden=True)
def pin(repo: str, revision: str | None, offline: bool, timeout: float, hash: bool, **more: Any) -> int:
    """Write the model's revision and the oid of every file into envdoctor-pins.json.

    `envdoctor check --model REPO` and `envdoctor diff-revision REPO --pin` then say when the files are others.
    """
    from envdoctor.app.diff_revision import pin as pinned
    from envdoctor.app.facts import Sources

    sources, lang = Sources(hash=hash), choose_lang(more["lang"] or "auto", os.environ, sys.stdout.encoding)
    with progress_line(False, lang, Message("reading")) as progress:
        path, text, entry = pinned(repo, revision, sources=sources, offline=offline, timeout=timeout, progress=progress)
    write_whole(path, text)
    revision = f" @ {entry.revision}" if entry.revision else ""
    text = say(lang, "{path}: {repo}, {n} file(s)", len(entry.files), path=path, repo=f"{entry.repo}{revision}")
    click.echo(clean(text, None))
    return 0


@command(
    "facts",
    shared.words_argument,
    shared.source_options,
    shared.target_options,
    shared.recipe_option,
    shared.code_option,
    shared.configuration_options,
    Option("--format", "How they are written.", choices=("text", "json"), default="text", name="format_", common=True),
    Option("--for-issue", "A redacted Markdown block for a bug report.", kind="flag", common=True),
    Option("--public", "Leave out paths and host identifiers.", kind="flag", common=True),
    shared.lang_option,
    Option("-v, --verbose", "Also what is not known, and long lists whole.", kind="count", common=True),
    group=shared.REPORT,
)
@click.pass_context
def facts(ctx: click.Context, /, **options: Any) -> int:
    """Print every fact with its origin.

    \b
    envdoctor facts
    envdoctor facts --format json > here.json    # judge it elsewhere: envdoctor check --facts here.json
    envdoctor facts --for-issue                  # paste it into a bug report
    """
    from envdoctor.app.facts import collect_facts
    from envdoctor.report import facts_text

    if len(shared.stated_targets(options)) > 1:
        raise click.UsageError("facts are those of one target: give each --target- option once")
    run = shared.CommandOptions(options)
    with run.doing(Message("reading")):
        gathered = collect_facts(run.sources(), run.matrix, links=True)
    factset, registry, public = gathered.facts, run.matrix.registry, options["public"]
    if options["for_issue"]:
        write_stdout(facts_text.render_issue(factset, registry))
    elif options["format_"] == "json":
        write_stdout(facts_text.render_json(factset, registry, public=public))
    else:
        write_stdout(facts_text.render(factset, run.page(verbosity=options["verbose"]), gathered.target, public=public))
    say_notices(gathered.notices, run.lang)
    return 0


@command("compare", shared.configuration_options, shared.report_options)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def compare(files: tuple[str, ...], **options: Any) -> int:
    """Compare the machines of a job by the facts files that each of them wrote.

    \b
    envdoctor facts --format json > "$(hostname).json"     # on every machine
    envdoctor compare node*.json
    """
    from envdoctor.app.ranks import compare as compared

    run = shared.CommandRun(options)
    with run.doing(Message("comparing")):
        report = compared(files, **run.judging)
    return run.present(report)


@command("mcp")
def mcp() -> None:
    """Serve check, memory, plan, diff-revision and explain to a chat program (MCP, over stdio).

    \b
    pip install 'envdoctor[mcp]'
    envdoctor mcp       # the command that the chat program starts

    The tools read what the commands read, and keep their promises. None of them installs or changes anything.
    """
    try:
        from envdoctor.cli.served import server
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"{missing.name} is not installed: pip install 'envdoctor[mcp]'") from None
    server().run()


_FILE = click.Path(path_type=Path, dir_okay=False)
#: Options that say what to run, which a replay does not.
_LIVE = ("python", "record", "only", "model", "recipe", "all_gpus", "all_ranks", "force", "seed")
_SUITES = "quick: default backend, bf16; full: every backend and dtype, minutes; card: all GPUs, a minute."


@command(
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
def probe(**options: Any) -> int:
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
    from envdoctor.app.probe import ProbeRequest, catalogue, probe
    from envdoctor.report.run_sections import catalogue_text

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
