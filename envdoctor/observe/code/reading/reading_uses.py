"""What files of Python code use, read by bounded children (``read_uses.py``), and as items of a fact."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.facts.values import ABSENT, Origin, Value
from envdoctor.observe.code.reading.code_files import CodeFile
from envdoctor.sandbox.asking import Limits, Problem, ask
from envdoctor.text.message import Message

_CHILD = "envdoctor.observe.code.reading.read_uses:answer"
_CHILDREN = 4
_MOST_PLACES = 20
CELL = Message("the cell is not Python that this interpreter can parse")


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
) -> Iterator[tuple[CodeFile, Mapping[str, Any] | Message]]:
    """What a child says of each file, with ``definitions`` also what it defines; a clause for one that it could not
    read. A file that ends the child, which has so many ``seconds``, costs that file: the next goes on behind it."""
    limits = Limits(seconds=seconds, mib=1024, output=64 << 20, in_all=_CHILDREN * seconds)
    questions = [
        ({"notebook": file.path.endswith(".ipynb"), "own": sorted(file.own), "definitions": definitions}, content)
        for file, content in contents
    ]
    for (file, _), answer in zip(contents, ask(_CHILD, questions, limits), strict=True):
        yield file, answer.said() if isinstance(answer, Problem) else answer


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
                there.append(Origin(file.shown, *place))
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
