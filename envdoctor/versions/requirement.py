"""One line of ``Requires-Dist``: the name it asks for, the versions it allows, and when it counts."""

import re
from typing import NamedTuple

from envdoctor.system.message import MessageError

#: Names by PEP 508. The limit is ours: the longest name on PyPI has fewer than 100 characters.
_WHOLE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,212}[A-Za-z0-9])?\Z")
_PLAIN = re.compile(r"[a-z0-9]{1,100}(?:-[a-z0-9]{1,50}){0,2}\Z")
_SEPARATORS = re.compile(r"[-_.]+")


def normalise(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    if "_" in name or "." in name or "--" in name:  # files with a million names are read too
        name = _SEPARATORS.sub("-", name)
    return name.lower()


def valid_name(name: str) -> str | None:
    """Return the normalised name, or None if it is not a valid name of a distribution."""
    if _PLAIN.match(name):
        return name
    return normalise(name) if _WHOLE_NAME.match(name) else None


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST = 4096


class NotARequirement(MessageError, ValueError):
    """The line is no requirement by PEP 508."""


class Requirement(NamedTuple):
    """``name`` is valid_name. ``specifiers`` is a specifier set as written, empty when any version will do or when a
    URL is asked for: what is installed then counts. ``marker`` is empty when the requirement always counts. ``extras``
    are normalised."""

    name: str
    specifiers: str
    marker: str
    extras: tuple[str, ...] = ()


def read_requirement(line: str) -> Requirement:
    """Take a line apart. Raises :class:`NotARequirement`; specifiers and marker are checked by who evaluates them."""
    if len(line) > _LONGEST:
        raise NotARequirement("{}… has {} characters", repr(line[:60]), len(line))
    line = line.strip()
    match = _NAME.match(line)
    name = valid_name(match[0]) if match is not None else None
    if match is None or name is None:
        raise NotARequirement("{} starts with no name", repr(line[:60]))
    rest = line[match.end() :].lstrip()
    extras: tuple[str, ...] = ()
    if rest.startswith("["):
        inside, closed, rest = rest[1:].partition("]")
        if not closed:
            raise NotARequirement("{} does not close its extras", repr(line[:60]))
        extras = tuple(normalise(extra.strip()) for extra in inside.split(",") if extra.strip())
        rest = rest.lstrip()
    if rest.startswith("@"):
        # A URL may hold a semicolon; the one of the marker stands behind a blank.
        url, _, behind = rest[1:].lstrip().partition(" ")
        behind = behind.lstrip()
        if not url or (behind and not behind.startswith(";")):
            raise NotARequirement("{} has no URL, or something behind it", repr(line[:60]))
        return Requirement(name, "", behind[1:].strip(), extras)
    specifiers, semicolon, marker = rest.partition(";")
    specifiers, marker = specifiers.strip(), marker.strip()
    if specifiers.startswith("("):
        if not specifiers.endswith(")"):
            raise NotARequirement("{} does not close its bracket", repr(line[:60]))
        specifiers = specifiers[1:-1].strip()
    if semicolon and not marker:
        raise NotARequirement("{} ends where its marker should be", repr(line[:60]))
    return Requirement(name, specifiers, marker, extras)
