"""Find which releases have a symbol that code takes of a package (a module, a dotted name, a keyword of a call, an
overridden method), what they take of each other, and where names went: by the ledger, and by the table moved-names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache, reduce
from itertools import chain, product
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.source.signatures import can_be_called
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.releases import Releases, lies_in
from envdoctor.versions.requirement import Requirement, normalise, read_requirement

if TYPE_CHECKING:
    from envdoctor.matrix.matrix import Matrix

_HOPS = 8
_TAKES_ANY = Unknown(Message("it hands on any keyword"))
_NOT_READ = Unknown(Message("the ledger does not say which parameters it takes"))
_NOT_CALLED = Unknown(Message("the ledger does not say how it is called"))
# The same is asked for every name of a script, for every release, and again for every change that is tried.
_exists = lru_cache(maxsize=1 << 16)(Released.exists)
_offers = lru_cache(maxsize=1 << 16)(Released.offers)
_items = lru_cache(maxsize=1 << 16)(Released.items)


class Symbol(NamedTuple):
    """A symbol that code takes of a package: ``module`` and, below it, a dotted ``name``; a ``keyword`` of that, or its
    overriding by a method with ``parameters`` (as ``x``, ``x=``, ``*``, ``*args``, ``**kwargs``)."""

    module: str
    name: str = ""
    keyword: str = ""
    parameters: tuple[str, ...] | None = None

    @classmethod
    def of(cls, module: str, name: Value | None, keyword: Value | None, parameters: Value | None) -> Symbol:
        """Return the symbol in the cells of a record; any but the module may be absent."""
        name, keyword = (cell if isinstance(cell, str) else "" for cell in (name, keyword))
        return cls(module, name, keyword, parameters if isinstance(parameters, tuple) else None)

    @property
    def dotted(self) -> str:
        """Return ``transformers.Trainer.compute_loss``."""
        return f"{self.module}.{self.name}" if self.name else self.module


class Lacking(NamedTuple):
    """A gap of a release, by ``kind``: a ``module``, a ``name``, a ``keyword``, or an ``override`` that does not fit;
    ``name`` is dotted, ``call`` is how an overridden method is called."""

    kind: str
    name: str
    call: str = ""


#: The installed version of another distribution; None when it is not known, or not there.
VersionOf = Callable[[str], str | None]


def answer(
    ledger: Ledger, released: Released, symbol: Symbol, version: str, other: VersionOf
) -> Lacking | Unknown | None:
    """Return what a release lacks of a symbol; None if it has it. Callables that hand on any keyword are open."""
    lacking = _name(released, symbol.module, symbol.name, version)
    if lacking is not None or not (symbol.keyword or symbol.parameters is not None):
        return lacking
    public = f"{symbol.module}:{symbol.name}"
    place = _home(released, public, version)
    if symbol.keyword:
        parameters = _parameters(ledger, released, place, version, other, _HOPS)
        if isinstance(parameters, Unknown):
            return parameters
        if symbol.keyword in parameters:
            return None
        return _TAKES_ANY if "**" in parameters else Lacking("keyword", symbol.dotted)
    calls = _calls(ledger, released, place, version, other, _HOPS)
    if isinstance(calls, Unknown):
        return calls
    if not calls and place == public and any(True for _ in released.items_of("alias", public.rpartition(".")[0])):
        return _NOT_CALLED  # only other releases tell where the class is
    unfit = next((call for call in calls if not can_be_called(symbol.parameters or (), call)), None)
    return None if unfit is None else Lacking("override", symbol.dotted, unfit)


def where(
    ledger: Ledger, released: Released, symbol: Symbol, other: VersionOf, user: tuple[Released, str] | None = None
) -> Releases:
    """Return the releases of a package that have a symbol. With ``user``, a version of another package whose classes
    inherit from this one's, return the releases with which ``user`` has it. An answer counts again where the versions
    that it asked for are the same: every fix that is tried asks for all that code takes."""
    answers = _answers(ledger, released, symbol, user)
    for asked, releases in answers:
        if all(other(name) == version for name, version in asked.items()):
            return releases
    noted: dict[str, str | None] = {}

    def version_of(name: str) -> str | None:
        return noted.setdefault(name, other(name))

    def lacking(version: str) -> Lacking | Unknown | None:
        if user is None:
            return answer(ledger, released, symbol, version, version_of)
        it = released.name
        return answer(ledger, user[0], symbol, user[1], lambda name: version if name == it else version_of(name))

    gaps = map(lacking, released.read)
    having = Releases.of(released.read, [None if isinstance(gap, Unknown) else gap is None for gap in gaps])
    answers.append((noted, having))
    return having


@lru_cache(maxsize=4096)
def _answers(
    ledger: Ledger, released: Released, symbol: Symbol, user: tuple[Released, str] | None
) -> list[tuple[Mapping[str, str | None], Releases]]:
    """Return what :func:`where` answered, each with the versions that it asked for."""
    return []


def inherited_from(
    ledger: Ledger, released: Released, symbol: Symbol, version: str, other: VersionOf
) -> tuple[Released, ...]:
    """Return the other packages of a class's base classes, the nearest first: the symbol may be theirs."""
    packages: dict[str, Released] = {}
    queue = [(released, f"{symbol.module}:{symbol.name.partition('.')[0]}", version)]
    for package, place, its_version in queue:
        home = _home(package, place, its_version)
        for base in chain(*(_bases(package, section, home, its_version) for section in ("parameters", "calls"))):
            elsewhere = _elsewhere(ledger, package, base, its_version, other)
            if not isinstance(elsewhere, Unknown) and len(queue) < _HOPS * 2:
                queue.append((elsewhere[0], base, elsewhere[1]))
                if elsewhere[0] is not released:
                    packages.setdefault(elsewhere[0].name, elsewhere[0])
    return tuple(packages.values())


class Outdated(NamedTuple):
    """A method of a class, at ``place``, that replaces one of a ``base`` class (``transformers:Trainer``) and refuses
    its ``call``."""

    method: str
    place: str
    base: str
    call: str


@lru_cache(maxsize=1 << 14)
def outdated(
    ledger: Ledger, package: Released, version: str, name: str, *, provider: Released, its_version: str
) -> tuple[Outdated, ...] | None:
    """Return the methods of a release's class ``name`` (dotted) that cannot take a call of its base classes in a
    release of another package: the ledger lists the names of parameters, not their order, so others may be refused too.
    None if none is known to refuse one, and one is unknown."""
    other = {provider.name: its_version}.get
    places, bases = [_home(package, ":".join(name.rsplit(".", 1)), version)], []
    for place in places:
        for base in _bases(package, "calls", place, version):
            home = _home(package, base, version)
            if base.partition(":")[0].partition(".")[0] in provider.modules:
                bases.append(base)
            elif len(places) < _HOPS and home not in places:
                places.append(home)
    methods: Mapping[str, tuple[str, tuple[str, ...]]] = {}
    for place in places if bases else ():
        methods = {**_methods(package, place, version), **methods}
    stale: list[Outdated] = []
    doubt = False
    for base, (method, (place, takes)) in product(bases, methods.items()):
        match _calls(ledger, provider, f"{base}.{method}", its_version, other, _HOPS):
            case Unknown():
                doubt = True
            case calls:
                unfit = [call for call in calls if not _may_take(takes, call)]
                stale += [Outdated(method, place, base, call) for call in unfit[:1]]
    return tuple(stale) if stale or not doubt else None


@lru_cache(maxsize=1 << 10)
def _methods(released: Released, place: str, version: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Return the methods that a class defines itself, each with the place and the names of its parameters."""
    methods = {}
    for subject in released.subjects("parameters"):
        if subject.startswith(f"{place}."):
            match _signature(released, subject, version):
                case [*items]:
                    methods[subject.removeprefix(f"{place}.")] = place, tuple(items)
    return methods


def _may_take(names: Iterable[str], call: str) -> bool:
    """Return whether parameters of these names take a call in some order, with defaults for all."""
    stars = {"*": "*args", "**": "**"}
    words = [stars.get(name, f"{name}=") for name in names]
    return can_be_called(sorted(words, key=lambda word: (word[0] == "*", word in call.split(" "))), call)


def _known_module(released: Released, module: str, version: str) -> Lacking | Unknown | None:
    """Check whether a release has a module; return the first of the packages around it that is missing."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        inner = ".".join(parts[:count])
        presence = _exists(released, inner, version)
        if presence is True:
            continue
        outer, _, last = inner.rpartition(".")
        if presence is False and outer and released.has("offers", outer, last, version):
            return Unknown(Message("{} is no file of its own", inner))  # it may be a module by another name
        return Lacking("module", inner) if presence is False else presence
    return None


def _home(released: Released, place: str, version: str) -> str:
    """Return where the public name at a place, ``module:Qualified.name``, is defined; the place itself if nothing else
    is known."""
    module, _, name = place.partition(":")
    parts = name.split(".")
    while len(parts) > 1 and _exists(released, f"{module}.{parts[0]}", version) is True:
        module, parts = f"{module}.{parts[0]}", parts[1:]
    place = f"{module}:{parts[0]}"
    for _ in range(_HOPS):
        places = _items(released, "alias", place, version)
        if isinstance(places, Unknown) or len(places) != 1:
            break
        place = places[0]
    return ".".join([place, *parts[1:]])


def went_to(released: Released, dotted: str, version: str) -> str | None:
    """Return the new dotted name of a moved symbol, by the files of the releases themselves; None if unknown."""
    module, _, name = dotted.rpartition(".")
    places = released.items("moved", f"{module}:{name}", version)
    return places[0].replace(":", ".") if not isinstance(places, Unknown) and len(places) == 1 else None


def _name(released: Released, module: str, name: str, version: str) -> Lacking | Unknown | None:
    lacking = _known_module(released, module, version)
    if lacking is not None:
        return lacking
    for part in filter(None, name.split(".")):
        presence = _offers(released, module, part, version)
        if presence is not True:
            return Lacking("name", f"{module}.{part}") if presence is False else presence
        if _exists(released, f"{module}.{part}", version) is not True or released.has("offers", module, part, version):
            return None  # a name, whose value is not followed
        module = f"{module}.{part}"
    return None


def _parameters(  # noqa: PLR0917 (a question and how far it may go)
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf, hops: int
) -> set[str] | Unknown:
    """Return the names of the parameters, with those of the base classes."""
    items = _signature(released, _home(released, place, version), version) if hops else _NOT_READ
    if isinstance(items, Unknown):
        return items
    names = {item for item in items if not item.startswith("&")}
    for base in (item[1:] for item in items if item.startswith("&")):
        inherited: Any = _elsewhere(ledger, released, base, version, other)
        if not isinstance(inherited, Unknown):
            inherited = _parameters(ledger, inherited[0], base, inherited[1], other, hops - 1)
        if isinstance(inherited, Unknown):
            return inherited
        names |= inherited
    return names


def _elsewhere(
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf
) -> tuple[Released, str] | Unknown:
    """Return the package that a place belongs to, and its version."""
    if place.partition(".")[0].partition(":")[0] in released.modules:
        return released, version
    owner = ledger.package(ledger.owner(place.partition(":")[0]) or "")
    installed = other(owner.name) if owner is not None else None
    return (owner, installed) if owner is not None and installed else Unknown(Message("{} is not known", place))


def _bases(released: Released, section: str, place: str, version: str) -> list[str]:
    """Return the base classes of a class, as they are written there; empty if unknown."""
    items = _items(released, section, place, version)
    return [] if isinstance(items, Unknown) else [item[1:] for item in items if item[0] == "&"]


def _calls(  # noqa: PLR0917
    ledger: Ledger, released: Released, place: str, version: str, other: VersionOf, hops: int
) -> tuple[str, ...] | Unknown:
    """Return how a method is called by its class, or by the base class that has it."""
    place = _home(released, place, version)
    items = _items(released, "calls", place, version)
    if isinstance(items, Unknown) or items or not hops:
        return items
    owner, _, method = place.rpartition(".")
    for base in _bases(released, "calls", owner, version):
        home = _elsewhere(ledger, released, base, version, other)
        if not isinstance(home, Unknown):
            inherited = _calls(ledger, home[0], f"{base}.{method}", home[1], other, hops - 1)
            if isinstance(inherited, Unknown) or inherited:
                return inherited
    return ()


@lru_cache(maxsize=1 << 16)
def _signature(released: Released, place: str, version: str) -> tuple[str, ...] | Unknown:
    presence = released.listed("parameters", place, version)
    return released.items("parameters", place, version) if presence is True else _NOT_READ


class TakenNames(NamedTuple):
    """``module`` of another package, or its ``name`` ("" for the module itself), as ``place`` (a module) takes it when
    ``entry`` is imported (``import peft``, ``from trl import SFTTrainer``); or a requirement that ``place`` checks then
    (``need``). It is taken only if the distributions and versions of ``beside`` are installed."""

    entry: str
    module: str
    name: str
    need: Requirement | None
    place: str
    beside: tuple[Requirement, ...]


@lru_cache(maxsize=512)
def taken(consumer: Released, version: str) -> tuple[TakenNames, ...]:
    """Return what a version takes of others; empty if unknown."""
    by_subject = ((subject, consumer.items("takes", subject, version)) for subject in consumer.subjects("takes"))
    pairs = ((subject, items) for subject, items in by_subject if not isinstance(items, Unknown))
    return tuple(read_taken(subject, item) for subject, items in pairs for item in items)


@lru_cache(maxsize=10_000)
def read_taken(subject: str, item: str) -> TakenNames:
    """Read a line of the section [takes]."""
    target, _, rest = item.partition(" @")
    place, _, beside = rest.partition(" if ")
    module, _, name = target.partition(":")
    entry, _, part = subject.partition(":")
    statement = Message("from {} import {}", entry, part) if part else Message("import {}", entry)
    requirement = None if module.replace(".", "").isidentifier() else read_requirement(target)
    needs = tuple(map(read_requirement, beside.split(" and "))) if beside else ()
    return TakenNames(statement, "" if requirement else module, name, requirement, place, needs)


def missing(
    ledger: Ledger, consumer: Released, version: str, installed: Callable[[str], Value], skip: Collection[str] = ()
) -> Iterator[tuple[TakenNames, str]]:
    """Yield what a version takes and the installed releases certainly lack, with the package that would have it.

    ``installed`` gives the version of a package, ABSENT if it is not installed. Packages of ``skip`` are left out.
    """
    for take in taken(consumer, version):
        if not all(_meets(installed(need.name), need) for need in take.beside):
            continue
        provider = provider_of(ledger, take)
        if provider is None:
            if take.module and (name := normalise(take.module)) not in skip and installed(name) is ABSENT:
                yield from [(take, name)] * _requires(consumer, version, name)
        elif provider is not consumer and provider.name not in skip:
            release = installed(provider.name)
            if lacks(provider, take, release) or (
                release is ABSENT and take.module and _requires(consumer, version, provider.name)
            ):
                yield take, provider.name


@lru_cache(maxsize=1 << 10)
def fitting_providers(ledger: Ledger, consumer: Released, version: str, provider: Released) -> Releases:
    """Return the releases of a provider that have all that a version of the consumer takes of it."""
    takes = _of_provider(ledger, consumer, version, provider)
    return reduce(and_, (_having(provider, take) for take in takes), ~Releases(provider.read, 0))


@lru_cache(maxsize=1 << 10)
def fitting_consumers(ledger: Ledger, consumer: Released, provider: Released, version: str) -> Releases:
    """Return the releases of a consumer whose names that version of the provider all has; unknown for a version outside
    of the read ones."""
    if not provider.covers(version):
        return Releases.of(consumer.read, [None] * len(consumer.read))

    has = cache(lambda take: _has(provider, take, version))
    takes = (_of_provider(ledger, consumer, release, provider) for release in consumer.read)
    return Releases.of(consumer.read, [all(map(has, several)) for several in takes])


@lru_cache(maxsize=1 << 12)
def _having(provider: Released, take: TakenNames) -> Releases:
    return Releases.of(provider.read, [_has(provider, take, release) for release in provider.read])


def _of_provider(ledger: Ledger, consumer: Released, version: str, provider: Released) -> Iterable[TakenNames]:
    """Return what a version of the consumer takes of the provider, at any place."""
    takes = (take for take in taken(consumer, version) if provider_of(ledger, take) is provider)
    return dict.fromkeys(take._replace(entry="", place="") for take in takes)


def provider_of(ledger: Ledger, take: TakenNames) -> Released | None:
    """Return the package of a taken name; None if the ledger does not know it."""
    owner = take.need.name if take.need else ledger.owner(take.module)
    return ledger.package(owner) if owner else None


def lacks(provider: Released, take: TakenNames, version: Value) -> bool:
    """Return whether a version of the provider certainly lacks a taken name, and needs it."""
    return isinstance(version, str) and _has(provider, take, version) is False


def _has(provider: Released, take: TakenNames, version: str) -> bool | None:
    """Return whether a version of the provider has a taken name, or does without it; None if unknown."""
    if not all(_meets(version, need) for need in take.beside if need.name == provider.name):
        return True
    if take.need:
        return satisfies(version, take.need.specifiers)
    parent, name = (take.module, take.name) if take.name else take.module.rpartition(".")[::2]
    offer = provider.offers(parent, name, version) if parent else provider.exists(name, version)
    return offer if isinstance(offer, bool) else None


def _meets(version: Value, need: Requirement) -> bool:
    return isinstance(version, str) and (not need.specifiers or satisfies(version, need.specifiers) is True)


def _requires(consumer: Released, version: str, name: str) -> bool:
    """Return whether the metadata of a version requires another package unconditionally."""
    return any(need.name == name and not need.marker for need in consumer.requires(version))


class Move(NamedTuple):
    """One row: ``releases`` of ``package`` have a symbol. Others call it ``new``: a module and a name
    (``evaluate:load``), another keyword, another member; empty when nothing took its place. ``new_package`` has it in
    ``new_releases`` (empty: not told). ``write`` says by language what to write, where that is more than a name; a
    keyword of the same name in it belongs to the class ``into``."""

    package: str
    releases: str
    new: str
    new_package: str
    new_releases: str
    write: Mapping[str, str]
    source: str
    into: str = ""

    def has(self, version: str) -> bool | None:
        """Return whether a version of the package has the symbol; None for a text that is not a version."""
        return lies_in(version, self.releases)

    def called(self, kind: str) -> str:
        """Return the new name, with ``=`` for a keyword; "" if it has none."""
        return f"{self.new}=" if kind == "keyword" and self.new.isidentifier() else self.new.replace(":", ".")


def name_moves(matrix: Matrix, module: str, name: str = "") -> Iterator[Move]:
    """Yield the rows about a name of a module, then the rows about the module itself, or a module that contains it;
    without a name only the latter."""
    rows = matrix.rows("moved-names", "name")
    sought = [f"{module}:{name}", f"{module}.{name}"] if name else []
    parts = module.split(".")
    sought += [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for place in sought:
        yield from (_move(row) for row in rows if place in row["old"])


def modules_with(matrix: Matrix, name: str) -> Iterator[str]:
    """Yield the modules that have, or had, a name according to the rows."""
    for row in matrix.rows("moved-names", "name"):
        yield from (old.partition(":")[0] for old in row["old"] if old.endswith(f":{name}"))


def keepers(matrix: Matrix, package: str, called: str, keyword: str) -> Iterator[tuple[str, str]]:
    """Yield the packages with which a call takes a keyword that ``package`` itself refuses, and their releases."""
    for row in matrix.rows("moved-names", "kept"):
        if row["package"] == package and _fits(called, row["of"]) and _fits(keyword, row["old"]):
            yield row["by"], row["releases"]


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def part_moves(matrix: Matrix, part: str, names: Collection[str], old: str) -> Iterator[Move]:
    """Yield the rows about a ``keyword`` of a function or class, or a ``member`` of a class, that has one of these
    names: ``TrainingArguments``, or ``*`` for any."""
    for row in matrix.rows("moved-names", part):
        if old in row["old"] and any(name == "*" or _fits(name, row["of"]) for name in names):
            yield _move(row)


def _move(row: Mapping[str, Any]) -> Move:
    package = row["package"] if row.get("new") else ""
    cells = {"new": "", "new_package": package, "new_releases": "", "write": {}, **row}
    return Move(**{name: cells[name] for name in Move._fields if name in cells})
