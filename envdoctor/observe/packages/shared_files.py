"""Files that two of NVIDIA's wheels for one component list as theirs: the one that was installed last has them."""

import os
import re
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.matrix.cuda_wheels import component_of
from envdoctor.observe.request import Request
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message

KEPT = True
KEYS = ("shared_file",)
NEEDS = ("dist",)

_RECORD_LIMIT = 4 << 20
_LIBRARY = rb"(?m)^([^\",\r\n]{1,400}\.(?:so(?:\.[\d.]{1,20})?|dll)),"


def observe(request: Request) -> list[Fact]:
    """One item for each component that two wheels bring."""
    wheels: dict[str, dict[str, Mapping[str, Value]]] = {}
    for item in request.items("dist"):
        named = component_of(str(item["name"]))
        if named is not None:
            wheels.setdefault(named[0], {}).setdefault(str(item["name"]), item)
    items = tuple(
        {"component": component, "file": _shared(list(owners.values()), request.place.files)}
        for component, owners in wheels.items()
        if len(owners) > 1
    )
    return [Fact("shared_file", Records(items), Message("installed packages"), "environment")]


def _shared(owners: Sequence[Mapping[str, Value]], files: Files) -> Value:
    seen: set[bytes] = set()
    shared: set[bytes] = set()
    for item in owners:
        try:
            record = files.head(os.path.join(str(item["path"]), "RECORD"), _RECORD_LIMIT)
        except OSError as error:
            return Unknown(Message("RECORD of {} cannot be read: {}", item["name"], because_of(error)))
        names = set(re.findall(_LIBRARY, record))
        files.use(1 + len(names))
        if not names:
            return Unknown(Message("RECORD of {} lists no library", item["name"]))
        shared |= seen & names
        seen |= names
    return min(shared).decode("utf-8", "replace") if shared else ABSENT
