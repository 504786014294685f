"""Keywords, positional arguments and members that a class or function does not take or have."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.answers.answer import Answer, Home, Way
from envdoctor.answers.homes import (
    Found,
    anybodys,
    called_of,
    changed_keyword,
    changed_member,
    found_by_table,
    keyword_homes,
    keyword_of_any,
    member_homes,
    moved_by,
    moves_of,
    passing_homes,
    taken_beside,
    usable_releases,
)
from envdoctor.answers.question import Question, caller, distinct, with_ways
from envdoctor.versions.releases import Releases


def keyword_answer(question: Question) -> Answer:
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


def arguments_answer(question: Question) -> Answer:
    given = int(question.failure.name) - 1  # the message counts self
    return _accepting(question, passing_homes(question.situation, question.failure.callee, str(given)))


def _accepting(question: Question, found: Iterable[Found]) -> Answer:
    """A method of the user's own that is called in another way than it can take."""
    homes = tuple(one.home for one in distinct(found))
    return Answer(question.reading, homes, ways=(Way("accept", what=question.failure.name),) if homes else ())


def missing_answer(question: Question) -> Answer:
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
            ways.append(question.ways.install(one.home.package, usable, without.specifier or ""))
    return Answer(question.reading, tuple(homes), asker=caller(question), ways=tuple(filter(None, ways)))


def member_answer(question: Question) -> Answer:
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
