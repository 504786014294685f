"""From the error that was read to the answer: each kind of failure asks the ledger and the table its own question.

The rules whose symptom stands in a log are suspects: the facts say which of them may be the cause.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice, pairwise
from operator import or_
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Unknown, spell
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.evaluate import evaluate, text_of, title_of, without_values
from envdoctor.judge.finding import Text
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.lookup import lacks, modules_with, name_moves, provider_of, read_taken
from envdoctor.matrix.rules import SEVERITIES, Rule, placeholders
from envdoctor.matrix.symptoms import Log, Seen, seen_in
from envdoctor.observe.documents.tracebacks import Reading, imported_in, module_of
from envdoctor.remedy import homes
from envdoctor.remedy.answer import Answer, Asker, Home, Moved, Named, Suspect, Way
from envdoctor.remedy.question import Question, Situation
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import NotARequirement, normalise, read_requirement, valid_name

#: A name that is shorter may be anybody's.
_LONG_ENOUGH = 12
#: The compiled part of a package: ``vllm._C``, ``vllm._moe_C``, ``torchao._C_mxfp8``.
_COMPILED = re.compile(r"\._(?:\w{1,40}_)?C(?:_\w{1,40})?\Z")
_FILE = re.compile(r"(?:.*[/\\])?(\w{1,100})(?:[/\\]__init__)?\.py\Z")
#: Failures of a call, which Python tells where it is made.
_CALLS = ("keyword", "arguments", "missing")
#: A word that is shorter says too little, and so does one that people use of other things ("tokenizer").
_SHORTEST = 5
_TELLING = re.compile(r"[_.A-Z\d]")
#: Rules and homes that are told; releases of the asker that are tried, and those of them that are named.
_MOST_RULES, _MOST_HOMES, _ASKERS, _NAMED = 3, 2, 12, 3


def answer_to(reading: Reading, situation: Situation) -> Answer:
    """Return what is known about an error."""
    failure = reading.failure
    if failure is None:
        return Answer(reading)
    question = Question(reading, failure, situation)
    found = _KINDS[failure.kind](question)
    if not found.known and failure.kind in _CALLS and question.asking and reading.frames:  # the last frame calls
        asker = f"{question.asking} {question.version(question.asking)}".rstrip()
        found = found._replace(notes=(("unfit", asker),))
    words = [] if failure.kind == "missing" else [failure.name or (failure.module if "." in failure.module else "")]
    packages = [home.package for home in found.homes] + [question.asking]
    asks = found.known and failure.kind != "lazy"  # what failed there is another thing
    rules = _rules_about(situation, filter(None, words), filter(None, packages)) if asks else ()
    return found._replace(rules=rules)


def _rules_about(situation: Situation, words: Iterable[str], packages: Iterable[str]) -> tuple[Named, ...]:
    """Return the rules that rest on one of the packages, say one of the words, and are not ruled out by the facts."""
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
        if any(map(pattern.search, _texts(texts))):
            outcome = evaluate(rule, situation.facts, situation.matrix.registry)
            found += [Named(rule.id, title_of(texts), outcome.holds)] if outcome.holds is not False else []
    found.sort(key=lambda one: one.applies is not True)
    return tuple(found[:_MOST_RULES])


def _texts(texts: Mapping[str, Any]) -> Iterator[str]:
    for said in (*map(texts.get, ("message", "why", "details", "title")), *(fix["summary"] for fix in texts["fix"])):
        yield said if isinstance(said, str) else (said or {}).get("en", "")
    yield from (entry["shows"] for entry in texts["evidence"])


# --- what answers have in common: who asks, and what to do ------------------------------------------------------------


def _with_ways(question: Question, found: Sequence[Home], moved: Sequence[Moved], asker: Asker | None) -> Answer:
    """Return the answer with what to do: another release of who asks, of who is asked, or of who has it now."""
    failure = question.failure
    notes: list[tuple[str, str]] = [("circular", failure.module)] if failure.circular else []
    ways: list[Way | None] = []
    for home in found:
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
    packages = {home.package for home in found}
    for new in moved:
        if new.package and new.package not in packages and not question.version(new.package):
            ways.append(question.install(new.package, (), new.releases))
    offered = tuple(dict.fromkeys(filter(None, ways)))
    return Answer(question.reading, tuple(found), tuple(moved), asker, offered, notes=tuple(notes))


def _package_answer(question: Question, home: Home) -> Answer:
    """Return the answer about a package: it is there, and was looked for elsewhere, or a release is to be installed."""
    package, specifier = home.package, home.releases or ""
    answer = Answer(question.reading, (home,), asker=_caller(question, package))
    if home.there:
        return answer._replace(notes=(("elsewhere", f"{package} {home.installed}"),))
    newest_first = reversed(getattr(question.ledger.package(package), "releases", ()))
    allowed = [one.version for one in newest_first if not one.yanked and allows(specifier, one.version)]
    way = question.install(package, allowed, specifier)
    return answer._replace(ways=(way,) if way else ())


def _caller(question: Question, of: str = "") -> Asker | None:
    """Return the package that asks, unless it is the one that is asked for something ``of`` its own."""
    asking = question.asking
    return None if asking in ("", of) else Asker(asking, question.asking_in, question.version(asking))


def _distinct(found: Iterable[Home]) -> list[Home]:
    """Return one of each package and thing, the ones that are installed first."""
    unique = {(home.package, home.thing): home for home in found}
    return sorted(unique.values(), key=lambda home: not home.installed)[:_MOST_HOMES]


def _asker_of(question: Question, home: Home, asked: str) -> Asker:
    """Return what is known of the asker about ``asked`` (``transformers:HybridCache``) of the package of ``home``."""
    package = question.asking
    asker = Asker(package, question.asking_in, question.version(package))
    released = question.by_names(package)
    if released is None:
        return asker
    # The releases that take it, by any of their public names, where the condition they put is not known to fail.
    lines = list(released.beginning("takes", f"{asked} "))
    having = (released.having("takes", one, item=item) for one, item in lines if _counts(question, item))
    taking = reduce(or_, having, Releases(released.read, 0))
    if not taking.yes:
        return asker
    if taking.has(asker.version) is False:  # it asks in a function, or the files are not those of that release
        imports = question.reading.frames[-1:] and question.reading.frames[-1].function == "<module>"
        return asker._replace(asks=taking.specifier, fits=(asker.version,)) if imports else asker
    without = (one for one in question.usable(package, ~taking) if one != asker.version)
    if home.installed and home.there is False:
        subjects = {subject for subject, _ in lines} | set(released.modules)
        without = (one for one in islice(without, _ASKERS) if _fits(question, released, one, home, subjects))
    beside = f"{home.package} {home.installed}" if home.installed else ""
    return asker._replace(asks=taking.specifier, fits=tuple(islice(without, _NAMED)), beside=beside)


def _counts(situation: Situation, item: str) -> bool:
    """Return whether a line of [takes] counts here: ``transformers:X @peft.y if transformers>=4.45``."""
    _, _, condition = item.partition(" if ")
    return not condition or situation.meets(condition) is not False


def _fits(situation: Situation, released: Released, version: str, home: Home, subjects: Iterable[str]) -> bool:
    """Return whether the installed release has all that a release of the asker takes at its import, and is allowed."""
    other, installed = situation.ledger.package(home.package), home.installed
    wanted = [one.specifiers for one in released.requires(version) if one.name == home.package and not one.marker]
    if other is None or not all(allows(specifiers, installed) for specifiers in wanted):
        return False
    for subject in subjects:
        items = released.items("takes", subject, version)
        for item in () if isinstance(items, Unknown) else items:
            take = read_taken(subject, item)
            is_taken = provider_of(situation.ledger, take) is other and _counts(situation, item)
            if is_taken and lacks(other, take, installed):
                return False
    return True


# --- modules, names and attributes of modules that are not there, and packages that are not installed -----------------


def _place(question: Question) -> Answer:
    failure, owner = question.failure, question.ledger.owner
    shadow = _shadow_of(question)
    if shadow is not None:
        kind, what = shadow
        package = owner(failure.module)
        hidden = homes.home_of(question, package, failure.module, failure.name) if package else None
        told = (hidden,) if hidden is not None and hidden.releases is not None else ()
        way = question.again(owner(what) or what) if kind == "no-files" else Way("rename", what=what)
        return Answer(question.reading, told, ways=(way,), notes=(shadow,))
    module, name = failure.module, failure.name
    if failure.kind == "name" and not module:
        module = _only_module_with(question, name)
    package = owner(module) if module else None
    if package is None and module:
        package = next((move.package for move in name_moves(question.matrix, module, name)), None)
    if package is None:
        return _required(question, normalise(module)) if failure.kind == "module" else question.nothing
    if failure.kind == "module" and "." not in module and not list(name_moves(question.matrix, module)):
        return _whole_package(question, package)
    home = homes.home_of(question, package, module, name)
    moved = homes.moved_of(question, package, module, name)
    if failure.kind == "attribute" and homes.is_submodule(question, package, module, name):
        moved = [Moved(f"import {module}.{name}", package)]
    having = home.having if home is not None else None
    is_vague = having is not None and 2 * having.unsure.bit_count() >= len(having.read)  # of most it cannot be told
    if home is None or (home.releases is None and not moved and is_vague):
        return question.nothing
    asks = question.asking not in ("", package)
    asker = _asker_of(question, home, f"{module}:{name}" if name else module) if asks else None
    unbuilt = _COMPILED.search(module) or (not moved and _is_own(question, home))
    if failure.kind == "module" and not asks and not home.installed and unbuilt:
        # Only the package itself imports it: the release has it, and what was installed lacks it.
        return Answer(question.reading, (home,), ways=(question.again(package),), notes=(("unbuilt", module),))
    return _with_ways(question, [home], moved, asker)


def _is_own(question: Question, home: Home) -> bool:
    """Return whether the package itself asks for a private module of its own that newer releases do not lack."""
    having = home.having
    newest = having is not None and (having.has(having.read[-1]) or (having.yes and not (~having).yes))
    return bool(newest and question.asking == home.package and question.failure.module.rpartition(".")[2][0] == "_")


def _only_module_with(question: Question, name: str) -> str:
    """Return the one module that offers a name at the top of its package, for messages that do not say where it was
    looked for; of a name that is no everyday word the only one anywhere, or by the table."""
    found = []
    for released in question.all_by_names():
        found += [module for module in released.modules if released.having("offers", module, item=name).yes]
    if not found and len(name) >= _LONG_ENOUGH and "_" in name.strip("_"):
        found = list(modules_with(question.matrix, name))
        for released in question.all_by_names():
            found += sorted(released.subjects_with("offers", name), key=lambda module: module.count("."))[:1]
    return found[0] if len({question.ledger.owner(module) for module in found}) == 1 else ""


def _required(question: Question, name: str) -> Answer:
    """Answer about a module that no package of the ledger has: what the asking package requires under that name."""
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
    """Return what the text shows: ``shadow`` and the file that should be renamed, ``not-a-package`` and the module that
    another file of its name hides, ``no-files`` and the folder's package of which no file was found."""
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
        asked = imported_in(before.code).partition(".")[0]
        in_library = module_of(before.path) or re.search(r"[/\\]python3?(?:\.\d+)?[/\\]", before.path)
        if in_library and asked and asked == _stem(frame.path) and not module_of(frame.path):
            return "shadow", frame.path
    return ("not-a-package", top) if failure.not_a_package and failure.module.count(".") == 1 and owner else None


def _stem(path: str) -> str:
    found = _FILE.match(path)
    return found[1] if found else ""


# --- keywords, arguments and members ----------------------------------------------------------------------------------


def _keyword(question: Question) -> Answer:
    callee, name = question.failure.callee, question.failure.name
    called = homes.called_of(question, callee)
    moves = homes.moves_of(question, "keyword", called)
    found = [
        home
        for one in called
        for home in homes.keyword_homes(question, one, name, moves)
        if home.releases is not None or not homes.anybodys(question, one)
    ]
    taking = [home for home in found if home.releases is not None]
    if not taking and not callee.endswith(("__init__", "__new__")):
        owners = homes.called_of(question, callee.rpartition(".")[0])
        among = {place for one in owners for _, place in one.places} if called else None
        # A method that was put in the place of another is known by the name under which the line above calls it.
        names = [callee, *question.calling[:1]] if question.asking and not called else [callee]
        for passing in (_accepting(question, one, f"{name}=", among) for one in names):
            if passing.homes:
                return passing
    if not taking and not moves:
        taking = homes.changed_keyword(question, (callee, *question.calling) if callee else (), name)
        taking = taking or ([] if callee else homes.keyword_of_any(question, name))
    if not taking and moves:
        thing = f"{callee.removesuffix('.__init__')}({name}=)"
        taking = [homes.home_by_table(question, moves[0], "keyword", thing)]
    moved = homes.moved_by(moves, "keyword")
    if not taking and not moved:
        moved = list(homes.taken_beside(question, called, name))[:1]
    return _with_ways(question, _distinct(taking or found), moved, _caller(question))


def _accepting(question: Question, method: str, passes: str, among: Collection[str] | None = None) -> Answer:
    """Answer about a method of the user's own that is called in another way than it can take."""
    told = tuple(_distinct(homes.passing_homes(question, method, passes, among)))
    return Answer(question.reading, told, ways=(Way("accept", what=question.failure.name),) if told else ())


def _missing(question: Question) -> Answer:
    """Answer about an argument that was not given: the code was written for the releases that do not ask for it."""
    callee, name = question.failure.callee.removesuffix(".__init__"), question.failure.name
    called = [one for one in homes.called_of(question, callee) if one.name == callee]
    moves = homes.moves_of(question, "keyword", called)
    found = [home for one in called for home in homes.keyword_homes(question, one, name, moves)]
    released = question.by_names(moves[0].package) if moves and not found else None
    if released is not None:
        told = "asks", f"{callee}({name}=)"
        found = [homes.read_home(question, released.name, Releases(released.read, 0), told, moves)]
    asked: list[Home] = []
    ways: list[Way | None] = []
    for home in _distinct(found or homes.changed_keyword(question, (callee,), name, required=True)):
        without = ~home.having if home.having is not None else None
        if without is not None and without.yes and home.releases is not None:
            asked.append(home._replace(kind="asks"))
            usable = question.usable(home.package, without)
            ways.append(question.install(home.package, usable, without.specifier or ""))
    return Answer(question.reading, tuple(asked), asker=_caller(question), ways=tuple(filter(None, ways)))


def _member(question: Question) -> Answer:
    callee, name = question.failure.callee, question.failure.name
    called = homes.called_of(question, callee)
    found = list(homes.member_homes(question, callee, name, called))
    moves = homes.moves_of(question, "member", called)
    if not found and moves:
        found = [homes.home_by_table(question, moves[0], "member", f"{callee}.{name}")]
    if not any(home.releases is not None for home in found):
        found = homes.changed_member(question, callee, name, {one.package for one in called}) or found
    return _with_ways(question, _distinct(found), homes.moved_by(moves), _caller(question))


# --- requirements that are not met, and what a lazy package hides -----------------------------------------------------


def _demand(question: Question) -> Answer:
    failure = question.failure
    try:
        wanted = read_requirement(failure.requirement)
    except NotARequirement:
        return question.nothing
    if question.ledger.package(wanted.name) is None:
        return question.nothing
    installed, there = question.version(wanted.name) or failure.found, question.meets(failure.requirement)
    home = Home(wanted.name, "package", wanted.name, wanted.specifiers, installed=installed, there=there)
    return _package_answer(question, home)


def _lazy(question: Question) -> Answer:
    """Answer to a lazy package: what failed stands in an error that the text does not hold."""
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


_MOST_SUSPECTS = 5


def suspects_in(situation: Situation, lines: Sequence[str], first: int) -> tuple[Suspect, ...]:
    """Return the rules of which a symptom stands in the lines and that the facts do not rule out, and known errors;
    where there are none, the rules that the facts do rule out.

    Those that the facts confirm come first, then those whose symptom says most. Of several with one symptom (a loss of
    NaN) it says nothing for those about models of which the log does not speak: they are left away. ``first`` is the
    number of the first line.
    """
    log, matrix = Log.of(lines), situation.matrix
    rows = matrix.rows("known-errors", "error")  # whose kind of cause is known, and which no facts decide
    known_errors = [(known, row) for row in rows if (known := seen_in(log, row["symptom"])) is not None]
    facts, shown = _told_by(log, situation, known_errors)
    found: list[tuple[tuple[object, ...], Seen | None, Suspect]] = []
    ruled_out: list[tuple[tuple[object, ...], Suspect]] = []
    sharing: Counter[Seen | None] = Counter()
    stood_for: dict[str, tuple[object, ...]] = {}
    # A rule of which nothing is known here but words says no more than a known error with its symptom.
    guesses: dict[str, Seen] = {}
    kinds: set[Seen] = set()
    for rule, texts, seen in shown:
        outcome = evaluate(rule, facts, matrix.registry)
        missing = tuple(sorted(key for key in set(rule.keys()) if facts.unknown(key)))
        of_model = {key for key in missing if key.startswith("model.")}
        is_open = outcome.holds is None and all(any(one[0] in of_model for one in clause) for clause in rule.affects)
        fixes = _alike(texts["fix"]) if outcome.holds is None else texts["fix"][:1]
        suspect = Suspect(
            id=rule.id,
            title=title_of(texts, {} if outcome.holds is False else _values(texts, facts)),
            applies=outcome.holds,
            line=first + seen.place,
            said=lines[seen.place].strip(),
            why=without_values(text_of(texts["why"])),
            fix=_together([without_values(text_of(fix["summary"])) for fix in fixes]),
            packages=_constrained(fixes[0]) if fixes else frozenset(),
            source=next((one["url"] for one in texts["evidence"] if one["url"].startswith("https://")), ""),
            missing=missing,
        )
        severity = -SEVERITIES.index(rule.severity)
        order = (outcome.holds is not True, suspect.remark, -seen.letters, severity, len(missing), -seen.place, rule.id)
        if outcome.holds is False:
            ruled_out.append((order, suspect))
            continue
        stood_for.update(dict.fromkeys(rule.supersedes, order[:3]))
        asked = {condition[0] for clause in rule.affects for condition in clause}.difference(missing)
        weak = all(fact.source in ("default", "told") or fact.is_guess for fact in map(facts.get, asked))
        guesses |= {rule.id: seen} if weak and outcome.holds is None else {}
        sharing[seen] += 1
        found.append((order, seen if is_open else None, suspect))
    known_errors.sort(key=lambda one: one[0].letters)
    most = {key: known.letters for known, row in known_errors for key in _kinds(known, row)}
    for known, row in known_errors:
        if all(known.letters == most[key] for key in _kinds(known, row)):
            sharing[known] += 1
            kinds.update(filter(None, (seen_in(log, [one]) for one in row["symptom"])))
            title, why, fix = (text_of(row[part]) for part in ("title", "why", "fix"))
            line, said = first + known.place, lines[known.place].strip()
            suspect = Suspect(row["id"], title, None, line, said, why, fix, row["source"], rule=False)
            found.append(((True, suspect.remark, -known.letters, 1, 0, -known.place, row["id"]), None, suspect))
    found = [one for one in found if stood_for.get(one[-1].id, one[0]) >= one[0][:3]]
    found = [one for one in found if guesses.get(one[-1].id) not in kinds]
    told = [(order, suspect) for order, of_a_model, suspect in found if sharing[of_a_model] < 2] or ruled_out
    return tuple(suspect for _, suspect in sorted(told, key=lambda one: one[0])[:_MOST_SUSPECTS])


def _kinds(known: Seen, row: Mapping[str, Any]) -> Sequence[object]:
    """Return of what a known error must say most: of its line (a title may name memory too), and of its effect."""
    effect = row.get("effect")
    return [(known.place, known.title and effect), *filter(None, [effect])]


def _constrained(fix: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the packages that a fix installs."""
    return frozenset(re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in fix["constraints"])


def _alike(fixes: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the first fix, with those that install other releases of the same packages."""
    names = _constrained(fixes[0]) if fixes else frozenset()
    return [fix for fix in fixes if names and _constrained(fix) == names] or fixes[:1]


def _together(texts: Sequence[Text]) -> Text | None:
    """Return several texts as one; None without any."""
    if len(texts) < 2:
        return next(iter(texts), None)
    chinese = [text.zh for text in texts if text.zh]
    return Text("; ".join(text.en for text in texts), "；".join(chinese) if len(chinese) == len(texts) else None)


def _told_by(
    log: Log, situation: Situation, known_errors: Iterable[tuple[Seen, Mapping[str, Any]]]
) -> tuple[FactSet, list[tuple[Rule, Mapping[str, Any], Seen]]]:
    """Return the facts with those that the log tells, and the rules of which a symptom stands in it, or a known error
    that a rule which holds may cause. A word counts as a fact where all that the rule says follows from it."""
    facts, matrix = situation.facts, situation.matrix
    shown = []
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        symptoms = texts.get("symptom", ())
        seen = seen_in(log, symptoms)
        if seen is not None and seen.told:
            given = with_facts(facts, (Fact(key, word, "log", "given") for key, word in seen.told), matrix)
            if all(value for key, value in _values(texts, given).items() if not key.startswith("pkg.")):
                facts = given
            else:
                seen = seen_in(log, (one for one in symptoms if "{" not in "".join(one["lines"])))
        caused = (one for one, row in known_errors if _causes(rule, row))
        if seen is None and (known := next(caused, None)) and evaluate(rule, facts, matrix.registry).holds:
            seen = known
        if seen is not None:
            shown.append((rule, texts, seen))
    return facts, shown


def _causes(rule: Rule, row: Mapping[str, Any]) -> bool:
    """Return whether what a rule is about may end in a known error."""
    return rule.effect == row.get("effect") or rule.id in row.get("rules", ())


def _values(texts: Mapping[str, Any], facts: FactSet) -> dict[str, str]:
    """Return the facts that a rule's message says, "" for what is not known."""
    known = placeholders(text_of(texts["message"]).en)
    return {key: spell(facts.value(key)) if facts.known(key) else "" for key in known}
