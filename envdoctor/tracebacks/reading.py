"""A pasted text as one failure: the error that matters among those it holds, and who was asking.

The last error is the one that ended the run. It is looked behind when it only passes on what happened before: errors of
launchers, errors that a package raises from another one, and the lines of lazy packages.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.tracebacks.failure import Failure, failure_of
from envdoctor.tracebacks.frames import Frame, frames_of, imported_in, pointed_at
from envdoctor.tracebacks.pasted import lines_of


class Reading(NamedTuple):
    """``error`` is the name of the exception ("" when it is not said) and ``message`` what it says. ``failure`` is None
    for an error of another kind. ``frames`` lead to it, the last is where it happened; ``statements`` are the modules
    that lines of source import, the outermost first. ``passed_on`` is the message that stood for it at the end."""

    error: str
    message: str
    failure: Failure | None
    frames: tuple[Frame, ...] = ()
    statements: tuple[str, ...] = ()
    passed_on: str = ""


class _Error(NamedTuple):
    name: str
    message: str
    line: int


_NAMED = re.compile(r"(?:Error|Exception|Interrupt|Exit|DistributionNotFound)(?=\s{0,3}:|\Z)")
_SAYS = re.compile(r"\s{0,3}:\s*")
#: Lines of a logger that speak of errors which did not happen: [INFO] without vLLM you will get 'ImportError: ...'.
_REMARK = re.compile(r"\[?(?:INFO|DEBUG)\b")
#: No error has so many lines in front of it that belong to it, and no text so many errors that matter.
_MESSAGE_LINES, _ERRORS = 6, 200
_CAUSE = "was the direct cause of the following exception"
_HANDLING = "During handling of the above exception"
#: Errors of what started the failing process, which say nothing themselves.
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "RayTaskError", "SystemExit")
_LAUNCHED = ("ngine core initialization failed", "ngine process failed to start", "returned non-zero exit status")


def read_error(text: str) -> Reading:
    """Read a message or a traceback, whatever stands around it. Takes time in proportion to the text's last MiB."""
    lines = lines_of(text)
    errors = list(_errors(lines))[-_ERRORS:]
    if not errors:
        return _bare(lines)
    chosen, passed_on = _that_matters(errors, lines)
    failure = failure_of(chosen.message)
    start = _start_of(chosen.line, errors, lines)
    block = lines[start : chosen.line]
    frames = list(frames_of(block))
    if failure is not None:
        failure = _completed(failure, chosen, frames, block)
    statements = tuple(filter(None, map(imported_in, [frame.code for frame in frames] or lines[: chosen.line])))
    return Reading(chosen.name, chosen.message, failure, tuple(frames), statements, passed_on)


def _bare(lines: Sequence[str]) -> Reading:
    """A text in which no error is named: the last line that reads like the message of one."""
    for number in range(len(lines) - 1, max(-1, len(lines) - 1 - _ERRORS * 10), -1):
        failure = failure_of(lines[number]) or failure_of(" ".join(lines[number : number + 2]))
        if failure is not None and not _REMARK.match(lines[number]) and (failure.kind != "demand" or failure.found):
            statements = tuple(filter(None, map(imported_in, lines[:number])))
            return Reading("", failure.message.strip(), failure, (), statements)
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return Reading("", said, None)


def _errors(lines: Sequence[str]) -> Iterator[_Error]:
    for number, line in enumerate(lines):
        for found in _NAMED.finditer(line):
            start = found.start()
            while start > 0 and found.start() - start < 100 and (line[start - 1].isalnum() or line[start - 1] in "._"):
                start -= 1
            name = line[start : found.end()].strip(".")
            last = name.rpartition(".")[2]
            said = _SAYS.match(line, found.end())
            alone = said is None and start == 0 and found.end() == len(line)
            if not last[:1].isupper() or last in ("Error", "Exception") or not (said or alone):
                continue
            if line[max(0, start - 1) : start] == "'" and _REMARK.match(line):
                continue
            yield _Error(last, _message(lines, number, said.end()) if said else "", number)
            break


def _message(lines: Sequence[str], number: int, start: int) -> str:
    """The rest of the line, with the lines below that belong to it."""
    said = [lines[number][start:]]
    for line in lines[number + 1 : number + _MESSAGE_LINES]:
        if not line.strip() or "Traceback (most" in line or 'File "' in line or _NAMED.search(line):
            break
        said.append(line.strip())
    first = said[0]
    return first if failure_of(first) is not None and "Failed to import" not in first else " ".join(said).strip()


def _that_matters(errors: Sequence[_Error], lines: Sequence[str]) -> tuple[_Error, str]:
    """The error to answer, and the message that stands for it at the end of the text."""
    last = errors[-1]
    chosen: _Error | None = None
    lazy: _Error | None = None
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
        if not (caused or handled or (chosen is None and _is_launcher(error))):
            break
    chosen = chosen or lazy or last
    return chosen, last.message if chosen is not last else ""


def _is_launcher(error: _Error) -> bool:
    return error.name in _LAUNCHERS or any(words in error.message for words in _LAUNCHED)


def _start_of(line: int, errors: Sequence[_Error], lines: Sequence[str]) -> int:
    """Where the traceback of an error begins: behind the error before it."""
    before = max((error.line for error in errors if error.line < line), default=-1)
    for number in range(line - 1, before, -1):
        if "Traceback (most recent call last)" in lines[number]:
            return number
    return before + 1


def _completed(failure: Failure, error: _Error, frames: Sequence[Frame], block: Sequence[str]) -> Failure:
    """What older Pythons leave out of the message, from the statement that failed."""
    while len(frames) > 1 and "(*args, **kwargs)" in frames[-1].code and frames[-2].code:
        frames = frames[:-1]  # a decorator hands the call on
    last = next((line.strip() for line in reversed(block) if line.strip()), "")
    code = frames[-1].code if frames else pointed_at(block) or last
    if failure.kind == "name" and not failure.module:
        found = re.match(r"\s*from\s+([^\W\d][\w.]{0,200})\s+import", code)
        return failure._replace(module=found[1]) if found else failure
    if failure.kind in ("keyword", "arguments", "missing") and failure.callee in ("__init__", "__new__", ""):
        called = re.findall(r"(?<!\w)([^\W\d]\w*)\(", code[:500])
        named = [name for name in called if name[0].isupper()]
        if not named and frames and frames[-1].function.isidentifier():
            return failure._replace(callee=frames[-1].function)  # cls(...) or super().__init__(...): who calls it
        called = named or called
        return failure._replace(callee=f"{called[0]}.{failure.callee or '__init__'}") if called else failure
    return failure
