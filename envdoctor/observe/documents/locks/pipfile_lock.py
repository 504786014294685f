"""Pipfile.lock: what ``pipenv sync`` would install."""

import re
from typing import Any

from envdoctor.observe.documents.locks.lock import (
    Lock,
    Locked,
    LockError,
    Wish,
    exact,
    name_of,
    place_in,
    read_json,
    version_at,
    wheel_of,
)

__all__ = ["read"]


def read(text: str, path: str, wish: Wish) -> Lock:
    """The packages of ``default``, and of the categories that are chosen (``develop``). Raises :class:`LockError`."""
    document = read_json(text)
    if not isinstance(document, dict) or not isinstance(document.get("default"), dict):
        raise LockError('holds no packages below "default"')
    meta = document.get("_meta")
    wanted = meta.get("requires") if isinstance(meta, dict) else None
    python = wanted.get("python_full_version") or wanted.get("python_version") if isinstance(wanted, dict) else None
    found = []
    for category in ("default", *wish.names):
        packages = document.get(category)
        lines = _lines(text, category)
        for name, entry in packages.items() if isinstance(packages, dict) else ():
            found.append(_locked(name, entry, place_in(path, lines.get(name))))
    known = isinstance(python, str) and re.match(r"3\.\d{1,2}(\.\d{1,3})?\Z", python) is not None
    return Lock(found, python=str(python) if known else None)


def _lines(text: str, category: str) -> dict[str, int]:
    """The lines of the packages of a category, as pipenv lays the file out."""
    found: dict[str, int] = {}
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith('    "'):
            inside = line.startswith(f'    "{category}":')
        elif inside and (match := re.match(r'        "([^"]{1,200})": \{', line)):
            found.setdefault(match[1], number)
    return found


def _locked(name: str, entry: Any, place: str) -> Locked:
    valid = name_of(name, entry)
    wheel = wheel_of(str(entry.get("file", "")))
    version = wheel[1] if wheel else exact(str(entry.get("version", "")))
    return Locked(
        valid, version_at(place, version or None), place, str(entry.get("markers", "")), wheel=wheel[2] if wheel else ""
    )
