"""A pasted text as one failure: the error that matters among those it holds, and who was asking, by the lines that say
where: which file of which package, and the statement that failed there.

The last error is the one that ended the run. It is looked behind when it only passes on what happened before: errors of
launchers, errors that a package raises from another one, and the lines of lazy packages.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_letters, digits
from typing import Any, NamedTuple

# One message of an error as what was asked for and not there: a module, a name, an attribute, a keyword.


class Failure(NamedTuple):
    """What a message says, in the words of Python's own messages.

    ``kind`` is

    * ``module``: ``module`` cannot be found (``not_a_package``: because the module before its last dot is a file);
    * ``name``: ``name`` cannot be imported from ``module``, which is empty where older Pythons do not say it;
    * ``attribute``: the module ``module`` has no ``name``;
    * ``member``: the class ``callee`` has no ``name``;
    * ``keyword``: ``callee`` (``TrainingArguments.__init__``) takes no argument ``name``;
    * ``arguments``: ``callee`` was given another number of positional arguments than it takes;
    * ``missing``: ``callee`` asks for an argument ``name`` that it was not given;
    * ``demand``: the code asks for ``requirement``; ``found`` is the version that it saw, where it says so;
    * ``lazy``: ``name`` (or ``module``) of a package that loads on demand failed, for a reason told elsewhere.

    ``place`` is the file that the message names. ``circular``: Python was still executing that module. ``shadowed``:
    Python itself suspects a file of the user's own.
    """

    kind: str
    message: str
    module: str = ""
    name: str = ""
    callee: str = ""
    place: str = ""
    requirement: str = ""
    found: str = ""
    circular: bool = False
    shadowed: bool = False
    not_a_package: bool = False


_DOTTED = r"[^\W\d]\w{0,99}(?:\.\w{1,100}){0,30}"
_NAME = r"[^\W\d]\w{0,199}"
_PLACE = re.compile(r"\(((?:/|~|[A-Za-z]:\\|\.{1,2}/)[^()]{1,500}|unknown location)\)")
#: Requirements that libraries check themselves (transformers' require_version, optimum, accelerate).
_REQUIREMENT = (
    r"(?P<requirement1>[A-Za-z][\w.-]{0,60}) ?(?P<requirement2>(?:(?:===?|[!~<>]=|[<>])[\w.*+!]{1,40},?){1,4})"
)
#: Words that must stand in the message (titles begin with a capital), the kind, and what it says: a group gives the
#: column that it is named for, two with a number give one together. The first form that fits is taken.
_FORMS = (
    ("Failed to import", "lazy",
     rf"Failed to import (?P<module>{_DOTTED}) because of the following error[^:]{{0,60}}:?(?P<inner>.*)"),
    ("Could not import module", "lazy", r"Could not import module '(?P<name>\w{1,200})'"),
    ("annot import name", "name",
     rf"[Cc]annot import name '?(?P<name>{_NAME})'?"
     rf"(?:,? from (?:partially initialized module )?'?(?P<module>{_DOTTED})'?)?"),
    ("o module named", "module",
     rf"[Nn]o module named:? '?(?P<module>{_DOTTED})'?(?P<not_a_package>; '{_DOTTED}' is not a package)?"),
    ("seems to be not installed", "module", r"package (?P<module>\w{1,100}) seems to be not installed"),
    ("was removed in the NumPy", "attribute", r"'(?P<module>np)\.(?P<name>\w{1,60})' was removed in the NumPy"),
    ("has no attribute", "attribute", rf"module '?(?P<module>{_DOTTED})'? has no attribute '?(?P<name>{_NAME})'?"),
    # A module that was put together with its class (unittest.mock, a patch) says its dotted name alone.
    ("has no attribute", "attribute",
     rf"(?:^|[\s:])'(?P<module>[a-z]\w{{0,99}}(?:\.[a-z_]\w{{0,99}}){{2,30}})' has no attribute '(?P<name>{_NAME})'"),
    ("has no attribute", "member",
     rf"(?:'(?P<callee1>{_DOTTED})' object|(?:(?:type object|class) |(?<!module )(?=.[A-Z]))"
     rf"'(?P<callee2>{_DOTTED})')"
     r" has no attribute '(?P<name>\w{1,200})'"),
    # The tokenizers of transformers say it without quotes; a class is written with a capital.
    ("has no attribute", "member", r"(?<![\w.'])(?P<callee>[A-Z]\w{1,100}) has no attribute '?(?P<name>\w{1,200})"),
    # huggingface_hub's own wording.
    (" attribute ", "attribute", rf"\bNo (?P<module>{_DOTTED}) attribute (?P<name>\w{{1,200}})"),
    ("unexpected keyword argument", "keyword",
     r"(?<![A-Za-z0-9_.<>])(?P<callee>[A-Za-z0-9_.<>]{1,200})\(\) got (?:some |an )?"
     r"unexpected keyword arguments?:? '?(?P<name>\w{1,200})'?"),
    ("nexpected keyword argument", "keyword", r"[Uu]nexpected keyword arguments?:? '(?P<name>\w{1,200})'"),
    ("invalid keyword argument", "keyword",
     r"'(?P<name>\w{1,200})' is an invalid keyword argument for (?P<callee>[\w.]{1,200})\(\)"),
    ("HfArgumentParser", "keyword", r"not used by the HfArgumentParser: \['(?:--)?(?P<name>\w{1,200})'"),
    ("positional argument", "arguments",
     r"(?<![\w.<>])(?P<callee>[\w.<>]{1,200})\(\) takes [\w ]{1,40} positional arguments? but (?P<name>\d{1,4}) w"),
    ("() missing ", "missing",
     r"(?<![\w.<>])(?P<callee>[\w.<>]{1,200})\(\) missing \d{1,3} required [\w -]{1,30} arguments?:"
     r" '(?P<name>\w{1,200})'"),
    # How pip and libraries ask for a release: only the first two of these say which one was found.
    ("which is incompatible", "demand",
     rf"requires {_REQUIREMENT}(?:; [^;]{{1,200}})?, but you have \S{{1,60}} (?P<found>[\w.+!]{{1,40}}) which is"),
    ("require", "demand",
     rf"{_REQUIREMENT} is required for a normal functioning.{{0,60}}found [\w.-]{{1,60}}"
     r"==(?P<found>[\w.+!]{1,40})"),
    ("require", "demand", rf"(?:requires?|[Pp]lease (?:install|upgrade(?: to)?)|needs) '?{_REQUIREMENT}'?"),
    ("require", "demand", rf"{_REQUIREMENT} is required"),
    ("require", "demand", rf"'{_REQUIREMENT}'"),
    # Not to bring a release up to date: that says nothing of what is missing.
    ("pip install ", "demand",
     r"(?:requires?|needs?|not (?:installed|found|available)|[Pp]lease install)\b[^']{0,120}"
     r"['(:]{1,3}(?:!|python3? -m )?pip3? install (?P<requirement>[A-Za-z][\w.-]{0,60})['!).,]{0,3}(?: |\Z)"),
)  # fmt: skip


def failure_of(message: str) -> Failure | None:
    """Return what a message says, wherever it stands in the text; None for a message of another kind."""
    for sign, kind, pattern in _FORMS:
        match = re.search(pattern, message) if sign in message else None
        if match is not None:
            return _failure(kind, message, match.groupdict(""))
    return None


def _failure(kind: str, message: str, groups: Mapping[str, str]) -> Failure:
    columns: dict[str, Any] = defaultdict(str)
    for group, text in groups.items():
        columns[group.rstrip("12")] += text
    inner = failure_of(columns.pop("inner", ""))
    if inner is not None:
        return inner
    columns["requirement"], columns["found"] = columns["requirement"].rstrip(",."), columns["found"].rstrip(".")
    columns["module"] = "numpy" if columns["module"] == "np" else columns["module"]
    failure = Failure(kind, message, **columns | {"not_a_package": bool(columns["not_a_package"])})
    if kind == "keyword":
        # Markdown takes the underscores of __init__ for bold print.
        return failure._replace(callee=re.sub(r"(^|\.)init\Z", r"\1__init__", failure.callee))
    if kind not in ("name", "attribute"):
        return failure
    place = _PLACE.search(message)
    return failure._replace(
        place=place[1] if place else "",
        circular="partially initialized module" in message or "circular import" in message,
        shadowed="consider renaming" in message,
    )


#: The end of a text decides, because Python names the error last: characters, lines, and characters of a line.
_CHARACTERS, _LINES, _LINE = 1 << 20, 20_000, 2_000

_CSI = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]")
#: Colours whose escape character was lost on the way: ``[0;31mImportError[0m``.
_LOST_CSI = re.compile(r"\[[0-9;]{1,8}m")
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_BREAKS = re.compile("\r\n?|[\u2028\u2029\x85]")
#: What stands before a line that another program passed on: launchers of several processes, Ray, vLLM, pytest,
#: containers, mail, and times of day.
_PREFIX = re.compile(
    r"(?:\[(?:rank|default)?\s?\d{1,5}\]:?|\(?[\w.-]{1,60}(?: \w{1,20})? ?pid=[^)]{1,60}\)|E {2,}|>+|[|\u2502]"
    r"|[\w.-]{1,60} +\| |\d{4}-\d\d-\d\d[T ][\d:.,]{5,15}Z?|ERROR \d\d-\d\d [\d:]{8} \[[\w.]{1,60}:\d{1,6}\])\s?"
)
_QUOTES = str.maketrans("\u2018\u2019\u201b`\u00b4\u201c\u201d\uff1a", "'''''\"\":")


def numbered(text: str) -> tuple[int, list[str]]:
    """Return the last lines of a text, at most 20,000, without what is no part of them (indentation stays), behind the
    number (from 1) that the first of them has in the text.

    Quotes that forums and word processors bend are straight again, and backticks are quotes too.
    """
    skipped = text[: max(0, len(text) - _CHARACTERS)].count("\n")
    lines = _BREAKS.sub("\n", text[-_CHARACTERS:]).split("\n")
    plain = [_plain(line[:_LINE]) for line in lines[-_LINES:]]
    return skipped + len(lines) - len(plain) + 1, plain


def visible(line: str) -> str:
    """Return the line without colours, control and hidden characters."""
    if not (line.isascii() and line.isprintable()):
        line = _HIDDEN.sub("", _CSI.sub("", line))
    return _LOST_CSI.sub("", line) if "[" in line else line


def _plain(line: str) -> str:
    line = visible(line.rstrip()).translate(_QUOTES)
    line = line.rstrip("\u2502 ") if line.startswith("\u2502") else line  # a box of rich
    for _ in range(3):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line


class _TracebackFrame(NamedTuple):
    """``path`` as written, ``function`` ("" when it is not said), ``code`` the source line below ("" for none)."""

    path: str
    line: int
    function: str
    code: str

    @property
    def module(self) -> str:
        """Return the dotted module by the file's place below site-packages; "" for a file that lies elsewhere."""
        return module_of(self.path)


class Reading(NamedTuple):
    """``error`` is the name of the exception ("" when it is not said) and ``message`` what it says. ``failure`` is None
    for an error of another kind. ``frames`` lead to it, the last is where it happened; ``statements`` are the modules
    that lines of source import, the outermost first."""

    error: str
    message: str
    failure: Failure | None
    frames: tuple[_TracebackFrame, ...] = ()
    statements: tuple[str, ...] = ()


class _Error(NamedTuple):
    name: str
    message: str
    line: int


_PYTHON = re.compile(r'File "([^"]{1,500})", line (\d{1,7})(?:, in (.{1,200}))?')
_IPYTHON = re.compile(r"(?<![^\"',:])([^\"',:]*):(\d{1,7})(?:, in (.{1,200}))?")
_OLD_IPYTHON = re.compile(r"((?:/|~|[A-Za-z]:\\|<ipython)[^\"']{1,500}?)(?::\d{1,7})? in (<?\w{1,100}>?)(?:\(|\Z)")
_CELL = re.compile(r"Cell In ?\[\d{1,6}\], line (\d{1,7})")
_ARROW = re.compile(r"(?:-+>|\u2771) {0,5}(\d{1,7}) ?(?:\u2502 {0,3})*(.*)")
_FILE = re.compile(r"([\w-]+)\.(?:py|pyx|so)\b")
_NAMED = re.compile(r"(?:Error|Exception|Interrupt|Exit|DistributionNotFound)(?=\s{0,3}:|\Z)")
_SAYS = re.compile(r"\s{0,3}:\s*")
#: What an error's name is made of; Chinese is written next to it without a blank.
_OF_NAMES = frozenset(f"{ascii_letters}{digits}._")
#: Lines of a logger that speak of errors which did not happen: [INFO] without vLLM you will get 'ImportError: ...'.
_REMARK = re.compile(r"\[?(?:INFO|DEBUG)\b|.{0,200}\bError caught was: ")
#: No error has so many lines in front of it that belong to it, and no text so many errors that matter.
_MESSAGE_LINES, _ERRORS = 6, 200
#: What ends a block of Markdown; its backticks are quotes here.
_FENCES = ("'''", "~~~")
_CAUSE = "was the direct cause of the following exception"
_HANDLING = "During handling of the above exception"
#: Errors of what started the failing process, which say nothing themselves.
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "RayTaskError", "SystemExit")
_LAUNCHED = (
    *("ngine core initialization failed", "ngine process failed to start", "EngineCore encountered an issue"),
    "returned non-zero exit status",
)


def read_error(text: str) -> Reading:
    """Read a message or a traceback, whatever stands around it. Takes time in proportion to the text's last MiB."""
    _, lines = numbered(text)
    errors = list(_errors(lines))[-_ERRORS:]
    if not errors:
        return _bare(lines)
    chosen = _that_matters(errors, lines)
    failure = failure_of(chosen.message)
    # The traceback of an error begins behind the error before it.
    before = max((error.line for error in errors if error.line < chosen.line), default=-1)
    heads = (at for at in range(chosen.line - 1, before, -1) if "Traceback (most recent call last)" in lines[at])
    block = lines[next(heads, before + 1) : chosen.line]
    frames = list(_frames_of(block))
    if failure is not None:
        failure = _completed(failure, chosen, frames, block)
    statements = tuple(filter(None, map(imported_in, [frame.code for frame in frames] or lines[: chosen.line])))
    return Reading(chosen.name, chosen.message, failure, tuple(frames), statements)


def _bare(lines: Sequence[str]) -> Reading:
    """Return a text in which no error is named: the last line that reads like the message of one, or its only line."""
    for number in range(len(lines) - 1, max(-1, len(lines) - 1 - _ERRORS * 10), -1):
        both = " ".join(lines[number : number + 2])
        failure = failure_of(lines[number]) or failure_of(both)
        if failure is not None and not _REMARK.match(both) and (failure.kind != "demand" or failure.found):
            statements = tuple(filter(None, map(imported_in, lines[:number])))
            return Reading("", failure.message.strip(), failure, (), statements)
    texts = [line.strip() for line in lines if line.strip()]
    return Reading("", texts[0] if len(texts) == 1 else "", None, tuple(_frames_of(lines)))


def _errors(lines: Sequence[str]) -> Iterator[_Error]:
    for number, line in enumerate(lines):
        for match in _NAMED.finditer(line):
            start = match.start()
            while start > 0 and match.start() - start < 100 and line[start - 1] in _OF_NAMES:
                start -= 1
            name = line[start : match.end()].strip(".")
            last = name.rpartition(".")[2]
            colon = _SAYS.match(line, match.end())
            alone = colon is None and start == 0 and match.end() == len(line)
            if not last[:1].isupper() or last in ("Error", "Exception") or not (colon or alone):
                continue
            if line[max(0, start - 1) : start] == "'" and _REMARK.match(line):
                continue
            yield _Error(last, _message(lines, number, colon.end()) if colon else "", number)
            break


def _message(lines: Sequence[str], number: int, start: int) -> str:
    """Return the rest of the line, with the lines below that belong to it."""
    parts = [lines[number][start:]]
    for line in lines[number + 1 : number + _MESSAGE_LINES]:
        if not line.strip() or line.startswith(_FENCES):
            break
        if "Traceback (most" in line or 'File "' in line or _NAMED.search(line):
            break
        parts.append(line.strip())
    first = parts[0]
    return first if failure_of(first) is not None and "Failed to import" not in first else " ".join(parts).strip()


def _that_matters(errors: Sequence[_Error], lines: Sequence[str]) -> _Error:
    """Return the error to answer."""
    chosen: _Error | None = None
    lazy: _Error | None = None
    last: _Error | None = None
    for place in range(len(errors) - 1, -1, -1):
        error = errors[place]
        failure = failure_of(error.message)
        if failure is not None and failure.kind == "lazy":
            lazy = lazy or error
        elif failure is not None:
            chosen = error
        between = " ".join(lines[errors[place - 1].line + 1 : error.line]) if place else ""
        caused = _CAUSE in between
        handled = _HANDLING in between and chosen is None
        launched = error.name in _LAUNCHERS or any(words in error.message for words in _LAUNCHED)
        last = last or (None if launched else error)
        if not (caused or handled or (chosen is None and launched)):
            break
    return chosen or lazy or last or errors[-1]


def _completed(failure: Failure, error: _Error, frames: Sequence[_TracebackFrame], block: Sequence[str]) -> Failure:
    """Return what older Pythons leave out of the message, from the statement that failed."""
    while len(frames) > 1 and "(*args, **kwargs)" in frames[-1].code and frames[-2].code:
        frames = frames[:-1]  # a decorator hands the call on
    last = next((line.strip() for line in reversed(block) if line.strip()), "")
    arrows = (arrow[2].strip() for line in block if (arrow := _ARROW.match(line.strip())))  # of notebooks
    code = frames[-1].code if frames else next(arrows, "") or last
    if failure.kind == "name" and not failure.module:
        match = re.match(r"\s*from\s+([^\W\d][\w.]{0,200})\s+import", code)
        return failure._replace(module=match[1]) if match else failure
    if failure.kind in ("keyword", "arguments", "missing") and failure.callee in ("__init__", "__new__", ""):
        callees = re.findall(r"(?<!\w)([^\W\d]\w*)\(", code[:500])
        classes = [name for name in callees if name[0].isupper()]
        if not classes and frames and frames[-1].function.isidentifier():
            return failure._replace(callee=frames[-1].function)  # cls(...) or super().__init__(...): who calls it
        callees = classes or callees
        return failure._replace(callee=f"{callees[0]}.{failure.callee or '__init__'}") if callees else failure
    return failure


def module_of(path: str) -> str:
    """Return ``peft.utils.other`` for ``.../site-packages/peft/utils/other.py``, ``peft`` for its ``__init__``."""
    *folders, file = path.replace("\\", "/").split("/")
    below = [place for place, name in enumerate(folders, 1) if name.endswith(("site-packages", "dist-packages"))]
    # Checkouts have no site-packages: they keep a package in src/, or in a folder of its name (verl/verl).
    below = below or [place for place, name in enumerate(folders, 1) if name == "src" and 1 < place < len(folders)]
    lowered = [name.lower() for name in folders]
    below = below or [place for place in range(1, len(folders)) if lowered[place] in lowered[max(place - 2, 1) : place]]
    match = _FILE.match(file) if below else None
    if match is None:
        return ""
    parts = [*folders[below[-1] :], *([] if match[1] == "__init__" else [match[1]])]
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def imported_in(code: str) -> str:
    """Return the absolute module that a line of source imports (from) first; "" for another line."""
    match = re.match(r"\s*(?:from|import)\s+([^\W\d][\w.]{0,200})", code)
    return match[1] if match else ""


def _frames_of(lines: Sequence[str]) -> Iterator[_TracebackFrame]:
    """Yield every frame in the lines, in order: as Python writes them, and as notebooks do."""
    for number, line in enumerate(lines):
        place = _place(line)
        if place is None and " in " in line and (match := _OLD_IPYTHON.match(line)):
            place = match[1].strip(), 0, match[2]
        elif place is None and (match := _CELL.search(line)):
            place = "", int(match[1]), ""
        if place is not None:
            yield _TracebackFrame(*place, _code(lines, number))


def _code(lines: Sequence[str], number: int) -> str:
    """Return the source that failed: the line with an arrow in notebooks, the next line elsewhere."""
    following = lines[number + 1 : number + 12]
    for place, line in enumerate(following):
        arrow = _ARROW.match(line.strip())
        if arrow is not None:
            return arrow[2].strip()
        if "File " in line or (place and not line.strip()):
            break
    first = following[0] if following else ""
    return "" if _place(first) else first.strip()


def _place(line: str) -> tuple[str, int, str] | None:
    """Return the file, the line in it and the function that a line of a traceback names; None for another line."""
    match = _PYTHON.search(line)
    if match is not None:
        return match[1], int(match[2]), (match[3] or "").strip()
    for match in _IPYTHON.finditer(line) if "File " in line else ():
        path = match[1].partition("File ")[2]
        if path[:1].strip():
            return path, int(match[2]), (match[3] or "").strip()
    return None
