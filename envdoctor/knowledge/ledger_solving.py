"""Resolve a step of :mod:`~envdoctor.knowledge.ledger_taking` with resolvelib, as pip does, over the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import ResolutionTooDeep

from envdoctor.knowledge.ledger_narrowing import Contradiction, narrow
from envdoctor.knowledge.ledger_taking import Asked, Candidate, Refusal, Releases, Solution, Step, allows, listed
from envdoctor.versions.pep440 import order

#: How often a package may be taken, and its releases be asked for: at first, and with the releases that are left after
#: narrowing; some seconds.
_ROUNDS, _QUESTIONS = 3_000, (2_000, 20_000)
#: So many requirements on one package are one question.
_USUAL = 300
#: The resolver looks at every package for each one that it takes.
_MOST_ASKED = 1_000
#: How many requirements that contradict each other a message names.
_NAMED = 4
_Key = tuple[str, tuple[str, ...]]


class _Late(Exception):
    """The questions are spent."""


def solve(
    releases: Releases, step: Step, there: Mapping[str, str], refused: Iterable[str]
) -> Solution | Refusal | None:
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
            left = narrow(provider, step.asked)
            if isinstance(left, Contradiction):
                return _refusal(releases, step, left.causes)
            provider.left = left
        else:
            return provider.solution(result)
    pins = tuple(asked for asked in step.asked if asked.pin)
    among = solve(releases, step._replace(asked=pins), there, refused) if len(pins) < len(step.asked) else None
    return among if isinstance(among, Refusal) else None


def _refusal(releases: Releases, step: Step, causes: Sequence[Asked]) -> Refusal:
    asked = list(dict.fromkeys(causes))
    first = asked[0]
    asked += [one for one in (*step.limits, *step.asked) if one.name == first.name and one not in asked]
    named = "; ".join(f"{one.by}: {one.name}{_plain(one)}" for one in asked[:_NAMED])
    own = [one for one in asked if one.name == first.name]
    meant = [one.version for one in getattr(releases.package(first.name), "releases", ()) if _meant(one.version, own)]
    reasons = [why for version in meant if (why := releases.why_not(first.name, version, step.other(first.name)))]
    kind, lacks = reasons[-1] if meant and len(reasons) == len(meant) else ("conflict", "")
    return Refusal(kind, first.name, first.pin or "", named, lacks)


def _plain(one: Asked) -> str:
    return "".join(one.specifiers.split())


def _meant(version: str, asked: Iterable[Asked]) -> bool:
    return all(allows(one.specifiers, version) for one in asked)


class _Provider(AbstractProvider[Asked, Candidate, _Key]):  # type: ignore[misc,unused-ignore]
    def __init__(self, releases: Releases, step: Step, there: Mapping[str, str], refused: frozenset[str]) -> None:
        self._releases, self._step, self._there, self._refused = releases, step, there, refused
        self._limits: dict[str, list[Asked]] = {}
        for limit in step.limits:
            self._limits.setdefault(limit.name, []).append(limit)
        self._direct = {asked.name: place for place, asked in enumerate(step.asked)}
        self._overrides = {override.name: override for override in step.overrides}
        self.questions = 0
        self.left: Mapping[str, Collection[str]] = {}

    def identify(self, requirement_or_candidate: Asked | Candidate) -> _Key:
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

    def matches(self, name: str, asked: Sequence[Asked]) -> list[str] | None:
        """The releases of a package that meet all that is asked; None where others may meet it too."""
        if name in self._there or self._step.unseen:
            return None
        asked = [*asked, *self._limits.get(name, ())]
        versions = [version for version in self._versions(name, asked) if self._meets(name, version, asked)]
        return None if "" in versions else versions

    def _versions(self, name: str, asked: Sequence[Asked]) -> Iterator[str]:
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

    def _may_be(self, name: str, pin: str, asked: Sequence[Asked]) -> bool:
        """Whether a pinned release can be taken. One that the ledger does not list may be a pre-release, a build of
        another index, or newer."""
        release, _, build = pin.partition("+")
        key = order(release)
        if name in self._refused or self._step.unseen or key is None or self._releases.package(name) is None:
            return True
        if listed(self._releases.package(name), release) is None:
            return self._step.other(name) or key.is_pre or not all(map(self._releases.known, asked))
        return self._releases.why_not(name, release, self._step.other(name) or bool(build)) is None

    def _meets(self, name: str, version: str, asked: Sequence[Asked]) -> bool:
        if name in self._step.loose and name not in self._refused and version == self._there.get(name):
            known = Asked(name, (), self._step.loose[name], "")
            if any(one.pin for one in asked) or not all(map(self._releases.known, (known, *asked))):
                return not any(one.pin for one in asked)
            sets = [set(self._releases.allowed(name, one.specifiers)) for one in (known, *asked)]
            return bool(set.intersection(*sets))
        return all(one.pin is None if version == "" else allows(one.specifiers, version) for one in asked)

    def is_satisfied_by(self, requirement: Asked, candidate: Candidate) -> bool:
        return self._meets(candidate.name, candidate.version, [requirement])

    def solution(self, result: Any) -> Solution:
        """What the resolver came to."""
        taken = {candidate: key for key, candidate in result.mapping.items()}
        clauses: dict[str, frozenset[str]] = {}
        for candidate, key in taken.items():
            name, criterion = candidate.name, result.criteria[key]
            if order(candidate.version) is None or name in self._step.checkouts:
                asked = [one.requirement for one in criterion.information if one.parent is None or one.parent in taken]
                texts = ",".join(one.specifiers for one in (*asked, *self._limits.get(name, ())))
                clauses[name] = clauses.get(name, frozenset()) | {*"".join(texts.split()).split(",")} - {""}
        versions = {name: candidate.version for (name, _), candidate in result.mapping.items()}
        return Solution({**versions, **{name: self._there[name] for name in self._step.checkouts}}, clauses)

    def get_dependencies(self, candidate: Candidate) -> Iterable[Asked]:
        by = f"{candidate.name} {candidate.version}".strip()
        base = (
            [Asked(candidate.name, (), f"=={candidate.version}" if candidate.version else "", by)]
            if candidate.extras
            else []
        )
        is_there = self._there.get(candidate.name) == candidate.version
        if not self._step.deps or (is_there and candidate.name not in self._step.kept):
            return base
        required = self._releases.required(candidate)
        return [*base, *(one._replace(specifiers=self._overrides.get(one.name, one).specifiers) for one in required)]
