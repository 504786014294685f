"""Ask bounded children, with the one list of how they end without an answer.

for path, answer in zip(paths, ask("envdoctor.source.tree:answer", contents, Limits(seconds=10, mib=512))):
    answer      # what the function returned, as JSON has it, or a Problem
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.system.cache import add_looks
from envdoctor.system.child import Limits, run_child
from envdoctor.system.launcher import MODULE, REFUSED
from envdoctor.system.message import Message

__all__ = ["ChildProblem", "Limits", "ask", "ask_once", "ask_program"]

if TYPE_CHECKING:
    from envdoctor.system.files import Looks

#: The keyword arguments of a function, and perhaps bytes, its first argument.
_Question = tuple[Mapping[str, Any], bytes | None]
#: The words for the end of a child, or of its answer (a status of ``child.py``, or an exception's class), with fields.
_WORDS = {
    "timeout": ("took more than {} s", "seconds"),
    "memory": ("took more than {} MiB", "mib"),
    "output-limit": ("gave too much output",),
    "crash": ("made Python crash",),
    "failed": ("could not be read: envdoctor's reader stopped with an error (please report it)",),
    "unstarted": ("cannot be started: {}", "tail"),
    "unreached": ("came behind files that took all the time",),
    "NeedsPython312": ("needs Python 3.12 or newer (line {}): run envdoctor with such a Python", "line"),
    "SyntaxError": ("is not Python that this interpreter can parse (line {})", "line"),
    "RecursionError": ("is nested too deeply, or took more than {} MiB", "mib"),
    "MemoryError": ("is nested too deeply, or took more than {} MiB", "mib"),
    "NotANotebook": ("is not a notebook (nbformat 3 or 4)",),
    "TooMuch": ("holds too much code",),
}


class ChildProblem(NamedTuple):
    """Why there is no answer: ``kind`` is timeout, memory, output-limit, crash, failed, unreached, unstarted, or the
    name of an exception. ``tail`` is the end of stderr, to be cleaned before it is shown."""

    kind: str
    seconds: float
    mib: int
    tail: str = ""
    line: int = 1

    def clause(self) -> Message:
        """Return the reason, without its subject."""
        words, *fields = _WORDS.get(self.kind, _WORDS["failed"])
        values = self._asdict() | {"seconds": f"{self.seconds:g}"}
        return Message(words, *(values[field] for field in fields))

    def said(self) -> Message:
        """Return the reason as a clause about "it"."""
        return Message("it {}", self.clause())


def ask(function: str, questions: Iterable[_Question], limits: Limits, *, packages: bool = False) -> Iterator[Any]:
    """Yield the answer of one of envdoctor's functions (``module:name``) to each question, or a :class:`ChildProblem`.

    It runs in envdoctor's own interpreter, started without site, user site, ``.pth`` files and PYTHON* variables, and
    neither the working folder nor a script's is on ``sys.path``: only the standard library and envdoctor can be
    imported, and with ``packages`` all that this process can import.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    skipped = (root, os.getcwd())
    folders = [root, *(path for path in sys.path if packages and os.path.isabs(path) and path not in skipped)]
    rest = list(questions)
    deadline = time.monotonic() + max(limits.seconds, limits.in_all)
    problem = None
    while rest and (problem is None or limits.in_all):
        seconds = round(min(limits.seconds, deadline - time.monotonic()), 1)
        if seconds <= 0:
            problem = ChildProblem("unreached", seconds, limits.mib)
            break
        data = b"".join(map(_framed, rest))
        child = run_child([MODULE + function, *folders], limits._replace(seconds=seconds), data)
        lines = child.stdout.split(b"\n")[:-1]
        for received, *problems in map(json.loads, lines):
            if not problems:
                yield received
                continue
            kinds, number = problems
            kind = next((kind for kind in kinds if kind in _WORDS), "failed")
            yield ChildProblem(kind, limits.seconds, limits.mib, kinds[0], number)
        rest = rest[len(lines) :]
        if rest:
            kind = "failed" if child.status == "unstarted" else child.status
            problem = ChildProblem(kind, seconds, limits.mib, child.stderr_tail.strip().rpartition("\n")[2][:200])
            yield problem
            rest = rest[1:]
    yield from [problem] * len(rest)


def ask_once(
    function: str,
    arguments: Mapping[str, Any],
    limits: Limits,
    content: bytes | None = None,
    *,
    packages: bool = False,
    looks: "Looks | None" = None,
) -> Any:
    """Return the answer to one question. ``looks`` gets the files and folders that the child looked at."""
    (answer,) = ask(function, [(arguments, content)], limits, packages=packages)
    if looks is not None and isinstance(answer, ChildProblem):
        looks.failed = True
    elif looks is not None:
        add_looks(looks, answer["files"], answer["folders"])
    return answer


def ask_program(
    argv: Sequence[str], limits: Limits, stdin: bytes = b"", *, environ: Mapping[str, str], cwd: str
) -> tuple[str, ChildProblem | None]:
    """Return the output of one of the user's programs, and the problem if it failed."""
    child = run_child(argv, limits, stdin, confined=False, environ=environ, cwd=cwd)
    problem = ChildProblem(child.status, limits.seconds, limits.mib, child.stderr_tail.removeprefix(REFUSED))
    return child.stdout.decode("utf-8", "replace"), None if child.status == "ok" else problem


def _framed(question: _Question) -> bytes:
    arguments, content = question
    head = json.dumps([arguments, None if content is None else len(content)])
    return b"%b\n%b" % (head.encode(), content or b"")
