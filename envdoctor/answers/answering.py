"""From the error that was read to the answer: each kind of failure asks the ledger and the table its own question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envdoctor.answers.answer import Answer, Home, Named, Way
from envdoctor.answers.homes import (
    Found,
    anybodys,
    called_of,
    changed_keyword,
    changed_member,
    found_by_table,
    home_of,
    keyword_homes,
    keyword_of_any,
    member_homes,
    moved_by,
    moves_of,
    passing_homes,
    taken_beside,
    usable_releases,
)
from envdoctor.answers.places import moved_of, place_answer
from envdoctor.answers.question import Question, caller, distinct, package_answer, with_ways
from envdoctor.answers.situation import Situation
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import title_of
from envdoctor.tracebacks.reading import Reading
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotARequirement, read_requirement

#: A word that is shorter says too little, and so does one that people use of other things ("tokenizer").
_SHORTEST = 5
_TELLING = re.compile(r"[_.A-Z\d]")
_MOST = 3
_SAID = ("message", "why", "details", "title")


def answer_to(reading: Reading, situation: Situation) -> Answer:
    """What is known about an error."""
    failure = reading.failure
    if failure is None:
        return Answer(reading)
    question = Question(reading, failure, situation)
    found = _KINDS[failure.kind](question)
    words = [] if failure.kind == "missing" else [failure.name or (failure.module if "." in failure.module else "")]
    packages = [home.package for home in found.homes] + [question.asking]
    rules = _rules_about(situation, filter(None, words), filter(None, packages)) if found.known else ()
    return found._replace(rules=rules)


def _rules_about(situation: Situation, words: Iterable[str], packages: Iterable[str]) -> tuple[Named, ...]:
    """The rules in whose texts one of the words stands, that rest on one of the packages; those that the facts rule out
    are left away."""
    words = [word for word in words if len(word) >= _SHORTEST and _TELLING.search(word, 1)]
    packages = {f"pkg.{package}" for package in packages}
    if not words:
        return ()
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
    found: list[Named] = []
    for rule in situation.matrix.rules:
        if rule.scope != "environment" or not packages.intersection(rule.keys()):
            continue
        texts = situation.matrix.texts(rule)
        if not any(pattern.search(text) for text in _texts(texts)):
            continue
        outcome = evaluate(rule, situation.facts, situation.matrix.registry)
        if outcome.holds is not False:
            found.append(Named(rule.id, title_of(texts), outcome.holds))
    found.sort(key=lambda one: one.applies is not True)
    return tuple(found[:_MOST])


def _texts(texts: Mapping[str, Any]) -> Iterator[str]:
    for part in _SAID:
        said = texts[part]
        yield said if isinstance(said, str) else (said or {}).get("en", "")
    for fix in texts["fix"]:
        yield (fix["summary"] or {}).get("en", "")
    for entry in texts["evidence"]:
        yield entry["shows"]


def _keyword(question: Question) -> Answer:
    situation, failure = question.situation, question.failure
    called = called_of(situation, failure.callee, question.likely)
    moves = moves_of(situation, "keyword", failure.callee, called, failure.name)
    found = [
        home
        for one in called
        for home in keyword_homes(situation, one, failure.name, moves)
        if home.home.releases is not None or not anybodys(situation, one, question.likely)
    ]
    taking = [one for one in found if one.home.releases is not None]
    if not taking and not failure.callee.endswith(("__init__", "__new__")):
        owners = called_of(situation, failure.callee.rpartition(".")[0], question.likely)
        among = {place for one in owners for _, place in one.places} if called else None
        passing = list(passing_homes(situation, failure.callee, f"{failure.name}=", among))
        if passing:
            return _accepting(question, passing)
    if not taking and not moves:
        callees = (failure.callee, *question.calling) if failure.callee else ()
        taking = changed_keyword(situation, callees, failure.name, question.likely)
        taking = taking or ([] if failure.callee else keyword_of_any(situation, failure.name, question.likely))
    if not taking and moves:
        thing = f"{failure.callee.removesuffix('.__init__')}({failure.name}=)"
        taking = [found_by_table(situation, moves[0], "keyword", thing)]
    moved = moved_by(moves, "keyword")
    if not taking and not moved:
        moved = list(taken_beside(situation, called, failure.name))[:1]
    return with_ways(question, distinct(taking or found), moved, caller(question))


def _arguments(question: Question) -> Answer:
    given = int(question.failure.name) - 1  # the message counts self
    return _accepting(question, passing_homes(question.situation, question.failure.callee, str(given)))


def _accepting(question: Question, found: Iterable[Found]) -> Answer:
    """A method of the user's own that is called in another way than it can take."""
    homes = tuple(one.home for one in distinct(found))
    return Answer(question.reading, homes, ways=(Way("accept", what=question.failure.name),) if homes else ())


def _missing(question: Question) -> Answer:
    """An argument that was not given: the code was written for the releases that do not ask for it."""
    situation, failure = question.situation, question.failure
    callee = failure.callee.removesuffix(".__init__")
    called = [one for one in called_of(situation, callee, question.likely) if one.name == callee]
    moves = moves_of(situation, "keyword", callee, called, failure.name)
    found = [home for one in called for home in keyword_homes(situation, one, failure.name, moves)]
    released = situation.by_names(moves[0].package) if moves and not found else None
    if released is not None:
        told = "asks", f"{callee}({failure.name}=)"
        found = [Found.read(situation, released.name, Releases(released.read, 0), told, moves)]
    found = found or changed_keyword(situation, (callee,), failure.name, question.likely, required=True)
    homes: list[Home] = []
    ways: list[Way | None] = []
    for one in distinct(found):
        without = ~one.having if one.having is not None else None
        if without is not None and without.yes and one.home.releases is not None:
            usable = usable_releases(situation, one.home.package, without)
            homes.append(one.home._replace(kind="asks"))
            ways.append(question.install(one.home.package, usable, without.specifier or ""))
    return Answer(question.reading, tuple(homes), asker=caller(question), ways=tuple(filter(None, ways)))


def _member(question: Question) -> Answer:
    situation, failure = question.situation, question.failure
    called = called_of(situation, failure.callee, question.likely)
    found = list(member_homes(situation, failure.callee, failure.name, question.likely))
    moves = moves_of(situation, "member", failure.callee, called, failure.name)
    if not found and moves:
        found = [found_by_table(situation, moves[0], "member", f"{failure.callee}.{failure.name}")]
    if not any(one.home.releases is not None for one in found):
        defined = {one.package for one in called}
        found = changed_member(situation, failure.callee, failure.name, question.likely, defined) or found
    return with_ways(question, distinct(found), moved_by(moves), caller(question))


def _demand(question: Question) -> Answer:
    situation, failure = question.situation, question.failure
    try:
        wanted = read_requirement(failure.requirement)
    except NotARequirement:
        return Answer(question.reading)
    if situation.ledger.package(wanted.name) is None:
        return Answer(question.reading)
    installed = situation.version(wanted.name) or failure.found
    there = situation.meets(failure.requirement)
    home = Home(wanted.name, "package", wanted.name, wanted.specifiers, installed=installed, there=there)
    return package_answer(question, home)


def _lazy(question: Question) -> Answer:
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
        return with_ways(question, [found], moved_of(situation, package, module, failure.name), None)
    return Answer(question.reading, (found.home,), notes=(("lazy", found.home.thing),))


_KINDS: Mapping[str, Callable[[Question], Answer]] = {
    "module": place_answer,
    "name": place_answer,
    "attribute": place_answer,
    "member": _member,
    "keyword": _keyword,
    "arguments": _arguments,
    "missing": _missing,
    "demand": _demand,
    "lazy": _lazy,
}
