"""``envdoctor pin REPO``."""

import click

from envdoctor.cli.options import hash_option, hub_options


@click.command("pin")
@click.argument("repo", metavar="REPO|DIR")
@click.argument("revision", required=False)
@hub_options
@hash_option
@click.option("--no-cache", is_flag=True, hidden=True)
def command(repo: str, revision: str | None, offline: bool, timeout: float, hash: bool, **_: object) -> int:
    """Write the model's revision and the oid of every file into envdoctor-pins.json.

    `envdoctor check --model REPO` and `envdoctor diff-revision REPO --pin` then say when the files are others.
    """
    from envdoctor.app.facts import Sources
    from envdoctor.app.pin import pin
    from envdoctor.app.whole_file import write_whole
    from envdoctor.cli.output import progress_line
    from envdoctor.system.clean import clean

    with progress_line(False) as progress:
        pinned = pin(repo, revision, sources=Sources(hash=hash), offline=offline, timeout=timeout, progress=progress)
    write_whole(pinned.path, pinned.text)
    entry = pinned.pin
    plural = "" if len(entry.files) == 1 else "s"
    revision = f" @ {entry.revision}" if entry.revision else ""
    click.echo(clean(f"{pinned.path}: {entry.repo}{revision}, {len(entry.files)} file{plural}", None))
    return 0
