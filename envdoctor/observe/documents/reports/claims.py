"""What lines of a report claim, put together: lines that agree are one fact, lines that contradict make it unknown."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envdoctor.facts.values import Fact, Origin, Unknown, Value, spell
from envdoctor.text.message import Message, joined


class Claim(NamedTuple):
    """One line says that a fact has a value. ``loose``: people write such lines by hand. ``partial``: the value is only
    the beginning of a version (4.46 for any 4.46.x)."""

    key: str
    value: Value
    line: int
    loose: bool = False
    partial: bool = False


class Line(NamedTuple):
    """What a line says: claims, or the fact that it speaks of and that could not be read (``unread``)."""

    claims: tuple[Claim, ...] = ()
    unread: str = ""


def facts_of(claims: Iterable[Claim], name: str) -> Iterator[Fact]:
    """Yield one fact for each key, with the line that says most about it (``report:12``)."""
    by_key: dict[str, list[Claim]] = {}
    for claim in claims:
        by_key.setdefault(claim.key, []).append(claim)
    for key, said in by_key.items():
        best = said[0]
        value: Value = best.value
        for other in said[1:]:
            both = _joined(best, other)
            if both is None:
                words = (Message("line {} of {} says {}", one.line, name, spell(one.value)) for one in (best, other))
                value = Unknown(joined(words, ", "))
                break
            best, value = both, both.value
        else:
            if best.partial:
                value = Unknown(
                    Message("line {} of {} says {}, which may be any {}.x", best.line, name, best.value, best.value)
                )
        yield Fact(key, value, Origin(name, best.line), "given")


def differ(one: Fact, other: Fact) -> Unknown:
    """Return an unknown value, because two places say different things."""
    words = (Message("{} says {}", fact.origin, spell(fact.value)) for fact in (one, other))
    return Unknown(joined(words, ", "))


def _joined(one: Claim, other: Claim) -> Claim | None:
    """Return the claim that says more, or None if they contradict. Metadata drops the local tag of a version
    (2.5.0+cu118), and some tools drop the last part of a number."""
    if one.value == other.value:
        return other if one.partial else one
    if not (isinstance(one.value, str) and isinstance(other.value, str)):
        return None
    short, long = (one, other) if len(one.value) < len(other.value) else (other, one)
    rest = str(long.value).removeprefix(str(short.value))
    separator = "." if short.partial or not long.key.startswith("pkg.") else "+"
    return long if len(rest) < len(str(long.value)) and rest.startswith(separator) else None
