"""Where an environment is read from: one entry a source, and nothing behind this page knows which it was.

A source gives an :class:`Environment`: facts that are known already, or the layout of what lies on disk; and whether it
runs on this machine, so that what the machine says holds for it.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Records
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.request import Request, Target
from envdoctor.system.files import Spent
from envdoctor.system.message import Message

if TYPE_CHECKING:
    from envdoctor.observe.locate.layout import Layout


class Environment(NamedTuple):
    """An environment that was found. ``live``: it would run on this machine. ``facts`` are known without looking, and
    ``text`` is what somebody pasted."""

    target: Target
    live: bool
    facts: FactSet
    layout: "Layout | None" = None
    notes: tuple[Message, ...] = ()
    text: str = ""


class Ask(NamedTuple):
    """Who asks: the caller's variables and folder, the matrix, which documents are read by, and what gives the facts
    that were typed (a lock says what would be installed for a stated target). ``as_of`` is the day after which
    no release is taken, or what asks a resolver. ``run``: a run is in question, which takes place where torch is."""

    environ: Mapping[str, str]
    cwd: str
    matrix: Matrix
    given: Callable[[], FactSet]
    as_of: Any = ""
    run: bool = False


class Source(NamedTuple):
    """``option`` names the source on the command line (empty for the default). ``open`` takes what the user gave.

    ``label`` is what a report calls it, by language. ``open`` raises
    :class:`~envdoctor.observe.request.ObservationError`.
    """

    option: str
    label: Mapping[str, str]
    open: Callable[[str | None, Ask], Environment]


def _on_disk(kind: str) -> Callable[[str | None, Ask], Environment]:
    def open_(given: str | None, ask: Ask) -> Environment:
        from envdoctor.observe.locate.layout import EnvironmentUnreadable
        from envdoctor.observe.locate.target import choose

        python, path, root = (given if name == kind else None for name in ("python", "path", "root"))
        try:
            layout = choose(python, path, root, environ=ask.environ, cwd=ask.cwd)
        except Spent as spent:
            raise EnvironmentUnreadable("{} was {}", given or "the environment", spent) from None
        except ObservationError as error:
            error.usage = error.usage and bool(kind)
            raise
        target = Target(layout.kind, str(layout.prefix), layout.because)
        if not kind and not _has(layout, "torch"):
            if any(True for _ in ask.given().below("pkg.")):
                note = Message("only the packages of --set are judged: {} has no torch and was left out", layout.prefix)
                return Environment(Target("none", "", Message("--set")), True, FactSet(), None, (*layout.notes, note))
            if ask.run and not _has(layout, "transformers"):
                return Environment(target._replace(kind="none"), True, FactSet(), None, layout.notes)
        return Environment(target, layout.live, FactSet(), layout, layout.notes)

    return open_


def _has(layout: "Layout", package: str) -> bool:
    names = chain.from_iterable(map(layout.files.names_or_none, layout.site_packages))
    return any(name == package or name.startswith(f"{package}-") for name in names)


def _facts_file(given: str | None, ask: Ask) -> Environment:
    from envdoctor.observe.documents.facts_file import read_facts_file

    name = str(given)
    unread: list[str] = []
    try:
        facts = read_facts_file(Path(ask.cwd, name), ask.matrix.registry, name, unread)
    except ObservationError as error:
        raise ObservationError("--facts {}", error) from None
    notes = [Message("--facts {}: {}", name, why) for why in unread[:_MOST_UNREAD]]
    if more := len(unread) - len(notes):
        notes.append(Message("--facts {}: {} more facts cannot be read and count as unknown", name, more))
    return Environment(Target("facts", name, Message("--facts")), False, facts, notes=tuple(notes))


def _document(kind: str) -> Callable[[str | None, Ask], Environment]:
    def open_(given: str | None, ask: Ask) -> Environment:
        from envdoctor.observe.documents.locks.opening import open_lock

        rows, ledger = ask.matrix.rows, ask.matrix.ledger
        facts, notes = open_lock(str(given), ask.given(), ask.cwd, rows, ledger, option=f"--{kind}", until=ask.as_of)
        return Environment(Target(kind, str(given), Message("--{}", kind)), False, facts, notes=notes)

    return open_


def _report(given: str | None, ask: Ask) -> Environment:
    from envdoctor.observe.documents.reports.report_file import read_report

    name = str(given)
    try:
        read = read_report(Path(ask.cwd, name), ask.matrix, name)
    except ObservationError as error:
        error.args = (Message("--report {}", error),)
        raise
    return Environment(Target("report", name, Message("--report")), False, read.facts, None, read.notes, read.text)


#: How many values of a facts file are named that cannot be read; of the others the number is said.
_MOST_UNREAD = 10
_ENVIRONMENT = {"en": "Environment", "zh": "环境"}
#: By the name of the option; the first is taken when none is given.
SOURCES: dict[str, Source] = {
    "default": Source("", _ENVIRONMENT, _on_disk("")),
    "python": Source("--python", _ENVIRONMENT, _on_disk("python")),
    "path": Source("--path", {"en": "Folder", "zh": "目录"}, _on_disk("path")),
    "root": Source("--root", {"en": "Root folder", "zh": "根目录"}, _on_disk("root")),
    "lock": Source("--lock", {"en": "Lock file", "zh": "锁文件"}, _document("lock")),
    "sbom": Source("--sbom", {"en": "SBOM", "zh": "SBOM"}, _document("sbom")),
    "facts": Source("--facts", {"en": "Facts file", "zh": "事实文件"}, _facts_file),
    "report": Source("--report", {"en": "Report", "zh": "环境报告"}, _report),
}

#: Sources that describe an environment of somewhere else; a lock is one of the project at hand.
DOCUMENTS = ("facts", "report")


def observe_environment(environment: Environment, request: Request, rooms: Iterable[str] = ()) -> FactSet:
    """Return what is known of the environment and, where it is live, of this machine; ``rooms`` are read besides.

    Raises :class:`~envdoctor.observe.request.ObservationError`.
    """
    from envdoctor.observe.gather import gather, gather_kept

    request = request._replace(layout=environment.layout, facts=environment.facts)
    facts = gather(request, ["machine"]) if environment.live else environment.facts.copy()
    if environment.layout is not None:
        read = gather if request.cache is None else gather_kept
        facts = read(request._replace(facts=facts), ["packages", "binaries", *rooms])
    if environment.layout is not None:
        dists = facts.value("dist")
        if isinstance(dists, Records) and dists.incomplete is None:
            facts.declare_complete("pkg", Message("the environment's metadata"))
    if environment.live:
        facts.declare_complete("env", Message("the environment variables"))
    return facts


def notes_of(environment: Environment, facts: FactSet) -> tuple[Message, ...]:
    """Sentences for the user about what was read, and what could not be."""
    dists = facts.value("dist") if environment.layout is not None else None
    missing = dists.incomplete if isinstance(dists, Records) else None
    return environment.notes + ((missing,) if missing and missing not in environment.notes else ())


def cut_short(environment: Environment) -> Message | None:
    """Return why some of the environment was not looked at, as a sentence; None when all of it was."""
    budget = environment.layout.files.budget if environment.layout is not None else None
    return Message("the environment was {}", budget.spent) if budget is not None and budget.spent else None


def platform_name() -> str:
    """Return ``linux``, ``windows`` or ``darwin``: the platform that envdoctor runs on."""
    import sys

    if sys.platform.startswith("win") or sys.platform == "cygwin":
        return "windows"
    return "darwin" if sys.platform == "darwin" else "linux" if sys.platform.startswith("linux") else sys.platform
