"""What of the code's uses the installed files lack: asked of a bounded child that parses these files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from envdoctor.facts.values import ABSENT, Records, Value
from envdoctor.observe.request import Request
from envdoctor.sandbox.asking import Limits, Problem, ask
from envdoctor.versions.names import normalise

_CHILD = "envdoctor.observe.code.reading.lacking:answer"
_LIMITS = Limits(seconds=40.0, mib=1536)
_COLUMNS = ("kind", "module", "name", "keyword", "parameters")


def completed(items: Sequence[Mapping[str, Value]], request: Request) -> tuple[Mapping[str, Value], ...]:
    """The items of ``use`` with ``package`` and ``lacks``, where the environment lies on disk: what is missing, absent
    when nothing is; left out for what cannot be told."""
    dists = request.value("dist")
    asked = [item for item in items if item["guarded"] is not True]
    if request.layout is None or not isinstance(dists, Records) or not asked:
        return tuple(items)
    place = request.place
    complete = dists.incomplete is None and place.incomplete is None and not place.has_finder
    known = {"root": place.files.root, "folders": list(place.site_packages), "complete": complete}
    uses = [{"use": [_plain(item[column]) for column in _COLUMNS], **known} for item in asked]
    answers = dict(zip(map(id, asked), ask(_CHILD, [(use, None) for use in uses], _LIMITS), strict=True))
    owner = _owners(request, {str(one["name"]) for one in dists})
    return tuple(_answered(item, answers.get(id(item)), owner) for item in items)


def _answered(
    item: Mapping[str, Value], answer: str | bool | Problem | None, owner: Callable[[str], str | None]
) -> Mapping[str, Value]:
    package = owner(str(item["module"]).partition(".")[0])
    if answer is None or isinstance(answer, Problem):
        return item
    return {**item, "package": package or ABSENT, "lacks": answer if isinstance(answer, str) else ABSENT}


def _owners(request: Request, installed: Collection[str]) -> Callable[[str], str | None]:
    """Which distribution a top-level module comes from, as far as tables or its own name tell."""
    named = {row["module"]: row["name"] for row in request.rows("module-distributions")}
    named |= {row["module"]: row["name"] for row in request.rows("stack-modules", "module")}

    def owner(top: str) -> str | None:
        return named.get(top) or next((name for name in (normalise(top),) if name in installed), None)

    return owner


def _plain(cell: Value) -> Any:
    return "" if cell is ABSENT else list(cell) if isinstance(cell, tuple) else cell
