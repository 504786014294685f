"""Names, keywords and members by what changed between releases: of packages whose files the ledger did not read for
all names, and of classes and functions below those that it did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TypeVar

from envdoctor.answers.history import Found
from envdoctor.answers.situation import Situation
from envdoctor.knowledge.ledger import Released

_T = TypeVar("_T")

#: A name of a class that is not everybody's: of two words at least.
_OWN = re.compile(r"(?=[A-Z]\w*\Z)\w*?[a-z\d][A-Z]")
#: How modules begin that are not read.
_UNREAD = ("test", "benchmark", "conftest", "docs", "examples")
#: A keyword that more classes take says nothing about which one was meant.
_CLASSES = 3


def changed_place(situation: Situation, package: str, module: str, name: str = "") -> Found | None:
    """The releases that have a name of a module, or the module; None when nothing about it changed."""
    released = situation.changes(package)
    if released is None:
        return None
    below = f"{module}.{name}" if name else module
    having = released.having("offers", below)
    if name:
        having |= released.having("offers", module, name)
    if not having.yes:
        if not _are_all_listed(situation, released, module, name):
            return None
        if released.releases[0].version != released.read[0]:
            having = having._replace(doubt=f"{package} was read from {released.read[0]} on")
    return Found.read(situation, package, having, ("name" if name else "module", below))


def _are_all_listed(situation: Situation, released: Released, module: str, name: str) -> bool:
    """Whether what is not listed is in none of the releases that were read: a name of a top-level module, unless that
    makes names when it is asked for them, or a module of a package below which others are listed. Of packages that
    the ledger has read for all names it says so itself; tests are not read."""
    if situation.by_names(released.name) is not None:
        return False
    if name:
        makes = released.having("offers", module, "__getattr__").yes
        every = [released.items("offers", module, version) for version in released.read]
        return module in released.modules and not makes and all(every) and _is_read(name)
    package, _, last = module.rpartition(".")
    beside = (one.startswith(f"{package}.") for one in released.subjects("offers"))
    return bool(package) and any(beside) and _is_read(last)


def _is_read(name: str) -> bool:
    return not name.startswith(("_", *_UNREAD)) or name.startswith("__")


def changed_keyword(
    situation: Situation, callees: Iterable[str], keyword: str, likely: Sequence[str], *, required: bool = False
) -> list[Found]:
    """The releases in which the first of these classes and functions that changed so takes a keyword (or must be given
    it): of the ``likely`` packages if there are any, else of those that are installed, else of all."""
    item = f"{keyword}!" if required else keyword
    names = [callee.removesuffix(".__init__").removesuffix(".__new__") for callee in callees]
    for name in (one for one in names if re.match(r"[^\W\d][\w.]*\Z", one)):
        found = []
        for package, released in situation.all_changes():
            named = released.subjects_named("parameters", name)
            places = [one for one in named if released.having("parameters", one, item).yes]
            found += [(package, places)] if places else []
        told = "asks" if required else "keyword", f"{name}({keyword}=)"
        if found:
            meant = _meant(situation, found, likely)
            return [_found(situation, package, places, ("parameters", item), told) for package, places in meant]
    return _refused(situation, names[:1], keyword, likely) if not required else []


def _refused(situation: Situation, names: Iterable[str], keyword: str, likely: Sequence[str]) -> list[Found]:
    """That no release takes it, of a class that only one package has, none of whose others takes it: what a class takes
    in every release it would not have refused, and what others take it may have been handed."""
    for name in filter(_OWN.match, names):
        every = ((package, [*one.subjects_named("parameters", name)]) for package, one in situation.all_changes())
        meant = _meant(situation, [(package, places) for package, places in every if places], likely)
        if len(meant) == 1 and not any(_classes(situation, meant[0][0], keyword)):
            package, places = meant[0]
            return [_found(situation, package, places, ("parameters", keyword), ("keyword", f"{name}({keyword}=)"))]
    return []


def _classes(situation: Situation, package: str, keyword: str) -> Iterator[str]:
    """The places of the classes of a package that took a keyword in some releases."""
    released = situation.changes(package)
    for subject in released.subjects_with("parameters", keyword) if released is not None else ():
        if re.search(r":[A-Z]\w*\Z", subject):
            yield subject


def changed_required(situation: Situation, callee: str, name: str, likely: Sequence[str]) -> list[Found]:
    """The releases in which it must be given."""
    return changed_keyword(situation, (callee,), name, likely, required=True)


def keyword_of_any(situation: Situation, keyword: str, likely: Sequence[str]) -> list[Found]:
    """The same where the message does not say who was called: classes of one package alone that take such a keyword."""
    found = []
    for package, _ in situation.all_changes():
        classes: dict[str, list[str]] = {}
        for subject in _classes(situation, package, keyword):
            classes.setdefault(subject.partition(":")[2], []).append(subject)
        if classes:
            found.append((package, classes))
    meant = _meant(situation, found, likely)
    if len(meant) != 1 or len(meant[0][1]) > _CLASSES:
        return []
    package, classes = meant[0]
    return [
        _found(situation, package, places, ("parameters", keyword), ("keyword", f"{name}({keyword}=)"))
        for name, places in classes.items()
    ]


def changed_member(
    situation: Situation, owner: str, member: str, likely: Sequence[str], defined: Collection[str] = ()
) -> list[Found]:
    """The releases in which a class has a member: of its own, or of a class beside it, from which it may inherit.
    ``defined`` are the packages that are known to define the class; where there are none, it may be of any."""
    found = []
    top, _, owner = owner.rpartition(".")
    for package, released in situation.all_changes():
        if defined and package not in defined:
            continue
        if top and situation.ledger.owner(top) != package:  # as compiled ones are called: torch.dtype
            continue
        having = list(released.subjects_with("members", member))
        own = [subject for subject in having if subject.endswith(f":{owner}")]
        if not own and having:
            beside = {*_modules_of(situation, package, released, owner)}
            own = [subject for subject in having if subject.partition(":")[0] in beside]
        if own:
            found.append((package, own))
    return [
        _found(situation, package, places, ("members", member), ("member", f"{owner}.{member}"))
        for package, places in _meant(situation, found, likely)
    ]


def _modules_of(situation: Situation, package: str, released: Released, owner: str) -> Iterator[str]:
    """The modules that define a class, as far as is known."""
    for section in ("members", "parameters"):
        yield from (subject.partition(":")[0] for subject in released.subjects_named(section, owner))
    whole = situation.by_names(package)
    if whole is not None:
        yield from whole.subjects_with("offers", owner)


def _meant(situation: Situation, found: Sequence[tuple[str, _T]], likely: Sequence[str]) -> list[tuple[str, _T]]:
    near = [one for one in found if one[0] in likely]
    installed = [one for one in found if situation.version(one[0])]
    return near or installed or list(found)


def _found(
    situation: Situation, package: str, places: Sequence[str], listed: tuple[str, str], told: tuple[str, str]
) -> Found:
    """The releases in which any of the places has what is ``listed`` (section and item), ``told`` as kind and thing."""
    released, (section, item) = situation.changes(package), listed
    if released is None:
        raise LookupError(package)
    return Found.read(situation, package, reduce(or_, [released.having(section, one, item) for one in places]), told)
