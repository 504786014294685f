"""What packages require, directly or not, of what is installed."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from envdoctor.facts.values import Value
from envdoctor.observe.request import Request
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.requirement import normalise

_LIMIT = 1 << 16
_SINCE = ">=2.5.0"


def torch_backends(request: Request) -> Iterator[tuple[Mapping[str, Value], str]]:
    """Yield the items of ``dist`` that bring backends, each with its module; none where torch does not load them."""
    active = [one for one in request.items("dist") if one.get("active") is True and one.get("kind") != "conda"]
    torch = next((str(one["version"]) for one in active if one["name"] == "torch"), "")
    if not is_version(torch) or not satisfies(torch, _SINCE):
        return
    for item in active:
        text = request.place.files.text_or_empty(os.path.join(str(item["path"]), "entry_points.txt"), _LIMIT)
        group = re.search(r"(?m)^\[torch\.backends\][ \t]*$([^\[]*)", text)
        lines = group[1].splitlines() if group else ()
        for line in lines:
            match = re.match(r"[^=#;]+=\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(?:[:\[]|$)", line)
            if match:
                yield item, match[1]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def required(item: Mapping[str, Value]) -> Iterator[str]:
    """Yield the names of what an item of ``dist`` requires, under any condition."""
    requires = item.get("requires")
    for line in requires if isinstance(requires, tuple) else ():
        match = _NAME.match(line)
        if match:
            yield normalise(match[0])


def needed(installed: Mapping[str, Mapping[str, Value]], names: Iterable[str]) -> list[str]:
    """Return the ``names`` that are ``installed`` (items of ``dist`` by name), and what they require of it."""
    wanted = [name for name in names if name in installed]
    seen = set(wanted)
    for name in wanted:  # it grows
        for other in required(installed[name]):
            if other in installed and other not in seen:
                seen.add(other)
                wanted.append(other)
    return wanted
