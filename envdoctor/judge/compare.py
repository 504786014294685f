"""One condition against one value: yes, no, and for versions whether only the base release says yes."""

from __future__ import annotations

from typing import Any

from envdoctor.facts.values import ABSENT, Absent, Range, Records, Unknown, Value
from envdoctor.knowledge.conditions import glob_fits
from envdoctor.versions.dotted import compare, dotted
from envdoctor.versions.pep440 import NO, OPEN, YES, Answer, holds, is_version, satisfies


def answer(kind: str, alternatives: list[Any], value: Value) -> Answer:
    """Whether any of the alternatives of a condition of type ``kind`` holds for ``value``."""
    match value:
        case Range():
            return _for_all(kind, alternatives, value)
        case Unknown():
            return OPEN
    from_base = False
    for alternative in alternatives:
        result = _one(kind, alternative, value)
        if result is None:
            return OPEN
        if result.holds and not result.from_base:
            return YES
        from_base = from_base or bool(result.holds)
    return Answer(True, True) if from_base else NO


def _for_all(kind: str, alternatives: list[Any], value: Range) -> Answer:
    """What is so of every release in the range; open where they differ, or are not known."""
    if "present" in alternatives:
        return YES
    if all(alternative == "absent" for alternative in alternatives):
        return NO
    releases = value.releases or (_around(alternatives, value.specifiers) if kind == "version" else ())
    answers = {answer(kind, alternatives, release) for release in releases}
    return answers.pop() if len(answers) == 1 else OPEN


def _around(alternatives: list[Any], specifiers: str) -> tuple[str, ...]:
    """Versions of a range, one of each stretch in which every condition has one answer: the bounds, and beside them."""
    operands = [operand for one in alternatives if isinstance(one, list) for _, operand in one]
    bounds = [part.lstrip("<>=!~").removesuffix(".*") for part in (*operands, *specifiers.split(","))]
    tried = ("0", *bounds, *(f"{bound}.0.0.1" for bound in bounds if bound), "99999")
    return tuple(one for one in tried if is_version(one) and satisfies(one, specifiers) is True)


def _one(kind: str, alternative: Any, value: Value) -> Answer | None:
    """None when the value cannot be compared at all."""
    if alternative in ("absent", "present"):
        if isinstance(value, Records) and not value.items and value.incomplete is not None:
            return None  # there may be items that were not seen
        return YES if _is_absent(value) is (alternative == "absent") else NO
    match kind, value:
        case _, Absent():
            return NO
        case "boolean", _:
            return YES if value is alternative else NO
        case "text", str(text):
            return YES if glob_fits(text.lower(), alternative) else NO
        case "texts", tuple(texts):
            return YES if any(glob_fits(item.lower(), alternative) for item in texts) else NO
        case "number", int() | float() as number:
            return YES if all(compare(number, operator, float(operand)) for operator, operand in alternative) else NO
        case "text" | "texts" | "number", _:
            return NO
        case "dotted", _:
            return _dotted(str(value), alternative)
    return _version(str(value), alternative)


def _is_absent(value: Value) -> bool:
    return value is ABSENT or (isinstance(value, Records) and not value.items)


def _dotted(value: str, comparisons: list[list[str]]) -> Answer | None:
    left = dotted(value)
    if left is None:
        return None
    return YES if all(compare(left, operator, dotted(operand)) for operator, operand in comparisons) else NO


def _version(value: str, comparisons: list[list[str]]) -> Answer | None:
    answered = holds(value, comparisons)
    return None if answered.holds is None else answered
