"""One condition against one value: yes, no, and for versions whether only the base release says yes."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.facts.registry import dotted
from envdoctor.facts.values import Absent, Records, Unknown, Value

__all__ = ["Answer", "answer", "base_release", "satisfies"]

_PLAIN = re.compile(r"v?([0-9]+(?:\.[0-9]+)*)(?:\+[a-zA-Z0-9]+(?:[-_.][a-zA-Z0-9]+)*)?\Z")
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*\Z")


class Answer(NamedTuple):
    """``holds`` is True, False or None (unknown). ``from_base`` is true when a pre-, post- or vendor release
    (2.5.0a0+nv24.08) and its base release (2.5.0) answer differently: then it holds, with less confidence."""

    holds: bool | None
    from_base: bool = False


_YES, _NO, _OPEN = Answer(True), Answer(False), Answer(None)


def answer(kind: str, alternatives: list[Any], value: Value) -> Answer:
    """Whether any of the alternatives of a condition of type ``kind`` holds for ``value``."""
    if isinstance(value, Unknown):
        return _OPEN
    from_base = False
    for alternative in alternatives:
        result = _one(kind, alternative, value)
        if result is None:
            return _OPEN
        if result.holds and not result.from_base:
            return _YES
        from_base = from_base or bool(result.holds)
    return Answer(True, True) if from_base else _NO


def _one(kind: str, alternative: Any, value: Value) -> Answer | None:
    """None when the value cannot be compared at all."""
    if alternative in ("absent", "present"):
        if isinstance(value, Records) and not value.items and value.incomplete is not None:
            return None  # there may be items that were not seen
        return Answer(_is_absent(value) is (alternative == "absent"))
    if isinstance(value, Absent):
        return _NO
    if kind == "boolean":
        return Answer(value is alternative)
    if kind == "text":
        return Answer(isinstance(value, str) and _fits(value.lower(), alternative))
    if kind == "texts":
        return Answer(isinstance(value, tuple) and any(_fits(item.lower(), alternative) for item in value))
    if kind == "number":
        return Answer(all(_numbers(value, operator, float(operand)) for operator, operand in alternative))
    if kind == "dotted":
        return _dotted(str(value), alternative)
    return _version(str(value), alternative)


def _fits(text: str, pattern: str) -> bool:
    """Exact, or a glob of ``*`` and ``?``; brackets stand for themselves."""
    if "*" not in pattern and "?" not in pattern:
        return text == pattern
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _is_absent(value: Value) -> bool:
    return isinstance(value, Absent) or (isinstance(value, Records) and not value.items)


def _numbers(value: Value, operator: str, operand: float) -> bool:
    return isinstance(value, (int, float)) and _compare(value, operator, operand)


def _compare(left: Any, operator: str, right: Any) -> bool:
    if operator == "==":
        return bool(left == right)
    if operator == "!=":
        return bool(left != right)
    if operator == ">=":
        return bool(left >= right)
    if operator == "<=":
        return bool(left <= right)
    return bool(left > right) if operator == ">" else bool(left < right)


def _dotted(value: str, comparisons: list[list[str]]) -> Answer | None:
    left = dotted(value)
    if left is None:
        return None
    return Answer(all(_compare(left, operator, dotted(operand)) for operator, operand in comparisons))


def _version(value: str, comparisons: list[list[str]]) -> Answer | None:
    plain = _PLAIN.match(value)
    if plain is not None:
        release = _numbers_of(plain[1])
        holds = _release_satisfies(release, comparisons)
        if holds is not None:
            return Answer(holds)
    base = base_release(value)
    if base is None:
        return None
    specifier = ",".join(operator + operand for operator, operand in comparisons)
    exact = satisfies(value, specifier)
    if _names_a_step_of(value, comparisons):
        return Answer(exact)
    holds = satisfies(base, specifier)
    return Answer(exact or holds, exact is not holds)


def _names_a_step_of(version: str, comparisons: list[list[str]]) -> bool:
    """Whether a bound is itself a pre- or post-release of the version's own release, as 2.7.4.post1 is for 2.7.4rc1: it
    was written with these steps in mind, and the base release has no say. The alpha number of a vendor's build is none
    of upstream's steps."""
    from packaging.version import Version

    judged = Version(version)
    if judged.pre is not None and judged.local is not None:
        return False
    bounds = [Version(operand) for _, operand in comparisons if not operand.endswith(".*")]
    return any(
        (bound.is_prerelease or bound.is_postrelease) and Version(bound.base_version) == Version(judged.base_version)
        for bound in bounds
    )


@lru_cache(maxsize=4096)  # the same few versions and bounds are compared thousands of times
def _numbers_of(release: str) -> tuple[int, ...]:
    parts = [int(part) for part in release.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _release_satisfies(release: tuple[int, ...], comparisons: list[list[str]]) -> bool | None:
    """Integers only, which decides nearly every case without importing packaging; None when it cannot.

    PEP 440 makes `<` and `>` special only for pre-, post- and local releases of the operand; none of them is here.
    """
    for operator, operand in comparisons:
        if operand.endswith(".*"):
            prefix = tuple(int(part) for part in operand[:-2].split("."))
            padded = release + (0,) * (len(prefix) - len(release))
            if (padded[: len(prefix)] == prefix) is not (operator == "=="):
                return False
        elif not _RELEASE.match(operand):
            return None
        elif not _compare(release, operator, _numbers_of(operand)):
            return False
    return True


def base_release(version: str) -> str | None:
    """The release a version was built from (``2.5.0a0+872d972e41.nv24.08`` → ``2.5.0``), None if it is no version."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).base_version
    except InvalidVersion:
        return None


def satisfies(version: str, specifier: str) -> bool:
    """PEP 440 containment; pre-releases count as versions like any other (packaging's default changed in 26.0)."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)
