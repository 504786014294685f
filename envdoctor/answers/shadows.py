"""Signs in a traceback that something stands in front of the installed package: the user's file, an empty folder."""

from __future__ import annotations

import re

from envdoctor.answers.situation import Situation
from envdoctor.tracebacks.frames import imported_in, module_of
from envdoctor.tracebacks.reading import Reading

_FILE = re.compile(r"(?:.*[/\\])?(\w{1,100})(?:[/\\]__init__)?\.py\Z")


def shadow_of(situation: Situation, reading: Reading) -> tuple[str, str] | None:
    """What the text shows: ``shadow`` and the file that should be renamed, ``not-a-package`` and the module that
    another file of its name hides, ``no-files`` and the folder's package of which no file was found."""
    failure = reading.failure
    if failure is None or failure.kind not in ("module", "name", "attribute"):
        return None
    top = failure.module.partition(".")[0]
    if failure.place == "unknown location" and situation.ledger.owner(top) and "." not in failure.module:
        return "no-files", top
    if failure.place and not module_of(failure.place) and _stem(failure.place) == top:
        single = not re.search(r"__init__\.py\Z", failure.place)
        if failure.shadowed or failure.circular or (single and situation.ledger.owner(top)):
            return "shadow", failure.place
    for before, frame in zip(reading.frames, reading.frames[1:], strict=False):
        asked = imported_in(before.code).partition(".")[0]
        if asked and asked == _stem(frame.path) and not module_of(frame.path) and _is_library(before.path):
            return "shadow", frame.path
    if failure.not_a_package and failure.module.count(".") == 1 and situation.ledger.owner(top):
        return "not-a-package", top
    return None


def _stem(path: str) -> str:
    found = _FILE.match(path)
    return found[1] if found else ""


def _is_library(path: str) -> bool:
    return bool(module_of(path)) or re.search(r"[/\\]python3?(?:\.\d+)?[/\\]", path) is not None
