"""Resolve a step of :mod:`~envdoctor.matrix.ledger_taking` with resolvelib, as pip does, over the ledger."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import ResolutionTooDeep

from envdoctor.matrix.ledger_taking import (
    AskedRequirement,
    Candidate,
    LedgerStep,
    PackageReleases,
    Solution,
    TakingRefusal,
    allows,
    listed,
)
from envdoctor.versions.pep440 import order

#: How often a package may be taken, and its releases be asked for: at first, and with the releases that are left after
#: narrowing; some seconds.
_ROUNDS, _QUESTIONS = 3_000, (2_000, 20_000)
#: So many requirements on one package are one question.
_USUAL = 300
#: The resolver looks at every package for each one that it takes.
_MOST_ASKED = 1_000
#: Packages that are looked at again while releases are left out; a hard list takes some hundred.
_MOST_VISITS = 3_000
#: How many requirements that contradict each other a message names, and of one how many releases that are out.
_NAMED = 4
_Key = tuple[str, tuple[str, ...]]


class _Late(Exception):
    """The questions are spent."""


class _Contradiction(Exception):
    """No release of a package meets all that is asked for, by these requirements."""


def solve(
    releases: PackageReleases, step: LedgerStep, there: Mapping[str, str], refused: Iterable[str]
) -> Solution | TakingRefusal | None:
    """Return what is there after a step, why the installer refuses it, or None when that was not found in time.

    ``there`` are the packages that are installed before; lines about packages of ``refused`` are taken as they are.
    """
    if len(step.asked) > _MOST_ASKED:
        return None
    provider = _Provider(releases, step, there, frozenset(refused))
    resolver: Any = Resolver(provider, BaseReporter())
    for provider.questions in _QUESTIONS:
        try:
            result = resolver.resolve(step.asked, max_rounds=_ROUNDS)
        except ResolutionImpossible as error:
            return _refusal(releases, step, [cause.requirement for cause in error.causes])
        except (ResolutionTooDeep, _Late):
            try:
                provider.left = _Narrowing(provider, step.asked).run()
            except _Contradiction as error:
                return _refusal(releases, step, error.args)
        else:
            return provider.solution(result)
    pins = tuple(asked for asked in step.asked if asked.pin)
    among = solve(releases, step._replace(asked=pins), there, refused) if len(pins) < len(step.asked) else None
    return among if isinstance(among, TakingRefusal) else None


def _refusal(releases: PackageReleases, step: LedgerStep, causes: Sequence[AskedRequirement]) -> TakingRefusal:
    first = causes[0]
    asked = [one for one in dict.fromkeys(causes) if not _is_of_an_extra(one)]  # whoever asks for name[extra] is named
    if len(asked) < len({*causes}):
        pinned = [Candidate(one.name, one.extras, one.pin) for one in step.asked if one.pin]
        wanted = (one for candidate in pinned for one in releases.required(candidate) if one.name == first.name)
        asked += (one for one in wanted if one not in asked)
    asked = [one for one in asked if one.specifiers] or asked or [first]
    asked += [one for one in (*step.limits, *step.asked) if one.name == first.name and one not in asked]
    named = "; ".join(f"{one.by}: {one.name}{_shortened(one.specifiers)}" for one in asked[:_NAMED])
    own = [one for one in asked if one.name == first.name]
    listed_ = (one.version for one in getattr(releases.package(first.name), "releases", ()))
    meant = [version for version in listed_ if all(allows(one.specifiers, version) for one in own)]
    reasons = [why for version in meant if (why := releases.why_not(first.name, version, step.other(first.name)))]
    kind, lacks = reasons[-1] if meant and len(reasons) == len(meant) else ("conflict", "")
    return TakingRefusal(kind, first.name, first.pin or "", named, lacks)


def _is_of_an_extra(asked: AskedRequirement) -> bool:
    """Return whether name[extra] asks for its own name: nobody's wish, and of a checkout no release."""
    return asked.by.partition(" ")[0] == asked.name


def _shortened(specifiers: str) -> str:
    """Return specifiers without blanks; of a long list of releases that are out, the first ones."""
    clauses = "".join(specifiers.split()).split(",")
    out = [clause for clause in clauses if clause.startswith("!=")]
    kept = [*(clause for clause in clauses if clause not in out), *out[:_NAMED], "…"]
    return ",".join(kept if len(out) > _NAMED else clauses)


class _Provider(AbstractProvider[AskedRequirement, Candidate, _Key]):  # type: ignore[misc,unused-ignore]
    def __init__(
        self, releases: PackageReleases, step: LedgerStep, there: Mapping[str, str], refused: frozenset[str]
    ) -> None:
        self._releases, self._step, self._there, self._refused = releases, step, there, refused
        self._limits: dict[str, list[AskedRequirement]] = {}
        for limit in step.limits:
            self._limits.setdefault(limit.name, []).append(limit)
        self._direct = {asked.name: place for place, asked in enumerate(step.asked)}
        self._overrides = {override.name: override for override in step.overrides}
        self.questions = 0
        self.left: Mapping[str, Collection[str]] = {}

    def identify(self, requirement_or_candidate: AskedRequirement | Candidate) -> _Key:
        return requirement_or_candidate.name, requirement_or_candidate.extras

    def get_preference(
        self, identifier: _Key, resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
    ) -> Any:
        causes = any(identifier[0] == cause.requirement.name for cause in backtrack_causes)
        asked = [one.requirement for one in information[identifier]]
        pinned = any(one.pin for one in asked)
        bounded = any("<" in one.specifiers or "~=" in one.specifiers for one in asked)
        place, free = self._direct.get(identifier[0], len(self._direct)), not any(one.specifiers for one in asked)
        return not pinned, not causes, not bounded, place, free, identifier

    def find_matches(self, identifier: _Key, requirements: Any, incompatibilities: Any) -> Iterable[Candidate]:
        name, extras = identifier
        asked = [*requirements[identifier], *self._limits.get(name, ())]
        self.questions -= 1 + max(0, len(asked) - _USUAL)
        if self.questions < 0:
            raise _Late
        bad = {candidate.version for candidate in incompatibilities[identifier]}
        versions = [version for version in self._versions(name, asked) if version not in bad]
        if name in self.left:
            versions = [version for version in versions if version in self.left[name]]
        return [Candidate(name, extras, version) for version in versions if self._meets(name, version, asked)]

    def matches(self, name: str, asked: Sequence[AskedRequirement]) -> list[str] | None:
        """Return the releases of a package that meet all that is asked; None if others may meet it too."""
        if name in self._there or self._step.unseen:
            return None
        asked = [*asked, *self._limits.get(name, ())]
        versions = [version for version in self._versions(name, asked) if self._meets(name, version, asked)]
        return None if "" in versions else versions

    def _versions(self, name: str, asked: Sequence[AskedRequirement]) -> Iterator[str]:
        pins = [pin for one in asked if (pin := one.pin)]
        is_new = self._step.upgrade and name in self._direct
        there = None if is_new else self._there.get(name, "" if self._step.unseen and not pins else None)
        if name in self._step.checkouts:
            newest = self._releases.fitting(name, True)[:1] if name in self._step.newest else None
            for version in newest or self._releases.like(name, self._step.checkouts[name]):
                if self._meets(name, version, asked):
                    yield version
        if there is not None:
            yield there
        if pins:
            yield from (pin for pin in pins[:1] if pin != there and self._may_be(name, pin, asked))
        elif self._releases.package(name) is None or not all(map(self._releases.known, asked)):
            yield from ("",) if there != "" else ()
        else:
            sets = [set(self._releases.allowed(name, one.specifiers)) for one in asked]
            fitting = self._releases.fitting(name, self._step.other(name))
            yield from (version for version in fitting if version != there and all(version in one for one in sets))

    def _may_be(self, name: str, pin: str, asked: Sequence[AskedRequirement]) -> bool:
        """Return whether a pinned release can be taken. One that the ledger does not list may be a pre-release, a build
        of another index, or newer."""
        release, _, build = pin.partition("+")
        key = order(release)
        if name in self._refused or self._step.unseen or key is None or self._releases.package(name) is None:
            return True
        if listed(self._releases.package(name), release) is None:
            return self._step.other(name) or key.is_pre or not all(map(self._releases.known, asked))
        return self._releases.why_not(name, release, self._step.other(name) or bool(build)) is None

    def _meets(self, name: str, version: str, asked: Sequence[AskedRequirement]) -> bool:
        if name in self._step.loose and name not in self._refused and version == self._there.get(name):
            known = AskedRequirement(name, (), self._step.loose[name], "")
            if any(one.pin for one in asked) or not all(map(self._releases.known, (known, *asked))):
                return not any(one.pin for one in asked)
            sets = [set(self._releases.allowed(name, one.specifiers)) for one in (known, *asked)]
            return bool(set.intersection(*sets))
        return all(one.pin is None if version == "" else allows(one.specifiers, version) for one in asked)

    def is_satisfied_by(self, requirement: AskedRequirement, candidate: Candidate) -> bool:
        return self._meets(candidate.name, candidate.version, [requirement])

    def solution(self, result: Any) -> Solution:
        taken = {candidate: key for key, candidate in result.mapping.items()}
        clauses: dict[str, frozenset[str]] = {}
        for candidate, key in taken.items():
            name, criterion = candidate.name, result.criteria[key]
            if order(candidate.version) is None or name in self._step.checkouts:
                asked = [one.requirement for one in criterion.information if one.parent is None or one.parent in taken]
                asked = [one for one in asked if not _is_of_an_extra(one)]
                texts = ",".join(one.specifiers for one in (*asked, *self._limits.get(name, ())))
                clauses[name] = clauses.get(name, frozenset()) | {*"".join(texts.split()).split(",")} - {""}
        versions = {name: candidate.version for (name, _), candidate in result.mapping.items()}
        return Solution({**versions, **{name: self._there[name] for name in self._step.checkouts}}, clauses)

    def get_dependencies(self, candidate: Candidate) -> Iterable[AskedRequirement]:
        by = f"{candidate.name} {candidate.version}".strip()
        own = f"=={candidate.version}" if candidate.version else ""
        base = [AskedRequirement(candidate.name, (), own, by)] if candidate.extras else []
        is_there = self._there.get(candidate.name) == candidate.version
        is_out = candidate.name in self._refused - self._step.given  # another release will require something else
        if not self._step.deps or is_out or (is_there and candidate.name not in self._step.kept):
            return base
        required = self._releases.required(candidate)
        return [*base, *(one._replace(specifiers=self._overrides.get(one.name, one).specifiers) for one in required)]


class _Narrowing:
    """Leaves out releases that no set can have, before a search that would try them all (arc consistency)."""

    def __init__(self, choices: _Provider, asked: Sequence[AskedRequirement]) -> None:
        self._choices = choices
        self._asks: dict[str, list[AskedRequirement]] = {}
        for one in asked:
            self._asks.setdefault(one.name, []).append(one)
        self._first: dict[str, list[str] | None] = {}
        self._left: dict[str, set[str]] = {}
        self._meeting: dict[tuple[str, str], set[str] | None] = {}
        self._possible: dict[tuple[str, str], bool] = {}
        self._requirements = cache(self._required_by)
        self._askers: dict[str, set[str]] = {}
        self._queue = dict.fromkeys(self._asks)

    def run(self) -> dict[str, set[str]]:
        """Return, of packages that any set must have, the releases that it may have; those left out certainly
        contradict what is asked for or what every release of another package requires. Raises :class:`_Contradiction`.
        """
        for name in self._asks:
            self._begin(name)
            if self._left.get(name) == set():
                raise _Contradiction(*self._asks[name])
        for _ in range(_MOST_VISITS):
            if not self._queue:
                break
            name = next(iter(self._queue))
            del self._queue[name]
            if name in self._left:
                self._visit(name)
        return self._left

    def _begin(self, name: str) -> None:
        found = self._first[name] = self._choices.matches(name, self._asks.get(name, []))
        if found is not None:
            self._left[name] = set(found)

    def _visit(self, name: str) -> None:
        left = self._left[name]
        required = [(version, wanted) for version, wanted in self._requirements(name) if version in left]
        why = {version: wanted for version, wanted in required if not self._is_possible(wanted)}
        if why:
            left -= set(why)
            self._queue.update(dict.fromkeys(self._askers.get(name, ())))
            if not left:
                wanted = next(iter(why.values()))
                others = [one for one in self._asks.get(wanted.name, ()) if one.pin or one.specifiers]
                raise _Contradiction(*self._asks.get(name, ()), wanted, *others)
        by_name: dict[str, list[tuple[str, AskedRequirement]]] = {}
        for version, wanted in required:
            if version in left:
                by_name.setdefault(wanted.name, []).append((version, wanted))
                self._askers.setdefault(wanted.name, set()).add(name)
        for other, pairs in by_name.items():
            if len({version for version, _ in pairs}) == len(left):  # whatever is taken asks for it
                self._bound(other, [wanted for _, wanted in pairs])

    def _required_by(self, name: str) -> list[tuple[str, AskedRequirement]]:
        extras = tuple(sorted({extra for one in self._asks.get(name, ()) for extra in one.extras}))
        return [
            (version, wanted)
            for version in self._first[name] or ()
            for wanted in self._choices.get_dependencies(Candidate(name, extras, version))
            if wanted.name != name
        ]

    def _bound(self, name: str, wanted: Sequence[AskedRequirement]) -> None:
        if name not in self._first:
            self._begin(name)
            self._queue[name] = None
        met = [self._met(one) for one in {one.specifiers: one for one in wanted}.values()] if name in self._left else []
        meeting = set[str]().union(*(found for found in met if found is not None))
        if not met or None in met:
            self._left.pop(name, None)
            return
        left = self._left[name] & meeting
        if len(left) < len(self._left[name]):
            self._left[name] = left
            self._queue.update(dict.fromkeys((name, *self._askers.get(name, ()))))
        if not left:
            raise _Contradiction(*self._asks.get(name, ()), wanted[0])

    def _is_possible(self, wanted: AskedRequirement) -> bool:
        key = wanted.name, wanted.specifiers
        if wanted.name not in self._first:
            if key not in self._possible:
                self._possible[key] = self._choices.matches(wanted.name, [wanted]) != []
            return self._possible[key]
        found = self._met(wanted)
        return found is None or wanted.name not in self._left or bool(found & self._left[wanted.name])

    def _met(self, wanted: AskedRequirement) -> set[str] | None:
        """Return the releases that meet a requirement beside the lines of the list; None if others may."""
        key = wanted.name, wanted.specifiers
        if key not in self._meeting:
            first = self._first[wanted.name]
            met = {version for version in first or () if allows(wanted.specifiers, version)}
            if first is not None and not met:  # some are taken only where they are pinned
                found = self._choices.matches(wanted.name, [*self._asks.get(wanted.name, ()), wanted])
                first = None if found is None or found else first
            self._meeting[key] = None if first is None else met
        return self._meeting[key]
