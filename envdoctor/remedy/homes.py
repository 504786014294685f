"""Which releases of which package have a module, a name, a keyword or a member: by what the ledger read, by what
changed between releases where it did not read all, and by the table moved-names."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar

from envdoctor.facts.values import Unknown
from envdoctor.judge.messages import text_of
from envdoctor.matrix.ledger import Released
from envdoctor.matrix.ledger_taking import allows
from envdoctor.matrix.lookup import Asked, Move, name_moves, part_moves
from envdoctor.remedy.answer import Home, Moved
from envdoctor.remedy.situation import Situation
from envdoctor.versions.releases import Releases

_T = TypeVar("_T", bound=tuple[Any, ...])

#: A name of a class that is not everybody's: of two words at least.
_OWN = re.compile(r"(?=[A-Z]\w*\Z)\w*?[a-z\d][A-Z]")
#: How modules begin that are not read.
_UNREAD = ("test", "benchmark", "conftest", "docs", "examples")
#: A keyword that more classes take says nothing about which one was meant.
_CLASSES = 3
#: Bases of bases that are followed.
_DEPTH = 8
#: Classes whose objects have as attributes what they were given.
_SETTINGS = re.compile(r"(?:Config|Arguments|Args)\Z")
#: A class that trains, and the one that its settings are made of.
_ROLES = re.compile(r"(?:TrainingArguments|Config|Trainer)\Z")
#: Where a word begins within a name: ``Axolotl|GRPO|Config``.
_WORD = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class FoundHomes(NamedTuple):
    """The releases that have something, for people, and as what the ledger read (None: by a table)."""

    home: Home
    having: Releases | None

    @classmethod
    def read(
        cls, situation: Situation, package: str, having: Releases, told: tuple[str, str], moves: Sequence[Move] = ()
    ) -> "FoundHomes":
        """Return what the ledger read, ``told`` as kind and thing, with the releases that rows of the table name: they
        know what decorators take."""
        installed = situation.version(package)
        rows = [move for move in moves if move.package == package and move.releases != "<0"]
        if rows:
            having |= Releases.of(having.read, [any(move.has(one) for move in rows) for one in having.read])
        there = True if any(move.has(installed) for move in rows) else having.has(installed)
        ends = having.read[0], having.read[-1]
        return cls(Home(package, *told, having.specifier, *ends, having.doubt, installed, there), having)

    def usable(self, situation: Situation) -> list[str]:
        """Return the releases that have it and may be installed here, the nearest first."""
        if self.having is not None:
            return usable_releases(situation, self.home.package, self.having)
        known = situation.matrix.part("releases", "releases").get(self.home.package, ())
        parts = (self.home.releases or "").split(" or ")
        having = Releases.of(known, [any(allows(part, version) for part in parts) for version in known])
        return having.by_distance(self.home.installed)


def found_by_table(situation: Situation, move: Move, kind: str, thing: str) -> FoundHomes:
    """The same by a row of the table."""
    installed = situation.version(move.package)
    there = move.has(installed) if installed else None
    releases = None if move.releases == "<0" else move.releases.replace(" | ", " or ")
    return FoundHomes(Home(move.package, kind, thing, releases, installed=installed, there=there), None)


def offering(released: Released, module: str, name: str = "") -> Releases:
    """Return the releases that have a module, or in which ``from module import name`` finds the name."""
    answers = [released.offers(module, name, one) if name else released.exists(module, one) for one in released.read]
    doubt = next((one.reason for one in answers if isinstance(one, Unknown)), "")
    return Releases.of(released.read, [None if isinstance(one, Unknown) else one for one in answers], doubt)


def usable_releases(situation: Situation, package: str, having: Releases) -> list[str]:
    """Return the releases of a set that were not withdrawn and that this Python may install, the nearest to the
    installed one first, or the newest if that is not known."""
    released, python = situation.ledger.package(package), situation.python
    listed = released.releases if released is not None else ()
    fits = [
        not one.yanked and having.has(one.version) is True and (not python or allows(one.requires_python, python))
        for one in listed
    ]
    return Releases.of([one.version for one in listed], fits).by_distance(situation.version(package))


def home_of(situation: Situation, package: str, module: str, name: str = "") -> FoundHomes | None:
    """The releases of a package that have it, by what changed between them, else by the ledger where it has read names,
    else by the table of moved names; None when none says anything."""
    released, changed = situation.by_names(package), changed_place(situation, package, module, name)
    kind, thing = ("name" if name else "module"), Asked(module, name).dotted
    moves = [move for move in name_moves(situation.matrix, module, name) if move.package == package]
    if released is not None:
        having = offering(released, module, name)
        finer = changed is not None and changed.having is not None and len(changed.having.read) > len(having.read)
        if finer or (changed is not None and not having.yes):
            return changed
        if having.yes or not moves:
            return FoundHomes.read(situation, package, having, (kind, thing))
    return found_by_table(situation, moves[0], kind, thing) if moves else changed


def moved_by(moves: Iterable[Move], kind: str = "") -> list[Moved]:
    """What the first row of the table that knows it says to use instead; a keyword is written with ``=``."""
    for move in (one for one in moves if one.new or one.write):
        write = text_of(move.write) if move.write else None
        return [Moved(move.called(kind), move.new_package, move.new_releases, write, move.source)]
    return []


def changed_place(situation: Situation, package: str, module: str, name: str = "") -> FoundHomes | None:
    """The releases that have a name of a module, or the module; None when nothing about it changed."""
    released = situation.ledger.changes(package)
    if released is None:
        return None
    below = f"{module}.{name}" if name else module
    having = released.having("offers", below)
    if name:
        having |= released.having("offers", module, item=name)
    if not having.yes:
        if not _are_all_listed(situation, released, module, name):
            return None
        if released.releases[0].version != released.read[0]:
            having = having._replace(doubt=f"{package} was read from {released.read[0]} on")
    return FoundHomes.read(situation, package, having, ("name" if name else "module", below))


def _are_all_listed(situation: Situation, released: Released, module: str, name: str) -> bool:
    """Whether what is not listed is in none of the releases that were read: a name of a top-level module, unless that
    makes names when it is asked for them, or a module of a package below which others are listed. Of packages that
    the ledger has read for all names it says so itself; tests are not read."""
    if situation.by_names(released.name) is not None:
        return False
    if name:
        makes = released.having("offers", module, item="__getattr__").yes
        every = [released.items("offers", module, version) for version in released.read]
        return module in released.modules and not makes and all(every) and _is_read(name)
    package, _, last = module.rpartition(".")
    beside = (one.startswith(f"{package}.") for one in released.subjects("offers"))
    return bool(package) and any(beside) and _is_read(last)


def _is_read(name: str) -> bool:
    return not name.startswith(("_", *_UNREAD)) or name.startswith("__")


def changed_keyword(
    situation: Situation, callees: Iterable[str], keyword: str, likely: Sequence[str], *, required: bool = False
) -> list[FoundHomes]:
    """The releases in which the first of these classes and functions that changed so takes a keyword (or must be given
    it): of the ``likely`` packages if there are any, else of those that are installed, else of all."""
    item, kind = (f"{keyword}!", "asks") if required else (keyword, "keyword")
    names = [callee.removesuffix(".__init__").removesuffix(".__new__") for callee in callees]

    def places(released: Released) -> list[str]:
        named = released.subjects_named("parameters", name)
        return [one for one in named if released.having("parameters", one, item=item).yes]

    for name in (one for one in names if re.match(r"[^\W\d][\w.]*\Z", one)):
        found = _changed(situation, likely, ("parameters", item), (kind, f"{name}({keyword}=)"), places)
        if found:
            return found
    # That no release takes it is told of a class that only one package has, none of whose others takes it: what a class
    # takes in every release it would not have refused, and what others take it may have been handed.
    if required or not names or not _OWN.match(names[0]):
        return []
    told = "keyword", f"{names[0]}({keyword}=)"
    found = _changed(
        situation, likely, ("parameters", keyword), told, lambda one: [*one.subjects_named("parameters", names[0])]
    )
    released = situation.ledger.changes(found[0].home.package) if len(found) == 1 else None
    return found if released is not None and not any(_classes(released, keyword)) else []


def _classes(released: Released, keyword: str) -> Iterator[str]:
    """The places of the classes of a package that took a keyword in some releases."""
    for subject in released.subjects_with("parameters", keyword):
        if re.search(r":[A-Z]\w*\Z", subject):
            yield subject


def keyword_of_any(situation: Situation, keyword: str, likely: Sequence[str]) -> list[FoundHomes]:
    """The same where the message does not say who was called: classes of one package alone that take such a keyword."""
    found = []
    for released in situation.all_changes():
        classes: dict[str, list[str]] = {}
        for subject in _classes(released, keyword):
            classes.setdefault(subject.partition(":")[2], []).append(subject)
        if classes:
            found.append((released.name, released, classes))
    meant = _meant(situation, found, likely)
    if len(meant) != 1 or len(meant[0][2]) > _CLASSES:
        return []
    package, released, classes = meant[0]
    having = ((name, released.having("parameters", *places, item=keyword)) for name, places in classes.items())
    return [FoundHomes.read(situation, package, one, ("keyword", f"{name}({keyword}=)")) for name, one in having]


def changed_member(
    situation: Situation, owner: str, member: str, likely: Sequence[str], defined: Collection[str] = ()
) -> list[FoundHomes]:
    """The releases in which a class has a member: of its own, or of a class beside it, from which it may inherit.
    ``defined`` are the packages that are known to define the class; where there are none, it may be of any."""
    top, _, owner = owner.rpartition(".")

    def places(released: Released) -> list[str]:
        if defined and released.name not in defined:
            return []
        if top and situation.ledger.owner(top) != released.name:  # as compiled ones are called: torch.dtype
            return []
        having = list(released.subjects_with("members", member))
        own = [subject for subject in having if subject.endswith(f":{owner}")]
        if not own and having:
            beside = {*_modules_of(situation, released, owner)}
            own = [subject for subject in having if subject.partition(":")[0] in beside]
        return own

    return _changed(situation, likely, ("members", member), ("member", f"{owner}.{member}"), places)


def _modules_of(situation: Situation, released: Released, owner: str) -> Iterator[str]:
    """The modules that define a class, as far as is known."""
    for section in ("members", "parameters"):
        yield from (subject.partition(":")[0] for subject in released.subjects_named(section, owner))
    whole = situation.by_names(released.name)
    if whole is not None:
        yield from whole.subjects_with("offers", owner)


def _changed(
    situation: Situation,
    likely: Sequence[str],
    listed: tuple[str, str],
    told: tuple[str, str],
    places: Callable[[Released], list[str]],
) -> list[FoundHomes]:
    """The releases in which any of the ``places`` in a package has what is ``listed`` (section and item), of the
    packages that are meant; ``told`` as kind and thing."""
    every = [(one.name, one, there) for one in situation.all_changes() if (there := places(one))]
    return [
        FoundHomes.read(situation, package, released.having(listed[0], *there, item=listed[1]), told)
        for package, released, there in _meant(situation, every, likely)
    ]


def _meant(situation: Situation, found: Sequence[_T], likely: Sequence[str]) -> Sequence[_T]:
    """Those of the ``likely`` packages if there are any, else of those that are installed, else all. Each begins with
    the name of its package."""
    near = [one for one in found if one[0] in likely]
    return near or [one for one in found if situation.version(one[0])] or found


class Called(NamedTuple):
    """A class, function or method of a package whose parameters the ledger knows. ``own`` are its places there, with
    the package: one of each module that it was in; ``bases`` those of the classes it inherits from."""

    package: str
    name: str
    own: tuple[tuple[str, str], ...]
    bases: tuple[tuple[str, str], ...]

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """All places with their packages, its own first."""
        return self.own + self.bases


def called_of(situation: Situation, callee: str, likely: Sequence[str]) -> list[Called]:
    """Those that a message may mean by ``TrainingArguments.__init__``: the ones of the ``likely`` packages when there
    are any, else of those that are installed, else all. Of several the ones that a package offers at its top, and of
    those not what inherits from another of them; first the package that most others require. A class that no package
    has is taken for a subclass of the one whose name ends its own (``AxolotlGRPOConfig``)."""
    name = callee.removesuffix(".__init__").removesuffix(".__new__")
    if not re.match(r"[^\W\d][\w.]*\Z", name):
        return []
    found = list(_called(situation, name))
    if not found and "." not in name:
        endings = (name[at.end() :] for at in _WORD.finditer(name) if _WORD.search(name, at.end() + 1))
        found = next(filter(None, (_offered(situation, list(_called(situation, one))) for one in endings)), [])
    meant = _meant(situation, found, likely)
    meant = _offered(situation, meant) or meant
    meant = [one for one in meant if not any(set(one.bases) & set(other.own) for other in meant)]

    def users(called: Called) -> int:
        return sum(situation.required_by(one, called.package) is not None for one in situation.ledger.packages())

    return sorted(meant, key=users, reverse=True) if len(meant) > 1 else meant


def anybodys(situation: Situation, called: Called, likely: Iterable[str]) -> bool:
    """Whether a class's name is one that anybody gives (``Config``, ``Trainer``), and nothing else speaks of its
    package: that no release has something proves nothing then."""
    is_word = re.fullmatch("[A-Z][a-z]*", called.name) is not None
    return is_word and called.package not in likely and not situation.version(called.package)


def _called(situation: Situation, name: str) -> Iterator[Called]:
    for released in situation.all_by_names():
        subjects = tuple(released.subjects_named("parameters", name))
        if subjects:
            bases = dict.fromkeys(base for one in subjects for base in _bases(situation, released, one))
            yield Called(released.name, name, tuple((released.name, one) for one in subjects), tuple(bases))


def _offered(situation: Situation, found: Iterable[Called]) -> list[Called]:
    """Those that can be imported from the top of their packages."""
    return [
        one
        for one in found
        if (released := situation.ledger.package(one.package)) is not None
        and any(released.having("offers", top, item=one.name.partition(".")[0]).yes for top in released.modules)
    ]


def _bases(situation: Situation, released: Released, subject: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    for item in dict.fromkeys(item for _, item, _, _ in released.items_of("parameters", subject)):
        owner = situation.ledger.owner(item[1:].partition(":")[0]) if item.startswith("&") else None
        base = situation.by_names(owner)
        if base is None or depth >= _DEPTH:
            continue
        for place in dict.fromkeys(home for _, home, _, _ in base.items_of("alias", item[1:])) or (item[1:],):
            yield base.name, place
            yield from _bases(situation, base, place, depth + 1)


def keyword_homes(situation: Situation, called: Called, keyword: str, moves: Sequence[Move] = ()) -> list[FoundHomes]:
    """The releases that take the keyword there: of the package itself, and of those whose classes it inherits from. Of
    the package itself where none does. ``moves`` are the rows of the table about it."""
    told, found = ("keyword", f"{called.name}({keyword}=)"), []
    for package in dict.fromkeys(package for package, _ in called.places):
        released = situation.by_names(package)
        if released is not None:
            subjects = [subject for owner, subject in called.places if owner == package]
            having = released.having("parameters", *subjects, item=keyword)
            found.append(FoundHomes.read(situation, package, having, told, moves))
    return [one for one in found if one.home.releases is not None] or found[:1]


def passing_homes(
    situation: Situation, method: str, passes: str, among: Collection[str] | None = None
) -> Iterator[FoundHomes]:
    """The releases whose own classes call a method of that name with a keyword (``num_items_in_batch=``) or a number of
    positional arguments (``2``): a subclass of the user's has to take it. ``among`` are the places of the classes that
    a known one inherits from; None when it may be a subclass of any."""
    name = method.rpartition(".")[2]
    for released in situation.all_by_names():
        for subject in released.subjects_named("calls", name, whole=False):
            if among is not None and subject.rpartition(".")[0] not in among:
                continue
            items = {item for _, item, _, _ in released.items_of("calls", subject) if passes in item.split(" ")}
            told = "passes", f"{subject.partition(':')[2]}({passes if passes.endswith('=') else '…'})"
            if items:
                having = reduce(or_, [released.having("calls", subject, item=item) for item in items])
                yield FoundHomes.read(situation, released.name, having, told)


def member_homes(situation: Situation, owner: str, member: str, likely: Sequence[str]) -> Iterator[FoundHomes]:
    """The releases in which a class has a method of that name, of its own or of a class it inherits from; of a class of
    settings, whose objects have what they were given, those that take it. Attributes that are set when an object is
    made are in no list: other releases may have it as one."""
    for called in called_of(situation, owner, likely):
        released = situation.by_names(called.package)
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
        if having.yes or (settings and not anybodys(situation, called, likely) and is_made):
            yield FoundHomes.read(situation, called.package, having, ("member", f"{owner}.{member}"))


def taken_beside(situation: Situation, called: Iterable[Called], keyword: str) -> Iterator[Moved]:
    """The classes of a package that go with one by their names and take the keyword: ``GRPOTrainer`` and
    ``GRPOConfig``, ``Trainer`` and ``TrainingArguments``."""
    for one in called:
        for role in ("TrainingArguments", "Config", "Trainer") if _ROLES.search(one.name) else ():
            others = _offered(situation, _called(situation, _ROLES.sub(role, one.name)))
            for other in (other for other in others if other.package == one.package and other.name != one.name):
                for home in (found.home for found in keyword_homes(situation, other, keyword)):
                    if home.package == one.package and home.releases is not None:
                        top = situation.ledger.package(one.package)
                        place = f"{top.modules[0] if top is not None else one.package}.{home.thing}"
                        yield Moved(place, one.package, home.releases)


def moves_of(situation: Situation, kind: str, callee: str, called: Iterable[Called], old: str) -> list[Move]:
    """The rows of the table about a keyword or a member, for the callee or a class it inherits from; where the message
    does not say the class, those of any, if they are of one package."""
    if callee not in ("", "__init__", "__new__"):
        names = [callee.removesuffix(".__init__").removesuffix(".__new__")]
        names += [subject.partition(":")[2] for one in called for _, subject in one.places]
        return list(part_moves(situation.matrix, kind, dict.fromkeys(names), old))
    rows = list(part_moves(situation.matrix, kind, ("*",), old))
    return rows if len({(row.package, row.releases) for row in rows}) == 1 else []
