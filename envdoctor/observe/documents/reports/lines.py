"""What each line of a report says, and which of them stand.

What stands above a line says how it is read: the heading of a table, the title of a value, the output of a tool. A line
of words that speaks of a version that was tried, advised or left silences what people wrote by hand in its paragraph; a
heading that does, or the line in front of a fence, silences all that stands below.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.registry import Registry
from envdoctor.facts.values import ABSENT, Value
from envdoctor.matrix.gpu_code import other_accelerator
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.documents.reports.claims import Claim, Line, Prose, smi_line, understood
from envdoctor.observe.recipe.formats import Formats
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version
from envdoctor.versions.requirement import normalise, valid_name

# Lines of reports by the table ``report-forms``: lines of one shape, labels with their values, and the one sentence
# that is read: packages with their versions, and nothing else but a few words of the table.

_VERSION = (
    r"\d{1,4}(?:\.\d{1,6}){1,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,10}){0,3}(?:\+[A-Za-z0-9]"
    r"(?:[A-Za-z0-9.]{0,40}[A-Za-z0-9])?)?"
)
_LABEL = re.compile(r"(?:[-*+•·] ?|\d\. )?([^:=|]{1,110}?)[:=]{1,2}(.{1,400})\Z")
_DOTS = re.compile(r"(\S[^.]{1,60}) \.{2,40} (.{1,200})\Z")
_VALUE = re.compile(
    rf"v?({_VERSION})(?:\s*\((?:True|False|GPU|CUDA|ROCM|CPU|NPU|XPU|MPS|NA|cu\d{{2,3}}|cpu|None)\))?[,.]?\Z",
    re.IGNORECASE,
)
#: How a package got there says nothing against its version.
_HOW = re.compile(r"(?<=\d)\s{1,4}\((?:imported|installed|built|from|via)\b[^()]{0,80}\)\Z")
_NONE = ("not installed", "not installed (na)", "未安装")
_UNSAID = (
    *("could not collect", "n/a", "none", "no", "na", "not applicable", "<fill in>", "unknown", "no cuda", ""),
    Message("not found"),
)
#: What people write among packages.
_NO_PACKAGES = ("cuda", "cudnn", "gpu", "driver", "os")
_BUILT_FOR = re.compile(r"cuda(\d{2})\.?(\d)|cuda(\d{2}\.\d)")
_CUDA = r"(?<![A-Za-z0-9])cuda[ :=]{0,3}\d{1,2}\.\d{1,2}(?:\.\d{1,3})?\b|\bcu\d{3}\b"
#: What GPUs are called by: ``3090``, ``A100``, ``RTX4090``, ``24G``.
_NUMBER = r"(?<![A-Za-z0-9_.])[a-z]{0,3}\d{2,4}[a-z]{0,3}(?![A-Za-z0-9_.])"
_LONGEST = 300


class Forms:
    """The table, compiled for one report. ``names`` are what packages are called, each with its normalised name."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.registry: Registry = matrix.registry
        self.first = frozenset(matrix.registry.first("pkg"))
        self.names = {name: name for name in (*matrix.ledger.packages(), *self.first)}
        for row in matrix.rows("report-forms", "package"):
            self.names.update(dict.fromkeys(row["also"], row["name"]))
        self._labels: dict[str, list[tuple[Mapping[str, Any], re.Pattern[str]]]] = {}
        for row in matrix.rows("report-forms", "label"):
            for label in row["labels"]:
                self._labels.setdefault(label, []).append((row, re.compile(row["values"], re.IGNORECASE)))
        phrases = matrix.rows("report-forms", "phrase")
        self._gpus = [re.compile(row["pattern"], re.I | re.A) for row in phrases if row["fact"] == "gpu.name"]
        self._lines = [(row, re.compile(row["pattern"])) for row in matrix.rows("report-forms", "line")]
        words = matrix.part("report-forms", "prose")
        systems = _any_of(word for row in matrix.rows("report-forms", "system") for word in row["words"])
        self._beside = re.compile(
            rf"(?i)\b(?:{systems})[ -]?[\d.]{{0,7}}\b|{_CUDA}|{_NUMBER}|\b(?:{_any_of(words['allowed'], latin=True)})\b"
            rf"|{_any_of(words['allowed'], latin=False)}"
        )
        self._doubt = re.compile(
            rf"(?i)\b(?:{_any_of(words['doubt'], latin=True)})|{_any_of(words['doubt'], latin=False)}"
        )
        names = _any_of((*self.names, "python", "py")).replace(r"\-", "[-_]")
        self._pair = re.compile(
            rf"(?i)(?<![A-Za-z0-9_./@-])({names})['`*]?\s{{0,2}}(?:(?:version|版本|is|==?|:|@|\(|为|是|使用的?)\s?){{0,2}}"
            rf"[`*]?v?({_VERSION})\)?(?![A-Za-z0-9_+-]|\.[A-Za-z0-9])"
        )

    def doubtful(self, text: str) -> bool:
        """Return whether a word makes versions near it doubtful: one that was tried, advised or left."""
        return self._doubt.search(text) is not None

    def package(self, spelling: str) -> str | None:
        """Return the normalised name of a package that is known, by what people call it."""
        lowered = spelling.lower().strip()
        return self.names.get(lowered) or self.names.get(normalise(lowered))

    def shaped(self, text: str, number: int, in_table: bool) -> Line | None:
        """Read a line of the table's shapes; None for another line."""
        claims: list[Claim] = []
        for row, pattern in self._lines:
            if row.get("has", "") not in text:
                continue
            behind = text.partition(row["has"])[2] if row.get("each") else text
            for match in pattern.finditer(behind) if row.get("each") else [pattern.fullmatch(text)]:
                claims += self._shaped(row, match, number, in_table) if match is not None else ()
        return understood(Line(tuple(claims)), self._matrix) if claims else None

    def _shaped(self, row: Mapping[str, Any], match: re.Match[str], number: int, in_table: bool) -> Iterator[Claim]:
        groups = match.groupdict()
        value, loose = groups["value"].replace("%2B", "+"), row.get("loose", False)
        if "fact" in row:
            yield Claim(row["fact"], value, number, loose)
            return
        name = self.package(groups["name"]) if "-" not in groups["name"] or row.get("table") else None
        name = name or valid_name(groups["name"])
        if row.get("table") and not in_table:
            build = groups["build"] or ""
            if build and re.fullmatch(r"pypi|\w{1,40}_\d{1,4}(?:_\w{1,30})?|py3.{1,60}", build) is None:
                return
            if name not in self.names.values() and not build:
                return
            loose = True
        if name == "python":
            yield Claim("python.version", value, number, loose and not in_table)
            return
        if name is None or name in _NO_PACKAGES or not is_version(value):
            return
        if row.get("known") and name not in self.names.values():
            return
        yield self._version(name, value, number, loose and not in_table)
        built = _BUILT_FOR.search(groups.get("build") or "") if name == "torch" else None
        if built is not None:
            yield Claim("torch.cuda", built[3] or f"{built[1]}.{built[2]}", number)

    def _version(self, package: str, value: str, number: int, loose: bool) -> Claim:
        """Claim a package's version. Of packages that are asked for first everybody writes half versions by hand."""
        partial = package in self.first and re.fullmatch(r"\d{1,3}\.\d{1,3}", value) is not None
        return Claim(f"pkg.{package}", value, number, loose, partial)

    def labelled(self, text: str, number: int) -> Line | None:
        """Read a line with a label that is known; None for another line."""
        match = _LABEL.match(text) or _DOTS.match(text)
        if match is None:
            return None
        label = " ".join(re.sub(r"[`*🤗\"]", "", match[1]).lower().split())
        content = _HOW.sub("", match[2].strip(" `*\"';；。\t"))
        rows = self._labels.get(label) or self._labels.get(label.partition("(")[0].rstrip())
        if rows is not None:
            return understood(self._of_label(rows, content, number), self._matrix)
        words = re.sub(r" ?\([^()]{0,40}\)", "", label)
        stem = re.sub(r"(?:[\s'.]{1,3}(?:installed )?version|\s?版本号?|\.__version__)\Z", "", words)
        package = self.package(stem.strip(" '"))
        if content.lower() in _NONE and stem != words:
            package = package or valid_name(stem.strip(" '"))
            return Line((Claim(f"pkg.{package}", ABSENT, number),)) if package else None
        value = _VALUE.match(content) or _VALUE.match(content.lower().removeprefix(f"{package}-"))
        if package is None or (value is None and stem == words):
            return None
        if value is None or not is_version(value[1]):
            return Line(unread="" if content.lower() in _UNSAID else f"pkg.{package}")
        # 2.5.1 (NPU): of an accelerator, which is no build for CUDA.
        kind = other_accelerator(content[value.end(1) :]) if package == "torch" else None
        beside = [Claim("machine.accelerators", (kind,), number)] if kind is not None else []
        return Line((self._version(package, value[1], number, loose=stem == words), *beside))

    def _of_label(self, rows: Sequence[tuple[Mapping[str, Any], re.Pattern[str]]], text: str, number: int) -> Line:
        first = rows[0][0]
        if text.lower() in first.get("absent", ()):
            return Line((Claim(first["fact"], ABSENT, number),))
        if text.lower() in _UNSAID:
            return Line()
        claims = []
        for row, pattern in rows:
            match = pattern.fullmatch(text)
            if match is not None:
                spec = self.registry.find(row["fact"])
                value: Value = float(match["value"]) if spec is not None and spec.type == "number" else match["value"]
                claims.append(Claim(row["fact"], value, number))
        return Line(tuple(claims), "" if claims or first.get("quiet") else first["fact"])

    def sentence(self, text: str, number: int) -> Line | None:
        """Read packages with their versions (``I use torch 2.4.1 and peft 0.14.0``); None for a line without any."""
        pairs = list(self._pair.finditer(text)) if len(text) <= _LONGEST else []
        if not pairs:
            return None
        text = text.removeprefix("# ") if number == 1 else text  # the title; further down it may be switched off
        rest = self._pair.sub(" ", text)
        for phrase in (*self._gpus, self._beside):
            rest = phrase.sub(" ", rest)
        claims: list[Claim] = []
        for name, value in ((pair[1].lower(), pair[2]) for pair in pairs):
            release = value.partition("+")[0]
            if name not in ("python", "py"):
                package = self.package(name)
                claims += [self._version(package, value, number, True)] if package and is_version(value) else []
            elif release.startswith(("3.", "2.7")):
                key = "python.version" if release.count(".") == 2 else "python.minor"
                claims.append(Claim(key, release, number, loose=True))
        if re.search(r"[\w<>?%$#@\\&]", rest) or self.doubtful(text) or not claims:
            first = self.package(pairs[0][1])
            return Line(unread=f"pkg.{first}" if first else "python.version")
        return understood(Line(tuple(claims)), self._matrix)


def _any_of(words: Iterable[str], latin: bool | None = None) -> str:
    """Return a pattern for any of the words, the longest first; ``latin``: of those in this script or not."""
    chosen = (word for word in words if latin is None or word.isascii() is latin)
    return "|".join(re.escape(word) for word in sorted(chosen, key=len, reverse=True))


#: Characters of a value below its title, and of a line in front of a fence that says what stands in it whatever heading
#: stands above.
_SHORT = 40
_FENCE = "```"
_HEADING = re.compile(r"#{1,6} .*|.*:\**\Z|\*\*.*\*\*\Z")
_ENV = re.compile(r"(?:export )?([A-Z][A-Z0-9_]{2,60})=(\S.{0,1000})\Z")
_TABLE = re.compile(r"(?:#\s*)?(?:Package|Name)\s+Version\b.*|# packages in environment at.*|-{3,}(?: +-{3,}){1,3}")
_DIGIT = re.compile(r"\d")
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
#: What pip freeze writes of a package that came from elsewhere (conda's come from folders): no version, and no words.
_DIRECT = re.compile(r"[A-Za-z0-9][\w.-]{0,100} @ (?:file|git\+|https?)\S{3,1000}\Z")
#: ``name   1.2.3   where`` in columns: where the version begins.
_ALIGNED = re.compile(r"([A-Za-z][\w.-]* {2,})\d[\w.+!-]*(?: {2,}\S.*)?\Z")
#: Where the interpreter keeps its library, in the frames of a traceback.
_LIBRARY = re.compile(r"[/\\](?:(?:lib|bin)[/\\]python(3\.\d{1,2})|Python3(\d{1,2})[/\\]lib)(?![\w.])", re.IGNORECASE)
_DRIVE = re.compile(r"(?<![a-z])[a-z]:\\")
#: A compiled module names what it was built for.
_EXTENSION = re.compile(r"\.cpython-3(\d{1,2})-(x86_64|aarch64)-linux-gnu\.so\b")


class _Row(NamedTuple):
    """A line of the report with what it says (None: words); ``is_words``: it is no line of a known form."""

    number: int
    text: str
    reading: Line | None
    is_words: bool

    @property
    def words(self) -> str:
        """Return the text of a line that claims nothing."""
        return self.text if self.reading is None or self.reading.unread else ""

    @property
    def heading(self) -> bool:
        """Return whether it says what stands below it, which the title of an issue does not."""
        title = self.number == 1 and self.text.startswith("# ")
        return not title and _HEADING.fullmatch(self.words) is not None


def standing(
    lines: Sequence[str], matrix: Matrix, formats: Formats
) -> tuple[list[Claim], list[Claim], list[tuple[int, str]], set[int]]:
    """Return the claims that stand, what sentences say of the run, the number and fact of lines that speak of one and
    do not count, and the numbers of lines below a heading, or between fences, that speak of something else."""
    forms, prose = Forms(matrix), Prose(matrix, formats)
    claims: list[Claim] = []
    sentences: list[Claim] = []
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
        if not (fenced or below or behind):
            sentences += prose.claims([(row.number, row.text) for row in rows if row.is_words and row.text])
        doubt = any(forms.doubtful(row.words) for row in rows)
        for row in rows:
            if below or behind:
                silenced.add(row.number)
            for claim in row.reading.claims if row.reading is not None else ():
                if below or behind or (doubt and claim.loose):
                    unread.append((row.number, "gpu" if claim.key == "gpu.type" else claim.key))
                else:
                    claims.append(claim)
            if row.reading is not None and row.reading.unread:
                unread.append((row.number, row.reading.unread))
    return claims, sentences, unread, silenced


def _paragraphs(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield what stands together, up to a blank line, a fence, a heading, or the end of a table."""
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
    starts = [match.end(1) if (match := _ALIGNED.match(line)) else 0 for line in lines]
    in_table = in_tool = False
    before = ""
    for place, line in enumerate(lines):
        text, number = line.strip(), place + 1
        if _TABLE.fullmatch(text) is not None:
            in_table = True
        elif not text or text.startswith(_FENCE):
            in_table = False
        reading, is_words = None, not text.startswith(_FENCE)
        # Most lines of logs are told by this alone.
        may = _DIGIT.search(text) or "nstalled" in text or any(sign in text for sign in (":", "=", " ..", "] "))
        if may and not text.startswith(_FENCE) and not _TABLE.fullmatch(text) and not _RULE.match(text):
            beside = starts[max(0, place - 1) : place] + starts[number : number + 1]
            aligned = starts[place] > 0 and starts[place] in beside
            reading = _titled(before, text, number, forms) or _line(text, number, forms, in_table or aligned)
            variable = _ENV.match(text) if reading is None and in_tool else None
            if variable is not None and variable[1] in variables:
                reading = Line((Claim(f"env.{variable[1]}", variable[2], number),))
            is_words = reading is None
            reading = reading if reading is not None and reading.claims else forms.sentence(text, number) or reading
            in_tool = in_tool or (reading is not None and any(not claim.loose for claim in reading.claims))
        before = before if not text or text.startswith(_FENCE) else text
        yield _Row(number, text, reading, is_words)


def _titled(before: str, text: str, number: int, forms: Forms) -> Line | None:
    title = _TITLE.fullmatch(before) if len(text) < _SHORT else None
    if title is None:
        return None
    label = f"{title[3]} version" if title[3] else title[title.lastindex or 0]
    reading = forms.labelled(f"{label}: {text.removeprefix('Version: ')}", number)
    return reading if reading is not None and reading.claims else None


def _line(text: str, number: int, forms: Forms, in_table: bool) -> Line | None:
    """Read a line by itself: what a tool prints, a range of versions, a label with its value."""
    cells = _columns(text)
    for words in (": ".join(cells), " ".join(cells)) if cells else ():
        if (line := _line(words, number, forms, in_table)) is not None:
            return line
    gpu = smi_line(text, number)
    if gpu is not None:
        return Line((gpu,))
    if (shaped := forms.shaped(text, number, in_table)) is not None:
        return shaped
    if _DIRECT.match(text):
        return Line()
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
