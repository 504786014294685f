"""What each line of a report says, and which of them stand.

What stands above a line says how it is read: the heading of a table, the title of a value, the output of a tool. A line
of words that speaks of a version that was tried, advised or left silences what people wrote by hand in its paragraph; a
heading that does, or the line in front of a fence, silences all that stands below.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.knowledge.matrix import Matrix
from envdoctor.observe.documents.reports.forms import Forms
from envdoctor.observe.documents.reports.machine import Claim, Line, smi_line

#: Characters of a value below its title, and of a line in front of a fence that says what stands in it whatever heading
#: stands above.
_SHORT = 40
_FENCE = "```"
_HEADING = re.compile(r"#{1,6} .*|.*:\**\Z|\*\*.*\*\*\Z")
_ENV = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=(\S.{0,1000})\Z")
_TABLE = re.compile(r"(?:#\s*)?(?:Package|Name)\s+Version\b.*|# packages in environment at.*|-{3,}(?: +-{3,}){1,3}")
_RULE = re.compile(r"[-\s=─]{5,}\Z")
#: What the next line is the value of: ``### Python version``, ``>>> torch.__version__``, ``Name: torch`` of pip show.
_TITLE = re.compile(
    r"#{1,6} (.{1,40}?)[:?]?|>>> ([A-Za-z]\w{1,30}\.__version__)|Name: ([A-Za-z0-9][\w.-]{0,100})"
    r"|.{0,120}\bprint\(([A-Za-z]\w{1,30}\.(?:__version__|version\.cuda))\)[\"']?"
)
#: What a list of requirements says of a package when it leaves the version open.
_RANGE = re.compile(
    r"[-*\s]{0,6}[`\"']?([A-Za-z][\w.-]{0,60})(?:\[[\w,-]{1,60}\])?\s?((?:[<>~]=?|!=)\s?\d[\w.*]{0,30}"
    r"(?:,\s?(?:[<>~=]=?|!=)\s?\d[\w.*]{0,30}){0,4})[`\"']?,?(?:\s{0,5};.{0,200})?\Z"
)
#: ``name   1.2.3   where`` in columns: where the version begins.
_ALIGNED = re.compile(r"([A-Za-z][\w.-]* {2,})\d[\w.+!-]*(?: {2,}\S.*)?\Z")
#: Where the interpreter keeps its library, in the frames of a traceback.
_LIBRARY = re.compile(r"[/\\](?:(?:lib|bin)[/\\]python(3\.\d{1,2})|Python3(\d{1,2})[/\\]lib)(?![\w.])", re.IGNORECASE)
_DRIVE = re.compile(r"(?<![a-z])[a-z]:\\")
#: A compiled module names what it was built for.
_EXTENSION = re.compile(r"\.cpython-3(\d{1,2})-(x86_64|aarch64)-linux-gnu\.so\b")


class Standing(NamedTuple):
    """The claims that stand, the number and fact of lines that speak of one and do not count, and the numbers of lines
    below a heading, or between fences, that speak of something else."""

    claims: Sequence[Claim]
    unread: Sequence[tuple[int, str]]
    silenced: Collection[int]


class _Row(NamedTuple):
    """A line of the report with what it says (None: words)."""

    number: int
    text: str
    said: Line | None

    @property
    def words(self) -> str:
        """The text of a line that claims nothing."""
        return self.text if self.said is None or self.said.unread else ""

    @property
    def heading(self) -> bool:
        """Whether it says what stands below it, which the title of an issue does not."""
        title = self.number == 1 and self.text.startswith("# ")
        return not title and _HEADING.fullmatch(self.words) is not None


def standing(lines: Sequence[str], matrix: Matrix) -> Standing:
    """Return what stands of what the lines say."""
    forms = Forms(matrix)
    claims: list[Claim] = []
    unread: list[tuple[int, str]] = []
    silenced: set[int] = set()
    below = fenced = behind = False  # what a heading says is in doubt; between fences; behind a line that doubts
    before = ""
    for rows in _paragraphs(_read(lines, forms, matrix)):
        if rows[0].text.startswith(_FENCE):
            fenced = not fenced
            lead = before if fenced and not before.endswith((".", "!", "?", "。")) else ""
            behind = forms.doubtful(lead)
            below = below and not (lead and len(lead) < _SHORT and not behind)
        elif rows[0].heading:
            below = forms.doubtful(rows[0].text)
        before = "" if fenced else next((row.text for row in reversed(rows) if row.text), before)
        doubt = any(forms.doubtful(row.words) for row in rows)
        for row in rows:
            if below or behind:
                silenced.add(row.number)
            for claim in row.said.claims if row.said is not None else ():
                if below or behind or (doubt and claim.loose):
                    unread.append((row.number, claim.key))
                else:
                    claims.append(claim)
            if row.said is not None and row.said.unread:
                unread.append((row.number, row.said.unread))
    return Standing(claims, unread, silenced)


def _paragraphs(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield what stands together. A paragraph begins behind a blank line, with a fence, with a heading, and behind a
    table."""
    paragraph: list[_Row] = []
    for row in rows:
        if paragraph:
            last = paragraph[-1].text
            behind_table = bool(_columns(last)) and not _columns(row.text)
            if (row.text and not last) or row.text.startswith(_FENCE) or row.heading or behind_table:
                yield paragraph
                paragraph = []
        paragraph.append(row)
    if paragraph:
        yield paragraph


def _read(lines: Sequence[str], forms: Forms, matrix: Matrix) -> Iterator[_Row]:
    """Yield the lines, each with what it says."""
    variables = matrix.registry.names("env")
    starts = [found.end(1) if (found := _ALIGNED.match(line)) else 0 for line in lines]
    in_table = in_tool = False
    before = ""
    for place, line in enumerate(lines):
        text, number = line.strip(), place + 1
        if _TABLE.fullmatch(text) is not None:
            in_table = True
        elif not text or text.startswith(_FENCE):
            in_table = False
        said = None
        if _may_claim(text):
            aligned = (
                starts[place] > 0 and starts[place] in starts[max(0, place - 1) : place] + starts[number : number + 1]
            )
            said = _titled(before, text, number, forms) or _line(text, number, forms, in_table or aligned)
            variable = _ENV.match(text) if said is None and in_tool else None
            if variable is not None and variable[1] in variables:
                said = Line((Claim(f"env.{variable[1]}", variable[2], number),))
            said = said or forms.sentence(text, number)
            in_tool = in_tool or (said is not None and any(not claim.loose for claim in said.claims))
        before = before if not text or text.startswith(_FENCE) else text
        yield _Row(number, text, said)


def _may_claim(text: str) -> bool:
    """Return whether anything may stand in the line: most lines of logs are told by this alone."""
    digits = any(char.isdigit() for char in text)
    signs = "nstalled" in text or any(sign in text for sign in (":", "=", " ..", "] "))
    return (digits or signs) and not text.startswith(_FENCE) and not _TABLE.fullmatch(text) and not _RULE.match(text)


def _titled(before: str, text: str, number: int, forms: Forms) -> Line | None:
    title = _TITLE.fullmatch(before) if len(text) < _SHORT else None
    if title is None:
        return None
    label = f"{title[3]} version" if title[3] else title[title.lastindex or 0]
    said = forms.labelled(f"{label}: {text.removeprefix('Version: ')}", number)
    return said if said is not None and said.claims else None


def _line(text: str, number: int, forms: Forms, in_table: bool) -> Line | None:
    """Read a line by itself: what a tool prints, a range of versions, a label with its value."""
    cells = _columns(text)
    for words in (": ".join(cells), " ".join(cells)) if cells else ():
        if (said := _line(words, number, forms, in_table)) is not None:
            return said
    gpu = smi_line(text, number)
    if gpu is not None:
        return Line((gpu,))
    if (shaped := forms.shaped(text, number, in_table)) is not None:
        return shaped
    allowed = _RANGE.match(text)
    package = forms.package(allowed[1]) if allowed is not None else None
    return Line(unread=f"pkg.{package}") if package is not None else forms.labelled(text, number)


def _columns(text: str) -> list[str]:
    """Return the cells of a row of a table with two columns, with or without bars around it; of another line none."""
    cells = text.strip().removeprefix("|").removesuffix("|").split("|")
    apart = len(cells) == 2 and cells[0][-1:].isspace() and cells[1][:1].isspace()
    cells = [cell.strip() for cell in cells]
    return cells if apart and 0 < len(cells[0]) <= 60 and 0 < len(cells[1]) <= 200 else []


def traces(lines: Sequence[str]) -> Iterator[Claim]:
    """Yield what paths say, of frames of tracebacks and of compiled modules: the Python, the system."""
    for number, line in enumerate(lines, 1):
        library = _LIBRARY.search(line)
        if library is not None:
            yield Claim("python.minor", library[1] or f"3.{library[2]}", number)
        front, packages, _ = line.lower().partition("\\site-packages")
        if packages and _DRIVE.search(front):
            yield Claim("os.platform", "windows", number)
        extension = _EXTENSION.search(line)
        if extension is not None:
            yield Claim("python.minor", f"3.{extension[1]}", number)
            yield Claim("os.platform", "linux", number)
            yield Claim("os.arch", extension[2], number)
