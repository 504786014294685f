"""Reading a pasted report: any mixture of what tools print, what people write, tracebacks and logs."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value, strange_name
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown
from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim, differ, facts_of, without_asides
from envdoctor.observe.documents.reports.forms import Forms, Line
from envdoctor.observe.documents.reports.machine import DRIVER, gpu_fact, gpus_behind_label, platform_claims, smi_line
from envdoctor.observe.documents.reports.prose import Prose
from envdoctor.observe.documents.reports.run import run_facts
from envdoctor.observe.errors import ObservationError
from envdoctor.text.documents import decoded, read_named
from envdoctor.tracebacks.pasted import visible

__all__ = ["ReadReport", "ReportError", "read_report", "report_facts"]

_LARGEST = 64 * 1024 * 1024
#: Characters and lines that are read, characters of a line, and how many unread lines are named.
_CHARACTERS, _LINES, _LINE, _NAMED = 1 << 21, 20_000, 500, 4
_LONGEST_COMMAND = 8000
#: A line of so many characters in front of a fence is a heading of what stands in it.
_SHORT = 40
_QUOTE = re.compile(r"\s{0,8}(?:> ?){1,5}")
#: What loggers write in front.
_LOGGER = re.compile(r"(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d[-,.]\d{3,6} (?:\| )?(?:INFO|DEBUG) {1,12}(?:\| |- )?")
_WIDE = str.maketrans("：，、（）＝", ":,,()=")
_ENV = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=(\S.{0,1000})\Z")
_TABLE = re.compile(r"(?:#\s*)?(?:Package|Name)\s+Version\b.*|# packages in environment at.*")
_RULE = re.compile(r"[-\s=─]{5,}\Z")
_PRODUCT = r"(?:NVIDIA|Tesla|GeForce|Quadro) (?:(?! [x*]\s?\d)[\w -]){2,60}"
#: What the next line, or the first one below a heading, is the value of.
_TITLE = re.compile(
    r"(#{1,6} )(.{1,40}?)[:?]?|()([A-Za-z][\w-]{1,30})|()>>> ([A-Za-z]\w{1,30}\.__version__)"
    r"|().{0,120}\bprint\(([A-Za-z]\w{1,30}\.(?:__version__|version\.cuda))\)[\"']?"
)
#: What ``pip show`` prints of a package.
_SHOWN = re.compile(r"Name: ([A-Za-z0-9][\w.-]{0,100})")
#: Where the interpreter keeps its library, in the frames of a traceback.
_LIBRARY = re.compile(r"[/\\](?:(?:lib|bin)[/\\]python(3\.\d{1,2})|Python3(\d{1,2})[/\\]lib)(?![\w.])", re.IGNORECASE)
_LOGGED = re.compile(r"(?:ERROR|WARNING|INFO)\b|\[\d{4}-|File \"")
_WINDOWS_PATH = re.compile(r"(?<![A-Za-z])[A-Za-z]:\\.{1,200}\\site-packages\b", re.IGNORECASE)
#: A compiled module names what it was built for.
_EXTENSION = re.compile(r"\.cpython-3(\d{1,2})-(x86_64|aarch64)-linux-gnu\.so\b")
#: A row of a table with two columns, with or without bars around it.
_ROW = re.compile(r"\|?\s*([^|]{1,60}?)\s+\|\s+([^|]{1,200}?)\s*\|?")
#: What a list of requirements says of a package when it leaves the version open.
_RANGE = re.compile(
    r"[-*\s]{0,6}[`\"']?([A-Za-z][\w.-]{0,60})(?:\[[\w,-]{1,60}\])?\s?((?:[<>~]=?|!=)\s?\d[\w.*]{0,30}"
    r"(?:,\s?(?:[<>~=]=?|!=)\s?\d[\w.*]{0,30}){0,4})[`\"']?,?(?:\s{0,5};.{0,200})?\Z"
)
#: A line about one package says nothing of the lines around it.
_OF_ONE = re.compile(r"[-*\s]{0,6}[`*]{0,3}([A-Za-z][\w -]{1,30}?)[`*]{0,3}(?:\s?:\s|\s{2,})")
#: ``name   1.2.3   where`` in columns: where the version begins.
_COLUMNS = re.compile(r"([A-Za-z][\w.-]* {2,})\d[\w.+!-]*(?: {2,}\S.*)?\Z")
#: A chapter about the environment, in which "Dependencies" are not what somebody asks for.
_OF_ENVIRONMENT = re.compile(r"(?i)#{1,6}\s.{0,20}(?:environment|system info|环境)")
_DEPENDENCIES = re.compile(r"(?i)\W{0,8}(?:key |main |python )?dependencies\W{0,8}")
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
    claims = without_asides(reading.claims)
    for fact in _checked(facts_of((one for one in claims if "gpu" not in one.key), name), matrix):
        facts.add(fact)
    gpu = gpu_fact(reading.claims, name)
    if gpu is not None:
        facts.add(gpu)
    plain = [_unquoted(visible(line[:_LONGEST_COMMAND])) for line in lines[:_LINES]]
    run, differing = run_facts(plain, reading.doubtful, matrix, name, facts)
    differing += [one.key for one in run if one.key in facts]
    for one in run:
        facts.add(_agreed(facts.get(one.key), one) if one.key in facts else one)
    cut = len(lines) > _LINES or len(text) > _CHARACTERS
    notes = [f"{name}: only the first {min(len(lines), _LINES)} lines were read"] if cut else []
    notes += [
        f"{fact.key.removeprefix('pkg.')}: {fact.value.reason}"
        for fact in facts
        if isinstance(fact.value, Unknown) and (not fact.key.startswith("recipe.") or fact.key in differing)
    ]
    notes += [
        f"line {number} of {name} allows several versions ({said}): which one is installed is not said"
        for number, package, said in reading.ranges[:_NAMED]
        if f"pkg.{package}" not in facts
    ]
    left = [(number, key) for number, key in reading.unread if key not in facts]
    for number, key in left[:_NAMED]:
        notes.append(f"line {number} of {name} speaks of {key.removeprefix('pkg.')} and was not read")
    if len(left) > _NAMED:
        notes.append(f"{len(left) - _NAMED} more lines of {name} that look like facts were not read")
    return ReadReport(facts, tuple(notes))


def _agreed(said: Fact, run: Fact) -> Fact:
    """What the lines say stands, unless the run that is shown says something else."""
    if said.value == run.value or isinstance(said.value, Unknown):
        return said
    return said._replace(value=differ(said, run))


def _unquoted(line: str) -> str:
    found = _QUOTE.match(line)
    line = line[found.end() :] if found else line
    found = _LOGGER.match(line)
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
        #: Lines with a range of versions: the number, the package, what is written.
        self.ranges: list[tuple[int, str, str]] = []
        #: Lines below a heading, or between fences behind a sentence, that speaks of something else.
        self.doubtful: set[int] = set()
        self._paragraph: list[Claim] = []
        self._title, self._before, self._column, self._row = "", "", 0, ("", 0)
        self._section = ""
        self._fenced = self._fence_doubt = self._cells = False
        self._doubt = self._below_doubt = self._in_table = self._in_tool = False

    def line(self, text: str, number: int) -> None:
        stripped = text.strip()
        if self._below_doubt or self._fence_doubt:
            self.doubtful.add(number)
        self._traces(text, number)
        if number == 1 and stripped.startswith("# "):
            titled = self._prose.own_title(stripped, number)
            self._paragraph += titled.claims if titled is not None else ()
            return
        if not stripped:
            self.end_paragraph()
            self._in_table = False
            return
        if stripped.startswith("```"):
            if self._paragraph:
                self.end_paragraph()
            self._in_table, self._fenced = False, not self._fenced
            led = self._fenced and not self._before.endswith((".", "!", "?", "。"))
            self._fence_doubt = led and self._prose.doubtful(self._before[:_LINE]) is not None
            if led and 0 < len(self._before) < _SHORT and not self._fence_doubt:
                self._below_doubt = False
            return
        self._before = "" if self._fenced else stripped
        if _TABLE.fullmatch(stripped):
            self._in_table = True
            return
        if _RULE.match(stripped):
            self._in_table = self._in_table or re.fullmatch(r"-{3,}(?: +-{3,}){1,3}", stripped) is not None
            return
        if self._cells and _ROW.fullmatch(stripped) is None:
            self.end_paragraph()
        self._cells = _ROW.fullmatch(stripped) is not None
        columns = _COLUMNS.match(text)
        before, self._column = self._column, columns.end(1) if columns else 0
        if not self._in_table and 0 < before == self._column:
            self._in_table = True
            self._take(self._forms.shaped(self._row[0].strip(), self._row[1], True), self._row[1])
        self._row = (text, number)
        title, self._title = self._title, self._titled(stripped)
        said = (
            self._forms.labelled(f"{title}: {stripped.removeprefix('Version: ')}", number)
            if title and len(stripped) < 40
            else None
        )
        said = self._spoken(said, number) if said is not None else None
        if said is None or not said.claims:
            said = self._read(text, stripped, number)
        if said is None:
            self._other(stripped)
            return
        self._take(said, number)
        if said.unread:
            self.unread.append((number, said.unread))
            self._other(stripped)

    def _traces(self, text: str, number: int) -> None:
        """What paths say, of frames and of compiled modules: the Python, the system."""
        library = _LIBRARY.search(text)
        if library is not None:
            minor = library[1] or f"3.{library[2]}"
            self.claims.append(Claim("python.minor", minor, number, aside=True))
        if _WINDOWS_PATH.search(text):
            self.claims.append(Claim("os.platform", "windows", number, aside=True))
        extension = _EXTENSION.search(text)
        if extension is not None:
            said = {"python.minor": f"3.{extension[1]}", "os.platform": "linux", "os.arch": extension[2]}
            self.claims += [Claim(key, value, number, aside=True) for key, value in said.items()]

    def _take(self, said: Line | None, number: int) -> None:
        for claim in said.claims if said is not None else ():
            if self._below_doubt or self._fence_doubt or (self._doubt and (claim.loose or not (said and said.table))):
                self.unread.append((number, claim.key))
            else:
                self._paragraph.append(claim)

    def _titled(self, stripped: str) -> str:
        shown = _SHOWN.fullmatch(stripped)
        if shown is not None:
            return f"{shown[1]} version"
        found = _TITLE.fullmatch(stripped)
        if found is None:
            return ""
        title = found[2] or found[4] or found[6] or found[8]
        return f"{title} version" if found[4] and self._forms.package(title) else "" if found[4] else title

    def _read(self, text: str, stripped: str, number: int) -> Line | None:
        if (
            not any(char.isdigit() for char in stripped)
            and "nstalled" not in stripped
            and not any(sign in stripped for sign in (":", "=", " ..", "] "))
        ):
            return None
        row = _ROW.fullmatch(stripped)
        for words in (f"{row[1]}: {row[2]}", f"{row[1]} {row[2]}") if row is not None else ():
            if (said := self._read(words, words, number)) is not None:
                return said
        gpu = smi_line(stripped, number)
        if gpu is not None:
            return Line((gpu,), table=True)
        shaped = self._forms.shaped(stripped, number, self._in_table)
        if shaped is not None:
            spoken = [self._spoken(shaped._replace(claims=(claim,)), number) for claim in shaped.claims]
            return shaped._replace(claims=tuple(claim for one in spoken if one for claim in one.claims))
        allowed = _RANGE.match(stripped)
        package = self._forms.package(allowed[1]) if allowed is not None else None
        if allowed is not None and package is not None:
            self.ranges.append((number, package, f"{allowed[1]}{allowed[2]}".replace(" ", "")))
            return Line()
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
                driver = DRIVER.search(name)
                if driver is not None:
                    rest = self._spoken(Line((claim._replace(value=DRIVER.sub("", name)),)), number) or Line()
                    return rest._replace(claims=(*rest.claims, Claim("driver.version", driver[1], number)), table=True)
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
        """A line that claims nothing: it may make what stands around it doubtful, and a heading what stands below; what
        tools print of their work does not."""
        of_one = _OF_ONE.match(stripped)
        if of_one is not None and self._forms.package(of_one[1]) is not None:
            return
        doubtful = _LOGGED.match(stripped) is None and self._prose.doubtful(stripped[:_LINE]) is not None
        if _HEADING.fullmatch(stripped):
            self.end_paragraph()
            below = _OF_ENVIRONMENT.match(self._section) is not None and _DEPENDENCIES.fullmatch(stripped) is not None
            doubtful = doubtful and not below and not self._prose.of_this(stripped)
            self._below_doubt = doubtful
            self._section = stripped if stripped.startswith("#") else self._section
        if doubtful:
            self._doubt = True
            self.unread += [(claim.line, claim.key) for claim in self._paragraph if claim.loose]
            self._paragraph = [claim for claim in self._paragraph if not claim.loose]

    def end_paragraph(self) -> None:
        """What was claimed so far stands."""
        self.claims += self._paragraph
        self._paragraph = []
        self._doubt = False
