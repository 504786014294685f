"""Keywords and members: which releases of which package take them, by the name of the class or function alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from envdoctor.answers.answer import Moved
from envdoctor.answers.asking import required_by
from envdoctor.answers.history import Found
from envdoctor.answers.names import moved_to
from envdoctor.answers.situation import Situation
from envdoctor.knowledge.ledger import Released
from envdoctor.knowledge.lookup import Move, keyword_moves, member_moves
from envdoctor.versions.releases import Releases

#: Bases of bases that are followed.
_DEPTH = 8
#: Classes whose objects have as attributes what they were given.
_SETTINGS = re.compile(r"(?:Config|Arguments|Args)\Z")
#: A class that trains, and the one that its settings are made of.
_ROLES = re.compile(r"(?:TrainingArguments|Config|Trainer)\Z")
#: Where a word begins within a name: ``Axolotl|GRPO|Config``.
_WORD = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Called(NamedTuple):
    """A class, function or method of a package whose parameters the ledger knows. ``subjects`` are its places there:
    one of each module that it was in. ``bases`` are the places of the classes it inherits from, with their packages."""

    package: str
    name: str
    subjects: tuple[str, ...]
    bases: tuple[tuple[str, str], ...] = ()

    @property
    def own(self) -> list[tuple[str, str]]:
        """Its own places with their package."""
        return [(self.package, subject) for subject in self.subjects]

    @property
    def places(self) -> list[tuple[str, str]]:
        """All places with their packages, its own first."""
        return [*self.own, *self.bases]


def called_of(situation: Situation, callee: str, likely: Iterable[str]) -> list[Called]:
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
    first = list(likely)
    near = [one for one in found if one.package in first]
    installed = [one for one in found if situation.version(one.package)]
    meant = near or installed or found
    meant = _offered(situation, meant) or meant
    meant = [one for one in meant if not any(set(one.bases) & set(other.own) for other in meant)]
    return sorted(meant, key=lambda one: -_users(situation, one.package)) if len(meant) > 1 else meant


def anybodys(situation: Situation, called: Called, likely: Iterable[str]) -> bool:
    """Whether a class's name is one that anybody gives (``Config``, ``Trainer``), and nothing else speaks of its
    package: that no release has something proves nothing then."""
    is_word = re.fullmatch("[A-Z][a-z]*", called.name) is not None
    return is_word and called.package not in likely and not situation.version(called.package)


def _users(situation: Situation, package: str) -> int:
    """How many packages of the ledger require a package."""
    return sum(required_by(situation, other, package) is not None for other in situation.ledger.packages())


def _called(situation: Situation, name: str) -> Iterator[Called]:
    for released in situation.all_by_names():
        subjects = tuple(released.subjects_named("parameters", name))
        if subjects:
            bases = dict.fromkeys(base for one in subjects for base in _bases(situation, released, one))
            yield Called(released.name, name, subjects, tuple(bases))


def _offered(situation: Situation, found: Iterable[Called]) -> list[Called]:
    """Those that can be imported from the top of their packages."""
    return [
        one
        for one in found
        if (released := situation.ledger.package(one.package)) is not None
        and any(released.having("offers", top, one.name.partition(".")[0]).yes for top in released.modules)
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


def keyword_homes(situation: Situation, called: Called, keyword: str, moves: Sequence[Move] = ()) -> list[Found]:
    """The releases that take the keyword there: of the package itself, and of those whose classes it inherits from. Of
    the package itself where none does. ``moves`` are the rows of the table about it."""
    by_package: dict[str, list[Releases]] = {}
    for package, subject in called.places:
        released = situation.by_names(package)
        if released is not None:
            by_package.setdefault(package, []).append(released.having("parameters", subject, keyword))
    told = "keyword", f"{called.name}({keyword}=)"
    found = [Found.read(situation, name, reduce(or_, having), told, moves) for name, having in by_package.items()]
    return [one for one in found if one.home.releases is not None] or found[:1]


def passing_homes(
    situation: Situation, method: str, passes: str, among: Collection[str] | None = None
) -> Iterator[Found]:
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
                having = reduce(or_, [released.having("calls", subject, item) for item in items])
                yield Found.read(situation, released.name, having, told)


def member_homes(situation: Situation, owner: str, member: str, likely: Iterable[str]) -> Iterator[Found]:
    """The releases in which a class has a method of that name, of its own or of a class it inherits from; of a class of
    settings, whose objects have what they were given, those that take it. Attributes that are set when an object is
    made are in no list: other releases may have it as one."""
    for called in called_of(situation, owner, likely):
        released = situation.by_names(called.package)
        if released is None:
            continue
        own = [subject for package, subject in called.places if package == called.package]
        parts = [released.having("parameters", f"{one}.{member}") for one in own]
        settings = _SETTINGS.search(called.name) is not None
        if settings:
            parts += [released.having("parameters", one, member) for one in own]
        having = reduce(or_, parts)._replace(doubt="attributes of objects are not in the ledger")
        if having.yes or (settings and not anybodys(situation, called, likely) and _is_made(released, called)):
            yield Found.read(situation, called.package, having, ("member", f"{owner}.{member}"))


def _is_made(released: Released, called: Called) -> bool:
    """Whether a class of settings is all that it is given: it takes several things, and inherits within its package."""
    taken = {item for one in called.subjects for _, item, _, _ in released.items_of("parameters", one)}
    return len(taken) > 1 and all(package == called.package for package, _ in called.places)


def taken_beside(situation: Situation, called: Iterable[Called], keyword: str) -> Iterator[Moved]:
    """The classes of a package that go with one by their names and take the keyword: ``GRPOTrainer`` and
    ``GRPOConfig``, ``Trainer`` and ``TrainingArguments``."""
    for one in called:
        if not _ROLES.search(one.name):
            continue
        for role in ("TrainingArguments", "Config", "Trainer"):
            others = _offered(situation, _called(situation, _ROLES.sub(role, one.name)))
            for other in (other for other in others if other.package == one.package and other.name != one.name):
                for home in (found.home for found in keyword_homes(situation, other, keyword)):
                    if home.package == one.package and home.releases is not None:
                        top = situation.ledger.package(one.package)
                        place = f"{top.modules[0] if top is not None else one.package}.{home.thing}"
                        yield Moved(place, one.package, home.releases)


def keyword_moved(situation: Situation, callee: str, called: Iterable[Called], keyword: str) -> list[Move]:
    """The rows of the table about a keyword, for the callee or a class it inherits from; where the message does not say
    the class, those of any, if they are of one package."""
    if callee not in ("", "__init__", "__new__"):
        return list(keyword_moves(situation.matrix, _names(callee, called), keyword))
    rows = list(keyword_moves(situation.matrix, ("*",), keyword))
    return rows if len({(row.package, row.releases) for row in rows}) == 1 else []


def member_moved(situation: Situation, owner: str, called: Iterable[Called], member: str) -> list[Move]:
    """The rows of the table about a member of a class."""
    return list(member_moves(situation.matrix, _names(owner, called), member))


def _names(callee: str, called: Iterable[Called]) -> list[str]:
    names = [callee.removesuffix(".__init__").removesuffix(".__new__")]
    for one in called:
        names += [subject.partition(":")[2] for _, subject in one.places]
    return list(dict.fromkeys(names))


def as_moved(move: Move) -> Moved:
    """A row of the table as part of an answer; of a keyword the new one is written with ``=``."""
    moved = moved_to(move)
    return moved._replace(new=f"{moved.new}=" if moved.new.isidentifier() else moved.new, write=moved.write or None)
