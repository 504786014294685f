"""The commands about rules: ``envdoctor explain``, ``envdoctor ignore`` and ``envdoctor matrix``."""

import json
import os
import re
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import click

from envdoctor.app.configuration import demand_match, write_ignore
from envdoctor.app.errors import UsageProblem
from envdoctor.app.explaining import Explained, explain_error, rule_named, rules_with, text_of_option
from envdoctor.app.facts import day_of, working_directory
from envdoctor.cli import options as shared
from envdoctor.cli.group import command, group
from envdoctor.cli.options import JUDGED, Option, matrix_option
from envdoctor.cli.output import say_notices, write_stdout
from envdoctor.judge.finding import Ignore
from envdoctor.matrix.matrix import load_matrix, read_matrix
from envdoctor.observe.sources import SOURCES
from envdoctor.report.explanation import answer_json, answer_text, names_and_titles, rule_text
from envdoctor.report.page import choose_width
from envdoctor.report.report import Notice
from envdoctor.system.clean import clean
from envdoctor.system.message import Message

#: Letters of a word that is too short to be looked for in the rules ("is").
_LEAST = 2


@command(
    "explain",
    Option(
        "--error", "An error message, or a whole traceback; - is standard input.", "TEXT|-", group=JUDGED, common=True
    ),
    Option(
        "--log",
        "The log of a run, or the traceback at its end; - is standard input.",
        "FILE|-",
        group=JUDGED,
        common=True,
    ),
    shared.environment_options,
    Option("--no-environment", "With --error: answer for no versions in particular.", kind="flag", group=JUDGED),
    shared.configuration_options,
    Option("--format", "Of --error and --log.", choices=("text", "json"), default="text", name="format_", common=True),
    shared.lang_option,
    group=shared.REPORT,
)
@click.argument("words", metavar="[ID|TEXT]...", nargs=-1)
@click.pass_context
def explain(ctx: click.Context, /, words: tuple[str, ...], error: str | None, log: str | None, **options: Any) -> int:
    """Print everything known about a rule, or about an error message. Of other words: the rules that have them.

    \b
    envdoctor explain torch-2-5-0-glm4-batch-nan
    envdoctor explain nan loss
    envdoctor explain --error "cannot import name 'HybridCache' from 'transformers'" --python .venv/bin/python
    python train.py 2>&1 | tail -50 | envdoctor explain --error -
    envdoctor explain --log train.log --report env.txt

    Of a rule: conditions, reasons, fixes, evidence, tests. Of an ImportError, an AttributeError or an unexpected
    keyword argument: which releases have the name, where it went, what to install. Of other errors and whole logs: the
    rules whose symptoms stand in them. A log is judged for the environment that an option names, else for what it says
    of its own; so is an error with versions beside it. Exit code 3: nothing is known.
    """
    if sum(map(bool, (words, error is not None, log is not None))) != 1:
        raise click.UsageError("Missing argument 'ID', --error TEXT or --log FILE: give one of them.", ctx)
    if len(words) == 1 and os.path.isfile(words[0]):
        log = words[0]
    arguments = {"error": error, "log": log, **options}
    readers = [f"--{name} -" for name in ("error", "log", "facts", "report") if arguments.get(name) == "-"]
    if len(readers) > 1:
        text = f"{' and '.join(readers)}: standard input is read once, give a file for one of them"
        raise click.UsageError(text, ctx)
    run = shared.CommandOptions(options)
    if error is not None or log is not None:
        option, text = ("--error", str(error)) if log is None else ("--log", log)
        if log is not None or error == "-":
            text = text_of_option(option, text)
        here = log is None or any(options.get(name) for name in (*SOURCES, "assignments"))
        in_general = options["no_environment"] or not here
        with run.doing(Message("reading")):
            explained = explain_error(text, run.matrix, None if in_general else run.sources())
        return _answer(explained, run, as_json=options["format_"] == "json")
    text = " ".join(words)
    try:
        rule, texts, renamed_from = rule_named(text, run.matrix)
    except UsageProblem:
        if "-" in text and " " not in text:  # an id that is mistyped
            raise
        rules = list(rules_with([word for word in text.split() if len(word) > _LEAST], run.matrix))
        explained = explain_error(text, run.matrix)
        if (explained.answer.known or not rules) and (" " in text or rules):
            return _answer(explained, run, as_json=options["format_"] == "json")
        if not rules:
            raise
        write_stdout("\n".join(names_and_titles(rules)))
        return 0
    write_stdout(rule_text(rule, texts, run.matrix.registry, lang=run.lang, renamed_from=renamed_from))
    return 0


def _answer(explained: Explained, run: shared.CommandOptions, *, as_json: bool) -> int:

    gathered = explained.gathered
    target = gathered.target if gathered is not None else None
    if as_json:
        write_stdout(answer_json(explained.answer, target))
    else:
        page = run.page(width=choose_width(os.environ, sys.stdout.isatty()))
        write_stdout(answer_text(explained.answer, page, explained.facts, target))
    notices = [*(gathered.notices if gathered is not None else ())]
    if explained.because is not None:
        text = "answered for no versions in particular (--python PATH or --facts FILE names yours): {}"
        notices.append(Notice("note", Message(text, explained.because)))
    say_notices(notices, run.lang)
    return 0 if explained.answer.known else 3


@command(
    "ignore",
    Option("--reason", "Why this finding is accepted in this project.", "TEXT", required=True),
    Option("--until", "Last day on which it holds.", "DATE"),
    Option("--where", "Only for this record, e.g. gpu.name=Tesla\\ T4.", "KEY=VALUE", multiple=True),
    Option("--until-fixed", "It ends when a release without the problem is known.", kind="flag"),
    Option("--path", "Only where what is to be edited lies there: a folder or pattern.", "PATTERN"),
    Option("--config", "File to write instead of the project's.", "FILE", "path"),
)
@click.argument("rule_id", metavar="ID")
def ignore(rule_id: str, reason: str, until: str | None, where: tuple[str, ...], **more: Any) -> int:
    """Accept a finding: write it, with its reason, into the project's configuration."""
    if not reason.strip():
        raise UsageProblem("--reason is empty: say why the finding is accepted")
    matrix = load_matrix()
    shipped = None if rule_id.startswith("x-") else rule_named(rule_id, matrix).rule
    rule = rule_id if shipped is None else shipped.id
    pairs: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageProblem("--where {}: key=value is expected", text)
        pairs[key] = demand_match(shipped, key, value, matrix) if shipped is not None else value
    if fixed := more["until_fixed"] and matrix.fixed_in(rule):
        raise UsageProblem("--until-fixed: {} is fixed in {} already", rule, fixed)
    last, here = day_of("--until", until) if until is not None else None, working_directory()
    if last is not None and last < date.today():
        raise UsageProblem("--until {}: that day is over; give the last day on which the finding is accepted", last)
    if here is None:
        raise UsageProblem("the working directory has been deleted: there is no project to write into")
    entry = Ignore(rule, reason, last, pairs, path=more["path"], until_fixed=more["until_fixed"])
    file = write_ignore(entry, start=here, config=more["config"])
    formerly = f" ({rule_id} is its former id)" if rule != rule_id else ""
    click.echo(f"{clean(str(file))}: {rule}{formerly} is accepted" + (f" until {last}" if last else ""))
    return 0


_matrix = matrix_option.about("Folder of private rules.")


@group("matrix")
def matrix() -> None:
    """The rules and tables: list them, run their tests, lint them."""


_command = partial(command, of=matrix)


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
    import shlex

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
