"""Backends that torch loads whenever it is imported: the entry points of the group ``torch.backends``."""

import os
import re
from collections.abc import Iterator, Mapping

from envdoctor.facts.values import Value
from envdoctor.observe.request import Request
from envdoctor.versions.pep440 import is_version, satisfies

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
