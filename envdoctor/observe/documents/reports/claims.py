"""What lines of a report claim, put together: lines that agree are one fact, lines that contradict make it unknown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.facts.values import Fact, Unknown, Value, spell

__all__ = ["Claim", "differ", "facts_of", "without_asides"]


class Claim(NamedTuple):
    """One line says that a fact has a value. ``loose``: people write such lines by hand. ``partial``: the value is only
    the beginning of a version (4.46 for any 4.46.x). ``aside``: the line speaks of something else (a sentence, the path
    of a traceback), and counts where no other line says it."""

    key: str
    value: Value
    line: int
    loose: bool = False
    partial: bool = False
    aside: bool = False


def without_asides(claims: Sequence[Claim]) -> list[Claim]:
    """The claims, of those that were made aside only what no other line speaks of. ``gpu`` has many keys."""
    said = {_subject(claim) for claim in claims if not claim.aside}
    return [claim for claim in claims if not claim.aside or _subject(claim) not in said]


def _subject(claim: Claim) -> str:
    key = claim.key.partition(".")[0]
    return "gpu" if key == "smi" else key if key in ("gpu", "python") else claim.key


def facts_of(claims: Iterable[Claim], name: str) -> Iterator[Fact]:
    """One fact for each key, with the line that says most about it (``report:12``)."""
    by_key: dict[str, list[Claim]] = {}
    for claim in claims:
        by_key.setdefault(claim.key, []).append(claim)
    for key, said in by_key.items():
        best = said[0]
        value: Value = best.value
        for other in said[1:]:
            joined = _joined(best, other)
            if joined is None:
                words = (f"line {one.line} of {name} says {spell(one.value)}" for one in (best, other))
                value = Unknown(", ".join(words))
                break
            best, value = joined, joined.value
        else:
            if best.partial:
                value = Unknown(f"line {best.line} of {name} says {best.value}, which may be any {best.value}.x")
        yield Fact(key, value, f"{name}:{best.line}", "given")


def differ(one: Fact, other: Fact) -> Unknown:
    """Unknown, because two places say different things."""
    words = (f"{fact.origin} says {spell(fact.value)}" for fact in (one, other))
    return Unknown(", ".join(words))


def _joined(one: Claim, other: Claim) -> Claim | None:
    """The claim that says more; None when they contradict. Metadata drops the local tag of a version (2.5.0+cu118), and
    some tools the last part of a number."""
    if one.value == other.value:
        return other if one.partial else one
    if not (isinstance(one.value, str) and isinstance(other.value, str)):
        return None
    short, long = (one, other) if len(one.value) < len(other.value) else (other, one)
    rest = str(long.value).removeprefix(str(short.value))
    separator = "." if short.partial or not long.key.startswith("pkg.") else "+"
    return long if len(rest) < len(str(long.value)) and rest.startswith(separator) else None
