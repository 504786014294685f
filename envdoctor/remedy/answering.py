"""Answer the error that was read: each kind of failure asks the ledger and the table its own question."""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice, pairwise
from operator import or_
from typing import Any

from envdoctor.facts.values import Unknown
from envdoctor.judge.evaluate import evaluate, title_of
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.lookup import lacks, modules_with, name_moves, provider_of, read_taken
from envdoctor.observe.documents.tracebacks import Reading, imported_in, module_of
from envdoctor.remedy import homes
from envdoctor.remedy.question import Answer, Asker, Home, Moved, Question, RelatedRule, Situation, Way
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotARequirement, normalise, read_requirement, valid_name

#: A shorter name may be a common word.
_LONG_ENOUGH = 12
#: The compiled part of a package: ``vllm._C``, ``vllm._moe_C``, ``torchao._C_mxfp8``.
_COMPILED = re.compile(r"\._(?:\w{1,40}_)?C(?:_\w{1,40})?\Z")
_FILE = re.compile(r"(?:.*[/\\])?(\w{1,100})(?:[/\\]__init__)?\.py\Z")
#: Failures of a call, which Python tells where it is made.
_CALLS = ("keyword", "arguments", "missing")
#: A shorter word says too little, and so does an everyday word ("tokenizer").
_SHORTEST = 5
_TELLING = re.compile(r"[_.A-Z\d]")
#: Rules and homes that are shown; releases of the asker that are tried, and how many of them are named.
_MOST_RULES, _MOST_HOMES, _ASKERS, _NAMED = 3, 2, 12, 3


def answer_to(reading: Reading, situation: Situation) -> Answer:
    """Return the answer to an error."""
    failure = reading.failure
    if failure is None:
        return Answer(reading)
    question = Question(reading, failure, situation)
    answer = _KINDS[failure.kind](question)
    if not answer.known and failure.kind in _CALLS and question.asking and reading.frames:  # the last frame calls
        asker = f"{question.asking} {question.version(question.asking)}".rstrip()
        answer = answer._replace(notes=(("unfit", asker),))
    if not answer.known and failure.callee and (place := homes.only_home(question)):
        answer = answer._replace(notes=(("class", place),))
    words = [] if failure.kind == "missing" else [failure.name or (failure.module if "." in failure.module else "")]
    packages = [home.package for home in answer.homes] + [question.asking]
    asks = answer.known and failure.kind != "lazy"  # what failed there is another thing
    rules = _rules_about(situation, filter(None, words), filter(None, packages)) if asks else ()
    return answer._replace(rules=rules)


def _rules_about(situation: Situation, words: Iterable[str], packages: Iterable[str]) -> tuple[RelatedRule, ...]:
    """Return the rules that rest on one of the packages, have one of the words, and are not ruled out by the facts."""
    words = [word for word in words if len(word) >= _SHORTEST and _TELLING.search(word, 1)]
    packages = {f"pkg.{package}" for package in packages}
    if not words:
        return ()
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")
    rules: list[RelatedRule] = []
    for rule in situation.matrix.rules:
        ends_run = rule.effect in ("crash", "install")  # what computes wrong raises no error
        if rule.scope != "environment" or not ends_run or not packages.intersection(rule.keys()):
            continue
        texts = situation.matrix.texts(rule)
        if any(map(pattern.search, _texts(texts))):
            outcome = evaluate(rule, situation.facts, situation.matrix.registry)
            rules += [RelatedRule(rule.id, title_of(texts), outcome.holds)] if outcome.holds is not False else []
    rules.sort(key=lambda rule: rule.applies is not True)
    return tuple(rules[:_MOST_RULES])


def _texts(texts: Mapping[str, Any]) -> Iterator[str]:
    for text in (*map(texts.get, ("message", "why", "details", "title")), *(fix["summary"] for fix in texts["fix"])):
        yield text if isinstance(text, str) else (text or {}).get("en", "")
    yield from (entry["shows"] for entry in texts["evidence"])


# --- what answers have in common: who asks, and what to do ------------------------------------------------------------


def _with_ways(question: Question, places: Sequence[Home], moved: Sequence[Moved], asker: Asker | None) -> Answer:
    """Return the answer with ways out: another release of the asking package, of the asked one, or of the new home."""
    failure = question.failure
    notes: list[tuple[str, str]] = [("circular", failure.module)] if failure.circular else []
    ways: list[Way | None] = []
    for home in places:
        if home.there is True:
            notes.append(("elsewhere", f"{home.package} {home.installed}"))
            continue
        if question.asking == home.package and failure.kind in ("module", "name"):
            notes.append(("mixed", home.package))
            ways.append(question.again(home.package))
        if asker is not None and asker.fits == (asker.version,):
            notes.append(("changed", f"{asker.package} {asker.version}"))
            ways.append(question.again(asker.package))
        elif asker is not None and asker.fits:
            ways.append(question.install(asker.package, asker.fits, f"=={asker.fits[0]}"))
        if home.releases is not None:
            ways.append(question.install(home.package, homes.usable(question, home), home.releases))
    packages = {home.package for home in places}
    for new in moved:
        if new.package and new.package not in packages and not question.version(new.package):
            ways.append(question.install(new.package, (), new.releases))
    offered = tuple(dict.fromkeys(filter(None, ways)))
    return Answer(question.reading, tuple(places), tuple(moved), asker, offered, notes=tuple(notes))


def _package_answer(question: Question, home: Home) -> Answer:
    """Return the answer about a package: it is there, and the error is of another environment, or install a release."""
    package, specifier = home.package, home.releases or ""
    answer = Answer(question.reading, (home,), asker=_caller(question, package))
    if home.there:
        return answer._replace(notes=(("elsewhere", f"{package} {home.installed}"),))
    allowed = [version for version in reversed(question.ledger.published(package)) if allows(specifier, version)]
    way = question.install(package, allowed, specifier)
    return answer._replace(ways=(way,) if way else ())


def _caller(question: Question, of: str = "") -> Asker | None:
    """Return the package that asks; None if it asks for a part ``of`` its own."""
    asking = question.asking
    return None if asking in ("", of) else Asker(asking, question.asking_in, question.version(asking))


def _distinct(places: Iterable[Home]) -> list[Home]:
    """Return one home of each package and thing, the installed packages first."""
    unique = {(home.package, home.thing): home for home in places}
    return sorted(unique.values(), key=lambda home: not home.installed)[:_MOST_HOMES]


def _asker_of(question: Question, home: Home, symbol: str) -> Asker:
    """Return the asker, with its releases that take ``symbol`` (``transformers:HybridCache``) of the home's package."""
    package = question.asking
    asker = Asker(package, question.asking_in, question.version(package))
    released = question.by_names(package)
    if released is None:
        return asker
    # The releases that take it, by any of their public names, unless their condition is known to fail.
    lines = list(released.beginning("takes", f"{symbol} "))
    having = (released.having("takes", version, item=item) for version, item in lines if _applies_here(question, item))
    taking = reduce(or_, having, Releases(released.read, 0))
    if not taking.yes:
        return asker
    if taking.has(asker.version) is False:  # it asks in a function, or the files are not those of that release
        imports = question.reading.frames[-1:] and question.reading.frames[-1].function == "<module>"
        return asker._replace(asks=taking.specifier, fits=(asker.version,)) if imports else asker
    others = (version for version in question.usable(package, ~taking) if version != asker.version)
    if home.installed and home.there is False:
        subjects = {subject for subject, _ in lines} | set(released.modules)
        others = (version for version in islice(others, _ASKERS) if _fits(question, released, version, home, subjects))
    beside = f"{home.package} {home.installed}" if home.installed else ""
    return asker._replace(asks=taking.specifier, fits=tuple(islice(others, _NAMED)), beside=beside)


def _applies_here(situation: Situation, item: str) -> bool:
    """Return whether the condition of a line of [takes] may hold: ``transformers:X @peft.y if transformers>=4.45``."""
    _, _, condition = item.partition(" if ")
    return not condition or situation.meets(condition) is not False


def _fits(situation: Situation, released: Released, version: str, home: Home, subjects: Iterable[str]) -> bool:
    """Return whether the installed release is allowed and has all that a release of the asker takes at import."""
    other, installed = situation.ledger.package(home.package), home.installed
    ranges = [need.specifiers for need in released.requires(version) if need.name == home.package and not need.marker]
    if other is None or not all(allows(specifiers, installed) for specifiers in ranges):
        return False
    for subject in subjects:
        items = released.items("takes", subject, version)
        for item in () if isinstance(items, Unknown) else items:
            take = read_taken(subject, item)
            is_taken = provider_of(situation.ledger, take) is other and _applies_here(situation, item)
            if is_taken and lacks(other, take, installed):
                return False
    return True


# --- modules, names and attributes of modules that are not there, and packages that are not installed -----------------


def _place(question: Question) -> Answer:
    failure, owner = question.failure, question.ledger.owner
    shadow = _shadow_of(question)
    if shadow is not None:
        kind, subject = shadow
        package = owner(failure.module)
        hidden = homes.home_of(question, package, failure.module, failure.name) if package else None
        known_homes = (hidden,) if hidden is not None and hidden.releases is not None else ()
        way = question.again(owner(subject) or subject) if kind == "no-files" else Way("rename", what=subject)
        return Answer(question.reading, known_homes, ways=(way,), notes=(shadow,))
    module, name = failure.module, failure.name
    if failure.kind == "name" and not module:
        module = _only_module_with(question, name)
    package = owner(module) if module else None
    if package is None and module:
        package = next((move.package for move in name_moves(question.matrix, module, name)), None)
    if package is None:
        answer = _required(question, normalise(module)) if failure.kind == "module" else question.nothing
        return answer if answer.known else _parted(question)
    if failure.kind == "module" and "." not in module and not list(name_moves(question.matrix, module)):
        return _whole_package(question, package)
    home = homes.home_of(question, package, module, name)
    moved = homes.moved_of(question, package, module, name)
    if failure.kind == "attribute" and homes.is_submodule(question, package, module, name):
        moved = [Moved(f"import {module}.{name}", package)]
    having = home.having if home is not None else None
    is_vague = having is not None and 2 * having.unsure.bit_count() >= len(having.read)  # of most it cannot be told
    if home is None or (home.releases is None and not moved and is_vague):
        return _parted(question) if failure.kind == "module" else question.nothing
    asks = question.asking not in ("", package)
    asker = _asker_of(question, home, f"{module}:{name}" if name else module) if asks else None
    unbuilt = _COMPILED.search(module) or (not moved and _is_own(question, home))
    if failure.kind == "module" and not asks and not home.installed and unbuilt:
        # Only the package itself imports it: the release has it, and what was installed lacks it.
        return Answer(question.reading, (home,), ways=(question.again(package),), notes=(("unbuilt", module),))
    return _with_ways(question, [home], moved, asker)


def _parted(question: Question) -> Answer:
    """Answer about a part that is not where Python looked for it: Python names what it did not find, and found what
    stands before that."""
    module = question.failure.module
    whole = {"module": module.rpartition(".")[0], "name": module}.get(question.failure.kind, "")
    own = ("", "__main__", "transformers_modules")  # the script, and modules made from a model's own files
    is_known = whole.partition(".")[0] not in (*sys.stdlib_module_names, *own)
    return question.nothing._replace(notes=(("part", whole),)) if is_known else question.nothing


def _is_own(question: Question, home: Home) -> bool:
    """Return whether the package itself asks for a private module of its own that newer releases do not lack."""
    having = home.having
    newest = having is not None and (having.has(having.read[-1]) or (having.yes and not (~having).yes))
    return bool(newest and question.asking == home.package and question.failure.module.rpartition(".")[2][0] == "_")


def _only_module_with(question: Question, name: str) -> str:
    """Return the one module that offers a name at the top of its package, for messages that do not name the module. For
    a name that is not an everyday word, the only module anywhere, or by the table, counts too."""
    modules = []
    for released in question.all_by_names():
        modules += [module for module in released.modules if released.having("offers", module, item=name).yes]
    if not modules and len(name) >= _LONG_ENOUGH and "_" in name.strip("_"):
        modules = list(modules_with(question.matrix, name))
        for released in question.all_by_names():
            modules += sorted(released.subjects_with("offers", name), key=lambda module: module.count("."))[:1]
    return modules[0] if len({question.ledger.owner(module) for module in modules}) == 1 else ""


def _required(question: Question, name: str) -> Answer:
    """Answer about a module that no package of the ledger has: a requirement of the asking package by that name."""
    asks = question.asking and valid_name(name) is not None and "." not in question.failure.module
    specifier = question.required_by(question.asking, name) if asks else None
    if specifier is None:
        return question.nothing
    home = Home(name, "package", question.failure.module, specifier)
    way = question.install(name, (), specifier) or Way("install", (name + specifier,))
    return Answer(question.reading, (home,), asker=_caller(question), ways=(way,))


def _whole_package(question: Question, package: str) -> Answer:
    asking, installed = question.asking, question.version(package)
    specifier = question.required_by(asking, package) if asking not in ("", package) else None
    there = True if installed else False if question.facts.absent(f"pkg.{package}") else None
    module = question.failure.module
    home = Home(package, "package", module, specifier or "", installed=installed, there=there)
    return _package_answer(question, home)


def _shadow_of(question: Question) -> tuple[str, str] | None:
    """Return the shadow in the text: ``shadow`` and the file that should be renamed, ``not-a-package`` and the module
    that another file of its name hides, ``no-files`` and the package whose folder has no file."""
    failure, frames = question.failure, question.reading.frames
    top, _, below = failure.module.partition(".")
    owner = question.ledger.owner(top)
    if failure.place == "unknown location" and owner and not below:
        return "no-files", top
    if failure.place and not module_of(failure.place) and _stem(failure.place) == top:
        single = not re.search(r"__init__\.py\Z", failure.place)
        if failure.shadowed or failure.circular or (single and owner):
            return "shadow", failure.place
    for before, frame in pairwise(frames):
        module = imported_in(before.code).partition(".")[0]
        in_library = module_of(before.path) or re.search(r"[/\\]python3?(?:\.\d+)?[/\\]", before.path)
        if in_library and module and module == _stem(frame.path) and not module_of(frame.path):
            return "shadow", frame.path
    return ("not-a-package", top) if failure.not_a_package and failure.module.count(".") == 1 and owner else None


def _stem(path: str) -> str:
    match = _FILE.match(path)
    return match[1] if match else ""


# --- keywords, arguments and members ----------------------------------------------------------------------------------


def _keyword(question: Question) -> Answer:
    callee, name = question.failure.callee, question.failure.name
    called = homes.called_of(question, callee)
    moves = homes.moves_of(question, "keyword", called)
    places = [
        home
        for entry in called
        for home in homes.keyword_homes(question, entry, name, moves)
        if home.releases is not None or not homes.anybodys(question, entry)
    ]
    taking = [home for home in places if home.releases is not None]
    if not taking and not callee.endswith(("__init__", "__new__")):
        owners = homes.called_of(question, callee.rpartition(".")[0])
        among = {place for owner in owners for _, place in owner.places} if called else None
        # A method that was put in the place of another has the name by which the line above calls it.
        names = [callee, *question.calling[:1]] if question.asking and not called else [callee]
        for passing in (_accepting(question, method, f"{name}=", among) for method in names):
            if passing.homes:
                return passing
    if not taking and not moves:
        taking = homes.changed_keyword(question, (callee, *question.calling) if callee else (), name)
        taking = taking or ([] if callee else homes.keyword_of_any(question, name))
    if not taking and moves:
        symbol = f"{callee.removesuffix('.__init__')}({name}=)"
        taking = [homes.home_by_table(question, moves[0], "keyword", symbol)]
    moved = homes.moved_by(moves, "keyword")
    if not taking and not moved:
        moved = list(homes.taken_beside(question, called, name))[:1]
    return _with_ways(question, _distinct(taking or places), moved, _caller(question))


def _accepting(question: Question, method: str, passes: str, among: Collection[str] | None = None) -> Answer:
    """Answer about a method of the user's own that is called with other arguments than it takes."""
    places = tuple(_distinct(homes.passing_homes(question, method, passes, among)))
    return Answer(question.reading, places, ways=(Way("accept", what=question.failure.name),) if places else ())


def _missing(question: Question) -> Answer:
    """Answer about an argument that was not given: the code was written for the releases that do not ask for it."""
    callee, name = question.failure.callee.removesuffix(".__init__"), question.failure.name
    called = [entry for entry in homes.called_of(question, callee) if entry.name == callee]
    moves = homes.moves_of(question, "keyword", called)
    places = [home for entry in called for home in homes.keyword_homes(question, entry, name, moves)]
    released = question.by_names(moves[0].package) if moves and not places else None
    if released is not None:
        label = "asks", f"{callee}({name}=)"
        places = [homes.read_home(question, released.name, Releases(released.read, 0), label, moves)]
    askers: list[Home] = []
    ways: list[Way | None] = []
    for home in _distinct(places or homes.changed_keyword(question, (callee,), name, required=True)):
        without = ~home.having if home.having is not None else None
        if without is not None and without.yes and home.releases is not None:
            askers.append(home._replace(kind="asks"))
            usable = question.usable(home.package, without)
            ways.append(question.install(home.package, usable, without.specifier or ""))
    return Answer(question.reading, tuple(askers), asker=_caller(question), ways=tuple(filter(None, ways)))


def _member(question: Question) -> Answer:
    callee, name = question.failure.callee, question.failure.name
    called = homes.called_of(question, callee)
    places = list(homes.member_homes(question, callee, name, called))
    moves = homes.moves_of(question, "member", called)
    if not places and moves:
        places = [homes.home_by_table(question, moves[0], "member", f"{callee}.{name}")]
    if not any(home.releases is not None for home in places):
        places = homes.changed_member(question, callee, name, {entry.package for entry in called}) or places
    return _with_ways(question, _distinct(places), homes.moved_by(moves), _caller(question))


# --- requirements that are not met, and what a lazy package hides -----------------------------------------------------


def _demand(question: Question) -> Answer:
    failure = question.failure
    try:
        need = read_requirement(failure.requirement)
    except NotARequirement:
        return question.nothing
    if question.ledger.package(need.name) is None:
        return question.nothing
    installed, there = question.version(need.name) or failure.found, question.meets(failure.requirement)
    home = Home(need.name, "package", need.name, need.specifiers, installed=installed, there=there)
    return _package_answer(question, home)


def _lazy(question: Question) -> Answer:
    """Answer about a lazy package: the real failure stands in an error that the text does not have."""
    module, name = question.failure.module or "transformers", question.failure.name
    package = question.ledger.owner(module)
    home = homes.home_of(question, package, module, name) if package is not None else None
    if package is None or home is None or home.releases is None:
        return question.nothing
    if home.there is False:
        return _with_ways(question, [home], homes.moved_of(question, package, module, name), None)
    return Answer(question.reading, (home,), notes=(("lazy", home.thing),))


_KINDS: Mapping[str, Callable[[Question], Answer]] = {
    **dict.fromkeys(("module", "name", "attribute"), _place),
    "member": _member,
    "keyword": _keyword,
    # The message counts self.
    "arguments": lambda question: _accepting(question, question.failure.callee, str(int(question.failure.name) - 1)),
    "missing": _missing,
    "demand": _demand,
    "lazy": _lazy,
}
