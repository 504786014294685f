"""What shows only between releases: names that went to another module, modules that are served without a file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["moved", "served"]


def moved(found: Sequence[Mapping[str, Any]]) -> list[dict[str, set[str]]]:
    """Return for each release where the functions and classes are that an earlier one had in a module that no longer
    offers them. It counts if one module alone defined such a name, and one other alone defines it now."""
    moves: list[dict[str, set[str]]] = []
    standing: dict[str, str] = {}
    for place, release in enumerate(found):
        offers = release["sections"]["offers"]
        homes = _homes(release["defined"])
        standing = {
            old: new for old, new in standing.items() if _is_offered(offers, new) and not _is_offered(offers, old)
        }
        if place:
            before = found[place - 1]
            earlier = _homes(before["defined"])
            for module, names in before["defined"].items():
                for name in names:
                    new = homes.get(name, set())
                    if name not in offers.get(module, ()) and len(new) == len(earlier[name]) == 1:
                        standing[f"{module}:{name}"] = f"{min(new)}:{name}"
        moves.append({old: {new} for old, new in standing.items()})
    return moves


def _homes(defined: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    homes: dict[str, set[str]] = defaultdict(set)
    for module, names in defined.items():
        for name in names:
            homes[name].add(module)
    return homes


def _is_offered(offers: Mapping[str, Sequence[str]], place: str) -> bool:
    module, _, name = place.partition(":")
    return name in offers.get(module, ())


def served(found: Sequence[Mapping[str, Any]]) -> Iterator[set[str]]:
    """Yield for each release the modules of others that it has no file of, but may serve by a finder of its own."""
    known = {module for release in found for module in release["sections"]["offers"] if module != "*"}
    for release in found:
        texts = release["served"]
        missing = known - release["sections"]["offers"].keys() if texts else set()
        yield {module for module in missing if any(_names(text, module) for text in texts)}


def _names(text: str, module: str) -> bool:
    """Return whether the text of a finder may be about a module: its name, its end, a pattern, or a piece of one."""
    if text in (module, module.rpartition(".")[2]):
        return True
    return "\\" in text and any(piece in module for piece in re.findall(r"\w{8,}_", text))
