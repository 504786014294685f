"""Options that several commands share, and how they become sources, settings, a gate, and a report that is written.

An option is a row. click shows it, completes it and explains its errors; a correct command line is read without click,
whose import costs a sixth of a short run.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.app import configuration as project
from envdoctor.app.errors import UsageProblem
from envdoctor.judge.finding import Known
from envdoctor.matrix.matrix import load_matrix
from envdoctor.report.page import Page, choose_lang, choose_width, decide
from envdoctor.report.report import FORMATS, Report

#: How long something may take.
SECONDS = (1, 3600)
_WORDS = "words"
#: What options are about, in the order in which the help has them.
JUDGED, RUN, REPORT, GATE = GROUPS = ("What to judge:", "For which run:", "The report:", "The gate:")


class Option(NamedTuple):
    """``flag`` is ``--set`` or ``-v, --verbose``, or the keyword of words without one; ``kind`` is text, flag, count,
    path, seconds, words, or a click type that only click reads. ``name`` is the keyword argument's, ``variable`` an
    environment variable that sets it too. ``usual`` is the value if neither the command line nor the configuration has
    one. The help lists the option in ``group``, and first if it is ``common``. ``spellings`` are other words for a
    choice, in lower case."""

    flag: str
    help: str = ""
    metavar: str | None = None
    kind: Any = "text"
    choices: tuple[str, ...] = ()
    multiple: bool = False
    default: Any = None
    variable: str | None = None
    name: str = ""
    usual: str | None = None
    group: str = ""
    common: bool = False
    required: bool = False
    spellings: Mapping[str, str] = {}

    @property
    def keyword(self) -> str:
        """Return the keyword argument of the command."""
        return self.name or self.flag.rpartition("--")[2].replace("-", "_")

    def about(self, text: str) -> Option:
        """Return the option with this help text."""
        return self._replace(help=text)

    def read(self, text: str) -> Any:
        """Return the value of a text. Raises ``ValueError`` if click has to explain an error."""
        text = self.spellings.get(text.lower(), text)
        if not text or (self.choices and text not in self.choices):
            raise ValueError(text)
        if self.kind == "seconds":
            seconds = float(text)
            if not SECONDS[0] <= seconds <= SECONDS[1]:
                raise ValueError(text)
            return seconds
        return Path(text) if self.kind == "path" else text

    def typed(self, value: Any) -> list[str]:
        """Return the words of a command line that give this value, if there is one."""
        flag = self.flag.partition(",")[0]
        if isinstance(value, tuple):
            return [word for part in value for word in (flag, str(part))]
        return [] if value in (None, False) else [flag] if self.kind == "flag" else [flag, str(value)]

    @property
    def takes_one(self) -> bool:
        """Return whether the option has one value: of two, one would be lost."""
        return not self.multiple and self.kind not in ("flag", "count")

    def value_of(self, values: list[Any]) -> Any:
        """Return the keyword argument for these values, in their order. Raises ``ValueError`` for too many."""
        if not self.takes_one:
            return tuple(values) if self.multiple else len(values) if self.kind == "count" else bool(values)
        if len(values) > 1:
            raise ValueError(values)
        return values[0] if values else self.default


class Options:
    """Options of a command, in the order in which the help lists them; ``group`` is that of options without one."""

    def __init__(self, *parts: Option | Options, group: str = "") -> None:
        rows = (row for part in parts for row in (part.all if isinstance(part, Options) else (part,)))
        self.all: list[Option] = [row._replace(group=row.group or group) for row in rows]

    def read(self, words: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the keyword arguments of a command line, or None if anything in it is wrong or unusual."""
        by_flag = {flag: option for option in self.all for flag in option.flag.split(", ")}
        by_keyword: dict[str, list[Any]] = {}
        variables = [row for row in self.all if row.variable and environ.get(row.variable)]
        try:
            for flag, value in _pairs(words, by_flag):
                option = by_flag[flag]
                by_keyword.setdefault(option.keyword, []).append(True if value is None else option.read(value))
            fallbacks = [option for option in variables if option.keyword not in by_keyword]
            for option in fallbacks:
                by_keyword[option.keyword] = [option.read(environ[option.variable or ""])]
            values = {option.keyword: option.value_of(by_keyword.get(option.keyword, [])) for option in self.all}
        except (KeyError, ValueError):
            return None
        return {**values, "from_environment": {option.keyword for option in fallbacks}}


def _pairs(words: Sequence[str], by_flag: Mapping[str, Option]) -> Iterator[tuple[str, str | None]]:
    """Yield flags with their texts. Raises ``KeyError`` for an unknown flag, ``ValueError`` for an unusual word."""
    rest = iter(words)
    for word in rest:
        flag, equals, text = word.partition("=")
        if word[:1] != "-" and word and _WORDS in by_flag:
            yield _WORDS, word
        elif not word.startswith("--") and len(word) > 2 and word[0] == "-":
            yield from _pairs([f"-{letter}" for letter in word[1:]], by_flag)
        elif by_flag[flag].kind in ("flag", "count"):
            if equals:
                raise ValueError(word)
            yield flag, None
        else:
            text = text if equals else next(rest, "")
            if len(text) > 1 and text[0] == "-" and not equals:
                raise ValueError(text)
            yield flag, text


#: Options whose help text each command gives.
python_option = Option("--python", metavar="PATH", variable="ENVDOCTOR_PYTHON", group=JUDGED, common=True)
model_option = Option("--model", metavar="REPO|DIR", variable="ENVDOCTOR_MODEL", group=RUN, common=True)
set_option = Option("--set", metavar="KEY=VALUE", multiple=True, name="assignments", group=RUN, common=True)
matrix_option = Option("--matrix", metavar="DIR", kind="path", multiple=True, group=GATE)
seconds_option = Option("", metavar="SECONDS", kind="seconds")

no_gpu_option = Option("--no-gpu", "Do not ask the driver about GPUs.", kind="flag", group=JUDGED)
no_cache_option = Option("--no-cache", kind="flag", group=JUDGED)

#: Files, folders, models and facts that are typed without an option.
words_argument = Option(_WORDS, metavar="[FILE|DIR|MODEL]...", kind="words", multiple=True)

lock_option = Option(
    "--lock",
    "Lock or requirements; FILE[NAME,...] chooses extras, - is standard input.",
    "FILE",
    group=JUDGED,
    common=True,
)
facts_option = Option("--facts", "Facts file, written by `envdoctor facts`; - is standard input.", "FILE", group=JUDGED)

#: Which environment.
environment_options = Options(
    python_option.about("Interpreter (or virtual environment) to judge."),
    Option("--path", "Folder of installed packages (pip install --target).", "DIR"),
    Option("--root", "Root file system of an image or container.", "DIR"),
    lock_option,
    Option("--sbom", "Bill of materials: CycloneDX or SPDX in JSON.", "FILE"),
    facts_option,
    Option("--report", "Pasted report: env commands, pip list, issues; - is standard input.", "FILE"),
    set_option.about("A fact, e.g. recipe.batch_size=2 (repeatable; the last one wins)."),
    no_gpu_option,
    no_cache_option.about("Neither read nor write envdoctor's cache (what compiled files ask for)."),
    group=JUDGED,
)

recipe_option = Option(
    "--recipe",
    "What describes the run: YAML, JSON, a script or command line (repeatable).",
    "FILE",
    multiple=True,
    group=RUN,
    common=True,
)

method_option = Option(
    "--method", "How it is trained or run: full, lora, qlora, peft, infer or serve.", "NAME", group=RUN
)

#: Which environment and which model.
source_options = Options(environment_options, model_option.about("Model: ORG/NAME or a folder."))

target_python_option = Option(
    "--target-python",
    "Judge for this Python: 3.11. (repeatable, or 'A,B': judges each)",
    "VERSION",
    multiple=True,
    group=RUN,
    common=True,
)

target_platform_option = Option(
    "--target-platform", "Judge for this system: linux-x86_64.", "SYSTEM-ARCH", multiple=True, group=RUN
)

as_of_option = Option("--as-of", "Day on which the list of --lock is installed: 2024-05-01.", "DATE", group=JUDGED)

#: The target machines, which a lock does not name. Each option may name several.
target_options = Options(
    target_python_option,
    target_platform_option,
    Option(
        "--target-gpu, --gpu",
        "Judge for this GPU: A100; none: for the CPU.",
        "NAME",
        multiple=True,
        name="target_gpu",
        common=True,
    ),
    Option("--target-driver", "Judge for this NVIDIA driver: 535.", "VERSION", multiple=True),
    Option("--resolve", "Ask uv, which uses the network, what the list of --lock takes.", kind="flag", group=JUDGED),
    as_of_option,
    group=RUN,
)

code_option = Option(
    "--code",
    "Your own script, notebook or folder: judges what it uses (repeatable; it is parsed, never run).",
    "PATH",
    multiple=True,
    group=JUDGED,
    common=True,
)

#: An object id is a hash of the content: that of a file that is not read to the end stays unknown.
hash_option = Option(
    "--hash",
    "Read files above 64 MiB to the end, to compare them by content (with a pin, too).",
    kind="flag",
    group=JUDGED,
)

#: How far the Hub may be asked.
hub_options = Options(
    Option("--offline", "Only the local cache and folders.", kind="flag"),
    seconds_option._replace(flag="--timeout", default=60.0, help="For everything that is asked of the Hub."),
    group=JUDGED,
)

lang_option = Option(
    "--lang",
    "Language of the text.",
    choices=("auto", "en", "zh"),
    variable="ENVDOCTOR_LANG",
    usual="auto",
    group=REPORT,
    spellings=dict.fromkeys(("cn", "zh-cn", "zh_cn", "chinese", "中文"), "zh") | {"english": "en"},
)


#: Which configuration and which private rules.
configuration_options = Options(
    matrix_option.about("Folder of private rules (ids start with x-)."),
    Option("--config", "Configuration file instead of the project's.", "FILE", "path", variable="ENVDOCTOR_CONFIG"),
    Option("--no-config", "Read no configuration file.", kind="flag"),
    group=GATE,
)


#: The gate, and how the report is written.
report_options = Options(
    Option(
        "--fail-on",
        "Lowest severity that fails the run.",
        choices=("error", "warning", "note"),
        variable="ENVDOCTOR_FAIL_ON",
        usual="error",
        common=True,
    ),
    Option(
        "--fail-confidence",
        "Lowest confidence that fails the run.",
        choices=("reproduced", "upstream", "reported", "inferred"),
        variable="ENVDOCTOR_FAIL_CONFIDENCE",
        usual="reported",
    ),
    Option("--exit-zero", "Exit 0 although there are findings.", kind="flag"),
    Option("--baseline", "Findings that are known do not fail the run.", "FILE", kind="path", common=True),
    Option("--write-baseline", "Accept what is found; beside --baseline only drop what is gone.", "FILE", kind="path"),
    Option("--only-new", "Show only what is not in the baseline.", kind="flag"),
    Options(
        Option(
            "--format", "How it is written", choices=tuple(FORMATS), default="terminal", name="format_", common=True
        ),
        Option("--output", "Write a report to a file as well.", "FORMAT=FILE", multiple=True, name="outputs"),
        Option("--color", "Whether it is coloured.", choices=("auto", "always", "never"), default="auto"),
        lang_option,
        Option(
            "-v, --verbose", "Also facts with their origin, and rules that were not checked.", kind="count", common=True
        ),
        Option("-q, --quiet", "Only findings; twice: nothing but the exit code.", kind="count"),
        group=REPORT,
    ),
    group=GATE,
)


#: Options that `envdoctor plan` takes as well.
_PLANNED = Options(source_options, target_options, recipe_option, method_option, code_option, configuration_options)


class CommandOptions:
    """The values of shared options: the command line wins over environment variables, these over the configuration. A
    word without an option goes to the options that it stands for."""

    def __init__(self, options: dict[str, Any]) -> None:
        from envdoctor.app.facts import working_directory

        self._options = options
        for word in options.pop(_WORDS, ()):
            _put_in_place(options, word)
        self._stated = [word for row in _PLANNED.all for word in row.typed(options.get(row.keyword))]
        here = working_directory()
        path = options["config"] or (project.find_configuration(here) if here and not options["no_config"] else None)
        self.configuration = (
            project.load_configuration(path) if path and not options["no_config"] else project.Configuration()
        )
        self._put_configured(options)

    def _put_configured(self, options: dict[str, Any]) -> None:
        """Fill options that were not typed from the configuration. Its lock gives way to any other environment that was
        named, its baseline to one that is to be written."""
        from envdoctor.observe.sources import SOURCES

        environments = {name for name in SOURCES if options.get(name)}
        rivals = {"lock": bool(environments), "baseline": options.get("write_baseline") is not None}
        for name, value in self.configuration.options.items():
            if name in options and not options[name] and not rivals.get(name):
                options[name] = _near(value) if name == "lock" else value

    @cached_property
    def matrix(self) -> Any:
        """Return the matrix with the private rules of the configuration and of the command line."""
        return load_matrix((*self.configuration.matrix, *self._options["matrix"]))

    @property
    def lang(self) -> str:
        """Return the language of the text."""
        return choose_lang(self._options["lang"] or self.configuration.lang or "auto", os.environ, sys.stdout.encoding)

    def page(self, **layout: Any) -> Page:
        """Return a page in that language."""
        return Page(self.matrix.registry, self.lang, **layout)

    def doing(self, activity: str, silent: bool = False) -> Any:
        """Show the activity: :func:`~envdoctor.cli.output.progress_line`."""
        from envdoctor.cli.output import progress_line

        return progress_line(silent or self._options.get("quiet", 0) > 0, self.lang, activity)

    def sources(self, **instead: Any) -> Any:
        """Return the sources to judge; ``instead`` replaces typed values. Options the command lacks are empty."""
        from envdoctor.app.facts import Sources
        from envdoctor.observe.sources import SOURCES

        configuration, options = self.configuration, {**self._options, **instead}
        method = [("recipe.method", [options["method"]])] if options.get("method") is not None else []
        environment: dict[str, Any] = {name: options.get(name) for name in SOURCES if name != "default"}
        others = any(value for name, value in environment.items() if name != "python")
        if environment["python"] and others and _is_from_environment("python", options):
            environment["python"] = None
        return Sources(
            **environment,
            target=next(iter(stated_targets(options)), {}),
            as_of=options.get("as_of"),
            resolve=options.get("resolve", False),
            model=options["model"] if options.get("model") is not None else configuration.model,
            recipe=options.get("recipe") or tuple(_near(path) for path in configuration.recipe),
            code=options.get("code") or tuple(_near(path) for path in configuration.code),
            assignments=(*method, *options["assignments"]),
            configured=configuration.assignments,
            configured_in=configuration.path.name if configuration.path else "configuration",
            gpu=not options["no_gpu"],
            hash=options.get("hash", False),
            cache=not options.get("no_cache", False),
        )


def _put_in_place(options: dict[str, Any], word: str) -> None:
    """Give a word to the options that it stands for. Raises :class:`~envdoctor.app.errors.UsageProblem`."""
    from envdoctor.app.facts import working_directory
    from envdoctor.app.words import meant

    kinds = meant(word, str(working_directory() or os.curdir), options)
    for kind in kinds:
        if isinstance(options[kind], tuple):
            options[kind] = (*options[kind], word)
        elif options[kind] is None or _is_from_environment(kind, options):
            options[kind] = word
        else:
            text = "{} and {}: a run judges one --{}: run it for each (a pre-commit hook: pass_filenames: false)"
            raise UsageProblem(text, options[kind], word, kind)


def _is_from_environment(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether a variable gave an option that was not typed."""
    if "from_environment" in options:
        return name in options["from_environment"]
    import click

    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.ENVIRONMENT


def stated_targets(options: dict[str, Any]) -> list[Any]:
    """Return the machines that ``--target-`` options name, each combination."""
    from envdoctor.app.reporting import targets_of

    values = {name: options.get(f"target_{name}") or () for name in ("python", "platform", "gpu", "driver")}
    split = {name: [part.strip() for text in texts for part in text.split(",")] for name, texts in values.items()}
    return targets_of(split)


def _near(path: Path) -> str:
    """Return a path of the configuration as the user would type it here."""
    from envdoctor.app.facts import working_directory

    here = working_directory()
    return str(path.relative_to(here)) if here is not None and path.is_relative_to(here) else str(path)


class CommandRun(CommandOptions):
    """The options of a command that judges, checked before its work begins. ``judging`` are the arguments that commands
    of :mod:`envdoctor.app` take. Raises :class:`~envdoctor.app.errors.UsageProblem`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._outputs = []
        for value in options["outputs"]:
            name, _, file = value.partition("=")
            if not file or name not in FORMATS:
                formats = ", ".join(FORMATS)
                raise UsageProblem("--output {}: FORMAT=FILE is expected, with FORMAT one of {}", value, formats)
            self._outputs.append((name, Path(file)))
        super().__init__(options)
        baseline = None
        if options["baseline"] is not None:
            baseline = project.read_baseline(options["baseline"])
        elif options["only_new"]:
            raise UsageProblem("--only-new needs --baseline FILE, which says what is old")
        # The gate and what the project accepts: command line over environment variables over configuration.
        gate = {name: options[name] for name in ("fail_on", "fail_confidence")}
        self._policy = self.configuration.policy(**gate, baseline=baseline)
        self.judging = {"policy": self._policy, "matrix": self.matrix, "exit_zero": options["exit_zero"]}

    def present(self, report: Report, *, detail: str = "usual") -> int:
        """Write the report's files, then the report itself. Return the exit code of the run."""
        from envdoctor.cli.output import write_stdout

        options, lang = self._options, self.lang
        verbosity = options["verbose"] - options["quiet"]
        if verbosity > 0:
            report = report.changed(all_facts=True)
        if options["write_baseline"] is not None:
            report = _accepted(report, self._policy.baseline, options["write_baseline"])
        if options["only_new"]:
            shown = tuple(finding for finding in report.findings if finding.baseline != "unchanged" or finding.gate)
            report = report.changed(findings=shown)
        for name, path in self._outputs:
            project.write_whole(path, report.written(name, lang))
        if options["format_"] != "terminal":
            write_stdout(report.written(options["format_"], lang))
        elif verbosity > -2:
            from envdoctor.report.terminal_report import render

            isatty, notebook = sys.stdout.isatty(), "ipykernel" in sys.modules
            color = decide(options["color"], os.environ, isatty, notebook=notebook)
            width = choose_width(os.environ, isatty, notebook=notebook)
            layout: dict[str, Any] = {"color": color, "width": width, "verbosity": verbosity, "detail": detail}
            write_stdout(render(report, lang, again=self._again(report), **layout))
        return report.exit_code

    def _again(self, report: Report) -> str:
        """Return the command that lists the changes which end the errors of a check; the page may find none."""
        installed = report.target.kind in ("venv", "conda", "system")
        whole = installed and report.facts.absent("pkg.torch")  # there is nothing to change
        if report.command != "check":
            return ""
        words = list(self._stated)
        if whole and "--python" in words:
            python = report.facts.text("python.minor")
            words[(at := words.index("--python")) : at + 2] = ["--target-python", python] if python else []
        elif installed and not whole and "--python" not in words:
            words = ["--python", report.target.path, *words]
        return shlex.join(["envdoctor", "plan", *words])


def _accepted(report: Report, before: tuple[Known, ...] | None, path: Path) -> Report:
    """Return the report after its findings were written as a baseline; they no longer fail this run."""
    baseline = project.write_baseline(path, report, before)
    shown = len(baseline) if before is not None else min(len(baseline), len(list(report.shown())))
    behind = f", and {len(baseline) - shown} that they stand for" if shown < len(baseline) else ""
    print(f"{path}: {shown} finding(s) accepted{behind}", file=sys.stderr)
    return report if before is not None else project.accepted(report, baseline)
