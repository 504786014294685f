"""Versions and specifiers by PEP 440, without importing packaging for the usual forms.

packaging costs 30 ms to import, more than all other work on the requirements of 300 distributions. Pre-releases count
as versions like any other, as they do for ``pip check``.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from envdoctor.system.message import MessageError

_COMPARISONS = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}
_DOTTED = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}\Z")


@lru_cache(maxsize=4096)  # the same few versions and bounds are compared thousands of times
def dotted(text: str) -> tuple[int, ...] | None:
    """Return ``"12.4"`` as integers, or None unless it is dotted integers. Trailing zeros do not count (12.0 is 12)."""
    if not _DOTTED.match(text):
        return None
    return _stripped([int(part) for part in text.split(".")])


def is_in_branch(number: tuple[int, ...], text: str) -> bool:
    """Return whether ``text`` is one number, which names a branch (525: any of its releases), and has ``number``."""
    return text.isdecimal() and number[:1] == (int(text),)


def rank(text: str) -> tuple[int, ...]:
    """Return the numbers for a comparison; an empty tuple unless the text is dotted integers."""
    return dotted(text) or ()


def compare(left: Any, operator: str, right: Any) -> bool:
    """Evaluate ``left operator right`` for one of the operators ``== != >= <= > <``."""
    return bool(_COMPARISONS[operator](left, right))


def same_start(version: str, other: str, parts: int) -> bool:
    """Return whether the first ``parts`` numbers of two versions agree; a missing one is 0, local tags do not count."""

    def start(text: str) -> list[str]:
        return (text.partition("+")[0].split(".") + ["0"] * parts)[:parts]

    return start(version) == start(other)


_PLAIN = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}\Z")
_CLAUSE = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,]{1,200})\s*\Z")
#: PEP 440's identifiers in our own words; numbers are bounded, so that no version costs more than another.
_VERSION = (
    r"(?ai)v?(?:([0-9]{1,9})!)?([0-9]{1,18}(?:\.[0-9]{1,18}){0,19})"
    r"(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]{0,18}))?"
    r"(-[0-9]{1,18}|[-_.]?(?:post|rev|r)[-_.]?[0-9]{0,18})?"
    r"([-_.]?dev[-_.]?[0-9]{0,18})?"
    r"(?:\+([a-z0-9]{1,64}(?:[-_.][a-z0-9]{1,64}){0,19}))?\Z"
)
_STEP = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = (3, 0)
_DEVELOPMENT_ONLY = (-1, 0)
_NOT_POST = -1
_NOT_DEVELOPMENT = 1 << 70


class NotASpecifier(MessageError, ValueError):
    """The specifier set, or the version, is invalid by PEP 440."""


class Order(NamedTuple):
    """The key that orders versions, without a local part, as PEP 440 says. ``release`` has no trailing zeros."""

    epoch: int
    release: tuple[int, ...]
    pre: tuple[int, int] = _FINAL
    post: int = _NOT_POST
    dev: int = _NOT_DEVELOPMENT

    @property
    def is_pre(self) -> bool:
        return self.pre != _FINAL or self.dev != _NOT_DEVELOPMENT

    def same_base(self, other: "Order") -> bool:
        return self[:2] == other[:2]


@lru_cache(maxsize=8192)
def _read(text: str) -> tuple[Order, str, int] | None:
    """Return the version, its local part in normal form ("" for none), and how many numbers its release was given."""
    if _PLAIN.match(text):
        numbers = [int(part) for part in text.split(".")]
        return Order(0, _stripped(numbers)), "", len(numbers)
    match = re.match(_VERSION, text.strip())
    if match is None:
        return None
    epoch, release, step, step_number, post, dev, local = match.groups()
    numbers = [int(part) for part in release.split(".")]
    pre = (_STEP[step.lower()], int(step_number or 0)) if step else _FINAL
    if dev and not step and not post:
        pre = _DEVELOPMENT_ONLY
    version = Order(
        int(epoch or 0),
        _stripped(numbers),
        pre,
        _number_at_end(post) if post else _NOT_POST,
        _number_at_end(dev) if dev else _NOT_DEVELOPMENT,
    )
    normal = (str(int(part)) if part.isdigit() else part for part in re.split(r"[-_.]", (local or "").lower()))
    return version, ".".join(normal), len(numbers)


def _stripped(numbers: list[int]) -> tuple[int, ...]:
    end = len(numbers)
    while end > 1 and numbers[end - 1] == 0:
        end -= 1
    return tuple(numbers[:end])


def _number_at_end(text: str) -> int:
    digits = text.lstrip("-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return int(digits) if digits else 0


@lru_cache(maxsize=4096)
def _clauses_of(specifiers: str) -> tuple[tuple[str, str], ...]:
    """Return operator and operand of each clause of a specifier set. Raises :class:`NotASpecifier`."""
    clauses: list[tuple[str, str]] = []
    for part in specifiers.split(","):
        match = _CLAUSE.match(part)
        if match is not None:
            clauses.append((match[1], match[2]))
        elif part.strip():
            raise NotASpecifier("{} compares no version", repr(part.strip()[:60]))
    return tuple(clauses)


def satisfies(version: str, specifiers: str) -> bool:
    """Return whether the version is in the set (``>=1.2,<2``; an empty set holds every version).

    Raises :class:`NotASpecifier` for anything that PEP 440 does not allow.
    """
    clauses = _clauses_of(specifiers)
    if not clauses:
        return True
    parts = _read(version)
    if parts is None:
        raise NotASpecifier("{} is no version", repr(version[:60]))
    return _all(version, parts[0], parts[1], clauses)


def _all(text: str, version: Order, local: str, clauses: Iterable[Sequence[str]]) -> bool:
    # Every clause is looked at, so that the answer does not depend on their order when one of them is unreadable.
    return False not in [_clause_holds(text, version, local, operator, operand) for operator, operand in clauses]


def is_named_by(version: str, key: str) -> bool:
    """Return whether the key of a table's row, a version or a specifier set, stands for this version."""
    return key == version or (key[:1] in tuple("<>=!~") and satisfies(version, key))


class VersionAnswer(NamedTuple):
    """``holds`` is True, False or None (unknown). ``from_base`` is true when a post- or vendor release
    (2.5.0a0+nv24.08) and its base release (2.5.0) answer differently: then it holds, with less confidence."""

    holds: bool | None
    from_base: bool = False


YES, NO, OPEN = VersionAnswer(True), VersionAnswer(False), VersionAnswer(None)


def holds(version: str, clauses: Sequence[Sequence[str]]) -> VersionAnswer:
    """Return whether the clauses (operator, operand) of a rule hold for a version, and for its base release.

    A bound that is itself a pre- or post-release of the version's own release, as 2.7.4.post1 is for 2.7.4rc1, was
    written with these steps in mind: the base release does not count. The alpha number of a vendor's build is not one
    of upstream's steps. The answer is open if the text is not a version, or if a checkout or a candidate (4.45.0.dev0)
    and its release differ: it may have the release's changes already or not.
    """
    parts = _read(version)
    if parts is None:
        return OPEN
    judged, local, _ = parts
    exact = _all(version, judged, local, clauses)
    if judged[2:] == (_FINAL, _NOT_POST, _NOT_DEVELOPMENT):
        return YES if exact else NO
    of_vendor = judged.pre[0] == _STEP["alpha"] and local != ""
    if not of_vendor and any(_is_step_of(operand, judged) for _, operand in clauses):
        return YES if exact else NO
    base = Order(judged.epoch, judged.release)
    by_base = _all(base_release(version) or version, base, "", clauses)
    if exact is not by_base and judged.is_pre and not of_vendor:
        return OPEN
    return VersionAnswer(exact or by_base, exact is not by_base)


def _is_step_of(operand: str, version: Order) -> bool:
    bound = None if operand.endswith(".*") else _read(operand)
    return bound is not None and (bound[0].is_pre or bound[0].post != _NOT_POST) and bound[0].same_base(version)


def is_version(text: str) -> bool:
    """Return whether the text is a version by PEP 440."""
    return _read(text) is not None


def order(version: str) -> Order | None:
    """Return the key that versions are ordered by, without the local part; None if the text is not a version."""
    parts = _read(version)
    return parts[0] if parts else None


def base_release(version: str) -> str | None:
    """Return the release a version was built from (``2.5.0a0+872d972e41.nv24.08`` → ``2.5.0``); None if invalid."""
    match = re.match(_VERSION, version.strip())
    if match is None:
        return None
    numbers = ".".join(str(int(part)) for part in match[2].split("."))
    return f"{int(match[1])}!{numbers}" if int(match[1] or 0) else numbers


def release_of(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version's release, without trailing zeros; None if the text is not a version."""
    parts = _read(version)
    return parts[0].release if parts else None


def same_release(version: str, other: str) -> bool:
    """Return whether two versions differ only in their local tags."""
    first, second = version.partition("+")[0], other.partition("+")[0]
    place = order(first)
    return first == second or (place is not None and place == order(second))


def _clause_holds(text: str, version: Order, local: str, operator: str, operand: str) -> bool:
    if operator == "===":
        return _by_packaging(text, operator, operand)
    if operand.endswith(".*") and operator in ("==", "!="):
        prefix = _read(operand[:-2])
        if prefix is None or prefix[1] or prefix[0][2:] != (_FINAL, _NOT_POST, _NOT_DEVELOPMENT):
            raise NotASpecifier("{}{} is no specifier", operator, operand[:60])
        return _starts_with(version, prefix[0], prefix[2]) is (operator == "==")
    bound = _read(operand)
    if bound is None or (bound[1] and operator not in ("==", "!=")):
        raise NotASpecifier("{}{} is no specifier", operator, operand[:60])
    limit = bound[0]
    if operator in ("==", "!="):
        return (version == limit and (not bound[1] or bound[1] == local)) is (operator == "==")
    if operator in (">=", "<="):
        return compare(version, operator, limit)
    if operator == "<":
        # Pre-releases of this very release or post-release are left out (packaging 26).
        is_before = version.is_pre and version.same_base(limit)
        is_pre_of = is_before and (limit.post == _NOT_POST or version[2:4] == limit[2:4])
        return version < limit and (limit.is_pre or not is_pre_of)
    if operator == ">":
        is_post_of = version.post != _NOT_POST == limit.post and version[:3] == limit[:3]
        return version > limit and not is_post_of
    if bound[2] < 2:
        raise NotASpecifier("~={} is no specifier: it needs two numbers", operand[:60])
    return version >= limit and _starts_with(version, limit, bound[2] - 1)


def _starts_with(version: Order, prefix: Order, length: int) -> bool:
    """Return whether the first ``length`` numbers of both releases are equal; missing ones are zero."""

    def first(release: tuple[int, ...]) -> tuple[int, ...]:
        return (release + (0,) * length)[:length]

    return version.epoch == prefix.epoch and first(version.release) == first(prefix.release)


def _by_packaging(version: str, operator: str, operand: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(operator + operand).contains(version, prereleases=True)
    except (InvalidSpecifier, ValueError):
        raise NotASpecifier("{}{} is no specifier", operator, operand[:60]) from None


def join_specifiers(sets: Iterable[str]) -> str | None:
    """Return the joint clauses of all the sets (``>=1.21,<2``), without clauses that others imply; empty if any version
    will do. Return None if no version that a clause names is in all sets; without a list of releases, it tries only
    these versions.

    Raises :class:`~envdoctor.versions.pep440.NotASpecifier`.
    """
    clauses = _outermost(list(dict.fromkeys(clause for text in sets for clause in _clauses_of(text))))
    joined = ",".join(operator + operand for operator, operand in clauses)
    # A version at or just above the highest lower bound is in the set when any is: nothing else bounds it from below.
    bounds = [operand.removesuffix(".*") for operator, operand in clauses if operator not in ("!=", "<")]
    candidates = ["0", *bounds, *(f"{bound}.1" for bound in bounds)]
    return joined if any(satisfies(version, joined) for version in candidates) else None


def _outermost(clauses: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep the highest plain lower bound, the lowest plain upper bound, and every other clause."""
    ends: dict[str, tuple[str, str]] = {}
    for operator, operand in clauses:
        release = release_of(operand)
        if operator not in (">=", "<") or release is None:
            continue
        current = release_of(ends[operator][1]) if operator in ends else None
        if current is None or (release > current if operator == ">=" else release < current):
            ends[operator] = (operator, operand)
    others = [pair for pair in clauses if pair[0] not in (">=", "<")]
    return [*others, *(ends[operator] for operator in (">=", "<") if operator in ends)]
