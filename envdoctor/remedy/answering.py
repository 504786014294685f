"""From the error that was read to the answer: each kind of failure asks the ledger and the table its own question."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.messages import title_of
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.lookup import Asked, modules_with, name_moves
from envdoctor.observe.documents.tracebacks import Reading, imported_in, module_of
from envdoctor.remedy.answer import Answer, Home, Moved, Named, Way
from envdoctor.remedy.homes import (
    FoundHomes,
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
    offering,
    passing_homes,
    taken_beside,
    usable_releases,
)
from envdoctor.remedy.question import Question, asker_of, caller, distinct, package_answer, with_ways
from envdoctor.remedy.situation import Situation
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotARequirement, normalise, read_requirement, valid_name

# Modules, names and attributes of modules that are not there, and packages that are not installed.

#: A name that is shorter may be anybody's.
_LONG_ENOUGH = 12
#: A name that so many modules have is one that modules import from each other, and says nothing about where it lives.
_MODULES = 6
#: How many names of a module are looked for elsewhere, and which part of them another module must have.
_SAMPLE, _PART = 12, 0.5
_FILE = re.compile(r"(?:.*[/\\])?(\w{1,100})(?:[/\\]__init__)?\.py\Z")


def place_answer(question: Question) -> Answer:
    """A module, a name, an attribute of a module."""
    failure, situation = question.failure, question.situation
    shadow = shadow_of(situation, question.reading)
    if shadow is not None:
        kind, what = shadow
        package = situation.ledger.owner(failure.module)
        hidden = home_of(situation, package, failure.module, failure.name) if package else None
        homes = (hidden.home,) if hidden is not None and hidden.home.releases is not None else ()
        hides = kind != "no-files"
        way = Way("rename", what=what) if hides else question.again(situation.ledger.owner(what) or what)
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
    having = found.having if found is not None else None
    is_vague = having is not None and 2 * having.unsure.bit_count() >= len(having.read)  # of most it cannot be told
    if found is None or (found.home.releases is None and not moved and is_vague):
        return Answer(question.reading)
    asker = None
    if question.asking and question.asking != package:
        asked = f"{module}:{name}" if name else module
        asker = asker_of(situation, question.asking, question.asking_in, found.home, asked)
    return with_ways(question, [found], moved, asker)


def _only_module_with(situation: Situation, name: str) -> str:
    """The one package that offers a name at its top, for messages that do not say where it was looked for; of a name
    that is no everyday word the one package that has it anywhere, or that the table knows it of."""
    found = []
    for released in situation.all_by_names():
        found += [module for module in released.modules if released.having("offers", module, item=name).yes]
    if not found and len(name) >= _LONG_ENOUGH and "_" in name.strip("_"):
        found = list(modules_with(situation.matrix, name))
        for released in situation.all_by_names():
            found += sorted(released.subjects_with("offers", name), key=lambda module: module.count("."))[:1]
    return found[0] if len({situation.ledger.owner(module) for module in found}) == 1 else ""


def _required(question: Question, name: str) -> Answer:
    """A module that no package of the ledger has: what the asking package requires under that name."""
    if not question.asking or valid_name(name) is None or "." in question.failure.module:
        return Answer(question.reading)
    specifier = question.situation.required_by(question.asking, name)
    if specifier is None:
        return Answer(question.reading)
    home = Home(name, "package", question.failure.module, specifier)
    way = question.install(name, (), specifier) or Way("install", (name + specifier,))
    return Answer(question.reading, (home,), asker=caller(question), ways=(way,))


def _whole_package(question: Question, package: str) -> Answer:
    situation, asking = question.situation, question.asking
    installed = situation.version(package)
    specifier = situation.required_by(asking, package) if asking not in ("", package) else None
    there = True if installed else False if situation.facts.absent(f"pkg.{package}") else None
    module = question.failure.module
    return package_answer(question, Home(package, "package", module, specifier or "", installed=installed, there=there))


def moved_of(situation: Situation, package: str, module: str, name: str = "") -> list[Moved]:
    """What to use instead: by the table, else by what the ledger's harvest saw, else where the newest or the installed
    release has the same names."""
    told = moved_by(name_moves(situation.matrix, module, name))
    if told:
        return told
    released = situation.by_names(package) or situation.ledger.changes(package)
    if released is None:
        return []
    version = _judged(released, situation.version(package))
    if (released.offers(module, name, version) if name else released.exists(module, version)) is True:
        return []
    places = released.items("moved", f"{module}:{name}", version) if name else ()
    found = [] if isinstance(places, Unknown) else list(places)
    other_places = _other_modules(released, module, name, version) if name else _other_homes(released, module, version)
    homes = [place.partition(":")[::2] for place in (found or list(other_places))[:2]]
    return [Moved(Asked(*home).dotted, released.name, offering(released, *home).specifier or "") for home in homes]


def is_submodule(situation: Situation, package: str, module: str, name: str) -> bool:
    """Whether what is no attribute of a module is a module below it, which an import of its own makes one."""
    released = situation.by_names(package) or situation.ledger.changes(package)
    if released is None:
        return False
    version = _judged(released, situation.version(package))
    bound = released.has("offers", module, name, version) is True
    return not bound and released.listed("offers", f"{module}.{name}", version) is True


def _judged(released: Released, installed: str) -> str:
    """The release in which a new place is looked for: the installed one where the ledger can judge it."""
    return installed if released.covers(installed) else released.read[-1]


def _other_modules(released: Released, module: str, name: str, version: str) -> Iterator[str]:
    """The modules that have the name in this release; none when it is one of those that many modules import."""
    others = _having(released, name, module, version)
    public = [other for other in others if not any(part.startswith("_") for part in other.split("."))]
    if public and len(public) <= _MODULES:
        yield f"{min(public, key=lambda other: (-_alike(other, module), other.count('.'), other))}:{name}"


def _having(released: Released, name: str, module: str, version: str) -> list[str]:
    """The other modules that have a name in this release."""
    others = (other for other in released.subjects_with("offers", name) if other not in (module, "*"))
    return [other for other in others if released.has("offers", other, name, version) is True]


def _other_homes(released: Released, module: str, version: str) -> Iterator[str]:
    """The module that has most of what this one had in its last release."""
    versions = offering(released, module).versions
    had = released.items("offers", module, versions[-1]) if versions else ()
    if isinstance(had, Unknown):
        return
    if not had:
        yield from _namesakes(released, module, version)
        return
    counts: Counter[str] = Counter()
    names = sorted((name for name in had if not name.startswith("_")), key=lambda name: (-len(name), name))[:_SAMPLE]
    for name in names:
        counts.update(_having(released, name, module, version))
    fitting = [other for other, count in counts.items() if count >= _PART * len(names)]
    if fitting:
        yield min(fitting, key=lambda other: (-counts[other], -_alike(other, module), other.count("."), other))


def _namesakes(released: Released, module: str, version: str) -> Iterator[str]:
    """The one module that is called the same and lies elsewhere, for a module that was gone before the first release
    that was read."""
    last = f".{module.rpartition('.')[2]}"
    same = [other for other in released.subjects("offers") if other.endswith(last)]
    there = [other for other in same if released.listed("offers", other, version) is True]
    yield from there if len(there) == 1 else ()


def _alike(one: str, other: str) -> int:
    """How many parts two dotted names share."""
    return len(set(one.split(".")) & set(other.split(".")))


def shadow_of(situation: Situation, reading: Reading) -> tuple[str, str] | None:
    """What the text shows: ``shadow`` and the file that should be renamed, ``not-a-package`` and the module that
    another file of its name hides, ``no-files`` and the folder's package of which no file was found."""
    failure = reading.failure
    if failure is None or failure.kind not in ("module", "name", "attribute"):
        return None
    top = failure.module.partition(".")[0]
    if failure.place == "unknown location" and situation.ledger.owner(top) and "." not in failure.module:
        return "no-files", top
    if failure.place and not module_of(failure.place) and _stem(failure.place) == top:
        single = not re.search(r"__init__\.py\Z", failure.place)
        if failure.shadowed or failure.circular or (single and situation.ledger.owner(top)):
            return "shadow", failure.place
    for before, frame in zip(reading.frames, reading.frames[1:], strict=False):
        asked = imported_in(before.code).partition(".")[0]
        in_library = module_of(before.path) or re.search(r"[/\\]python3?(?:\.\d+)?[/\\]", before.path)
        if in_library and asked and asked == _stem(frame.path) and not module_of(frame.path):
            return "shadow", frame.path
    if failure.not_a_package and failure.module.count(".") == 1 and situation.ledger.owner(top):
        return "not-a-package", top
    return None


def _stem(path: str) -> str:
    found = _FILE.match(path)
    return found[1] if found else ""


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


def _accepting(question: Question, found: Iterable[FoundHomes]) -> Answer:
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
        found = [FoundHomes.read(situation, released.name, Releases(released.read, 0), told, moves)]
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
