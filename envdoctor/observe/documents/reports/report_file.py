"""Reading a pasted report: any mixture of what tools print, what people write, tracebacks and logs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value, strange_name
from envdoctor.facts.values import ABSENT, Fact, Unknown
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim, differ, facts_of
from envdoctor.observe.documents.reports.lines import standing, traces
from envdoctor.observe.documents.reports.machine import gpu_fact
from envdoctor.observe.documents.reports.run import run_facts
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
    facts = FactSet(_checked(facts_of(_with_traces(stands.claims, plain), name), matrix))
    if (gpu := gpu_fact(stands.claims, name)) is not None:
        facts.add(gpu)
    commands = [_unquoted(visible(line[:_LONGEST_COMMAND])) for line in lines]
    run, differing = run_facts(commands, stands.silenced, matrix, name, facts)
    differing += [one.key for one in run if one.key in facts]
    for one in run:
        facts.add(_agreed(facts.get(one.key), one) if one.key in facts else one)
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


def _with_traces(claims: Sequence[Claim], lines: Sequence[str]) -> list[Claim]:
    """Return the claims about all but GPUs, with what paths say where no line does."""
    said = {"python" if claim.key.startswith("python.") else claim.key for claim in claims}
    paths = [claim for claim in traces(lines) if claim.key.removesuffix(".minor") not in said]
    return [claim for claim in (*claims, *paths) if not claim.key.startswith(("gpu", "smi."))]


def _agreed(said: Fact, run: Fact) -> Fact:
    """What the lines say stands, unless the run that is shown says something else."""
    if said.value == run.value or isinstance(said.value, Unknown):
        return said
    return said._replace(value=differ(said, run))


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
