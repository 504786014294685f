"""Which releases of which package have a module, a name, a keyword or a member, and where these went: by what the
ledger read, by what changed between releases where it did not read all, and by the table moved-names."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar

from envdoctor.facts.values import Unknown
from envdoctor.judge.evaluate import text_of
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.lookup import Move, Symbol, name_moves, part_moves
from envdoctor.remedy.answer import Home, Moved
from envdoctor.remedy.question import Question
from envdoctor.versions.releases import Releases

_T = TypeVar("_T", bound=tuple[Any, ...])
#: A package and a place in it, as ``module:Class``.
Place = tuple[str, str]

#: A name of a class that is not everybody's: of two words at least.
_OWN = re.compile(r"(?=[A-Z]\w*\Z)\w*?[a-z\d][A-Z]")
#: How modules begin that are not read.
_UNREAD = ("test", "benchmark", "conftest", "docs", "examples")
#: A keyword that more classes take says nothing about which one was meant; nor does a name that so many modules have,
#: which import it from each other, say where it lives.
_CLASSES, _MODULES = 3, 6
#: Bases of bases that are followed.
_DEPTH = 8
#: How many names of a module are looked for elsewhere, and which part of them another module must have.
_SAMPLE, _PART = 12, 0.5
#: Classes whose objects have as attributes what they were given.
_SETTINGS = re.compile(r"(?:Config|Arguments|Args)\Z")
#: A class that trains, and the one that its settings are made of.
_ROLES = re.compile(r"(?:TrainingArguments|Config|Trainer)\Z")
#: Where a word begins within a name: ``Axolotl|GRPO|Config``.
_WORD = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def bare(callee: str) -> str:
    """Return the class that is meant by its ``__init__``, or any other name as it is."""
    return callee.removesuffix(".__init__").removesuffix(".__new__")


def read_home(
    question: Question, package: str, having: Releases, told: tuple[str, str], moves: Sequence[Move] = ()
) -> Home:
    """Return what the ledger read, ``told`` as kind and thing, with the releases that rows of the table name: they know
    what decorators take."""
    installed = question.version(package)
    rows = [move for move in moves if move.package == package and move.releases != "<0"]
    if rows:
        having |= Releases.of(having.read, [any(move.has(one) for move in rows) for one in having.read])
    there = True if any(move.has(installed) for move in rows) else having.has(installed)
    ends = having.read[0], having.read[-1]
    return Home(package, *told, having.specifier, *ends, having.doubt, installed, there, having)


def home_by_table(question: Question, move: Move, kind: str, thing: str) -> Home:
    """Return the same by a row of the table."""
    installed = question.version(move.package)
    there = move.has(installed) if installed else None
    releases = None if move.releases == "<0" else move.releases.replace(" | ", " or ")
    return Home(move.package, kind, thing, releases, installed=installed, there=there)


def usable(question: Question, home: Home) -> list[str]:
    """Return the releases that have it and may be installed here, the nearest first."""
    if home.having is not None:
        return question.usable(home.package, home.having)
    known = question.matrix.part("releases", "releases").get(home.package, ())
    parts = (home.releases or "").split(" or ")
    return Releases.of(known, [any(allows(part, one) for part in parts) for one in known]).by_distance(home.installed)


# --- modules and names of modules -------------------------------------------------------------------------------------


def offering(released: Released, module: str, name: str = "") -> Releases:
    """Return the releases that have a module, or in which ``from module import name`` finds the name."""
    answers = [released.offers(module, name, one) if name else released.exists(module, one) for one in released.read]
    doubt = next((one.reason for one in answers if isinstance(one, Unknown)), "")
    return Releases.of(released.read, [None if isinstance(one, Unknown) else one for one in answers], doubt)


def home_of(question: Question, package: str, module: str, name: str = "") -> Home | None:
    """Return the releases of a package that have it, by what changed between them, else by the ledger where it has read
    names, else by the table of moved names; None when none says anything."""
    released, changed = question.by_names(package), _changed_place(question, package, module, name)
    told = ("name" if name else "module"), Symbol(module, name).dotted
    moves = [move for move in name_moves(question.matrix, module, name) if move.package == package]
    if released is not None:
        having = offering(released, module, name)
        read = changed.having.read if changed is not None and changed.having is not None else ()
        if read and (not having.yes or len(read) > len(having.read)):
            return changed
        if having.yes or not moves:
            return read_home(question, package, having, told)
    return home_by_table(question, moves[0], *told) if moves else changed


def _changed_place(question: Question, package: str, module: str, name: str) -> Home | None:
    """Return the releases that have a name of a module, or the module; None when nothing about it changed."""
    released = question.ledger.changes(package)
    if released is None:
        return None
    below = f"{module}.{name}" if name else module
    having = released.having("offers", below)
    if name:
        having |= released.having("offers", module, item=name)
    if not having.yes:
        if not _are_all_listed(question, released, module, name):
            return None
        if released.releases[0].version != released.read[0]:
            having = having._replace(doubt=f"{package} was read from {released.read[0]} on")
    return read_home(question, package, having, ("name" if name else "module", below))


def _are_all_listed(question: Question, released: Released, module: str, name: str) -> bool:
    """Return whether what is not listed is in none of the releases that were read: a name of a top-level module that
    makes no names when asked, or a module beside which others are listed; the ledger itself says so of what it read."""
    if question.by_names(released.name) is not None:
        return False
    package, _, last = module.rpartition(".")
    asked = name or last
    if asked.startswith(("_", *_UNREAD)) and not asked.startswith("__"):  # tests are not read
        return False
    if name:
        makes = released.having("offers", module, item="__getattr__").yes
        every = (released.items("offers", module, version) for version in released.read)
        return module in released.modules and not makes and all(every)
    return bool(package) and any(one.startswith(f"{package}.") for one in released.subjects("offers"))


def moved_by(moves: Iterable[Move], kind: str = "") -> list[Moved]:
    """Return what the first row of the table that knows it says to use instead; a keyword is written with ``=``."""
    for move in (one for one in moves if one.new or one.write):
        write = text_of(move.write) if move.write else None
        return [Moved(move.called(kind), move.new_package, move.new_releases, write, move.source)]
    return []


def _of_release(question: Question, package: str) -> tuple[Released, str] | None:
    """Return a package, and the release in which a new place is looked for: the installed one if it can be judged."""
    released, installed = question.by_names(package) or question.ledger.changes(package), question.version(package)
    return None if released is None else (released, installed if released.covers(installed) else released.read[-1])


def moved_of(question: Question, package: str, module: str, name: str = "") -> list[Moved]:
    """Return what to use instead: by the table, else by what the ledger's harvest saw, else where the newest or the
    installed release has the same names."""
    told = moved_by(name_moves(question.matrix, module, name))
    asked = _of_release(question, package)
    if told or asked is None:
        return told
    released, version = asked
    if (released.offers(module, name, version) if name else released.exists(module, version)) is True:
        return []
    places = released.items("moved", f"{module}:{name}", version) if name else ()
    found = [] if isinstance(places, Unknown) else list(places)
    other_places = _other_modules if name else _other_homes
    homes = [place.partition(":")[::2] for place in (found or other_places(released, module, version, name))[:2]]
    return [Moved(Symbol(*home).dotted, released.name, offering(released, *home).specifier or "") for home in homes]


def is_submodule(question: Question, package: str, module: str, name: str) -> bool:
    """Return whether what is no attribute of a module is a module below it, which an import of its own makes one."""
    asked = _of_release(question, package)
    if asked is None or asked[0].has("offers", module, name, asked[1]) is True:
        return False
    return asked[0].listed("offers", f"{module}.{name}", asked[1]) is True


def _having(released: Released, name: str, module: str, version: str) -> list[str]:
    """Return the other modules that have a name in this release."""
    others = (other for other in released.subjects_with("offers", name) if other not in (module, "*"))
    return [other for other in others if released.has("offers", other, name, version) is True]


def _alike(one: str, other: str) -> int:
    return len(set(one.split(".")) & set(other.split(".")))


def _other_modules(released: Released, module: str, version: str, name: str) -> list[str]:
    """Return the likeliest module that has the name in this release; none if it is one that many modules import."""
    others = _having(released, name, module, version)
    public = [other for other in others if not any(part.startswith("_") for part in other.split("."))]
    best = sorted(public, key=lambda other: (-_alike(other, module), other.count("."), other))[:1]
    return [f"{other}:{name}" for other in best] if len(public) <= _MODULES else []


def _other_homes(released: Released, module: str, version: str, _: str) -> list[str]:
    """Return the module that has most of what this one had in its last release; for one that was gone before the first
    release that was read, the only one that is called the same and lies elsewhere."""
    versions = offering(released, module).versions
    had = released.items("offers", module, versions[-1]) if versions else ()
    if isinstance(had, Unknown):
        return []
    if not had:
        last = f".{module.rpartition('.')[2]}"
        same = [other for other in released.subjects("offers") if other.endswith(last)]
        there = [other for other in same if released.listed("offers", other, version) is True]
        return there if len(there) == 1 else []
    counts: Counter[str] = Counter()
    names = sorted((name for name in had if not name.startswith("_")), key=lambda name: (-len(name), name))[:_SAMPLE]
    for name in names:
        counts.update(_having(released, name, module, version))
    fitting = [other for other, count in counts.items() if count >= _PART * len(names)]
    return sorted(fitting, key=lambda other: (-counts[other], -_alike(other, module), other.count("."), other))[:1]


# --- keywords and members of classes and functions --------------------------------------------------------------------


def changed_keyword(question: Question, callees: Iterable[str], keyword: str, *, required: bool = False) -> list[Home]:
    """Return the releases in which the first of these classes and functions that changed so takes a keyword (or must be
    given it)."""
    item, kind = (f"{keyword}!", "asks") if required else (keyword, "keyword")
    names = [bare(callee) for callee in callees]

    def changed(name: str, kind: str, item: str, places: Callable[[Released], list[str]]) -> list[Home]:
        return _changed(question, ("parameters", item), (kind, f"{name}({keyword}=)"), places)

    def taking(released: Released) -> list[str]:
        named = released.subjects_named("parameters", name)
        return [one for one in named if released.having("parameters", one, item=item).yes]

    for name in (one for one in names if re.match(r"[^\W\d][\w.]*\Z", one)):
        if found := changed(name, kind, item, taking):
            return found
    # That no release takes it is told of a class that only one package has, none of whose others takes it: what a class
    # takes in every release it would not have refused, and what others take it may have been handed.
    if required or not names or not _OWN.match(names[0]):
        return []
    found = changed(names[0], "keyword", keyword, lambda one: [*one.subjects_named("parameters", names[0])])
    released = question.ledger.changes(found[0].package) if len(found) == 1 else None
    return found if released is not None and not any(_classes(released, keyword)) else []


def _classes(released: Released, keyword: str) -> Iterator[str]:
    """Return the places of the classes of a package that took a keyword in some releases."""
    return (one for one in released.subjects_with("parameters", keyword) if re.search(r":[A-Z]\w*\Z", one))


def keyword_of_any(question: Question, keyword: str) -> list[Home]:
    """Return the same where the message does not say who was called: classes of one package alone that take such a
    keyword."""
    found = []
    for released in question.all_changes():
        classes: dict[str, list[str]] = {}
        for subject in _classes(released, keyword):
            classes.setdefault(subject.partition(":")[2], []).append(subject)
        if classes:
            found.append((released.name, released, classes))
    meant = _meant(question, found)
    if len(meant) != 1 or len(meant[0][2]) > _CLASSES:
        return []
    package, released, classes = meant[0]
    having = ((name, released.having("parameters", *places, item=keyword)) for name, places in classes.items())
    return [read_home(question, package, one, ("keyword", f"{name}({keyword}=)")) for name, one in having]


def changed_member(question: Question, owner: str, member: str, defined: Collection[str] = ()) -> list[Home]:
    """Return the releases in which a class has a member: of its own, or of a class beside it, from which it may
    inherit. ``defined`` are the packages that are known to define the class; if there are none, it may be of any."""
    top, _, owner = owner.rpartition(".")

    def places(released: Released) -> list[str]:
        if defined and released.name not in defined:
            return []
        if top and question.ledger.owner(top) != released.name:  # as compiled ones are called: torch.dtype
            return []
        having = list(released.subjects_with("members", member))
        own = [subject for subject in having if subject.endswith(f":{owner}")]
        if own or not having:
            return own
        named = (one for section in ("members", "parameters") for one in released.subjects_named(section, owner))
        beside = {subject.partition(":")[0] for subject in named}
        whole = question.by_names(released.name)
        beside.update(whole.subjects_with("offers", owner) if whole is not None else ())
        return [subject for subject in having if subject.partition(":")[0] in beside]

    return _changed(question, ("members", member), ("member", f"{owner}.{member}"), places)


def _changed(
    question: Question, listed: tuple[str, str], told: tuple[str, str], places: Callable[[Released], list[str]]
) -> list[Home]:
    """Return the releases in which any of the ``places`` in a package has what is ``listed`` (section and item)."""
    every = [(one.name, one, there) for one in question.all_changes() if (there := places(one))]
    return [
        read_home(question, package, released.having(listed[0], *there, item=listed[1]), told)
        for package, released, there in _meant(question, every)
    ]


def _meant(question: Question, found: Sequence[_T]) -> Sequence[_T]:
    """Return those of the likely packages if there are any, else of installed ones, else all; each begins with a
    package."""
    near = [one for one in found if one[0] in question.likely]
    return near or [one for one in found if question.version(one[0])] or found


class Called(NamedTuple):
    """A class, function or method of a package whose parameters the ledger knows. ``own`` are its places there, with
    the package: one of each module that it was in; ``bases`` those of the classes it inherits from."""

    package: str
    name: str
    own: tuple[Place, ...]
    bases: tuple[Place, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """Return all places with their packages, its own first."""
        return self.own + self.bases


def called_of(question: Question, callee: str) -> list[Called]:
    """Return those that a message may mean by ``TrainingArguments.__init__``: of several the ones that a package offers
    at its top, and of those not what inherits from another of them; first the package that most others require. A class
    that no package has is taken for a subclass of the one whose name ends its own (``AxolotlGRPOConfig``)."""
    name = bare(callee)
    if not re.match(r"[^\W\d][\w.]*\Z", name):
        return []
    found = list(_called(question, name))
    if not found and "." not in name:
        endings = (name[at.end() :] for at in _WORD.finditer(name) if _WORD.search(name, at.end() + 1))
        found = next(filter(None, (_offered(question, list(_called(question, one))) for one in endings)), [])
    meant = _meant(question, found)
    meant = _offered(question, meant) or meant
    meant = [one for one in meant if not any(set(one.bases) & set(other.own) for other in meant)]

    def users(called: Called) -> int:
        return sum(question.required_by(one, called.package) is not None for one in question.ledger.packages())

    return sorted(meant, key=users, reverse=True) if len(meant) > 1 else meant


def anybodys(question: Question, called: Called) -> bool:
    """Return whether a class's name is one that anybody gives (``Config``, ``Trainer``), and nothing else speaks of its
    package: that no release has something proves nothing then."""
    is_word = re.fullmatch("[A-Z][a-z]*", called.name) is not None
    return is_word and called.package not in question.likely and not question.version(called.package)


def _called(question: Question, name: str) -> Iterator[Called]:
    for released in question.all_by_names():
        subjects = tuple(released.subjects_named("parameters", name))
        if subjects:
            bases = dict.fromkeys(base for one in subjects for base in _bases(question, released, one))
            yield Called(released.name, name, tuple((released.name, one) for one in subjects), tuple(bases))


def _offered(question: Question, found: Iterable[Called]) -> list[Called]:
    """Return those that can be imported from the top of their packages."""
    return [
        one
        for one in found
        if (released := question.ledger.package(one.package)) is not None
        and any(released.having("offers", top, item=one.name.partition(".")[0]).yes for top in released.modules)
    ]


def _bases(question: Question, released: Released, subject: str, depth: int = 0) -> Iterator[Place]:
    for item in dict.fromkeys(item for _, item, _, _ in released.items_of("parameters", subject)):
        owner = question.ledger.owner(item[1:].partition(":")[0]) if item.startswith("&") else None
        base = question.by_names(owner)
        if base is None or depth >= _DEPTH:
            continue
        for place in dict.fromkeys(home for _, home, _, _ in base.items_of("alias", item[1:])) or (item[1:],):
            yield base.name, place
            yield from _bases(question, base, place, depth + 1)


def keyword_homes(question: Question, called: Called, keyword: str, moves: Sequence[Move] = ()) -> list[Home]:
    """Return the releases that take the keyword there: of the package itself, and of those whose classes it inherits
    from. Of the package itself where none does. ``moves`` are the rows of the table about it."""
    told, found = ("keyword", f"{called.name}({keyword}=)"), []
    for package in dict.fromkeys(package for package, _ in called.places):
        released = question.by_names(package)
        if released is not None:
            subjects = [subject for owner, subject in called.places if owner == package]
            having = released.having("parameters", *subjects, item=keyword)
            found.append(read_home(question, package, having, told, moves))
    return [one for one in found if one.releases is not None] or found[:1]


def passing_homes(question: Question, method: str, passes: str, among: Collection[str] | None = None) -> Iterator[Home]:
    """Yield the releases whose own classes call a method of that name with a keyword (``num_items_in_batch=``) or a
    number of positional arguments (``2``): a subclass of the user's has to take it. ``among`` are the places of the
    classes that a known one inherits from; None when it may be a subclass of any."""
    name = method.rpartition(".")[2]
    for released in question.all_by_names():
        for subject in released.subjects_named("calls", name, whole=False):
            if among is not None and subject.rpartition(".")[0] not in among:
                continue
            items = {item for _, item, _, _ in released.items_of("calls", subject) if passes in item.split(" ")}
            told = "passes", f"{subject.partition(':')[2]}({passes if passes.endswith('=') else '…'})"
            if items:
                having = reduce(or_, [released.having("calls", subject, item=item) for item in items])
                yield read_home(question, released.name, having, told)


def member_homes(question: Question, owner: str, member: str, owners: Iterable[Called]) -> Iterator[Home]:
    """Yield the releases in which a class has a method of that name, of its own or of a class it inherits from; of a
    class of settings, whose objects have what they were given, those that take it. Attributes that are set when an
    object is made are in no list: other releases may have it as one."""
    for called in owners:
        released = question.by_names(called.package)
        if released is None:
            continue
        own = [subject for package, subject in called.places if package == called.package]
        having = released.having("parameters", *(f"{one}.{member}" for one in own))
        settings = _SETTINGS.search(called.name) is not None
        if settings:
            having |= released.having("parameters", *own, item=member)
        having = having._replace(doubt="attributes of objects are not in the ledger")
        # All that an object of settings is was given to it where that is several things, by classes of one package.
        taken = {item for _, one in called.own for _, item, _, _ in released.items_of("parameters", one)}
        is_made = len(taken) > 1 and all(package == called.package for package, _ in called.places)
        if having.yes or (settings and not anybodys(question, called) and is_made):
            yield read_home(question, called.package, having, ("member", f"{owner}.{member}"))


def taken_beside(question: Question, called: Iterable[Called], keyword: str) -> Iterator[Moved]:
    """Yield the classes of a package that go with one by their names and take the keyword: ``GRPOTrainer`` and
    ``GRPOConfig``, ``Trainer`` and ``TrainingArguments``."""
    for one in called:
        for role in ("TrainingArguments", "Config", "Trainer") if _ROLES.search(one.name) else ():
            others = _offered(question, _called(question, _ROLES.sub(role, one.name)))
            for other in (other for other in others if other.package == one.package and other.name != one.name):
                for home in keyword_homes(question, other, keyword):
                    if home.package == one.package and home.releases is not None:
                        top = question.ledger.package(one.package)
                        place = f"{top.modules[0] if top is not None else one.package}.{home.thing}"
                        yield Moved(place, one.package, home.releases)


def moves_of(question: Question, kind: str, called: Iterable[Called]) -> list[Move]:
    """Return the rows of the table about the keyword or the member that failed, for the callee or a class it inherits
    from; where the message does not say the class, those of any, if they are of one package."""
    callee, old = question.failure.callee, question.failure.name
    if callee not in ("", "__init__", "__new__"):
        names = [bare(callee), *(subject.partition(":")[2] for one in called for _, subject in one.places)]
        return list(part_moves(question.matrix, kind, dict.fromkeys(names), old))
    rows = list(part_moves(question.matrix, kind, ("*",), old))
    return rows if len({(row.package, row.releases) for row in rows}) == 1 else []
