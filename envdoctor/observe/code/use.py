"""The fact ``use``: what the user's own scripts and notebooks take from other distributions.

Bounded children parse them (``reading/read_uses.py``), and look up what they use in the files of an environment on disk
(``reading/lacking.py``); nothing is imported or run. What could not be read is named: a list that may lack uses is
incomplete.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Value
from envdoctor.models.names import printable
from envdoctor.observe.code.reading.code_files import CodeFile, Unread, find_code
from envdoctor.observe.code.reading.installed import completed
from envdoctor.observe.request import Request
from envdoctor.sandbox.child import own_python, run_child
from envdoctor.sandbox.frames import framed
from envdoctor.text.files import Budget, Files, Spent, because_of

__all__ = ["KEYS", "observe"]

KEYS = ("use", "code.files", "code_unread")

_MAX_FILE = {".py": 2 << 20, ".ipynb": 32 << 20}
_MAX_TOTAL = 128 << 20
_SECONDS = 20.0
_MEMORY_MIB = 1024
_OUTPUT = 64 << 20
_CHILDREN = 4
_MOST = 5000
_MOST_PLACES = 20
_ENDINGS = {
    "timeout": f"parsing it takes more than {_SECONDS:g} s",
    "memory": f"parsing it takes more than {_MEMORY_MIB} MiB",
    "output-limit": "it uses too much",
}
_PROBLEMS = {
    "cell": "the cell is not Python that this interpreter can parse",
    "syntax": "it is not Python that this interpreter can parse (line {})",
    "deep": "it is nested too deeply, or too large, to be parsed",
    "large": "it is too large to be parsed safely by Python before 3.11",
    "many": "it uses more names than can be told",
    "text": "it is not Python source text",
    "notebook": "it is not a notebook of nbformat 3 or 4",
}


class _Use(NamedTuple):
    """What tells two items apart."""

    kind: str
    module: str
    name: str
    keyword: str
    parameters: tuple[str, ...]
    guarded: bool
    reach: str


def observe(request: Request) -> list[Fact]:
    """``use``, one item for each thing that is used in one way, with the first places; ``code.files``, what was read;
    ``code_unread``, what was not, each with the reason."""
    known = {row["module"] for row in request.rows("stack-modules", "module")}
    files = Files(budget=Budget(seconds=10.0, size=2 * _MAX_TOTAL))
    code = find_code(request.code, request.cwd, files, known)
    unread = list(code.unread)
    contents: list[tuple[CodeFile, bytes]] = []
    for file in code.files:
        content = _content(file, files, sum(len(content) for _, content in contents))
        if isinstance(content, str):
            unread.append(file.unread(content))
        else:
            contents.append((file, content))
    answers: list[tuple[CodeFile, Mapping[str, Any]]] = []
    for file, answer in _answers(contents):
        if isinstance(answer, str):
            unread.append(file.unread(answer))
            continue
        answers.append((file, answer))
        unread += [file.unread(_PROBLEMS["cell"], place) for place in answer["unread"]]
    items = tuple(_items(answers))
    if len(items) > _MOST:
        unread.append(Unread(printable(", ".join(request.code)), f"it uses {len(items)} things; {_MOST} are told"))
    why = f"{unread[0].place}: {unread[0].reason}" if unread else None
    values: tuple[Value, ...] = (
        Records(completed(items[:_MOST], request), why),
        tuple(file.shown for file, _ in answers),
        Records(tuple(one._asdict() for one in unread)),
    )
    origin = ", ".join(printable(path) for path in request.code)
    return [Fact(key, value, origin, "code") for key, value in zip(KEYS, values, strict=True)]


def _content(file: CodeFile, files: Files, before: int) -> bytes | str:
    """The content of a file, or a clause about why it was not read."""
    limit = _MAX_FILE[".ipynb" if file.path.endswith(".ipynb") else ".py"]
    try:
        content = files.whole(file.path, limit)
    except (OSError, Spent) as error:
        return because_of(error)
    return content if before + len(content) <= _MAX_TOTAL else f"more than {_MAX_TOTAL >> 20} MiB of code together"


def _answers(
    contents: Sequence[tuple[CodeFile, bytes]],
) -> Iterator[tuple[CodeFile, Mapping[str, Any] | str]]:
    """What the child says of each file; a clause for one that it could not read. A file that ends the child costs that
    file: the next child goes on behind it."""
    waiting = list(contents)
    for _ in range(_CHILDREN):
        if not waiting:
            return
        head = [(file.path.endswith(".ipynb"), sorted(file.own)) for file, _ in waiting]
        child = run_child(
            own_python("envdoctor.observe.code.reading.read_uses"),
            framed([json.dumps(head).encode(), *(content for _, content in waiting)]),
            seconds=_SECONDS,
            memory_mib=_MEMORY_MIB,
            output_limit=_OUTPUT,
        )
        *lines, _ = child.stdout.split(b"\n")
        for (file, _), line in zip(waiting, lines, strict=False):
            answer = json.loads(line)
            problem = _PROBLEMS[answer["problem"]].format(answer["place"]) if "problem" in answer else None
            yield file, problem or answer
        waiting = waiting[len(lines) :]
        if waiting:
            yield waiting[0][0], _ENDINGS.get(child.status, "the child that parses it failed")
            waiting = waiting[1:]
    for file, _ in waiting:
        yield file, "other files took too long, or too much memory"


def _items(answers: Iterable[tuple[CodeFile, Mapping[str, Any]]]) -> Iterator[Mapping[str, Value]]:
    """The uses of all files together: what one file defines, another may call, or provide."""
    answers = list(answers)
    provided = {name for _, answer in answers for name in answer["provided"]}
    mentioned: dict[str, set[str]] = {}
    for _, answer in answers:
        for name, outer in answer["mentioned"]:
            mentioned.setdefault(name, set()).add(outer)
    places: dict[_Use, list[str]] = {}
    for file, answer in answers:
        for kind, module, name, keyword, parameters, guarded, within, branch, place in answer["uses"]:
            called = not within or bool(mentioned.get(within, set()) - {within})
            reach = ("branch" if branch else "start") if not within else "call" if called else "unused"
            dotted = f"{module}.{name}" if name else module
            stands = guarded or any(dotted == one or dotted.startswith(f"{one}.") for one in provided)
            use = _Use(kind, module, name, keyword, tuple(parameters), stands, reach)
            there = places.setdefault(use, [])
            if len(there) < _MOST_PLACES:
                there.append(f"{file.shown}:{place}")
    for use, where in places.items():
        yield {
            "kind": use.kind,
            "module": use.module,
            "name": use.name or ABSENT,
            "keyword": use.keyword or ABSENT,
            "parameters": use.parameters if use.kind == "override" else ABSENT,
            "guarded": use.guarded,
            "reach": use.reach,
            "place": tuple(dict.fromkeys(where)),
        }
