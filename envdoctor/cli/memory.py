"""``envdoctor memory``."""

from typing import Any

import click

from envdoctor.cli.options import (
    configuration_options,
    model_option,
    no_gpu_option,
    python_option,
    recipe_option,
    set_option,
    words_argument,
)
from envdoctor.cli.reporting import CommandRun, report_options


@click.command("memory")
@words_argument
@python_option("Interpreter to trace the model in.")
@model_option("Model: its name, or its config.json, is enough.")
@recipe_option
@click.option("--method", metavar="NAME", help="How it is trained or run: full, lora, qlora, peft, infer or serve.")
@click.option("--data", metavar="FILE", help="Training data (JSONL, JSON, CSV): its longest sample is the length.")
@click.option("--tokenizer", metavar="REPO|DIR", help="Tokenizer that counts --data, unless it is the model's.")
@click.option("--gpu", "gpu_name", metavar="NAME", help="A GPU by its name, e.g. A6000 or A100-80GB; free as a whole.")
@click.option("--gpu-memory", metavar="GIB", type=click.FloatRange(0, min_open=True), help="Free memory of the GPU.")
@set_option("A fact, e.g. recipe.max_length=4096 (repeatable).")
@no_gpu_option
@click.option("--no-cache", is_flag=True, help="Neither read nor write envdoctor's cache of traces.")
@configuration_options
@report_options
def command(**options: Any) -> int:
    """Predict the peak of GPU memory with the installed code, before anything runs: will it fit?

    The model is built from its config.json without weights, and one step of the recipe runs on tensors without data, in
    a child of the target's interpreter. Without torch, or by a model's name alone, coefficients of such steps answer.
    Code of the model's repository is never run.

    \b
    envdoctor memory --model Qwen/Qwen2.5-7B-Instruct --gpu 4090 --method qlora
    envdoctor memory --recipe train.yaml --gpu A100-80GB
    envdoctor memory --model DIR --gpu A6000 --set recipe.method=lora --set recipe.max_length=4096
    envdoctor memory --recipe train.yaml --data train.jsonl --gpu A100-80GB
    """
    from envdoctor.app.memory import memory
    from envdoctor.cli.output import progress_line

    run = CommandRun(options)
    given = {
        "gpu.name": options["gpu_name"],
        "gpu.memory_gib": options["gpu_memory"],
        "recipe.method": options["method"],
    }
    assignments = (*((key, [value]) for key, value in given.items() if value is not None), *options["assignments"])
    if options["tokenizer"] is not None and options["data"] is None:
        raise click.UsageError("--tokenizer counts the tokens of --data: give both")
    with progress_line(options["quiet"] > 0) as progress:
        report = memory(
            run.sources(assignments=assignments),
            data=options["data"],
            tokenizer=options["tokenizer"],
            **run.judging,
            progress=progress,
        )
    return run.present(report)
