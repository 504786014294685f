"""Hold the files of the ledger to their format (``matrices/ledger/README.md``)."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from envdoctor.matrix import Ledger
from envdoctor.matrix.ledger import BASIS, PACKED, places_of, release_rows, shared_texts
from envdoctor.versions import NotARequirement, NotASpecifier, normalise, order, read_requirement, satisfies

__all__ = ["CHANGES", "HISTORIES", "LARGEST", "complaints", "complaints_of_changes", "complaints_of_folder"]

#: Bytes that all files of the ledger may have together (DESIGN §9).
LARGEST = 4_000_000
FLAGS = ("metadata", "read", "yanked")

_NAME = r"[^\W\d]\w*"
_MODULE = rf"{_NAME}(?:\.{_NAME})*"
_PLACE = rf"{_MODULE}:{_MODULE}"
_TAG = r"[\w.]+-[\w.]+-[\w.]+"


def _like(pattern: str) -> Callable[[str], bool]:
    whole = re.compile(rf"(?:{pattern})\Z")
    return lambda text: whole.match(text) is not None


def _is_requirement(text: str) -> bool:
    try:
        return satisfies("1", read_requirement(text).specifiers) is not None
    except (NotARequirement, NotASpecifier):
        return False


def _is_demand(text: str) -> bool:
    requirement, at, module = text.rpartition(" @")
    return bool(at) and _is_requirement(requirement) and _like(_MODULE)(module)


_OF_MODULE = _like(rf"{_MODULE}(?::{_NAME})?")


def _is_take(text: str) -> bool:
    what, _, rest = text.partition(" @")
    place, condition, needs = rest.partition(" if ")
    conditions = not condition or all(map(_is_requirement, needs.split(" and ")))
    return (_OF_MODULE(what) or _is_requirement(what)) and _like(_MODULE)(place) and conditions


_STAR = _like(r"\*")
#: By section: what its subjects and its items look like.
HISTORIES: dict[str, tuple[Callable[[str], bool], Callable[[str], bool]]] = {
    "requires": (_like(r"\*|[a-z][a-z0-9.-]*"), _is_requirement),
    "wheels": (_STAR, _like(rf"sdist|(?:\+[\w.]+ )?{_TAG}")),
    "offers": (_like(rf"\*|{_MODULE}"), _like(_NAME)),
    "open": (_like(rf"{_MODULE}(?:\.\*)?|{_NAME}:(?:\*{_NAME}|{_NAME}\*)"), _like(r"\S.*")),
    "parameters": (_like(_PLACE), _like(rf"\*|\*\*|{_NAME}|&{_PLACE}")),
    "alias": (_like(_PLACE), _like(_PLACE)),
    "calls": (_like(_PLACE), _like(rf"[0-9]+(?: {_NAME}=)*(?: \*\*)?|&{_PLACE}")),
    "takes": (_like(rf"{_MODULE}(?::{_NAME})?"), _is_take),
    "demands": (_STAR, _is_demand),
    "moved": (_like(_PLACE), _like(_PLACE)),
}

#: The same of a file of changes.
CHANGES: dict[str, tuple[Callable[[str], bool], Callable[[str], bool]]] = {
    "offers": (_like(_MODULE), _like(_NAME)),
    "members": (_like(_PLACE), _like(_NAME)),
    "parameters": (_like(_PLACE), _like(rf"{_NAME}!?")),
}


def complaints_of_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the files of a ledger, as (file, complaint)."""
    size = 0
    for path in sorted(path for path in folder.iterdir() if path.name != "README.md"):
        data = path.read_bytes()
        size += len(data)
        if path.name == PACKED:
            found = _shared(folder, data)
        elif path.suffix == ".xz":
            found = _changes(path, data)
        else:
            found = complaints(path.name.removesuffix(".txt"), data)
        yield from ((path.name, problem) for problem in found)
    if size > LARGEST:
        yield "ledger", f"all files together have {size:,} bytes, at most {LARGEST:,} are allowed"


def _shared(folder: Path, data: bytes) -> Iterator[str]:
    """Yield what is wrong with the file that packages share."""
    try:
        found = shared_texts(data)
    except ValueError as error:
        yield f"it cannot be read, or has other packages than its first line names: {error}"
        return
    if list(found) != sorted(found):
        yield "line 1: names of packages in order are expected"
    for name, text in found.items():
        if (folder / f"{name}.txt").exists():
            yield f"{name} has a file of its own too"
        if b"\ndepth\tmetadata\n" not in text:
            yield f"{name}: its files were read: it needs a file of its own"
        yield from (f"{name}: {problem}" for problem in complaints(name, text))


def _changes(path: Path, data: bytes) -> Iterator[str]:
    released = Ledger(path.parent).package(path.stem)
    if released is None:
        yield f"there is no {path.stem}.txt beside it"
        return
    try:
        text = lzma.decompress(data).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        yield f"cannot be read: {error}"
        return
    yield from complaints_of_changes(text, [release.version for release in released.releases])


def complaints_of_changes(text: str, releases: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the text of a file of changes, of a package with these releases."""
    head, *parts = text.split("\n[")
    versions = head.split("\t")
    if not set(versions) <= set(releases):
        yield "line 1: releases of the package are expected"
    if [part.partition("]")[0] for part in parts] != list(CHANGES):
        yield f"the sections are {', '.join(CHANGES)}"
        return
    start = 2
    for section, part in zip(CHANGES, parts, strict=True):
        body = part.split("\n")[1:]
        body = body[:-1] if body[-1:] == [""] else body
        yield from _history(section, start, body, versions, CHANGES[section])
        start += len(body) + 1


def complaints(name: str, data: bytes) -> Iterator[str]:
    """Yield what is wrong with a file of the ledger called ``name``; each begins with the line's number."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        yield f"not UTF-8 text (byte {error.start})"
        return
    if lines.pop() != "":
        yield f"line {len(lines) + 1}: the last line has no end"
    parts: list[tuple[str, int, list[str]]] = [("", 0, [])]
    for number, line in enumerate(lines, 1):
        if line.startswith("["):
            parts.append((line.strip("[]"), number, []))
        else:
            parts[-1][2].append(line)
    expected = ["", "releases", *HISTORIES]
    for earlier, later in pairwise(parts):
        if later[0] not in expected or expected.index(earlier[0]) >= expected.index(later[0]):
            yield f"line {later[1]}: [{later[0]}] is not expected here; the order is {', '.join(expected[1:])}"
            return
    yield from _head(name, parts[0][2])
    if len(parts) < 2 or parts[1][0] != "releases":
        yield "[releases]: missing"
        return
    short = [number for number, line in enumerate(parts[1][2], parts[1][1] + 1) if line.count("\t") < 2]
    if short:
        yield f"line {short[0]}: releases: version, day and Python are expected"
        return
    rows = [[version, day, python, *flags] for version, day, python, flags in release_rows(parts[1][2])]
    for number, row in enumerate(rows, parts[1][1] + 1):
        yield from (f"line {number}: releases: {problem}" for problem in _release(row))
    for row, later_row in pairwise(rows):
        one, other = order(row[0]), order(later_row[0])
        if one is not None and other is not None and one >= other:
            yield f"releases: {later_row[0]} stands behind {row[0]}"
    for section, start, body in parts[2:]:
        flag = BASIS.get(section, "read")
        versions = [row[0] for row in rows if not flag or flag in row[3:]]
        yield from _history(section, start, body, versions, HISTORIES[section])


def _head(name: str, lines: list[str]) -> Iterator[str]:
    wanted = ("envdoctor-ledger", "package", "modules", "depth")
    rows = [line.split("\t") for line in lines]
    if tuple(row[0] for row in rows) != wanted:
        yield f"line 1: the file begins with lines {', '.join(wanted)}"
        return
    if rows[0][1:] != ["1"]:
        yield "line 1: envdoctor-ledger 1 is expected"
    if rows[1][1:] != [name] or normalise(name) != name:
        yield f"line 2: package: the normalised name of the file is expected, not {' '.join(rows[1][1:])}"
    if not all(map(_like(_NAME), rows[2][1:])) or rows[2][1:] != sorted(rows[2][1:]):
        yield "line 3: modules: names of modules in order are expected"
    if rows[3][1:] not in (["names"], ["metadata"]):
        yield "line 4: depth: names or metadata is expected"


def _release(row: list[str]) -> Iterator[str]:
    version = order(row[0])
    if version is None or version.is_pre or "+" in row[0]:
        yield f"{row[0]!r} is no release"
    try:
        date.fromisoformat(row[1])
    except ValueError:
        yield f"{row[1]!r} is no day"
    try:
        satisfies("3.11", row[2] if row[2] != "-" else "")
    except NotASpecifier as error:
        yield str(error)
    if row[3:] != [flag for flag in FLAGS if flag in row]:
        yield f"the flags are {', '.join(FLAGS)}, in this order"


def _history(
    section: str, start: int, lines: list[str], versions: Sequence[str], like: tuple[Callable[[str], bool], ...]
) -> Iterator[str]:
    is_subject, is_item = like
    places, newest = places_of(versions), len(versions) - 1
    before: tuple[Any, ...] = ()
    held: dict[str, int] = {}
    for number, line in enumerate(lines, start + 1):
        subject, _, rest = line.partition("\t")
        span, *items = rest.split("\t")
        since, dots, until = span.partition("..")
        where = f"line {number}: {section}: {subject}"
        if not is_subject(subject):
            yield f"{where}: this is no subject of the section"
        if not dots or since not in places or (until and until not in places):
            yield f"{where}: {span}: a span of releases that the section speaks of is expected"
            continue
        ends = places[since], places[until] if until else newest
        if ends[0] > ends[1] or (until and ends[1] == newest):
            yield f"{where}: {span} ends before it begins, or its end is the last release, which stays unsaid"
        if before and (subject, *ends) <= before:
            yield f"{where}: lines are sorted by subject and span, each once"
        held = held if before and before[0] == subject else {}
        before = (subject, *ends)
        if items != sorted(set(items)):
            yield f"{where}: items are sorted, each once"
        for item in items:
            if not is_item(item):
                yield f"{where}: {item!r} is no item of the section"
            if held.get(item, -1) >= ends[0]:
                yield f"{where}: {item!r} stands in another line for the same releases"
            held[item] = max(held.get(item, -1), ends[1])
