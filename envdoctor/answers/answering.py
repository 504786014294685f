"""From the error that was read to the answer: each kind of failure asks the ledger and the table its own question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envdoctor.answers.answer import Answer, Home, Named
from envdoctor.answers.calls import arguments_answer, keyword_answer, member_answer, missing_answer
from envdoctor.answers.homes import home_of
from envdoctor.answers.places import moved_of, place_answer
from envdoctor.answers.question import Question, Ways, asking_module, caller, with_ways, within
from envdoctor.answers.situation import Situation
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import title_of
from envdoctor.tracebacks.reading import Reading
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
    asking, asking_in, certain = asking_module(situation, reading)
    if not certain and asking and failure.module and situation.ledger.owner(failure.module) == asking:
        asking, asking_in = "", ""
    found = _KINDS[failure.kind](Question(reading, failure, situation, asking, asking_in, Ways(situation)))
    words = [] if failure.kind == "missing" else [failure.name or (failure.module if "." in failure.module else "")]
    packages = [home.package for home in found.homes] + [asking]
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


def _demand(question: Question) -> Answer:
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
    asker = caller(question, wanted.name)
    if there:
        notes = (("elsewhere", f"{wanted.name} {installed}"),)
        return Answer(question.reading, (home,), asker=asker, notes=notes)
    way = question.ways.install(wanted.name, within(released, wanted.specifiers), wanted.specifiers)
    return Answer(question.reading, (home,), asker=asker, ways=(way,) if way else ())


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
    "member": member_answer,
    "keyword": keyword_answer,
    "arguments": arguments_answer,
    "missing": missing_answer,
    "demand": _demand,
    "lazy": _lazy,
}
