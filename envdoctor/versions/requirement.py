"""Read names of distributions; lines of ``Requires-Dist``: the name that is required, the versions it allows, and when
it counts; and from a wheel's name and local version (``2.7.3+cu12torch2.4cxx11abifalse``) the torch and the CUDA that
it was built for."""

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
    """The line is not a requirement by PEP 508."""


class Requirement(NamedTuple):
    """``name`` is valid_name. ``specifiers`` is a specifier set as written, empty when any version will do, or when a
    URL is required: then any installed version meets it. ``marker`` is empty when the requirement always counts.
    ``extras`` are normalised."""

    name: str
    specifiers: str
    marker: str
    extras: tuple[str, ...] = ()


def read_requirement(line: str) -> Requirement:
    """Parse a line. Raises :class:`NotARequirement`; specifiers and marker are checked when they are evaluated."""
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


#: ``nvidia-cudnn-cu12``; from CUDA 13 on some carry no major: ``nvidia-cublas``.
_WHEEL = r"nvidia-([a-z0-9-]{1,60}?)(?:-cu(\d{2}))?\Z"


def component_of(name: str) -> tuple[str, str | None] | None:
    """Return ``cudnn`` and ``12`` for ``nvidia-cudnn-cu12``; None if it is not a wheel of NVIDIA's."""
    match = re.match(_WHEEL, name) if name.startswith("nvidia-") else None
    return (match[1], match[2]) if match else None


# Patterns are compiled when there is a text to match: most runs have none.
#: torch2.8, torch2.8.0, torch28, pt24, pt270: as flash-attn, PyG and OpenRLHF name their wheels.
_TORCH = r"(?<![a-z])(?:torch|pt)(\d)(?:\.(\d{1,2})(?:\.(\d{1,2}))?|(\d{1,2}))(?!\d)"
#: cu12, cu121, cu12.8
_CUDA = r"(?<![a-z])cu(1\d)(?:\.?(\d{1,2}))?(?!\d)"


class BuiltFor(NamedTuple):
    """A torch release (``2.8``, ``2.8.0``), a CUDA version (``12``, ``12.8``), and whether it is a torch with the C++11
    ABI; None where it is not stated. ``says`` names the place that states it."""

    torch: str | None = None
    cuda: str | None = None
    says: str | None = None
    new_abi: bool | None = None


def said_by_tag(tag: str) -> BuiltFor:
    """Read a local version: ``cu12torch2.8cxx11abitrue``, ``pt24cu121``, ``cu130``."""
    tag = tag.lower()
    if tag.startswith("cu") and tag[2:].isdecimal() and tag.isascii() and 4 <= len(tag) <= 6:  # most have no more
        return BuiltFor(None, tag[2:4] + (f".{tag[4:]}" if tag[4:] else ""))
    cuda = re.search(_CUDA, tag) if tag else None
    return BuiltFor(
        _release_in(tag),
        None if cuda is None else cuda[1] + (f".{cuda[2]}" if cuda[2] else ""),
        new_abi="cxx11abitrue" in tag if "cxx11abi" in tag else None,
    )


def _release_in(tag: str) -> str | None:
    match = re.search(_TORCH, tag) if tag else None
    if match is None:
        return None
    major, minor, patch, run = match.groups()
    if run is None:
        return f"{major}.{minor}" + (f".{patch}" if patch else "")
    if len(run) == 1 or major == "1":  # pt24, pt113
        return f"{major}.{run}"
    # pt270 is 2.7.0; pt210 is 2.10 for some builders and 2.1.0 for others.
    return None if run[0] == "1" else f"{major}.{run[0]}.{run[1]}"


def is_own_build(version: str) -> bool:
    """Return whether the project itself built this version: it has no local tag, or one of the project's (``+cu124``,
    ``+cpu``, ``+rocm6.4``). A commit, a vendor or a date means that others built it, against their own torch."""
    tag = version.partition("+")[2].lower()
    own = r"(?:cu\d{2,4}|cpu|xpu|rocm[\d.]+)(?:[._-]?(?:torch|pt)[\d.]+)?(?:cxx11abi\w+)?"
    return not tag or re.fullmatch(own, tag) is not None
