"""One question to the ledger, and what all answers have in common: who asks, and what is offered to be installed, each
release judged on the facts of the environment before."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.lookup import lacks, provider_of, read_taken
from envdoctor.observe.documents.tracebacks import Failure, Reading
from envdoctor.remedy.answer import Answer, Asker, Home, Moved, Way
from envdoctor.remedy.candidates import Candidates
from envdoctor.remedy.commands import Before, before, install_commands, place_of, try_remedy
from envdoctor.remedy.homes import FoundHomes, usable_releases
from envdoctor.remedy.situation import Situation
from envdoctor.system.message import Message
from envdoctor.versions.releases import Releases

_MOST_HOMES = 2
_TRIES = 6
#: Releases of the asker that are tried, and those of them that are named.
_ASKERS, _NAMED = 12, 3
#: Frames in these only pass on what a lazy package was asked for.
_PASSING = ("__getattr__", "_get_module", "import_module", "_handle_fromlist")


class Question:
    """What is asked: the text as read, where it is looked up, and who asked: the package ``asking``, in its module
    ``asking_in`` (empty: code of the user's own). It makes the ways out; what is installed is judged once."""

    def __init__(self, reading: Reading, failure: Failure, situation: Situation) -> None:
        self.reading, self.failure, self.situation = reading, failure, situation
        self.asking, self.asking_in, certain = _asking_module(situation, reading)
        if not certain and failure.module and situation.ledger.owner(failure.module) == self.asking:
            self.asking = self.asking_in = ""
        self._place = place_of(situation.facts)

    @property
    def likely(self) -> list[str]:
        """The packages that the text itself shows."""
        modules = [*self.reading.statements, *(frame.module for frame in self.reading.frames if frame.module)]
        return [owner for module in dict.fromkeys(modules) if (owner := self.situation.ledger.owner(module))]

    @property
    def calling(self) -> list[str]:
        """What the lines of source on the way to the error call, the innermost first: one of them may have handed on
        what it was given."""
        lines = reversed([frame.code for frame in self.reading.frames])
        called = [name for line in lines for name in re.findall(r"(?<![\w.])\.*([^\W\d][\w.]*)\(", line[:500])]
        return [name.rpartition(".")[2] for name in called if name.rpartition(".")[2] not in ("super", "__init__")]

    def install(self, package: str, releases: Sequence[str], specifier: str = "") -> Way | None:
        """The first of the releases that brings no error and breaks no requirement here; None when there is none. Of a
        package that is not installed, or of no known version: the whole range, of several the newest."""
        if not self.situation.version(package):
            return self._way(package, specifier.rpartition(" or ")[2])
        objection: Message | None = None
        candidates = Candidates(self.situation.facts, self.situation.matrix)
        for candidate in candidates.of_range(package, releases[:_TRIES]):
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
        version = self.situation.version(package)
        way = self._way(package, f"=={version.partition('+')[0]}" if version else "")
        commands = tuple(
            command.replace(" install ", " install --force-reinstall --no-deps ", 1) for command in way.commands
        )
        return Way("reinstall", way.pins, commands if self._place.installer != "conda" else ())

    def _way(self, package: str, specifier: str) -> Way:
        commands = install_commands([(package, specifier)], self._place, None, self._packages)
        return Way("install", (package + specifier,), commands)

    @cached_property
    def _now(self) -> Before:
        return before(self.situation.facts, self.situation.matrix)

    @property
    def _packages(self) -> Sequence[Mapping[str, Any]]:
        return self.situation.matrix.rows("packages", "package")


def with_ways(question: Question, found: Sequence[FoundHomes], moved: Sequence[Moved], asker: Asker | None) -> Answer:
    """The answer with what to do: another release of who asks, of who is asked, or of who has it now."""
    situation, failure = question.situation, question.failure
    notes: list[tuple[str, str]] = [("circular", failure.module)] if failure.circular else []
    ways: list[Way | None] = []
    for one in found:
        home = one.home
        if home.there is True:
            notes.append(("elsewhere", f"{home.package} {home.installed}"))
            continue
        if question.asking == home.package and failure.kind in ("module", "name"):
            notes.append(("mixed", home.package))
            ways.append(question.again(home.package))
        if asker is not None and asker.fits:
            ways.append(question.install(asker.package, asker.fits, f"=={asker.fits[0]}"))
        if home.releases is not None:
            ways.append(question.install(home.package, one.usable(situation), home.releases))
    packages = {one.home.package for one in found}
    for new in moved:
        if new.package and new.package not in packages and not situation.version(new.package):
            ways.append(question.install(new.package, (), new.releases))
    homes = tuple(one.home for one in found)
    offered = tuple(dict.fromkeys(way for way in ways if way is not None))
    return Answer(question.reading, homes, tuple(moved), asker, offered, notes=tuple(notes))


def package_answer(question: Question, home: Home) -> Answer:
    """The answer about a whole package: it is there, and was looked for elsewhere, or a release is to be installed."""
    package, specifier = home.package, home.releases or ""
    answer = Answer(question.reading, (home,), asker=caller(question, package))
    if home.there:
        return answer._replace(notes=(("elsewhere", f"{package} {home.installed}"),))
    newest_first = reversed(getattr(question.situation.ledger.package(package), "releases", ()))
    allowed = [one.version for one in newest_first if not one.yanked and allows(specifier, one.version)]
    way = question.install(package, allowed, specifier)
    return answer._replace(ways=(way,) if way else ())


def caller(question: Question, of: str = "") -> Asker | None:
    """The package that asks, unless it is the one that is asked for something ``of`` its own."""
    if question.asking in ("", of):
        return None
    return Asker(question.asking, question.asking_in, question.situation.version(question.asking))


def distinct(found: Iterable[FoundHomes]) -> list[FoundHomes]:
    """One of each package and thing, the ones that are installed first."""
    unique = list({(one.home.package, one.home.thing): one for one in found}.values())
    return sorted(unique, key=lambda one: not one.home.installed)[:_MOST_HOMES]


def _asking_module(situation: Situation, reading: Reading) -> tuple[str, str, bool]:
    """The package of the ledger whose code failed, its module, and whether that is certain: by the last frame of the
    traceback that is not one of Python's own or of a lazy package's machinery, else by what the user's line imports.
    Empty for code of the user's own, and when the text does not say."""
    for frame in reversed(reading.frames):
        if "<frozen" in frame.path or "importlib" in frame.path or frame.function in _PASSING:
            continue
        package = situation.ledger.owner(frame.module) if frame.module else None
        return (package, frame.module, True) if package else ("", "", True)
    for module in reversed(reading.statements):
        package = situation.ledger.owner(module)
        if package:
            return package, module, False
    return "", "", False


def asker_of(situation: Situation, package: str, module: str, home: Home, asked: str) -> Asker:
    """What is known of the asker about ``asked`` (``transformers:HybridCache``) of the package of ``home``."""
    version = situation.version(package)
    released = situation.by_names(package)
    if released is None:
        return Asker(package, module, version)
    # The releases that take it, by any of their public names, where the condition they put is not known to fail.
    found = [one for one in released.beginning("takes", f"{asked} ") if _counts(situation, one[1])]
    having = (released.having("takes", subject, item=item) for subject, item in found)
    taking = reduce(or_, having, Releases(released.read, 0))
    if not taking.yes:
        return Asker(package, module, version)
    beside = f"{home.package} {home.installed}" if home.installed else ""
    without = [one for one in usable_releases(situation, package, ~taking) if one != version]
    subjects = {subject for subject, *_ in released.beginning("takes", f"{asked} ")} | set(released.modules)
    if home.installed and home.there is False:
        fitting = (one for one in without[:_ASKERS] if _fits(situation, released, one, home, subjects))
        fits = tuple(one for one, _ in zip(fitting, range(_NAMED), strict=False))
    else:
        fits = tuple(without[:_NAMED])
    return Asker(package, module, version, taking.specifier, fits, beside)


def _counts(situation: Situation, item: str) -> bool:
    """Whether a line of [takes] counts here: ``transformers:X @peft.y if transformers>=4.45``."""
    _, _, condition = item.partition(" if ")
    return not condition or situation.meets(condition) is not False


def _fits(situation: Situation, released: Released, version: str, home: Home, subjects: Iterable[str]) -> bool:
    """Whether what a release of the asker takes when it is imported is all in the installed release beside it, and its
    own requirement of that is met."""
    beside, installed = home.package, home.installed
    other = situation.ledger.package(beside)
    if other is None or not _allowed(released, version, beside, installed):
        return False
    for subject in subjects:
        items = released.items("takes", subject, version)
        for item in () if isinstance(items, Unknown) else items:
            take = read_taken(subject, item)
            is_taken = provider_of(situation.ledger, take) is other and _counts(situation, item)
            if is_taken and lacks(other, take, installed):
                return False
    return True


def _allowed(released: Released, version: str, name: str, installed: str) -> bool:
    wanted = (one.specifiers for one in released.requires(version) if one.name == name and not one.marker)
    return all(allows(specifiers, installed) for specifiers in wanted)
