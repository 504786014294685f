"""``envdoctor plan``."""

from pathlib import Path
from typing import Any

import click

from envdoctor.cli.options import (
    CommandOptions,
    configuration_options,
    lang_option,
    recipe_option,
    source_options,
    target_options,
)


@click.command("plan")
@click.argument("requirements", metavar="[REQUIREMENT]...", nargs=-1)
@source_options
@target_options
@recipe_option
@configuration_options
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write the list there.")
@lang_option
def command(requirements: tuple[str, ...], out: Path | None, **options: Any) -> int:
    """Which versions to install for a model: resolved by uv, judged by every rule. Nothing is installed.

    \b
    envdoctor plan --model zai-org/glm-4-9b-chat-hf                # for this machine
    envdoctor plan --model Qwen/Qwen2.5-7B --target-python 3.11 --target-platform linux-x86_64 \\
        --target-gpu A100 --target-driver 535 --out requirements.txt
    envdoctor plan --recipe train.yaml 'datasets<4' wandb          # with more of your own
    envdoctor plan --model Qwen/Qwen2.5-7B --python .venv/bin/python   # the least change that ends its errors

    Exit code 1: no such set was found, or an error is left, with the reason.
    """
    from envdoctor.app.plan import plan
    from envdoctor.app.whole_file import write_whole
    from envdoctor.cli.output import progress_line
    from envdoctor.report.page import Page
    from envdoctor.system.clean import clean

    asked = CommandOptions(options)
    page = Page(asked.matrix.registry, asked.lang)
    with progress_line(False) as progress:
        found = plan(asked.sources(), requirements, matrix=asked.matrix, progress=progress, lang=page.lang)
    if found.because:
        text = page.say("no set of versions without an error was found: {reason}", reason=found.because)
        click.echo(clean(f"envdoctor: {text}", None), err=True)
    if found.lines and out is not None:
        write_whole(out, found.text)
        click.echo(clean(page.say("{file}: {n} line(s)", len(found.lines), file=out), None))
        for remark in found.remarks:
            click.echo(clean(remark, None))
    else:
        click.echo(found.text, nl=False)
    return 1 if found.because else 0
