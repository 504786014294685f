"""Several specifier sets as one."""

from collections.abc import Iterable

from envdoctor.versions.pep440 import clauses_of, release_of, satisfies


def join_specifiers(sets: Iterable[str]) -> str | None:
    """Return the joint clauses of all the sets (``>=1.21,<2``), without clauses that others imply; empty if any version
    will do. Return None if no version that a clause names is in all sets; without a list of releases, only those
    versions are tried.

    Raises :class:`~envdoctor.versions.pep440.NotASpecifier`.
    """
    taken = _outermost(list(dict.fromkeys(clause for text in sets for clause in clauses_of(text))))
    joined = ",".join(operator + operand for operator, operand in taken)
    # A version at or just above the highest lower bound is in the set when any is: nothing else bounds it from below.
    bounds = [operand.removesuffix(".*") for operator, operand in taken if operator not in ("!=", "<")]
    tried = ["0", *bounds, *(f"{bound}.1" for bound in bounds)]
    return joined if any(satisfies(version, joined) for version in tried) else None


def _outermost(clauses: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep the highest plain lower bound, the lowest plain upper bound, and every other clause."""
    ends: dict[str, tuple[str, str]] = {}
    for operator, operand in clauses:
        release = release_of(operand)
        if operator not in (">=", "<") or release is None:
            continue
        known = release_of(ends[operator][1]) if operator in ends else None
        if known is None or (release > known if operator == ">=" else release < known):
            ends[operator] = (operator, operand)
    others = [pair for pair in clauses if pair[0] not in (">=", "<")]
    return [*others, *(ends[operator] for operator in (">=", "<") if operator in ends)]
