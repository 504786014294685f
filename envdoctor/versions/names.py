"""Names of distributions, as PEP 503 and PEP 508 have them."""

from __future__ import annotations

import re

#: Names by PEP 508. The limit is ours: the longest name on PyPI has fewer than 100 characters.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,212}[A-Za-z0-9])?\Z")
_PLAIN = re.compile(r"[a-z0-9]{1,100}(?:-[a-z0-9]{1,50}){0,2}\Z")
_SEPARATORS = re.compile(r"[-_.]+")


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    if "_" in name or "." in name or "--" in name:  # files with a million names are read too
        name = _SEPARATORS.sub("-", name)
    return name.lower()


def valid_name(name: str) -> str | None:
    """The normalised name, or None when it is no valid name of a distribution."""
    if _PLAIN.match(name):
        return name
    return normalise(name) if _NAME.match(name) else None
