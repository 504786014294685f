"""What packages require, directly or not, of what is installed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from envdoctor.facts.values import Value
from envdoctor.versions.names import normalise

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def required(item: Mapping[str, Value]) -> Iterator[str]:
    """The names of what an item of ``dist`` requires, under any condition."""
    requires = item.get("requires")
    for line in requires if isinstance(requires, tuple) else ():
        match = _NAME.match(line)
        if match:
            yield normalise(match[0])


def needed(installed: Mapping[str, Mapping[str, Value]], names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are ``installed`` (items of ``dist`` by name), and what they require of them, directly or
    not."""
    wanted = [name for name in names if name in installed]
    seen = set(wanted)
    for name in wanted:  # it grows
        for other in required(installed[name]):
            if other in installed and other not in seen:
                seen.add(other)
                wanted.append(other)
    return wanted
