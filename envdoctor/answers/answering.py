"""From the error that was read to the answer: each kind of failure asks the ledger and the table its own question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.answers.answer import Answer, Asker, Home, Moved, Way
from envdoctor.answers.asking import asker_of, asking_module, required_by
from envdoctor.answers.history import Found, found_by_table
from envdoctor.answers.keywords import (
    as_moved,
    called_of,
    keyword_homes,
    keyword_moved,
    member_homes,
    member_moved,
    passing_homes,
)
from envdoctor.answers.names import home_of, is_submodule, moved_of, moved_to
from envdoctor.answers.shadows import shadow_of
from envdoctor.answers.situation import Situation
from envdoctor.answers.speaking import rules_about
from envdoctor.answers.ways import Ways
from envdoctor.knowledge.moved_names import name_moves
from envdoctor.tracebacks.failure import Failure
from envdoctor.tracebacks.reading import Reading
from envdoctor.versions.names import normalise, valid_name
from envdoctor.versions.requirement import NotARequirement, read_requirement

__all__ = ["answer_to"]

_MOST_HOMES = 2


class _Question(NamedTuple):
    """What is asked: the text as read, where it is looked up, and who asked (empty: code of the user's own)."""

    reading: Reading
    failure: Failure
    situation: Situation
    asking: str
    asking_in: str
    ways: Ways

    @property
    def likely(self) -> list[str]:
        """The packages that the text itself shows."""
        modules = [*self.reading.statements, *(frame.module for frame in self.reading.frames if frame.module)]
        return [owner for module in dict.fromkeys(modules) if (owner := self.situation.ledger.owner(module))]


def answer_to(reading: Reading, situation: Situation) -> Answer:
    """What is known about an error."""
    failure = reading.failure
    if failure is None:
        return Answer(reading)
    asking, asking_in, certain = asking_module(situation, reading)
    if not certain and asking and failure.module and situation.ledger.owner(failure.module) == asking:
        asking, asking_in = "", ""
    found = _KINDS[failure.kind](_Question(reading, failure, situation, asking, asking_in, Ways(situation)))
    words = [failure.name, failure.module.rpartition(".")[2] if not failure.name else ""]
    packages = [home.package for home in found.homes] + [asking]
    rules = rules_about(situation, filter(None, words), filter(None, packages)) if found.known else ()
    return found._replace(rules=rules)


def _place(question: _Question) -> Answer:
    """A module, a name, an attribute of a module."""
    failure, situation = question.failure, question.situation
    shadow = shadow_of(situation, question.reading)
    if shadow is not None:
        kind, what = shadow
        package = situation.ledger.owner(failure.module)
        hidden = home_of(situation, package, failure.module, failure.name) if package else None
        homes = (hidden.home,) if hidden is not None and hidden.home.releases is not None else ()
        way = (
            question.ways.again(situation.ledger.owner(what) or what)
            if kind == "no-files"
            else Way("rename", what=what)
        )
        return Answer(question.reading, homes, ways=(way,), notes=(shadow,))
    if failure.kind == "name" and not failure.module:
        failure = failure._replace(module=_only_module_with(situation, failure.name))
    module, name = failure.module, failure.name
    package = situation.ledger.owner(module) if module else None
    if package is None:
        package = next((move.package for move in name_moves(situation.matrix, module, name)), None) if module else None
    if package is None:
        return _required(question, normalise(module)) if failure.kind == "module" else Answer(question.reading)
    if failure.kind == "module" and "." not in module and not list(name_moves(situation.matrix, module)):
        return _whole_package(question, package)
    found = home_of(situation, package, module, name)
    moved = moved_of(situation, package, module, name)
    if failure.kind == "attribute" and is_submodule(situation, package, module, name):
        moved = [Moved(f"import {module}.{name}", package)]
    if found is None or (found.home.releases is None and found.home.doubt and not moved):
        return Answer(question.reading)
    asker = None
    if question.asking and question.asking != package:
        asked = f"{module}:{name}" if name else module
        asker = asker_of(situation, question.asking, question.asking_in, found.home, asked)
    return _with_ways(question, [found], moved, asker)


def _only_module_with(situation: Situation, name: str) -> str:
    """The one package that offers a name at its top, for messages that do not say where it was looked for."""
    found = []
    for released in situation.all_by_names():
        found += [module for module in released.modules if released.spans("offers", module, name)]
    return found[0] if len(found) == 1 else ""


def _required(question: _Question, name: str) -> Answer:
    """A module that no package of the ledger has: what the asking package requires under that name."""
    if not question.asking or valid_name(name) is None or "." in question.failure.module:
        return Answer(question.reading)
    specifier = required_by(question.situation, question.asking, name)
    if specifier is None:
        return Answer(question.reading)
    home = Home(name, "package", question.failure.module, specifier)
    asker = Asker(question.asking, question.asking_in, question.situation.version(question.asking))
    way = question.ways.install(name, (), specifier) or Way("install", (name + specifier,))
    return Answer(question.reading, (home,), asker=asker, ways=(way,))


def _whole_package(question: _Question, package: str) -> Answer:
    situation = question.situation
    installed = situation.version(package)
    asker = specifier = None
    if question.asking and question.asking != package:
        asker = Asker(question.asking, question.asking_in, situation.version(question.asking))
        specifier = required_by(situation, question.asking, package)
    there = True if installed else False if situation.is_missing(package) else None
    home = Home(package, "package", question.failure.module, specifier or "", installed=installed, there=there)
    if there:
        return Answer(question.reading, (home,), asker=asker, notes=(("elsewhere", f"{package} {installed}"),))
    released = situation.ledger.package(package)
    versions = [r.version for r in reversed(released.releases) if not r.yanked] if released is not None else []
    fitting = _within(versions, specifier or "")
    way = question.ways.install(package, fitting, specifier or "") or Way("install", (package,))
    return Answer(question.reading, (home,), asker=asker, ways=(way,))


def _within(versions: Sequence[str], specifier: str) -> list[str]:
    from envdoctor.versions.pep440 import NotASpecifier, satisfies

    try:
        return [version for version in versions if satisfies(version, specifier)]
    except NotASpecifier:
        return list(versions)


def _with_ways(question: _Question, found: Sequence[Found], moved: Sequence[Moved], asker: Asker | None) -> Answer:
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
            ways.append(question.ways.again(home.package))
        if asker is not None and asker.fits:
            ways.append(question.ways.install(asker.package, asker.fits, f"=={asker.fits[0]}"))
        if home.releases is not None:
            ways.append(question.ways.install(home.package, one.usable(situation), home.releases))
    packages = {one.home.package for one in found}
    for new in moved:
        if new.package and new.package not in packages and not situation.version(new.package):
            ways.append(question.ways.install(new.package, (), new.releases))
    homes = tuple(one.home for one in found)
    offered = tuple(dict.fromkeys(way for way in ways if way is not None))
    return Answer(question.reading, homes, tuple(moved), asker, offered, notes=tuple(notes))


def _keyword(question: _Question) -> Answer:
    situation, failure = question.situation, question.failure
    called = called_of(situation, failure.callee, question.likely)
    moves = keyword_moved(situation, failure.callee, called, failure.name)
    found = [home for one in called for home in keyword_homes(situation, one, failure.name, moves)]
    taking = [one for one in found if one.home.releases is not None]
    if not taking and not failure.callee.endswith(("__init__", "__new__")):
        passing = list(passing_homes(situation, failure.callee, f"{failure.name}="))
        if passing:
            return _accepting(question, passing)
    if not taking and moves:
        thing = f"{failure.callee.removesuffix('.__init__')}({failure.name}=)"
        taking = [found_by_table(situation, moves[0], "keyword", thing)]
    moved = [as_moved(move) for move in moves if move.new or move.write][:1]
    return _with_ways(question, _distinct(taking or found), moved, _caller(question))


def _arguments(question: _Question) -> Answer:
    given = int(question.failure.name) - 1  # the message counts self
    return _accepting(question, passing_homes(question.situation, question.failure.callee, str(given)))


def _accepting(question: _Question, found: Iterable[Found]) -> Answer:
    """A method of the user's own that is called in another way than it can take."""
    homes = tuple(one.home for one in _distinct(found))
    return Answer(question.reading, homes, ways=(Way("accept", what=question.failure.name),) if homes else ())


def _member(question: _Question) -> Answer:
    situation, failure = question.situation, question.failure
    called = called_of(situation, failure.callee, question.likely)
    found = list(member_homes(situation, failure.callee, failure.name, question.likely))
    moves = member_moved(situation, failure.callee, called, failure.name)
    if not found and moves:
        found = [found_by_table(situation, moves[0], "member", f"{failure.callee}.{failure.name}")]
    moved = [moved_to(move) for move in moves if move.new or move.write][:1]
    return _with_ways(question, _distinct(found), moved, _caller(question))


def _demand(question: _Question) -> Answer:
    situation, failure = question.situation, question.failure
    try:
        wanted = read_requirement(failure.requirement)
    except NotARequirement:
        return Answer(question.reading)
    released = situation.ledger.package(wanted.name)
    if released is None:
        return Answer(question.reading)
    installed = situation.version(wanted.name) or failure.found
    there = situation.meets(failure.requirement)
    home = Home(wanted.name, "package", wanted.name, wanted.specifiers, installed=installed, there=there)
    asker = None
    if question.asking and question.asking != wanted.name:
        asker = Asker(question.asking, question.asking_in, situation.version(question.asking))
    if there:
        notes = (("elsewhere", f"{wanted.name} {installed}"),)
        return Answer(question.reading, (home,), asker=asker, notes=notes)
    versions = [r.version for r in reversed(released.releases) if not r.yanked]
    way = question.ways.install(wanted.name, _within(versions, wanted.specifiers), wanted.specifiers)
    return Answer(question.reading, (home,), asker=asker, ways=(way,) if way else ())


def _lazy(question: _Question) -> Answer:
    """A lazy package says that something failed; what failed stands in an error that the text does not hold."""
    situation, failure = question.situation, question.failure
    module = failure.module or "transformers"
    package = situation.ledger.owner(module)
    if package is None:
        return Answer(question.reading)
    found = home_of(situation, package, module, failure.name)
    if found is None or found.home.releases is None:
        return Answer(question.reading)
    if found.home.there is False:
        return _with_ways(question, [found], moved_of(situation, package, module, failure.name), None)
    return Answer(question.reading, (found.home,), notes=(("lazy", found.home.thing),))


def _caller(question: _Question) -> Asker | None:
    if not question.asking:
        return None
    return Asker(question.asking, question.asking_in, question.situation.version(question.asking))


def _distinct(found: Iterable[Found]) -> list[Found]:
    """One of each package and thing, the ones that are installed first."""
    unique = list({(one.home.package, one.home.thing): one for one in found}.values())
    return sorted(unique, key=lambda one: not one.home.installed)[:_MOST_HOMES]


_KINDS: Mapping[str, Callable[[_Question], Answer]] = {
    "module": _place,
    "name": _place,
    "attribute": _place,
    "member": _member,
    "keyword": _keyword,
    "arguments": _arguments,
    "demand": _demand,
    "lazy": _lazy,
}
