"""Reading a pasted report: any mixture of what tools print, what people write, tracebacks and logs."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value, strange_name
from envdoctor.facts.values import ABSENT, Fact, Origin, Unknown, Value, spell
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.lines import standing, traces
from envdoctor.observe.documents.reports.machine import Claim, gpu_fact
from envdoctor.observe.documents.reports.run import differ, run_facts
from envdoctor.observe.errors import ObservationError
from envdoctor.text.documents import decoded, read_named
from envdoctor.text.files import because_of
from envdoctor.text.message import Message, joined
from envdoctor.tracebacks.pasted import visible

_LARGEST = 64 * 1024 * 1024
#: Characters and lines that are read, characters of a line, and how many unread lines are named.
_CHARACTERS, _LINES, _LINE, _NAMED = 1 << 21, 20_000, 500, 4
_LONGEST_COMMAND = 8000
_QUOTE = re.compile(r"\s{0,8}(?:> ?){1,5}")
_WIDE = str.maketrans("：，、（）＝", ":,,()=")


class ReportError(ObservationError):
    """Nothing can be taken from it; the message says why. ``usage`` is False for a text in which no fact stands."""


class ReadReport(NamedTuple):
    """The facts, and sentences about what was not read."""

    facts: FactSet
    notes: tuple[Message, ...]


def read_report(place: Path, matrix: Matrix, path: str) -> ReadReport:
    """The facts of the text at ``place``, which the user calls ``path`` (``-``: standard input).

    Raises :class:`ReportError`.
    """
    try:
        data = read_named(place, path, _LARGEST)
    except OSError as error:
        raise ReportError("{}: cannot be read: {}", path, because_of(error)) from None
    if data is None:
        raise ReportError("{}: larger than {} MiB, not read", path, _LARGEST // 1024 // 1024)
    # Terminals of Windows write UTF-16 and code pages.
    read = report_facts(
        decoded(data, "replace"), matrix, "report" if path == "-" else path.replace("\\", "/").rpartition("/")[2]
    )
    if not list(read.facts):
        said = Message("{}: no version, GPU or system could be read in it", path)
        nothing = ReportError(joined([said, *read.notes]))
        nothing.usage = False
        raise nothing
    return read


def report_facts(text: str, matrix: Matrix, name: str) -> ReadReport:
    """The facts of a text; ``name`` stands in their origins (``report:12``)."""
    lines = re.split(r"\r\n?|\n", text[:_CHARACTERS])
    cut = len(lines) > _LINES or len(text) > _CHARACTERS
    lines = lines[:_LINES]
    plain = [_unquoted(visible(line[:_LINE])).translate(_WIDE).rstrip() for line in lines]
    stands = standing(plain, matrix)
    # What paths say counts where no line does.
    said = {"python" if claim.key.startswith("python.") else claim.key for claim in stands.claims}
    paths = (claim for claim in traces(plain) if claim.key.removesuffix(".minor") not in said)
    claims = [claim for claim in (*stands.claims, *paths) if not claim.key.startswith(("gpu", "smi."))]
    facts = FactSet(_checked(_facts_of(claims, name), matrix))
    if (gpu := gpu_fact(stands.claims, name)) is not None:
        facts.add(gpu)
    commands = [_unquoted(visible(line[:_LONGEST_COMMAND])) for line in lines]
    run, differing = run_facts(commands, stands.silenced, matrix, name, facts)
    differing += [one.key for one in run if one.key in facts]
    for one in run:  # what the lines say stands, unless the run that is shown says something else
        before = facts.get(one.key)
        if one.key not in facts:
            facts.add(one)
        elif before.value != one.value and not isinstance(before.value, Unknown):
            facts.add(before._replace(value=differ(before, one)))
    notes = [Message("{}: only the first {} lines were read", name, len(lines))] if cut else []
    notes += [
        Message("{}: {}", fact.key.removeprefix("pkg."), fact.value.reason)
        for fact in facts
        if isinstance(fact.value, Unknown) and (not fact.key.startswith("recipe.") or fact.key in differing)
    ]
    left = [(number, key) for number, key in stands.unread if key not in facts]
    for number, key in left[:_NAMED]:
        notes.append(Message("line {} of {} speaks of {} and was not read", number, name, key.removeprefix("pkg.")))
    if len(left) > _NAMED:
        notes.append(Message("{} more lines of {} that look like facts were not read", len(left) - _NAMED, name))
    return ReadReport(facts, tuple(notes))


def _facts_of(claims: Iterable[Claim], name: str) -> Iterator[Fact]:
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


def _unquoted(line: str) -> str:
    found = _QUOTE.match(line)
    return line[found.end() :] if found else line


def _checked(facts: Iterable[Fact], matrix: Matrix) -> Iterator[Fact]:
    """Facts that the registry knows, of its types."""
    for fact in facts:
        spec = matrix.registry.find(fact.key)
        if spec is None or strange_name(fact.key, matrix.registry) is not None:
            continue
        if not isinstance(fact.value, Unknown) and fact.value is not ABSENT:
            try:
                fact = fact._replace(value=parse_value(spec, fact.value))
            except FactTypeError:
                continue
        yield fact
