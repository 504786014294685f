"""``envdoctor explain ID``, ``envdoctor explain --error TEXT`` and ``envdoctor explain --log FILE``."""

import os
import sys
from typing import Any

import click

from envdoctor.app.errors import UsageProblem
from envdoctor.app.explaining import Explained, explain_error, rule_named, rules_with, text_of_option
from envdoctor.cli import options as shared
from envdoctor.cli import usage
from envdoctor.cli.options import JUDGED, Option
from envdoctor.cli.output import say_notices, write_stdout
from envdoctor.report.explanation import answer_json, answer_text, names_and_titles, rule_text
from envdoctor.report.page import choose_width
from envdoctor.report.report import Notice
from envdoctor.system.message import Message

#: Letters of a word that is too short to be looked for in the rules ("is").
_LEAST = 2


@usage.command(
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
def command(ctx: click.Context, /, words: tuple[str, ...], error: str | None, log: str | None, **options: Any) -> int:
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
        from envdoctor.observe.sources import SOURCES

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
