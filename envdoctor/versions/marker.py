"""Environment markers of requirements (PEP 508), evaluated for the judged interpreter and not for this one."""

import re
from collections.abc import Mapping

from envdoctor.system.message import MessageError
from envdoctor.versions.pep440 import NotASpecifier, satisfies
from envdoctor.versions.requirement import normalise

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
