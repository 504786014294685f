"""What files of Python code use, read by bounded children (``read_uses.py``), and as items of a fact."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Value
from envdoctor.observe.code.reading.code_files import CodeFile
from envdoctor.sandbox.child import own_python, run_child
from envdoctor.sandbox.frames import framed

_MEMORY_MIB = 1024
_OUTPUT = 64 << 20
_CHILDREN = 4
_MOST_PLACES = 20
_ENDINGS = {
    "timeout": "parsing it takes too long",
    "memory": f"parsing it takes more than {_MEMORY_MIB} MiB",
    "output-limit": "it uses too much",
}
CELL = "the cell is not Python that this interpreter can parse"
_PROBLEMS = {
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


def answers(
    contents: Sequence[tuple[CodeFile, bytes]], *, definitions: bool = False, seconds: float = 20.0
) -> Iterator[tuple[CodeFile, Mapping[str, Any] | str]]:
    """What a child says of each file, with ``definitions`` also what it defines; a clause for one that it could not
    read. A file that ends the child, which has so many ``seconds``, costs that file: the next goes on behind it."""
    waiting = list(contents)
    for _ in range(_CHILDREN):
        if not waiting:
            return
        head = [(file.path.endswith(".ipynb"), sorted(file.own), definitions) for file, _ in waiting]
        child = run_child(
            own_python("envdoctor.observe.code.reading.read_uses"),
            framed([json.dumps(head).encode(), *(content for _, content in waiting)]),
            seconds=seconds,
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


def items(
    answers: Iterable[tuple[CodeFile, Mapping[str, Any]]], called: Iterable[str] = ()
) -> Iterator[Mapping[str, Value]]:
    """The uses of all files together: what one file defines, another may call, or provide. ``called`` are functions and
    classes that somebody else calls."""
    answers = list(answers)
    provided = {name for _, answer in answers for name in answer["provided"]}
    mentioned: dict[str, set[str]] = {name: {""} for name in called}
    for _, answer in answers:
        for name, outer in answer["mentioned"]:
            mentioned.setdefault(name, set()).add(outer)
    places: dict[_Use, list[str]] = {}
    for file, answer in answers:
        for kind, module, name, keyword, parameters, guarded, within, branch, place in answer["uses"]:
            reached = not within or bool(mentioned.get(within, set()) - {within})
            reach = ("branch" if branch else "start") if not within else "call" if reached else "unused"
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
