"""Find the releases of a package that have a module, a name, a keyword or a member, and where these went: by the
ledger, by changes between releases where the ledger did not read all, and by the table moved-names."""

import re
import types
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
from envdoctor.remedy.question import Home, Moved, Question
from envdoctor.versions.releases import Releases

_T = TypeVar("_T", bound=tuple[Any, ...])
#: A package and a place in it, as ``module:Class``.
Place = tuple[str, str]

#: The name of a class that is not a common word: of two words at least.
_OWN = re.compile(r"(?=[A-Z]\w*\Z)\w*?(?:[a-z\d][A-Z]|[A-Z]{2}[a-z])")
#: Beginnings of modules that are not read.
_UNREAD = ("test", "benchmark", "conftest", "docs", "examples")
#: If more classes take a keyword, it does not tell which class was meant; if more modules have a name, which they
#: import from each other, it does not tell where the name lives.
_CLASSES, _MODULES = 3, 6
#: Bases of bases that are followed.
_DEPTH = 8
#: How many names of a module are looked for elsewhere, and the share of them that another module must have.
_SAMPLE, _PART = 12, 0.5
#: Classes whose objects have their arguments as attributes.
_SETTINGS = re.compile(r"(?:Config|Arguments|Args)\Z")
#: A class that trains, and the one that its settings are made of.
_ROLES = re.compile(r"(?:TrainingArguments|Config|Trainer)\Z")
#: Where a word begins within a name: ``Axolotl|GRPO|Config``.
_WORD = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def bare(callee: str) -> str:
    """Return the class of an ``__init__`` or ``__new__``, or any other name as it is."""
    return callee.removesuffix(".__init__").removesuffix(".__new__")


def read_home(
    question: Question, package: str, having: Releases, label: tuple[str, str], moves: Sequence[Move] = ()
) -> Home:
    """Return the home by the ledger, labelled with kind and thing, and by the rows of the table, which know the
    arguments that decorators take."""
    installed = question.version(package)
    rows = [move for move in moves if move.package == package and move.releases != "<0"]
    if rows:
        having |= Releases.of(having.read, [any(move.has(version) for move in rows) for version in having.read])
    there = True if any(move.has(installed) for move in rows) else having.has(installed)
    ends = having.read[0], having.read[-1]
    return Home(package, *label, having.specifier, *ends, having.doubt, installed, there, having)


def home_by_table(question: Question, move: Move, kind: str, symbol: str) -> Home:
    """Return the home by a row of the table."""
    installed = question.version(move.package)
    there = move.has(installed) if installed else None
    releases = None if move.releases == "<0" else move.releases.replace(" | ", " or ")
    return Home(move.package, kind, symbol, releases, installed=installed, there=there)


def usable(question: Question, home: Home) -> list[str]:
    """Return the releases of a home that may be installed here, the nearest first."""
    if home.having is not None:
        return question.usable(home.package, home.having)
    names = question.matrix.ledger.published(home.package)
    parts = (home.releases or "").split(" or ")
    return Releases.of(names, [any(allows(part, name) for part in parts) for name in names]).by_distance(home.installed)


# --- modules and names of modules -------------------------------------------------------------------------------------


def _offering(released: Released, module: str, name: str = "") -> Releases:
    """Return the releases that have a module, or in which ``from module import name`` finds the name."""
    answers = [released.offers(module, name, text) if name else released.exists(module, text) for text in released.read]
    doubt = next((answer.reason for answer in answers if isinstance(answer, Unknown)), "")
    return Releases.of(released.read, [None if isinstance(answer, Unknown) else answer for answer in answers], doubt)


def home_of(question: Question, package: str, module: str, name: str = "") -> Home | None:
    """Return the releases of a package that have a module or a name of it: by the changes between releases, else by the
    ledger if it has read names, else by the table of moved names; None if all are silent."""
    released, changed = question.by_names(package), _changed_place(question, package, module, name)
    label = ("name" if name else "module"), Symbol(module, name).dotted
    moves = [move for move in name_moves(question.matrix, module, name) if move.package == package]
    if released is not None:
        having = _offering(released, module, name)
        versions = changed.having.read if changed is not None and changed.having is not None else ()
        if versions and (not having.yes or len(versions) > len(having.read)):
            return changed
        if having.yes or not moves:
            return read_home(question, package, having, label)
    elif changed is not None and changed.releases is not None and moves == [*name_moves(question.matrix, module)]:
        return changed  # no row is about the name itself
    return home_by_table(question, moves[0], *label) if moves else changed


def _changed_place(question: Question, package: str, module: str, name: str) -> Home | None:
    """Return the releases that have a name of a module, or the module; None if no change of it is known."""
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
    """Return whether an unlisted name or module is in none of the releases that were read: a name of a top-level module
    without ``__getattr__``, or a module beside listed ones. False if the ledger has read the package's names."""
    if question.by_names(released.name) is not None:
        return False
    package, _, last = module.rpartition(".")
    tail = name or last
    if tail.startswith(("_", *_UNREAD)) and not tail.startswith("__"):  # tests are not read
        return False
    if name:
        makes = released.having("offers", module, item="__getattr__").yes
        every = (released.items("offers", module, version) for version in released.read)
        return module in released.modules and not makes and all(every)
    return bool(package) and any(subject.startswith(f"{package}.") for subject in released.subjects("offers"))


def moved_by(moves: Iterable[Move], kind: str = "") -> list[Moved]:
    """Return the replacement by the first row of the table that has one; a keyword is written with ``=``."""
    for move in (row for row in moves if row.new or row.write):
        write = text_of(move.write) if move.write else None
        return [Moved(move.called(kind), move.new_package, move.new_releases, write, move.source)]
    return []


def _of_release(question: Question, package: str) -> tuple[Released, str] | None:
    """Return a package, and the release to search for a new place: the installed one if it was read, else the last."""
    released, installed = question.by_names(package) or question.ledger.changes(package), question.version(package)
    return None if released is None else (released, installed if released.covers(installed) else released.read[-1])


def moved_of(question: Question, package: str, module: str, name: str = "") -> list[Moved]:
    """Return the replacements: by the table, else by the moves that the ledger's harvest saw, else by the place in the
    installed or newest release that has the same names."""
    replacements = moved_by(name_moves(question.matrix, module, name))
    pair = _of_release(question, package)
    if replacements or pair is None:
        return replacements
    released, version = pair
    if (released.offers(module, name, version) if name else released.exists(module, version)) is True:
        return []
    places = released.items("moved", f"{module}:{name}", version) if name else ()
    targets = [] if isinstance(places, Unknown) else list(places)
    other_places = _other_modules if name else _other_homes
    homes = [place.partition(":")[::2] for place in (targets or other_places(released, module, version, name))[:2]]
    return [Moved(Symbol(*home).dotted, released.name, _offering(released, *home).specifier or "") for home in homes]


def is_submodule(question: Question, package: str, module: str, name: str) -> bool:
    """Return whether a missing attribute of a module is a submodule, which an import of its own would make one."""
    pair = _of_release(question, package)
    if pair is None or pair[0].has("offers", module, name, pair[1]) is True:
        return False
    return pair[0].listed("offers", f"{module}.{name}", pair[1]) is True


def _having(released: Released, name: str, module: str, version: str) -> list[str]:
    """Return the other modules that have a name in this release."""
    others = (other for other in released.subjects_with("offers", name) if other not in (module, "*"))
    return [other for other in others if released.has("offers", other, name, version) is True]


def _alike(module: str, other: str) -> int:
    return len(set(module.split(".")) & set(other.split(".")))


def _other_modules(released: Released, module: str, version: str, name: str) -> list[str]:
    """Return the likeliest module that has the name in this release; none if it is one that many modules import."""
    others = _having(released, name, module, version)
    public = [other for other in others if not any(part.startswith("_") for part in other.split("."))]
    best = sorted(public, key=lambda other: (-_alike(other, module), other.count("."), other))[:1]
    return [f"{other}:{name}" for other in best] if len(public) <= _MODULES else []


def _other_homes(released: Released, module: str, version: str, _: str) -> list[str]:
    """Return the module that has most names of this module's last release. For a module that was gone before the first
    release that was read, return the only module of the same last name."""
    versions = _offering(released, module).versions
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
    """Return the releases in which the first of these classes and functions with such a change takes (or requires) a
    keyword."""
    item, kind = (f"{keyword}!", "asks") if required else (keyword, "keyword")
    names = [bare(callee) for callee in callees]

    def changed(name: str, kind: str, item: str, places: Callable[[Released], list[str]]) -> list[Home]:
        return _changed(question, ("parameters", item), (kind, f"{name}({keyword}=)"), places)

    def taking(released: Released) -> list[str]:
        subjects = released.subjects_named("parameters", name)
        return [subject for subject in subjects if released.having("parameters", subject, item=item).yes]

    for name in (callee for callee in names if re.match(r"[^\W\d][\w.]*\Z", callee)):
        if homes := changed(name, kind, item, taking):
            return homes
    # "No release takes it" is said only of a class that one package alone has, and only if none of the package's other
    # classes takes it: the class may have been handed an argument of theirs.
    if required or not names or not _OWN.match(names[0]):
        return []
    homes = changed(names[0], "keyword", keyword, lambda released: [*released.subjects_named("parameters", names[0])])
    released = question.ledger.changes(homes[0].package) if len(homes) == 1 else None
    return homes if released is not None and not any(_classes(released, keyword)) else []


def _classes(released: Released, keyword: str) -> Iterator[str]:
    """Return the places of the classes of a package that took a keyword in some releases."""
    return (subject for subject in released.subjects_with("parameters", keyword) if re.search(r":[A-Z]\w*\Z", subject))


def keyword_of_any(question: Question, keyword: str) -> list[Home]:
    """Return the homes of a keyword if the message does not say who was called: the classes that take it, if they are
    of one package alone."""
    packages = []
    for released in question.all_changes():
        classes: dict[str, list[str]] = {}
        for subject in _classes(released, keyword):
            classes.setdefault(subject.partition(":")[2], []).append(subject)
        if classes:
            packages.append((released.name, released, classes))
    likely = _likeliest(question, packages)
    if len(likely) != 1 or len(likely[0][2]) > _CLASSES:
        return []
    package, released, classes = likely[0]
    having = ((name, released.having("parameters", *places, item=keyword)) for name, places in classes.items())
    return [read_home(question, package, releases, ("keyword", f"{name}({keyword}=)")) for name, releases in having]


def changed_member(question: Question, owner: str, member: str, defined: Collection[str] = ()) -> list[Home]:
    """Return the releases in which a class has a member: of its own, or of a class beside it, from which it may
    inherit. ``defined`` are the packages that are known to define the class; empty: any package may."""
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
        subjects = (place for section in ("members", "parameters") for place in released.subjects_named(section, owner))
        beside = {subject.partition(":")[0] for subject in subjects}
        whole = question.by_names(released.name)
        beside.update(whole.subjects_with("offers", owner) if whole is not None else ())
        return [subject for subject in having if subject.partition(":")[0] in beside]

    return _changed(question, ("members", member), ("member", f"{owner}.{member}"), places)


def _changed(
    question: Question, listed: tuple[str, str], label: tuple[str, str], places: Callable[[Released], list[str]]
) -> list[Home]:
    """Return the releases in which any of the ``places`` in a package has the ``listed`` section and item."""
    every = [(released.name, released, there) for released in question.all_changes() if (there := places(released))]
    return [
        read_home(question, package, released.having(listed[0], *there, item=listed[1]), label)
        for package, released, there in _likeliest(question, every)
    ]


def _likeliest(question: Question, entries: Sequence[_T]) -> Sequence[_T]:
    """Return the entries of likely packages if there are any, else those of installed ones, else all; an entry begins
    with its package."""
    near = [entry for entry in entries if entry[0] in question.likely]
    return near or [entry for entry in entries if question.version(entry[0])] or entries


class _Called(NamedTuple):
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


def called_of(question: Question, callee: str) -> list[_Called]:
    """Return the callables that a message may mean by ``TrainingArguments.__init__``. Of several, prefer those that a
    package offers at its top, drop subclasses of others, and put the package that most others require first. A class
    that no package has is taken for a subclass of the one whose name ends its own (``AxolotlGRPOConfig``)."""
    name = bare(callee)
    if not re.match(r"[^\W\d][\w.]*\Z", name):
        return []
    classes = list(_called(question, name))
    if not classes and "." not in name:
        endings = (name[at.end() :] for at in _WORD.finditer(name) if _WORD.search(name, at.end() + 1))
        classes = next(filter(None, (_at_top(question, list(_called(question, ending))) for ending in endings)), [])
    likely = _likeliest(question, classes)
    likely = _at_top(question, likely) or likely
    likely = [entry for entry in likely if not any(set(entry.bases) & set(other.own) for other in likely)]

    def users(called: _Called) -> int:
        return sum(question.required_by(package, called.package) is not None for package in question.ledger.packages())

    return sorted(likely, key=users, reverse=True) if len(likely) > 1 else likely


def only_home(question: Question) -> str:
    """Return the place of the class that failed, if one package alone has a class of that name; else ""."""
    name = bare(question.failure.callee).rpartition(".")[2]
    owner = name if _OWN.match(name) else bare(question.failure.callee).partition(".")[0]
    is_own = _OWN.match(owner) and not hasattr(types, owner)  # NoneType
    every = [*question.all_by_names(), *question.all_changes()] if is_own else []
    places = [(released.name, place) for released in every for place in released.subjects_with("offers", owner)]
    places = [*_likeliest(question, [pair for pair in places if pair[1] != "*"])]
    places = [pair for pair in places if "." not in pair[1]] or places  # offered at the top
    shortest = min((place for _, place in places), key=len, default="")
    return f"{shortest}.{owner}" if len({package for package, _ in places}) == 1 else ""


def anybodys(question: Question, called: _Called) -> bool:
    """Return whether a class has a common name (``Config``, ``Trainer``), and nothing else points to its package: then
    a missing member proves nothing."""
    is_word = re.fullmatch("[A-Z][a-z]*", called.name) is not None
    return is_word and called.package not in question.likely and not question.version(called.package)


def _called(question: Question, name: str) -> Iterator[_Called]:
    for released in question.all_by_names():
        subjects = tuple(released.subjects_named("parameters", name))
        if subjects:
            bases = dict.fromkeys(base for subject in subjects for base in _bases(question, released, subject))
            yield _Called(released.name, name, tuple((released.name, subject) for subject in subjects), tuple(bases))


def _at_top(question: Question, classes: Iterable[_Called]) -> list[_Called]:
    """Return the classes that can be imported from the top of their packages."""
    return [
        entry
        for entry in classes
        if (released := question.ledger.package(entry.package)) is not None
        and any(released.having("offers", top, item=entry.name.partition(".")[0]).yes for top in released.modules)
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


def keyword_homes(question: Question, called: _Called, keyword: str, moves: Sequence[Move] = ()) -> list[Home]:
    """Return the releases that take the keyword: of the package itself, and of the packages of its base classes. If
    none takes it, return the package's own home. ``moves`` are the rows of the table about the keyword."""
    label, homes = ("keyword", f"{called.name}({keyword}=)"), []
    for package in dict.fromkeys(package for package, _ in called.places):
        released = question.by_names(package)
        if released is not None:
            subjects = [subject for owner, subject in called.places if owner == package]
            having = released.having("parameters", *subjects, item=keyword)
            homes.append(read_home(question, package, having, label, moves))
    return [home for home in homes if home.releases is not None] or homes[:1]


def passing_homes(question: Question, method: str, passes: str, among: Collection[str] | None = None) -> Iterator[Home]:
    """Yield the releases whose own classes call a method of that name with a keyword (``num_items_in_batch=``) or a
    number of positional arguments (``2``): a subclass of the user's has to take it. ``among`` are the places of the
    classes that a known one inherits from; None if it may be a subclass of any."""
    name = method.rpartition(".")[2]
    for released in question.all_by_names():
        for subject in released.subjects_named("calls", name, whole=False):
            if among is not None and subject.rpartition(".")[0] not in among:
                continue
            items = {item for _, item, _, _ in released.items_of("calls", subject) if passes in item.split(" ")}
            label = "passes", f"{subject.partition(':')[2]}({passes if passes.endswith('=') else '…'})"
            if items:
                having = reduce(or_, [released.having("calls", subject, item=item) for item in items])
                yield read_home(question, released.name, having, label)


def member_homes(question: Question, owner: str, member: str, owners: Iterable[_Called]) -> Iterator[Home]:
    """Yield the releases in which a class has a method of that name, of its own or of a base class; for a class of
    settings, whose objects have their arguments, the releases that take it. Attributes that are set when an object is
    made are in no list: other releases may have it as one."""
    for called in owners:
        released = question.by_names(called.package)
        if released is None:
            continue
        own = [subject for package, subject in called.places if package == called.package]
        having = released.having("parameters", *(f"{place}.{member}" for place in own))
        settings = _SETTINGS.search(called.name) is not None
        if settings:
            having |= released.having("parameters", *own, item=member)
        having = having._replace(doubt="attributes of objects are not in the ledger")
        # An object of settings has only its arguments, if it takes several, all by classes of one package.
        keywords = {item for _, place in called.own for _, item, _, _ in released.items_of("parameters", place)}
        is_made = len(keywords) > 1 and all(package == called.package for package, _ in called.places)
        if having.yes or (settings and not anybodys(question, called) and is_made):
            yield read_home(question, called.package, having, ("member", f"{owner}.{member}"))


def taken_beside(question: Question, called: Iterable[_Called], keyword: str) -> Iterator[Moved]:
    """Yield the classes of a package that go with one by their names and take the keyword: ``GRPOTrainer`` and
    ``GRPOConfig``, ``Trainer`` and ``TrainingArguments``."""
    for entry in called:
        for role in ("TrainingArguments", "Config", "Trainer") if _ROLES.search(entry.name) else ():
            others = _at_top(question, _called(question, _ROLES.sub(role, entry.name)))
            for other in (other for other in others if other.package == entry.package and other.name != entry.name):
                for home in keyword_homes(question, other, keyword):
                    if home.package == entry.package and home.releases is not None:
                        top = question.ledger.package(entry.package)
                        place = f"{top.modules[0] if top is not None else entry.package}.{home.thing}"
                        yield Moved(place, entry.package, home.releases)


def moves_of(question: Question, kind: str, called: Iterable[_Called]) -> list[Move]:
    """Return the rows of the table about the keyword or the member that failed, for the callee or a base class; if the
    message does not say the class, the rows for any class, if they are of one package."""
    callee, old = question.failure.callee, question.failure.name
    if callee not in ("", "__init__", "__new__"):
        names = [bare(callee), *(subject.partition(":")[2] for entry in called for _, subject in entry.places)]
        return list(part_moves(question.matrix, kind, dict.fromkeys(names), old))
    rows = list(part_moves(question.matrix, kind, ("*",), old))
    return rows if len({(row.package, row.releases) for row in rows}) == 1 else []
