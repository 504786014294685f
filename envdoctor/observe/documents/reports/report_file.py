"""Reading a pasted report: any mixture of what tools print, what people write, tracebacks and logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value, strange_name
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim, facts_of
from envdoctor.observe.documents.reports.forms import Forms, Line
from envdoctor.observe.documents.reports.machine import gpu_fact, gpus_behind_label, platform_claims, smi_line
from envdoctor.observe.documents.reports.prose import Prose
from envdoctor.observe.errors import ObservationError
from envdoctor.text.documents import decoded, read_named
from envdoctor.tracebacks.pasted import visible

__all__ = ["ReadReport", "ReportError", "read_report", "report_facts"]

_LARGEST = 64 * 1024 * 1024
#: Characters and lines that are read, characters of a line, and how many unread lines are named.
_CHARACTERS, _LINES, _LINE, _NAMED = 1 << 21, 20_000, 500, 4
_QUOTE = re.compile(r"\s{0,8}(?:> ?){1,5}")
_WIDE = str.maketrans("：，、（）＝", ":,,()=")
_ENV = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=(\S.{0,1000})\Z")
_TABLE = re.compile(r"(?:#\s*)?(?:Package|Name)\s+Version\b.*|# packages in environment at.*")
_RULE = re.compile(r"[-\s=─]{5,}\Z")
_PRODUCT = r"(?:NVIDIA|Tesla|GeForce|Quadro) (?:(?! [x*]\s?\d)[\w -]){2,60}"
#: What the next line, or the first one below a heading, is the value of.
_TITLE = re.compile(r"(#{1,6} )(.{1,40}?)[:?]?|()([A-Za-z][\w-]{1,30})|()>>> ([A-Za-z]\w{1,30}\.__version__)")
#: ``name   1.2.3   where`` in columns: where the version begins.
_COLUMNS = re.compile(r"([A-Za-z][\w.-]* {2,})\d[\w.+!-]*(?: {2,}\S.*)?\Z")
_HEADING = re.compile(r"#{1,6} .*|.*[:：]\**\Z|\*\*.*\*\*\Z")


class ReportError(ObservationError):
    """Nothing can be taken from it; the message says why. ``usage`` is False for a text in which no fact stands."""


class ReadReport(NamedTuple):
    """The facts, and sentences about what was not read."""

    facts: FactSet
    notes: tuple[str, ...]


def read_report(place: Path, matrix: Matrix, path: str) -> ReadReport:
    """The facts of the text at ``place``, which the user calls ``path`` (``-``: standard input).

    Raises :class:`ReportError`.
    """
    try:
        data = read_named(place, path, _LARGEST)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data is None:
        raise ReportError(f"{path}: larger than {_LARGEST // 1024 // 1024} MiB, not read")
    # Terminals of Windows write UTF-16 and code pages.
    read = report_facts(
        decoded(data, "replace"), matrix, "report" if path == "-" else path.replace("\\", "/").rpartition("/")[2]
    )
    if not list(read.facts):
        said = "; ".join([f"{path}: no version, GPU or system could be read in it", *read.notes])
        nothing = ReportError(said)
        nothing.usage = False
        raise nothing
    return read


def report_facts(text: str, matrix: Matrix, name: str) -> ReadReport:
    """The facts of a text; ``name`` stands in their origins (``report:12``)."""
    lines = re.split(r"\r\n?|\n", text[:_CHARACTERS])
    reading = _Reading(matrix)
    for number, line in enumerate(lines[:_LINES], 1):
        reading.line(_unquoted(visible(line[:_LINE])).translate(_WIDE).rstrip(), number)
    reading.end_paragraph()
    facts = FactSet()
    for fact in _checked(facts_of((one for one in reading.claims if "gpu" not in one.key), name), matrix):
        facts.add(fact)
    gpu = gpu_fact(reading.claims, name)
    if gpu is not None:
        facts.add(gpu)
    cut = len(lines) > _LINES or len(text) > _CHARACTERS
    notes = [f"{name}: only the first {min(len(lines), _LINES)} lines were read"] if cut else []
    notes += [
        f"{fact.key.removeprefix('pkg.')}: {fact.value.reason}" for fact in facts if isinstance(fact.value, Unknown)
    ]
    left = [(number, key) for number, key in reading.unread if key not in facts]
    for number, key in left[:_NAMED]:
        notes.append(f"line {number} of {name} speaks of {key.removeprefix('pkg.')} and was not read")
    if len(left) > _NAMED:
        notes.append(f"{len(left) - _NAMED} more lines of {name} that look like facts were not read")
    return ReadReport(facts, tuple(notes))


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


class _Reading:
    """The lines so far. A doubt holds for its paragraph, or below a heading until the next one."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._forms = Forms(matrix)
        self._prose = Prose(matrix, self._forms)
        self._variables = matrix.registry.names("env")
        self.claims: list[Claim] = []
        self.unread: list[tuple[int, str]] = []
        self._paragraph: list[Claim] = []
        self._title, self._column = "", 0
        self._doubt = self._below_doubt = self._in_table = self._in_tool = False

    def line(self, text: str, number: int) -> None:
        stripped = text.strip()
        if not stripped:
            self.end_paragraph()
            self._in_table = False
            return
        if stripped.startswith("```"):
            if self._paragraph:
                self.end_paragraph()
            self._in_table = False
            return
        if _TABLE.fullmatch(stripped):
            self._in_table = True
            return
        if _RULE.match(stripped):
            self._in_table = self._in_table or re.fullmatch(r"-{3,}(?: +-{3,}){1,3}", stripped) is not None
            return
        columns = _COLUMNS.match(text)
        before, self._column = self._column, columns.end(1) if columns else 0
        self._in_table = self._in_table or 0 < before == self._column
        title, self._title = self._title, self._titled(stripped)
        said = self._forms.labelled(f"{title}: {stripped}", number) if title and len(stripped) < 40 else None
        said = self._spoken(said, number) if said is not None else None
        if said is None or not said.claims:
            said = self._read(text, stripped, number)
        if said is None:
            self._other(stripped)
            return
        for claim in said.claims:
            if ((self._doubt or self._below_doubt) and (claim.loose or not said.table)) or self._below_doubt:
                self.unread.append((number, claim.key))
            else:
                self._paragraph.append(claim)
        if said.unread:
            self.unread.append((number, said.unread))
            self._other(stripped)

    def _titled(self, stripped: str) -> str:
        found = _TITLE.fullmatch(stripped)
        if found is None:
            return ""
        title = found[2] or found[4] or found[6]
        return f"{title} version" if found[4] and self._forms.package(title) else "" if found[4] else title

    def _read(self, text: str, stripped: str, number: int) -> Line | None:
        if (
            not any(char.isdigit() for char in stripped)
            and "nstalled" not in stripped
            and not any(sign in stripped for sign in (":", "=", " ..", "] "))
        ):
            return None
        gpu = smi_line(stripped, number)
        if gpu is not None:
            return Line((gpu,), table=True)
        shaped = self._forms.shaped(stripped, number, self._in_table)
        if shaped is not None:
            spoken = [self._spoken(shaped._replace(claims=(claim,)), number) for claim in shaped.claims]
            return shaped._replace(claims=tuple(claim for one in spoken if one for claim in one.claims))
        labelled = self._forms.labelled(text, number)
        if labelled is not None:
            self._in_tool = self._in_tool or labelled.table
            return self._spoken(labelled, number)
        variable = _ENV.match(stripped)
        if variable is not None and self._in_tool and variable[1] in self._variables:
            return Line((Claim(f"env.{variable[1]}", variable[2], number),), table=True)
        return self._prose.read(stripped, number)

    def _spoken(self, line: Line, number: int) -> Line | None:
        """Labels whose values are words: systems and GPUs."""
        for claim in line.claims:
            if claim.key == "os.platform":
                return Line(tuple(platform_claims(str(claim.value), number, self._matrix)), table=True)
            if claim.key == "gpu.name":
                name = str(claim.value)
                listed = smi_line(name, number)
                if listed is not None:
                    return Line((listed,), table=True)
                if re.fullmatch(rf"{_PRODUCT}(?:, {_PRODUCT}){{0,63}}", name):
                    return self._tool_gpus(name, number)
                gpus = gpus_behind_label(name, number, self._matrix)
                return Line((gpus,), table=True) if gpus else Line(unread="gpu" if any(map(str.isdigit, name)) else "")
        return line

    def _tool_gpus(self, name: str, number: int) -> Line:
        """``GPU type`` of an env command: one name, or all of them with commas."""
        names = name.split(", ")
        if len(names) == 1:
            return Line((Claim("gpu.type", name, number),), table=True)
        return Line((Claim("gpu", Records(tuple({"name": one} for one in names)), number),), table=True)

    def _other(self, stripped: str) -> None:
        """A line that claims nothing: it may make what stands around it doubtful, and a heading what stands below."""
        doubtful = self._prose.doubtful(stripped[:_LINE]) is not None
        if _HEADING.fullmatch(stripped):
            self.end_paragraph()
            self._below_doubt = doubtful
        if doubtful:
            self._doubt = True
            self.unread += [(claim.line, claim.key) for claim in self._paragraph if claim.loose]
            self._paragraph = [claim for claim in self._paragraph if not claim.loose]

    def end_paragraph(self) -> None:
        """What was claimed so far stands."""
        self.claims += self._paragraph
        self._paragraph = []
        self._doubt = False
