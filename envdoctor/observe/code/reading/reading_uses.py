"""What files of Python code use, read by bounded children (``read_uses.py``), as items of a fact; and what of it the
installed files lack."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor.facts.values import ABSENT, Origin, Records, Value
from envdoctor.observe.code.reading.code_files import CodeFile
from envdoctor.observe.request import Request
from envdoctor.system.asking import ChildProblem, Limits, ask
from envdoctor.system.message import Message
from envdoctor.versions.requirement import normalise

_CHILD = "envdoctor.observe.code.reading.read_uses:answer"
_LACKING = "envdoctor.observe.code.reading.lacking:answer"
_LIMITS = Limits(seconds=40.0, mib=1536)
_COLUMNS = ("kind", "module", "name", "keyword", "parameters")
_CHILDREN = 4
_MOST_PLACES = 20
CELL = Message("the cell is not Python that this interpreter can parse")


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
        yield file, answer.said() if isinstance(answer, ChildProblem) else answer


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
    places: dict[tuple[Any, ...], list[str]] = {}
    for file, answer in answers:
        for kind, module, name, keyword, parameters, guarded, within, branch, place in answer["uses"]:
            reached = not within or bool(mentioned.get(within, set()) - {within})
            reach = ("branch" if branch else "start") if not within else "call" if reached else "unused"
            dotted = f"{module}.{name}" if name else module
            stands = guarded or any(dotted == one or dotted.startswith(f"{one}.") for one in provided)
            there = places.setdefault((kind, module, name, keyword, tuple(parameters), stands, reach), [])
            if len(there) < _MOST_PLACES:
                there.append(Origin(file.shown, *place))
    for (kind, module, name, keyword, parameters, guarded, reach), where in places.items():
        yield {
            "kind": kind,
            "module": module,
            "name": name or ABSENT,
            "keyword": keyword or ABSENT,
            "parameters": parameters if kind == "override" else ABSENT,
            "guarded": guarded,
            "reach": reach,
            "place": tuple(dict.fromkeys(where)),
        }


def completed(items: Sequence[Mapping[str, Value]], request: Request) -> tuple[Mapping[str, Value], ...]:
    """The items of ``use`` with ``package`` and ``lacks``, where the environment lies on disk: what is missing in its
    files, by a bounded child (``lacking.py``), absent when nothing is; left out for what cannot be told."""
    dists = request.value("dist")
    asked = [item for item in items if item["guarded"] is not True]
    if request.layout is None or not isinstance(dists, Records) or not asked:
        return tuple(items)
    place = request.place
    complete = dists.incomplete is None and place.incomplete is None and not place.has_finder
    known = {"root": place.files.root, "folders": list(place.site_packages), "complete": complete}
    uses = [({"use": [_plain(item[column]) for column in _COLUMNS], **known}, None) for item in asked]
    told = dict(zip(map(id, asked), ask(_LACKING, uses, _LIMITS), strict=True))
    installed = {str(one["name"]) for one in dists}
    owners = {row["module"]: row["name"] for row in request.rows("module-distributions")}
    owners |= {row["module"]: row["name"] for row in request.rows("stack-modules", "module")}
    found = []
    for item in items:
        lacks, top = told.get(id(item)), str(item["module"]).partition(".")[0]
        if lacks is not None and not isinstance(lacks, ChildProblem):
            package = owners.get(top) or (normalise(top) if normalise(top) in installed else ABSENT)
            item = {**item, "package": package, "lacks": lacks if isinstance(lacks, str) else ABSENT}
        found.append(item)
    return tuple(found)


def _plain(cell: Value) -> Any:
    return "" if cell is ABSENT else list(cell) if isinstance(cell, tuple) else cell
