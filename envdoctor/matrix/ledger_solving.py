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
)
from envdoctor.versions.pep440 import order

#: The most packages taken, and the most questions for releases: at first, and after narrowing; some seconds.
_ROUNDS, _QUESTIONS = 3_000, (2_000, 20_000)
#: The most requirements on one package that count as one question.
_USUAL = 300
#: The most requirements of a step: the resolver looks at every package for each one that it takes.
_MOST_ASKED = 1_000
#: Packages that are looked at again while releases are left out; a hard list takes some hundred.
_MOST_VISITS = 3_000
#: The most contradicting requirements that a message names, and the most excluded releases of each.
_NAMED = 4
_Key = tuple[str, tuple[str, ...]]


class _Late(Exception):
    """The questions are spent."""


class _Contradiction(Exception):
    """No release of a package meets all of these requirements."""


def solve(
    releases: PackageReleases, step: LedgerStep, installed: Mapping[str, str], refused: Iterable[str]
) -> Solution | TakingRefusal | None:
    """Return the packages after a step, why the installer refuses it, or None when that was not found in time.

    ``installed`` are the packages before the step; lines about packages of ``refused`` are taken as they are.
    """
    if len(step.asked) > _MOST_ASKED:
        return None
    provider = _Provider(releases, step, installed, frozenset(refused))
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
    pins = tuple(need for need in step.asked if need.pin)
    among = solve(releases, step._replace(asked=pins), installed, refused) if len(pins) < len(step.asked) else None
    return among if isinstance(among, TakingRefusal) else None


def _refusal(releases: PackageReleases, step: LedgerStep, causes: Sequence[AskedRequirement]) -> TakingRefusal:
    first = causes[0]
    needs = [need for need in dict.fromkeys(causes) if not _is_of_an_extra(need)]  # who asks for name[extra] is named
    if len(needs) < len({*causes}):
        pinned = [Candidate(need.name, need.extras, need.pin) for need in step.asked if need.pin]
        others = (need for candidate in pinned for need in releases.required(candidate) if need.name == first.name)
        needs += (need for need in others if need not in needs)
    needs = [need for need in needs if need.specifiers] or needs or [first]
    needs += [need for need in (*step.limits, *step.asked) if need.name == first.name and need not in needs]
    needs = _contradicting(releases, needs, step)
    text = "; ".join(f"{need.by}: {need.name}{_shortened(need.specifiers)}" for need in needs[:_NAMED])
    own = [need for need in needs if need.name == first.name]
    listed_ = (release.version for release in getattr(releases.package(first.name), "releases", ()))
    versions = [version for version in listed_ if all(allows(need.specifiers, version) for need in own)]
    reasons = [gap for version in versions if (gap := releases.why_not(first.name, version, step.other(first.name)))]
    kind, lacks = reasons[-1] if versions and len(reasons) == len(versions) else ("conflict", "")
    return TakingRefusal(kind, first.name, first.pin or "", text, lacks)


def _contradicting(
    releases: PackageReleases, needs: list[AskedRequirement], step: LedgerStep
) -> list[AskedRequirement]:
    """Return a part of the requirements that no release meets, and no requirement of it can be left out of; all of them
    where they do not contradict one another. What packages require is left out before the lines of the step."""
    sets = {need: set(releases.allowed(need.name, need.specifiers)) for need in needs}
    if len({need.name for need in needs}) > 1 or not all(sets.values()) or set.intersection(*sets.values()):
        return needs
    for need in sorted(sets, key=lambda need: need in (*step.limits, *step.asked)):
        rest = [meant for other, meant in sets.items() if other != need]
        if not set.intersection(*rest):
            del sets[need]
    return [*sets]


def _is_of_an_extra(need: AskedRequirement) -> bool:
    """Return whether this is name[extra] requiring its own name: no user wrote it, and a checkout has no release."""
    return need.by.partition(" ")[0] == need.name


def _shortened(specifiers: str) -> str:
    """Return specifiers without blanks; of a long list of excluded releases, the first ones."""
    clauses = "".join(specifiers.split()).split(",")
    out = [clause for clause in clauses if clause.startswith("!=")]
    shown = [*(clause for clause in clauses if clause not in out), *out[:_NAMED], "…"]
    return ",".join(shown if len(out) > _NAMED else clauses)


class _Provider(AbstractProvider[AskedRequirement, Candidate, _Key]):  # type: ignore[misc,unused-ignore]
    def __init__(
        self, releases: PackageReleases, step: LedgerStep, installed: Mapping[str, str], refused: frozenset[str]
    ) -> None:
        self._releases, self._step, self._installed, self._refused = releases, step, installed, refused
        self._limits: dict[str, list[AskedRequirement]] = {}
        for limit in step.limits:
            self._limits.setdefault(limit.name, []).append(limit)
        self._direct = {need.name: place for place, need in enumerate(step.asked)}
        self._overrides = {override.name: override for override in step.overrides}
        self.questions = 0
        self.left: Mapping[str, Collection[str]] = {}

    def identify(self, requirement_or_candidate: AskedRequirement | Candidate) -> _Key:
        return requirement_or_candidate.name, requirement_or_candidate.extras

    def get_preference(
        self, identifier: _Key, resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
    ) -> Any:
        causes = any(identifier[0] == cause.requirement.name for cause in backtrack_causes)
        needs = [entry.requirement for entry in information[identifier]]
        pinned = any(need.pin for need in needs)
        bounded = any("<" in need.specifiers or "~=" in need.specifiers for need in needs)
        place, free = self._direct.get(identifier[0], len(self._direct)), not any(need.specifiers for need in needs)
        return not pinned, not causes, not bounded, place, free, identifier

    def find_matches(self, identifier: _Key, requirements: Any, incompatibilities: Any) -> Iterable[Candidate]:
        name, extras = identifier
        needs = [*requirements[identifier], *self._limits.get(name, ())]
        self.questions -= 1 + max(0, len(needs) - _USUAL)
        if self.questions < 0:
            raise _Late
        bad = {candidate.version for candidate in incompatibilities[identifier]}
        versions = [version for version in self._versions(name, needs) if version not in bad]
        if name in self.left:
            versions = [version for version in versions if version in self.left[name]]
        return [Candidate(name, extras, version) for version in versions if self._meets(name, version, needs)]

    def matches(self, name: str, needs: Sequence[AskedRequirement]) -> list[str] | None:
        """Return the releases of a package that meet all needs; None if others may meet them too."""
        if name in self._installed or self._step.unseen:
            return None
        needs = [*needs, *self._limits.get(name, ())]
        versions = [version for version in self._versions(name, needs) if self._meets(name, version, needs)]
        return None if "" in versions else versions

    def _versions(self, name: str, needs: Sequence[AskedRequirement]) -> Iterator[str]:
        pins = [pin for need in needs if (pin := need.pin)]
        is_new = self._step.upgrade and name in self._direct
        prior = None if is_new else self._installed.get(name, "" if self._step.unseen and not pins else None)
        if name in self._step.checkouts:
            newest = self._releases.fitting(name, True)[:1] if name in self._step.newest else None
            for version in newest or self._releases.like(name, self._step.checkouts[name]):
                if self._meets(name, version, needs):
                    yield version
        if prior is not None:
            yield prior
        if pins:
            yield from (pin for pin in pins[:1] if pin != prior and self._may_be(name, pin, needs))
        elif self._releases.package(name) is None or not all(map(self._releases.known, needs)):
            yield from ("",) if prior != "" else ()
        else:
            sets = [set(self._releases.allowed(name, need.specifiers)) for need in needs]
            fitting = self._releases.fitting(name, self._step.other(name))
            yield from (version for version in fitting if version != prior and all(version in group for group in sets))

    def _may_be(self, name: str, pin: str, needs: Sequence[AskedRequirement]) -> bool:
        """Return whether a pinned release can be taken. A release that the ledger does not list may be a pre-release, a
        build of another index, or newer."""
        release, _, build = pin.partition("+")
        key = order(release)
        if name in self._refused or self._step.unseen or key is None or self._releases.package(name) is None:
            return True
        if self._releases.listed(name, release) is None:
            return self._step.other(name) or key.is_pre or not all(map(self._releases.known, needs))
        return self._releases.why_not(name, release, self._step.other(name) or bool(build)) is None

    def _meets(self, name: str, version: str, needs: Sequence[AskedRequirement]) -> bool:
        if name in self._step.loose and name not in self._refused and version == self._installed.get(name):
            own = AskedRequirement(name, (), self._step.loose[name], "")
            if any(need.pin for need in needs) or not all(map(self._releases.known, (own, *needs))):
                return not any(need.pin for need in needs)
            sets = [set(self._releases.allowed(name, need.specifiers)) for need in (own, *needs)]
            return bool(set.intersection(*sets))
        return all(need.pin is None if version == "" else allows(need.specifiers, version) for need in needs)

    def is_satisfied_by(self, requirement: AskedRequirement, candidate: Candidate) -> bool:
        return self._meets(candidate.name, candidate.version, [requirement])

    def solution(self, result: Any) -> Solution:
        keys = {candidate: key for key, candidate in result.mapping.items()}
        clauses: dict[str, frozenset[str]] = {}
        for candidate, key in keys.items():
            name, criterion = candidate.name, result.criteria[key]
            if order(candidate.version) is None or name in self._step.checkouts:
                needs = [row.requirement for row in criterion.information if row.parent is None or row.parent in keys]
                needs = [need for need in needs if not _is_of_an_extra(need)]
                texts = ",".join(need.specifiers for need in (*needs, *self._limits.get(name, ())))
                clauses[name] = clauses.get(name, frozenset()) | {*"".join(texts.split()).split(",")} - {""}
        versions = {name: candidate.version for (name, _), candidate in result.mapping.items()}
        return Solution({**versions, **{name: self._installed[name] for name in self._step.checkouts}}, clauses)

    def get_dependencies(self, candidate: Candidate) -> Iterable[AskedRequirement]:
        by = f"{candidate.name} {candidate.version}".strip()
        own = f"=={candidate.version}" if candidate.version else ""
        base = [AskedRequirement(candidate.name, (), own, by)] if candidate.extras else []
        is_there = self._installed.get(candidate.name) == candidate.version
        is_out = candidate.name in self._refused - self._step.given  # another release will require something else
        if not self._step.deps or is_out or (is_there and candidate.name not in self._step.kept):
            return base
        needs = self._releases.required(candidate)
        return [*base, *(need._replace(specifiers=self._overrides.get(need.name, need).specifiers) for need in needs)]


class _Narrowing:
    """Leave out releases that no set can have, before a search that would try them all (arc consistency)."""

    def __init__(self, choices: _Provider, needs: Sequence[AskedRequirement]) -> None:
        self._choices = choices
        self._asks: dict[str, list[AskedRequirement]] = {}
        for need in needs:
            self._asks.setdefault(need.name, []).append(need)
        self._first: dict[str, list[str] | None] = {}
        self._left: dict[str, set[str]] = {}
        self._meeting: dict[tuple[str, str], set[str] | None] = {}
        self._possible: dict[tuple[str, str], bool] = {}
        self._requirements = cache(self._required_by)
        self._askers: dict[str, set[str]] = {}
        self._queue = dict.fromkeys(self._asks)

    def run(self) -> dict[str, set[str]]:
        """Return the releases that a set may have, for packages that any set must have. The others certainly contradict
        the needs of the step, or of every release of another package. Raises :class:`_Contradiction`."""
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
        versions = self._first[name] = self._choices.matches(name, self._asks.get(name, []))
        if versions is not None:
            self._left[name] = set(versions)

    def _visit(self, name: str) -> None:
        rest = self._left[name]
        required = [(version, need) for version, need in self._requirements(name) if version in rest]
        blockers = {version: need for version, need in required if not self._is_possible(need)}
        if blockers:
            rest -= set(blockers)
            self._queue.update(dict.fromkeys(self._askers.get(name, ())))
            if not rest:
                need = next(iter(blockers.values()))
                others = [other for other in self._asks.get(need.name, ()) if other.pin or other.specifiers]
                raise _Contradiction(*self._asks.get(name, ()), need, *others)
        by_name: dict[str, list[tuple[str, AskedRequirement]]] = {}
        for version, need in required:
            if version in rest:
                by_name.setdefault(need.name, []).append((version, need))
                self._askers.setdefault(need.name, set()).add(name)
        for other, pairs in by_name.items():
            if len({version for version, _ in pairs}) == len(rest):  # every release that is left requires it
                self._bound(other, [need for _, need in pairs])

    def _required_by(self, name: str) -> list[tuple[str, AskedRequirement]]:
        extras = tuple(sorted({extra for need in self._asks.get(name, ()) for extra in need.extras}))
        return [
            (version, need)
            for version in self._first[name] or ()
            for need in self._choices.get_dependencies(Candidate(name, extras, version))
            if need.name != name
        ]

    def _bound(self, name: str, asks: Sequence[AskedRequirement]) -> None:
        if name not in self._first:
            self._begin(name)
            self._queue[name] = None
        met = [self._met(ask) for ask in {ask.specifiers: ask for ask in asks}.values()] if name in self._left else []
        meeting = set[str]().union(*(versions for versions in met if versions is not None))
        if not met or None in met:
            self._left.pop(name, None)
            return
        rest = self._left[name] & meeting
        if len(rest) < len(self._left[name]):
            self._left[name] = rest
            self._queue.update(dict.fromkeys((name, *self._askers.get(name, ()))))
        if not rest:
            raise _Contradiction(*self._asks.get(name, ()), asks[0])

    def _is_possible(self, need: AskedRequirement) -> bool:
        key = need.name, need.specifiers
        if need.name not in self._first:
            if key not in self._possible:
                self._possible[key] = self._choices.matches(need.name, [need]) != []
            return self._possible[key]
        versions = self._met(need)
        return versions is None or need.name not in self._left or bool(versions & self._left[need.name])

    def _met(self, need: AskedRequirement) -> set[str] | None:
        """Return the releases that meet a requirement beside the lines of the list; None if others may."""
        key = need.name, need.specifiers
        if key not in self._meeting:
            first = self._first[need.name]
            met = {version for version in first or () if allows(need.specifiers, version)}
            if first is not None and not met:  # some are taken only where they are pinned
                versions = self._choices.matches(need.name, [*self._asks.get(need.name, ()), need])
                first = None if versions is None or versions else first
            self._meeting[key] = None if first is None else met
        return self._meeting[key]
