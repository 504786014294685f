"""The matrix and the facts of an environment, often few, in which answers are looked up; and one question to them: who
asks, and what can be installed, each release judged on the facts before.
And the answer, as data: renderers say it, programs read it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.judge.finding import Text
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.tracebacks import Failure, Reading
from envdoctor.remedy.candidates import Candidates, no_build
from envdoctor.remedy.commands import Before, before, install_commands, place_of, try_remedy
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import NotASpecifier, is_version, satisfies
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotARequirement, read_requirement

_WARNS = re.compile(r"Warning\b|\bwarn\(|\bWARNING\b")


class Home(NamedTuple):
    """The releases of ``package`` that have ``thing`` (``transformers.HybridCache``, ``TrainingArguments(no_cuda=)``).

    ``kind`` is package, module, name, keyword, member, passes or asks: for passes the releases are those that pass an
    argument to a method of the user's own, for asks those that require an argument. ``releases`` is a specifier ("" for
    all known releases, several spans joined by `` or ``), None if no release is known to have it. ``first`` and
    ``last`` are the first and last release that was read, empty if unknown. ``doubt`` says why other releases may have
    it too. ``installed`` is the version in the judged environment ("" if unknown), ``there`` whether that version has
    it, None if unknown. ``having`` are the ledger's releases (None: by a table); it is not shown.
    """

    package: str
    kind: str
    thing: str
    releases: str | None
    first: str = ""
    last: str = ""
    doubt: str = ""
    installed: str = ""
    there: bool | None = None
    having: Releases | None = None


class Moved(NamedTuple):
    """The replacement: ``new`` (``evaluate.load``) of ``package`` in ``releases`` ("" if unknown). ``write`` says how
    to use it. ``source`` is the address that shows it, empty if the released files themselves show it."""

    new: str
    package: str
    releases: str = ""
    write: Text | None = None
    source: str = ""


class Asker(NamedTuple):
    """The package whose code asked, and its module. ``version`` is "" if unknown. ``asks`` are its releases that ask
    for this name, as a specifier, None if unknown. ``fits`` are the releases that do not ask for it, or that fit
    ``beside`` (``transformers 5.23.0``), the nearest first."""

    package: str
    module: str
    version: str = ""
    asks: str | None = None
    fits: tuple[str, ...] = ()
    beside: str = ""


class Way(NamedTuple):
    """An action. ``kind`` is install, write, accept (an argument), rename (a file), or reinstall; ``pins`` are
    requirements. ``withheld`` says why it is not offered in this environment."""

    kind: str
    pins: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    what: str = ""
    withheld: Message | None = None


class RelatedRule(NamedTuple):
    """A rule about the same names; ``applies`` is None if the facts do not decide."""

    id: str
    title: Text
    applies: bool | None


class Suspect(NamedTuple):
    """A rule that may explain a log: its symptom stands in ``line`` (from 1), whose text is ``said``. ``applies`` is
    None if the facts do not decide; ``missing`` are the keys that would. ``fix`` is the first of its fixes, with other
    releases of the ``packages`` that it installs if the facts do not decide, ``source`` the address of its first
    evidence ("" for none). ``rule`` is False for a row of the table ``known-errors``."""

    id: str
    title: Text
    applies: bool | None
    line: int
    said: str
    why: Text
    fix: Text | None
    source: str
    missing: tuple[str, ...] = ()
    rule: bool = True
    packages: frozenset[str] = frozenset()

    @property
    def remark(self) -> bool:
        """Return whether the line is a warning, which did not end the run: an error in the same log says more."""
        return _WARNS.search(self.said) is not None


class Answer(NamedTuple):
    """``known`` is False when nothing is known about the error. ``notes`` are codes of further remarks (``circular``,
    ``shadow``, ``mixed``, ``changed``, ``unbuilt``, ``elsewhere``, ``unfit``, ``part``, ``class``, ``lazy``) with their
    subjects."""

    reading: Reading
    homes: tuple[Home, ...] = ()
    moved: tuple[Moved, ...] = ()
    asker: Asker | None = None
    ways: tuple[Way, ...] = ()
    rules: tuple[RelatedRule, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> bool:
        """Return whether the answer has anything beyond the message."""
        return bool(self.suspects or self.homes or self.moved or self.ways or self.rules or self.notes)


_TRIES = 6
#: Functions that only pass on a lazy package's request.
_PASSING = ("__getattr__", "_get_module", "import_module", "_handle_fromlist")


class Situation:
    """A matrix and derived ``facts``, which are empty if no environment is judged."""

    def __init__(self, matrix: Matrix, facts: FactSet) -> None:
        self.matrix, self.facts = matrix, facts
        self.ledger: Ledger = matrix.ledger

    def by_names(self, package: str | None) -> Released | None:
        """Return a package if the ledger has read its names, of one release at least; else None."""
        released = self.ledger.package(package) if package else None
        return released if released is not None and released.by_names and released.read else None

    def all_by_names(self) -> Iterator[Released]:
        """Return every package whose names the ledger has read."""
        return filter(None, map(self.by_names, self.ledger.packages()))

    def all_changes(self) -> Iterator[Released]:
        """Return every package with known changes between releases."""
        return filter(None, map(self.ledger.changes, self.ledger.packages()))

    def version(self, package: str, key: str = "pkg.{}") -> str:
        """Return the installed version of a package, "" if it is unknown or not installed."""
        version = self.facts.text(key.format(package))
        return version if version and is_version(version) else ""

    def meets(self, requirement: str) -> bool | None:
        """Return whether the installed package of a requirement meets it; None if unknown."""
        try:
            need = read_requirement(requirement)
            version = self.version(need.name)
            return satisfies(version, need.specifiers) if version else None
        except (NotARequirement, NotASpecifier):
            return None

    def required_by(self, package: str, name: str) -> str | None:
        """Return the specifier by which the installed release of a package, or its newest known one, requires another
        package; None if it does not require it."""
        released = self.ledger.package(package)
        if released is None:
            return None
        version = self.version(package) or next(
            (release.version for release in reversed(released.releases) if release.metadata), ""
        )
        needs = (need for need in (released.requires(version) if version else ()) if need.name == name)
        return next((need.specifiers.replace(" ", "") for need in needs), None)

    def usable(self, package: str, having: Releases) -> list[str]:
        """Return the releases of a set that were not withdrawn and that this Python may install, the nearest to the
        installed one first, or the newest first if that is unknown."""
        python, listed = self.version("", "python.version"), getattr(self.ledger.package(package), "releases", ())
        here = (not row.yanked and (not python or allows(row.requires_python, python)) for row in listed)
        fits = [fit and having.has(row.version) is True for row, fit in zip(listed, here, strict=True)]
        return Releases.of([row.version for row in listed], fits).by_distance(self.version(package))


class Question(Situation):
    """One question: the text as read, and who asked: the package ``asking``, in its module ``asking_in`` (empty: code
    of the user's own). It makes the ways out."""

    def __init__(self, reading: Reading, failure: Failure, situation: Situation) -> None:
        super().__init__(situation.matrix, situation.facts)
        self.reading, self.failure = reading, failure
        self.nothing = Answer(reading)
        self.asking, self.asking_in, certain = self._asking_module()
        if not certain and failure.module and self.ledger.owner(failure.module) == self.asking:
            self.asking = self.asking_in = ""
        self._place = place_of(self.facts)

    def _asking_module(self) -> tuple[str, str, bool]:
        """Return the package of the ledger whose code failed, its module, and whether that is certain: by the last
        frame that is not one of Python's own or of a lazy package's machinery, else by what the user's line imports."""
        for frame in reversed(self.reading.frames):
            if "<frozen" in frame.path or "importlib" in frame.path or frame.function in _PASSING:
                continue
            package = self.ledger.owner(frame.module) if frame.module else None
            return (package, frame.module, True) if package else ("", "", True)
        imported = ((self.ledger.owner(module), module) for module in reversed(self.reading.statements))
        return next(((package, module, False) for package, module in imported if package), ("", "", False))

    @cached_property
    def likely(self) -> list[str]:
        """Return the packages that the text itself shows."""
        modules = [*self.reading.statements, *(frame.module for frame in self.reading.frames if frame.module)]
        return [owner for module in dict.fromkeys(modules) if (owner := self.ledger.owner(module))]

    @property
    def calling(self) -> list[str]:
        """Return the names that the source lines on the way to the error call, the innermost first: one of them may
        have passed its arguments on."""
        lines = reversed([frame.code for frame in self.reading.frames])
        called = [name for line in lines for name in re.findall(r"(?<![\w.])\.*([^\W\d][\w.]*)\(", line[:500])]
        return [name.rpartition(".")[2] for name in called if name.rpartition(".")[2] not in ("super", "__init__")]

    def install(self, package: str, releases: Sequence[str], specifier: str = "") -> Way | None:
        """Return the first of the releases that brings no error and breaks no requirement here; None if there is none.
        For a package that is not installed, or whose version is unknown: the whole range, of several the newest."""
        if not self.version(package):
            reasons = [no_build(package, release, self.facts, self.matrix) for release in releases]
            withheld = reasons[0] if reasons and all(reasons) else None
            return self._way(package, specifier.rpartition(" or ")[2])._replace(withheld=withheld)
        objection: Message | None = None
        for candidate in Candidates(self.facts, self.matrix).of_range(package, releases[:_TRIES]):
            if isinstance(candidate, Message):
                objection = objection or candidate
                continue
            reason = try_remedy(candidate, self._now).objection(self._now)
            if reason is None:
                pins = tuple(name + pin for name, pin in candidate.pins.items())
                return Way("install", pins, candidate.commands(self._place, self._packages))
            objection = objection or reason
        return Way("install", (f"{package}=={releases[0]}",), withheld=objection) if releases else None

    def again(self, package: str) -> Way:
        """Install the same release of a package once more."""
        version = self.version(package)
        way = self._way(package, f"=={version.partition('+')[0]}" if version else "")
        again = (line.replace(" install ", " install --force-reinstall --no-deps ", 1) for line in way.commands)
        return Way("reinstall", way.pins, tuple(again) if self._place.installer != "conda" else ())

    def _way(self, package: str, specifier: str) -> Way:
        commands = install_commands([(package, specifier)], self._place, None, self._packages)
        return Way("install", (package + specifier,), commands)

    @cached_property
    def _now(self) -> Before:
        return before(self.facts, self.matrix)

    @property
    def _packages(self) -> Sequence[Mapping[str, Any]]:
        return self.matrix.rows("packages", "package")
