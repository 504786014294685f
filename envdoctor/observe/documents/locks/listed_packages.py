"""poetry.lock, pdm.lock and pylock.toml (PEP 751): lists of packages, each with the marker that says when it counts."""

import re
from typing import Any

from envdoctor.observe.documents.locks.lock import (
    Lock,
    Locked,
    LockEntry,
    Wish,
    items,
    left_out,
    line_of,
    name_of,
    place_in,
    read_packages,
    version_at,
    wheel_of,
    words,
)
from envdoctor.system.message import Message

#: Groups that installers take unless they are told otherwise.
_DEFAULT = ("main", "default", "dev")
_BARE = r"\d[\w.+!]*\Z"


def read(text: str, path: str, wish: Wish) -> Lock:
    """The packages of the default groups and of those that are chosen. Raises :class:`LockError`."""
    standard = "lock-version" in text[: text.find("[[packages]]")] if "[[packages]]" in text else False
    document, entries = read_packages(text, "packages" if standard else "package")
    found: list[Locked] = []
    left: set[str] = set()
    for entry in entries:
        package = entry.table
        groups = words(package.get("groups")) or [str(package.get("category", _DEFAULT[0]))]
        optional = package.get("optional") is True and not _in_extras(document, str(package.get("name")), wish)
        if optional or not set(groups) & {*_DEFAULT, *wish.names}:
            left.update(_extras(document) if optional else groups)
            continue
        found.append(_locked(entry, path))
    notes = (left_out(sorted(left)),) if left else ()
    return Lock(found, None if found else Message("no group of it was chosen"), notes=notes)


def _extras(document: dict[str, Any]) -> dict[str, Any]:
    extras = document.get("extras")
    return extras if isinstance(extras, dict) else {}


def _in_extras(document: dict[str, Any], name: str, wish: Wish) -> bool:
    lists = (_extras(document).get(chosen) for chosen in wish.names)
    return any(re.match(r"[\w.-]*", one)[0] == name for listed in lists for one in words(listed))  # type: ignore[index]


def _locked(entry: LockEntry, path: str) -> Locked:
    package, place = entry.table, place_in(path, entry.line)
    name = name_of(package.get("name"), package)
    marker = package.get("marker", package.get("markers", ""))
    if isinstance(marker, dict):  # of poetry, one for each group
        marker = " or ".join(f"({one})" for one in marker.values() if isinstance(one, str) and one)
    wheels = items(package.get("wheels")) or items([package.get("archive")])
    wheel = wheel_of(str(wheels[0].get("name") or wheels[0].get("url", ""))) if len(wheels) == 1 else None
    requires, declared = _requires(package.get("dependencies"))
    python = package.get("python-versions", package.get("requires_python", package.get("requires-python", "")))
    python = str(python) if re.match(r"[\d.,<>=!~*\s]*\Z", str(python)) and str(python) != "*" else ""
    version, file = version_at(place, package.get("version")), wheel[2] if wheel else ""
    return Locked(name, version, place, str(marker), requires, declared, python, file, rebuilt=entry.rebuilt)


def _requires(given: object) -> tuple[tuple[str, ...] | None, bool]:
    """Requirements by PEP 508, and whether they are those of the metadata: pdm's are, poetry's are rewritten, and
    pylock.toml has none or names."""
    match given:
        case dict():
            return tuple(line for name, one in given.items() for line in _poetry(name, one)), True
        case list() if given and all(isinstance(one, str) for one in given):
            return tuple(given), True
    return None, False


def _poetry(name: str, given: object) -> list[str]:
    if isinstance(given, list):
        return [line for one in given for line in _poetry(name, one)]
    entry: dict[str, Any] = given if isinstance(given, dict) else {"version": given}
    if entry.get("optional") is True:
        return []
    version, markers = str(entry.get("version", "*")).strip(), str(entry.get("markers", ""))
    specifiers = "" if version == "*" else f"=={version}" if re.match(_BARE, version) else version
    return [line_of(name, words(entry.get("extras")), specifiers, markers)]
