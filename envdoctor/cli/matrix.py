"""``envdoctor matrix list|new|lint|test|facts|update``."""

import json
import re
from datetime import date
from functools import partial
from pathlib import Path

import click

from envdoctor.app.errors import UsageProblem
from envdoctor.cli import usage
from envdoctor.cli.options import Option, matrix_option
from envdoctor.cli.output import write_stdout
from envdoctor.matrix.matrix import load_matrix
from envdoctor.system.clean import clean

_matrix = matrix_option.about("Folder of private rules.")


@usage.group("matrix")
def command() -> None:
    """The rules and tables: list them, run their tests, lint them."""


_command = partial(usage.command, of=command)


@_command(
    "list",
    _matrix,
    Option("--format", "How they are written.", choices=("text", "json"), default="text", name="format_"),
)
@click.argument("words", nargs=-1)
def list_(matrix: tuple[Path, ...], format_: str, words: tuple[str, ...]) -> int:
    """Every rule with its title; with WORDS those that have all of them in id, title, subject or severity.

    \b
    envdoctor matrix list glm error
    """
    from envdoctor.app.explaining import rules_with
    from envdoctor.report.explanation import names_and_titles

    loaded = load_matrix(matrix)
    rules = list(rules_with(words, loaded))
    if format_ == "json":
        rows = []
        for rule, title in rules:
            row = {name: getattr(rule, name) for name in ("id", "status", "severity", "confidence", "effect")}
            texts = {"title": title, "message": loaded.texts(rule)["message"]["en"], "origin": rule.origin}
            rows.append(row | texts)
        write_stdout(json.dumps({"version": loaded.version, "source": loaded.source, "rules": rows}, indent=1))
        return 0
    last = f"{len(rules)} rules, matrix {clean(f'{loaded.version} ({loaded.source})')}"
    write_stdout("\n".join([*names_and_titles(rules), last]))
    return 0


@_command("update")
def update() -> int:
    """Print the command that installs the newest matrix beside this envdoctor; nothing is run."""
    import os
    import shlex
    import sys

    beside = (
        ("uv-receipt.toml", ["uv", "tool", "install", "--upgrade", "--with", "envdoctor-matrix", "envdoctor"]),
        ("pipx_metadata.json", ["pipx", "inject", "--force", "envdoctor", "envdoctor-matrix"]),
    )
    pip = [sys.executable, "-m", "pip", "install", "--upgrade", "envdoctor-matrix"]
    words = next((words for name, words in beside if os.path.isfile(os.path.join(sys.prefix, name))), pip)
    loaded = load_matrix()
    write_stdout(f"this matrix: {clean(f'{loaded.version} ({loaded.source})')}\n{clean(shlex.join(words))}")
    return 0


@_command("facts")
def facts() -> int:
    """The fact keys that rules and facts files may use."""
    registry = load_matrix().registry
    width = max(len(spec.key) for spec in registry)
    write_stdout("\n".join(f"{spec.key:<{width}}  {spec.type:<8}  {spec.meaning}" for spec in registry))
    return 0


@_command("test", _matrix)
@click.argument("ids", nargs=-1)
def test(matrix: tuple[Path, ...], ids: tuple[str, ...]) -> int:
    """Run the tests inside the rules (all, or of the given ids)."""
    from envdoctor.app.explaining import rule_named
    from envdoctor.app.matrix import test_rules

    loaded = load_matrix(matrix)
    lookups = [rule_named(rule_id, loaded) for rule_id in ids]
    lines = [f"{lookup.renamed_from} is now {lookup.rule.id}" for lookup in lookups if lookup.renamed_from]
    cases = list(test_rules([lookup.rule for lookup in lookups] if ids else loaded.rules, loaded))
    failed = [f"{rule_id}: {case}" for rule_id, case in cases if not case.passed]
    lines += [*failed, f"{len(cases) - len(failed)} passed, {len(failed)} failed"]
    write_stdout("\n".join(map(clean, lines)))
    return 1 if failed else 0


@_command("new", Option("--matrix", "Folder of private rules to write it to.", "DIR", "path"))
@click.argument("name", metavar="SUBJECT/ID")
def new(matrix: Path | None, name: str) -> int:
    """Write a file to begin a rule with: SUBJECT/ID in a checkout, x-ID with --matrix DIR.

    \b
    envdoctor matrix new torch/torch-2-5-0-does-not-start
    envdoctor matrix new x-our-cluster --matrix rules
    """
    from envdoctor.app.matrix import new_rule

    loaded = load_matrix()
    subject, _, rule_id = name.rpartition("/")
    if matrix is None and (loaded.compiled or not subject):
        installed = "--matrix DIR is expected: this envdoctor is installed, and its own rules are not written here"
        text = "SUBJECT/ID is expected, a folder of matrices/rules and the id"
        raise UsageProblem(installed if loaded.compiled else text)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule_id) or (matrix is not None and not rule_id.startswith("x-")):
        expected = "{}: lower-case words joined by dashes are expected, x- first for a private rule"
        raise UsageProblem(expected, repr(rule_id))
    folder = matrix or loaded.home / "rules" / subject
    remark = "" if folder.is_dir() else ", in a new folder"
    path = new_rule(rule_id, folder, loaded, today=date.today())
    write_stdout(f"{clean(str(path))}{remark}\nwrite the rule, then: envdoctor matrix lint {clean(str(path))}")
    return 0


@_command(
    "lint", _matrix, Option("--stale", "Only what was not read again for so long.", "DAYS", click.IntRange(min=1))
)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
def lint(matrix: tuple[Path, ...], stale: int | None, files: tuple[Path, ...]) -> int:
    """Check every rule and table, or these FILES or the rules of --matrix alone: shape, evidence, wording, words that
    no source gives, tests, no condition or bound without effect, fixes that cure."""
    from envdoctor.app import matrix as judged
    from envdoctor.matrix.matrix import read_matrix

    loaded, today = read_matrix(matrix), date.today()
    # With folders of one's own, the shipped rules are there to be judged by, and were linted without them.
    own = () if stale else (path for path in loaded.files.values() if any(map(path.is_relative_to, matrix)))
    files = files or tuple(own)
    complaints = judged.stale(loaded, today=today, days=stale) if stale else judged.lint(loaded, files, today=today)
    lines = [f"{origin}: {text}" for origin, text in complaints]
    total = len(files) or len(loaded.rules) + len(loaded.broken)
    counts = {"file" if files else "rule": total, "complaint": len(lines)}
    summary = ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for word, number in counts.items())
    write_stdout("\n".join([*map(clean, lines), summary]))
    return 1 if lines else 0
