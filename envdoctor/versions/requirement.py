"""Read names of distributions; lines of ``Requires-Dist``: the name that is required, the versions it allows, and when
it counts; and from a wheel's name and local version (``2.7.3+cu12torch2.4cxx11abifalse``) the torch and the CUDA that
it was built for. And environment markers (PEP 508), evaluated for the judged interpreter and not for this one."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.system.message import MessageError
from envdoctor.versions.pep440 import NotASpecifier, satisfies

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
    torch = r"(?:(?:torch|pt)[\d.]+)?"
    own = rf"{torch}(?:cu\d{{2,4}}|cpu|xpu|rocm[\d.]+)[._-]?{torch}(?:cxx11\.?abi\w*|with\.pypi\.cudnn)?"
    return not tag or re.fullmatch(own, tag) is not None


_TOKEN = re.compile(
    r"\s*(?:([()])|\"([^\"]*)\"|'([^']*)'|(not\s{1,20}in\b|in\b|===|~=|==|!=|<=|>=|<|>)|([A-Za-z_][\w.]{0,60}))"
)
_VERSIONS = frozenset({"python_version", "python_full_version", "implementation_version"})
#: Spellings of setuptools that predate PEP 508.
_OLD_NAMES = {
    "os.name": "os_name",
    "sys.platform": "sys_platform",
    "platform.version": "platform_version",
    "platform.machine": "platform_machine",
    "platform.python_implementation": "platform_python_implementation",
    "python_implementation": "platform_python_implementation",
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DEEPEST = 50


class NotAMarker(MessageError, ValueError):
    """The text is not a marker by PEP 508."""


def holds(marker: str, values: Mapping[str, str | None]) -> bool | None:
    """Return whether the marker holds; None if a value that decides it is None (unknown).

    ``values`` has every marker variable, ``extra`` included: an empty text, or the required extra. Raises
    :class:`NotAMarker`.
    """
    tokens = _tokens(marker)
    reader = _Reader(tokens, values)
    answer = reader.any_of(0)
    if reader.at != len(tokens):
        raise NotAMarker("{} is no marker", repr(marker[:60]))
    return _by_packaging(marker, values) if reader.beyond else answer


def _tokens(marker: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(marker.rstrip())
    while at < end:
        match = _TOKEN.match(marker, at)
        if match is None:
            raise NotAMarker("{} is no marker", repr(marker[:60]))
        at = match.end()
        bracket, double, single, operator, name = match.groups()
        if bracket:
            tokens.append(("bracket", bracket))
        elif operator:
            tokens.append(("operator", "not in" if operator.startswith("not") else operator))
        elif name in ("and", "or"):
            tokens.append(("word", name))
        elif name:
            tokens.append(("name", _OLD_NAMES.get(name, name)))
        else:
            tokens.append(("text", double if double is not None else single))
    return tokens


class _Reader:
    """A reader of ``or`` over ``and`` over comparisons, with three values. A comparison that is better left to
    packaging sets ``beyond``."""

    def __init__(self, tokens: list[tuple[str, str]], values: Mapping[str, str | None]) -> None:
        self.tokens, self.values = tokens, values
        self.at = 0
        self.beyond = False

    def next(self) -> tuple[str, str]:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")
        self.at += 1
        return token

    def take(self, kind: str, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == (kind, text):
            self.at += 1
            return True
        return False

    def any_of(self, depth: int) -> bool | None:
        answers = [self.all_of(depth)]
        while self.take("word", "or"):
            answers.append(self.all_of(depth))
        return True if True in answers else None if None in answers else False

    def all_of(self, depth: int) -> bool | None:
        answers = [self.comparison(depth)]
        while self.take("word", "and"):
            answers.append(self.comparison(depth))
        return False if False in answers else None if None in answers else True

    def comparison(self, depth: int) -> bool | None:
        if self.take("bracket", "("):
            if depth >= _DEEPEST:
                raise NotAMarker("the marker has too many brackets")
            answer = self.any_of(depth + 1)
            if not self.take("bracket", ")"):
                raise NotAMarker("a bracket of the marker is not closed")
            return answer
        left, operator, right = self.next(), self.next(), self.next()
        if operator[0] != "operator" or {left[0], right[0]} != {"name", "text"}:
            raise NotAMarker("the marker has something that is no comparison")
        name = left[1] if left[0] == "name" else right[1]
        if name not in self.values:
            raise NotAMarker("{} is no marker variable", repr(name[:60]))
        value = self.values[name]
        if value is None:
            return None
        if left[0] == "name":
            return self.compare(name, value, operator[1], right[1])
        if operator[1] in ("in", "not in"):
            return (left[1] in value) is (operator[1] == "in")
        if operator[1] in ("~=", "===") or "*" in left[1]:
            self.beyond = True
            return None
        return self.compare(name, value, _TURNED.get(operator[1], operator[1]), left[1])

    def compare(self, name: str, value: str, operator: str, text: str) -> bool | None:
        if name in _VERSIONS and operator not in ("in", "not in", "==="):
            try:
                return satisfies(value, operator + text)
            except NotASpecifier:
                self.beyond = True
                return None
        if name == "extra":
            value, text = normalise(value), normalise(text)
        if operator in ("==", "!=") and not text[:1].isdigit():
            return (value == text) is (operator == "==")
        if operator in ("in", "not in"):
            return (value in text) is (operator == "in")
        self.beyond = True
        return None


def _by_packaging(marker: str, values: Mapping[str, str | None]) -> bool | None:
    """Let packaging evaluate unusual comparisons, such as of the kernel's release. Return None if a variable is unknown
    here, because packaging would take the value of the interpreter that runs envdoctor."""
    if any(value is None and name in marker for name, value in values.items()):
        return None
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    try:
        variables = {name: value for name, value in values.items() if value is not None}
        return Marker(marker).evaluate(variables)
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        raise NotAMarker("{} is no marker", repr(marker[:60])) from None
