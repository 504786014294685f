"""``envdoctor fix``: the plan of ``check``, shown, confirmed, and carried out by the environment's own installer.

Every file that the installer will touch is copied first. Then the environment is judged again, and its packages are
really imported. If anything is wrong then, the environment is put back to the byte.
"""

import difflib
import json
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from envdoctor.app.check import check, finished
from envdoctor.app.configuration import write_whole
from envdoctor.app.errors import JobError, told_as
from envdoctor.app.facts import Sources
from envdoctor.experiments.probe.verdict import failure_of
from envdoctor.facts.factset import FactSet
from envdoctor.judge.finding import Finding, Plan, Policy
from envdoctor.matrix.entry_statements import entries
from envdoctor.matrix.matrix import Matrix, load_matrix
from envdoctor.remedy import installer
from envdoctor.remedy.own_keys import with_settings
from envdoctor.report.findings import again_words
from envdoctor.report.page import Page
from envdoctor.report.report import Report
from envdoctor.system import target
from envdoctor.system.clean import without_credentials
from envdoctor.system.files import because_of
from envdoctor.system.message import Message, listed
from envdoctor.system.undo import Busy, NoRoom, Undo, without_new

#: The folder of the copy, in the environment itself: on its disk, where the next run finds it.
FOLDER = ".envdoctor-fix"
#: A file that uv makes even in an environment that it only reads.
_LOCK_OF_UV = ".lock"
_IMPORTS = "probes/imports.py:imports"
_SECONDS, _MIB = 900.0, 8000
_MOST_REASONS = 3
_NO_COPY = "nothing was changed: no copy of its files can be made in the environment: {}"


class Talk(NamedTuple):
    """The talk with the user: ``say`` shows a line, ``confirm`` asks a question, ``progress`` shows the activity."""

    say: Callable[[str], None]
    confirm: Callable[[str], bool]
    progress: Callable[[str], None]


class _Prepared(NamedTuple):
    """The work to do: the ``commands``, their changes, and the new texts of the recipe's files."""

    plan: Plan
    commands: tuple[tuple[str, ...], ...]
    changes: tuple[installer.PackageChange, ...]
    texts: Mapping[str, str]


class _Failed(Exception):
    """The changes do not stay; the reasons are sentences in the language of the page."""


def fix(
    sources: Sources,
    talk: Talk,
    *,
    dry_run: bool = False,
    write: bool = False,
    policy: Policy | None = None,
    matrix: Matrix | None = None,
    lang: str = "en",
) -> int:
    """Show the plan for an environment and carry it out once it is confirmed; return the exit code: 0 when the
    environment is whole, 1 when something is left or everything was put back. ``dry_run`` shows only; ``write`` changes
    the recipe's files too. Raises :class:`~envdoctor.app.errors.UsageProblem` and
    :class:`~envdoctor.app.errors.JobError`, the latter where nothing was or may be changed."""
    matrix = matrix or load_matrix()
    run = _Fix(sources, talk, policy, matrix, Page(matrix.registry, lang))
    report = run.judged()
    if run.is_unfinished(report.facts):
        if not run.put_back_unfinished(report.facts, dry_run=dry_run):
            return 1
        report = run.judged()
    page, errors = run.page, _errors(report)
    if not errors:
        finished(report)
        talk.say(page.say("nothing to change: no error is known"))
        return 0
    plan = report.plan
    for error in errors.values():
        stays = plan is None or error.fingerprint in plan.leaves
        error_text = page.labelled(error.id, page.message(error))
        talk.say(page.say("stays: {error}", error=error_text) if stays else page.say("ends: {error}", error=error_text))
    if plan is None:
        talk.say(page.say("fix cannot do this by itself; envdoctor check has the commands"))
        return 1
    place, prepared = run.prepared(report, plan, write=write)
    run.show(prepared, report, write=write)
    can_be_done = prepared.commands or (write and prepared.texts)
    if dry_run or place is None or not can_be_done:
        return 1
    if not talk.confirm(page.say("Apply this?")):
        talk.say(page.say("nothing was changed"))
        return 1
    return run.carry_out(report, prepared, place, write=write)


class _Fix:
    """One run of fix on an environment, with the policy that judges it."""

    def __init__(self, sources: Sources, talk: Talk, policy: Policy | None, matrix: Matrix, page: Page) -> None:
        self._sources, self._talk, self._policy, self._matrix, self.page = sources, talk, policy, matrix, page
        self._environ, self._cwd = sources.environ, sources.folder()

    def judged(self) -> Report:
        """Return the present report of ``check``."""
        return check(self._sources, policy=self._policy, matrix=self._matrix)

    # --- the remains of an interrupted run ----------------------------------------------------------------------------

    def is_unfinished(self, facts: FactSet) -> bool:
        """Return whether a copy lies in the environment."""
        prefix = facts.text("environment.path")
        return prefix is not None and os.path.isdir(os.path.join(prefix, FOLDER))

    def put_back_unfinished(self, facts: FactSet, *, dry_run: bool) -> bool:
        """Offer to undo the changes of an interrupted run; return whether the environment is as it was before."""
        place, talk, page = self._place(facts), self._talk, self.page
        undo = self._undo(place)
        if not self._take(undo):
            undo.release() if dry_run else undo.discard()  # that run ended before it changed anything
            return True
        commands = " && ".join(" ".join(line.split()) for line in undo.about())
        talk.say(page.say("an interrupted fix left this environment half changed: {commands}", commands=commands))
        if dry_run or not talk.confirm(page.say("Put back what was there before?")):
            undo.release()
            talk.say(page.say("nothing was changed"))
            return False
        with _undisturbed():
            lost = undo.put_back()
            undo.release() if lost else undo.discard()
        self._say_put_back(lost)
        return not lost

    def _undo(self, place: installer.PackageFolders) -> Undo:
        try:
            return Undo(os.path.join(place.prefix, FOLDER), place.roots)
        except OSError as error:
            raise JobError("{}: cannot be read: {}", place.prefix, because_of(error)) from None

    def _take(self, undo: Undo) -> bool:
        try:
            return undo.take()
        except Busy:
            raise JobError("another envdoctor fix is at work in this environment") from None
        except OSError as error:
            raise JobError(_NO_COPY, because_of(error)) from None

    def _say_put_back(self, lost: Sequence[str]) -> None:
        text = (
            "put back, but for {n} file(s) that no copy has: {names}; `envdoctor check --python {python}` names their "
            "packages: install those again"
        )
        names, python = self.page.sentence(listed(lost)), shlex.quote(self._sources.python or "PATH")
        whole = self.page.say("the environment is as it was before")
        self._talk.say(self.page.say(text, len(lost), names=names, python=python) if lost else whole)

    # --- the work to do -----------------------------------------------------------------------------------------------

    def _place(self, facts: FactSet) -> installer.PackageFolders:
        python = facts.text("python.executable")
        if python is None:
            raise JobError("fix changes the environment of an interpreter: give --python PATH")
        with told_as(JobError, installer.InstallerError):
            return installer.place_of_python(python, self._environ, self._cwd)

    def prepared(self, report: Report, plan: Plan, *, write: bool) -> tuple[installer.PackageFolders | None, _Prepared]:
        """Return the place and the work; no place if the user has to do it. Raises :class:`JobError` for an environment
        that must not be changed."""
        facts = report.facts
        words = [tuple(shlex.split(line)) for line in plan.commands]
        commands = tuple(line for line in words if line[0] not in ("export", "unset"))
        texts = self._texts(plan, facts)
        if facts.value("environment.kind") == "conda" or any(line[0] == "conda" for line in commands):
            self._talk.say(self.page.say("a conda environment is not changed from here: run the commands yourself"))
            return None, _Prepared(plan, commands, (), texts)
        place = self._place(facts)
        if commands and not place.free:
            text = "{}: the system manages this Python (PEP 668): make a virtual environment, and install there"
            raise JobError(text, place.prefix)
        writable = [folder for folder in (place.prefix, *place.site) if not os.access(folder, os.W_OK)]
        if commands and writable:
            raise JobError("{}: cannot be written, so nothing can be changed there", writable[0])
        self._talk.progress(self.page.say("asking the installer what it would change"))
        versions = _versions(facts)
        with told_as(JobError, installer.InstallerError), without_new(place.prefix, _LOCK_OF_UV):
            previews = [installer.preview(line, versions, self._environ, self._cwd) for line in commands]
        changes = installer.merged(change for some in previews for change in some)
        self._refuse_foreign(facts, {change.name for change in changes})
        return place, _Prepared(plan, commands, changes, texts)

    def _refuse_foreign(self, facts: FactSet, names: set[str]) -> None:
        """Raise :class:`JobError` for a package that is not of an index: a release would replace the user's choice."""
        for dist in facts.each("dist"):
            name, path = dist.text("name"), dist.text("path")
            if name not in names or path is None or dist.value("active") is not True:
                continue
            url = _direct_url(path)
            if url is not None or dist.value("editable") is True:
                text = (
                    "{} is installed from {}, and the plan puts a release of the index in its place: do that yourself"
                )
                raise JobError(text, name, url or Message("a folder of yours"))

    def _texts(self, plan: Plan, facts: FactSet) -> dict[str, str]:
        """Return the recipe's files with the plan's settings, where they can be changed."""
        texts: dict[str, str] = {}
        for name in self._sources.recipe if plan.keys else ():
            try:
                texts[name] = Path(self._cwd, name).read_bytes().decode("utf-8")
            except (OSError, ValueError):
                continue
        return with_settings(texts, {key: facts.get(key).origin for key in plan.keys}, plan.keys)

    def show(self, prepared: _Prepared, report: Report, *, write: bool) -> None:
        """Show the work to do."""
        say, page, plan = self._talk.say, self.page, prepared.plan
        say(page.say("environment: {path}", path=report.facts.text("environment.path")))
        for command in prepared.commands:
            say(page.say("install: {command}", command=shlex.join(command)))
        for change in prepared.changes:
            say(f"  {change.name} {change.old or '-'} -> {change.new or '-'}")
        for line in again_words(plan, page):
            say(line)
        for name, value in plan.env.items():
            say(page.say("also: {change}", change=f"{name}={value}"))
        for path, text in prepared.texts.items():
            lines = Path(self._cwd, path).read_text(encoding="utf-8").splitlines()
            for line in difflib.unified_diff(lines, text.splitlines(), path, path, lineterm="", n=0):
                say(line)
        if prepared.texts and not write:
            say(page.say("the recipe is changed with --write only"))
        elif plan.set and not prepared.texts:
            for key, value in plan.set.items():
                say(page.say("also: {change}", change=plan.keys.get(key, f"{key}={value}")))

    # --- doing it -----------------------------------------------------------------------------------------------------

    def carry_out(self, report: Report, prepared: _Prepared, place: installer.PackageFolders, *, write: bool) -> int:
        """Copy, change and judge; put everything back if it is not whole then. Return the exit code."""
        page, talk = self.page, self._talk
        talk.progress(page.say("importing what is installed"))
        failing = self._imports(report.facts)
        for reason, statements in _by_error(failing, page).items():
            names = page.sentence(listed(statements, 1))
            talk.say(page.say("fails now: {statements}: {why}", statements=names, why=reason))
        undo, texts = self._undo(place), prepared.texts if write else {}
        old = {path: (Path(self._cwd, path).read_bytes(), os.stat(Path(self._cwd, path)).st_mtime_ns) for path in texts}
        self._copy(undo, report.facts, place, prepared)
        try:
            for command in prepared.commands:
                talk.progress(page.say("install: {command}", command=shlex.join(command)))
                installer.install(command, self._environ, self._cwd)
            for path, text in texts.items():
                write_whole(Path(self._cwd, path), text)
            errors = self._whole(report, prepared, write=write)
        except BaseException as error:
            with _undisturbed():  # and nothing is shown before it is done: the reader may be gone
                lost = undo.put_back()
                for path, (content, time) in old.items():
                    with suppress(OSError):
                        Path(self._cwd, path).write_bytes(content)
                        os.utime(Path(self._cwd, path), ns=(time, time))
                undo.release() if lost else undo.discard()
            talk.say(page.say("not whole: {reason}", reason=self._reason(error)))
            self._say_put_back(lost)
            if isinstance(error, (_Failed, installer.InstallerError, JobError, OSError, KeyboardInterrupt)):
                return 1
            raise
        undo.discard()
        talk.say(page.say("done: {n} statement(s) that failed work now", len(failing)) if failing else page.say("done"))
        for finding in errors:
            talk.say(page.say("stays: {error}", error=page.labelled(finding.id, page.message(finding))))
        return 1 if errors else 0

    def _copy(self, undo: Undo, facts: FactSet, place: installer.PackageFolders, prepared: _Prepared) -> None:
        """Copy the files that the installer will touch. Raises :class:`JobError`, after which the copy is gone."""
        if self._take(undo):
            undo.release()
            raise JobError("an interrupted fix left this environment half changed: run envdoctor fix again")
        try:
            self._talk.progress(self.page.say("copying what will be changed"))
            undo.copy(self._touched(facts, place, prepared.changes), list(map(shlex.join, prepared.commands)))
        except BaseException as error:
            undo.discard()
            match error:
                case NoRoom(needed=needed, free=free):
                    text = "nothing was changed: the copy needs {} MiB, and the disk has {} MiB left"
                    raise JobError(text, needed >> 20, free >> 20) from None
                case OSError():
                    raise JobError(_NO_COPY, because_of(error)) from None
            raise

    def _reason(self, error: BaseException) -> str:
        match error:
            case KeyboardInterrupt():
                return self.page.say("interrupted")
            case OSError():
                return self.page.sentence(because_of(error))
        return self.page.sentence(error.args[0] if error.args else type(error).__name__)

    def _whole(self, report: Report, prepared: _Prepared, *, write: bool) -> list[Finding]:
        """Return the errors that stay as the plan said. Raises :class:`_Failed` if any other error stays."""
        page, plan, before = self.page, prepared.plan, {finding.fingerprint for finding in report.findings}
        self._talk.progress(page.say("judging again"))
        after = self.judged()
        errors = _errors(after)
        is_done = not plan.env and (write or not plan.set)
        reasons = [
            page.say("an error stands: {error}", error=page.labelled(error.id, page.message(error)))
            for fingerprint, error in errors.items()
            if fingerprint not in before or (is_done and fingerprint in plan.clears)
        ]
        if after.exit_code == 3 and report.exit_code != 3:
            reasons.append(page.say("it could not be judged"))
        self._talk.progress(page.say("importing what is installed"))
        reasons += [
            page.say("{statements} fails: {why}", statements=page.sentence(listed(statements, 1)), why=reason)
            for reason, statements in _by_error(self._imports(after.facts), page).items()
        ]
        if reasons:
            raise _Failed("; ".join(reasons[:_MOST_REASONS]))
        return list(errors.values())

    def _imports(self, facts: FactSet) -> Mapping[str, str]:
        """Return the failing statements, each with its error, among the usual imports of the installed packages, in a
        bounded child without a GPU."""
        installed = _versions(facts)
        statements = [entry.statement for entry in entries(self._matrix.rows, installed) if not entry.needs_gpu]
        python = facts.text("python.executable")
        if not statements or python is None:
            return {}
        task = target.Task(_IMPORTS, {"device": "cpu", "entries": statements}, seconds=_SECONDS, memory_mib=_MIB)
        with target.scratch_folder("envdoctor-fix-") as scratch:
            (answer,) = target.run_in_target([task], target.Place(python, self._environ, self._cwd, scratch))
        failing = (reply for reply in answer.records if reply.get("outcome") != "works")
        failed: dict[str, str] = {str(reply["case"]): failure_of(reply) for reply in failing}
        return failed if answer.ending == "ok" else {**failed, "import": f"{answer.ending}: {answer.detail}"}

    def _touched(
        self, facts: FactSet, place: installer.PackageFolders, changes: Sequence[installer.PackageChange]
    ) -> Callable[[str], bool]:
        """Return a function that tells if the installer may touch the file of a path: a changed package lists it, or it
        lies below a folder of the package's name."""
        names = {change.name for change in changes}
        modules = {str(row["name"]): str(row["module"]) for row in self._matrix.rows("stack-modules", "module")}
        folders = {
            os.path.join(site, modules.get(name, name.replace("-", "_"))) for site in place.site for name in names
        }
        files, tops = set[str](), dict[str, bool]()
        for dist in facts.each("dist"):
            path = dist.text("path")
            if dist.text("name") not in names or path is None:
                continue
            path = os.path.realpath(path)
            site = os.path.dirname(path)
            folders.add(path)
            for name in _listed(path):
                file = os.path.normpath(os.path.join(site, name))
                files.add(file)
                if file.startswith(site + os.sep):
                    top = os.path.join(site, file[len(site) + 1 :].partition(os.sep)[0])
                    if top not in tops:
                        tops[top] = os.path.isfile(os.path.join(top, "__init__.py"))
        folders |= {top for top, is_package in tops.items() if is_package}
        inside = tuple(folder + os.sep for folder in folders)

        def is_touched(path: str) -> bool:
            folder, name = os.path.split(path)
            if path in files or path in folders or path.startswith(inside):
                return True
            source = os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
            return os.path.basename(folder) == "__pycache__" and source in files

        return is_touched


def _errors(report: Report) -> dict[str, Finding]:
    """Return the findings that fail the run, by their fingerprints."""
    return {finding.fingerprint: finding for finding in report.shown() if finding.gate}


def _by_error(failing: Mapping[str, str], page: Page) -> dict[str, list[str]]:
    by_error: dict[str, list[str]] = {}
    for statement, reason in failing.items():
        by_error.setdefault(page.sentence(reason), []).append(statement)
    return by_error


def _listed(path: str) -> Iterator[str]:
    """Yield the files that a distribution lists, relative to the folder of packages."""
    import csv

    for name, below in (("RECORD", ""), ("installed-files.txt", os.path.basename(path)), ("top_level.txt", "")):
        try:
            with open(os.path.join(path, name), encoding="utf-8", newline="") as file:
                rows = [row[0] for row in csv.reader(file) if row]
        except (OSError, ValueError, csv.Error):
            continue
        for row in rows:
            yield os.path.join(below, row)
            if name == "top_level.txt":
                yield os.path.join(row, "__init__.py")


def _direct_url(path: str) -> str | None:
    """Return the source of a distribution that is not of an index (PEP 610), without credentials."""
    try:
        with open(os.path.join(path, "direct_url.json"), encoding="utf-8") as file:
            return without_credentials(str(json.load(file)["url"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "?"


def _versions(facts: FactSet) -> dict[str, str]:
    return {fact.key[4:]: fact.value for fact in facts.below("pkg.") if isinstance(fact.value, str)}


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals while files are put back."""
    here = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers} if here else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
