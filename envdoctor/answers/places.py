"""Modules, names and attributes of modules that are not there, and packages that are not installed."""

from __future__ import annotations

from envdoctor.answers.answer import Answer, Home, Moved, Way
from envdoctor.answers.asking import asker_of, required_by
from envdoctor.answers.history import Found
from envdoctor.answers.names import home_of, is_submodule, moved_of
from envdoctor.answers.question import Question, caller, with_ways, within
from envdoctor.answers.shadows import shadow_of
from envdoctor.answers.situation import Situation
from envdoctor.knowledge.lookup import modules_with, name_moves
from envdoctor.versions.names import normalise, valid_name

#: A name that is shorter may be anybody's.
_TELLING = 12


def place_answer(question: Question) -> Answer:
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
    if found is None or (found.home.releases is None and not moved and _is_vague(found)):
        return Answer(question.reading)
    asker = None
    if question.asking and question.asking != package:
        asked = f"{module}:{name}" if name else module
        asker = asker_of(situation, question.asking, question.asking_in, found.home, asked)
    return with_ways(question, [found], moved, asker)


def _is_vague(found: Found) -> bool:
    """Whether of most releases it cannot be told if they have it."""
    having = found.having
    return having is not None and 2 * having.unsure.bit_count() >= len(having.read)


def _only_module_with(situation: Situation, name: str) -> str:
    """The one package that offers a name at its top, for messages that do not say where it was looked for; of a name
    that is no everyday word the one package that has it anywhere, or that the table knows it of."""
    found = []
    for released in situation.all_by_names():
        found += [module for module in released.modules if released.having("offers", module, name).yes]
    if not found and len(name) >= _TELLING and "_" in name.strip("_"):
        found = list(modules_with(situation.matrix, name))
        for released in situation.all_by_names():
            found += sorted(released.subjects_with("offers", name), key=lambda module: module.count("."))[:1]
    return found[0] if len({situation.ledger.owner(module) for module in found}) == 1 else ""


def _required(question: Question, name: str) -> Answer:
    """A module that no package of the ledger has: what the asking package requires under that name."""
    if not question.asking or valid_name(name) is None or "." in question.failure.module:
        return Answer(question.reading)
    specifier = required_by(question.situation, question.asking, name)
    if specifier is None:
        return Answer(question.reading)
    home = Home(name, "package", question.failure.module, specifier)
    way = question.ways.install(name, (), specifier) or Way("install", (name + specifier,))
    return Answer(question.reading, (home,), asker=caller(question), ways=(way,))


def _whole_package(question: Question, package: str) -> Answer:
    situation = question.situation
    installed = situation.version(package)
    asker = caller(question, package)
    specifier = required_by(situation, question.asking, package) if asker is not None else None
    there = True if installed else False if situation.is_missing(package) else None
    home = Home(package, "package", question.failure.module, specifier or "", installed=installed, there=there)
    if there:
        return Answer(question.reading, (home,), asker=asker, notes=(("elsewhere", f"{package} {installed}"),))
    fitting = within(situation.ledger.package(package), specifier or "")
    way = question.ways.install(package, fitting, specifier or "") or Way("install", (package,))
    return Answer(question.reading, (home,), asker=asker, ways=(way,))
