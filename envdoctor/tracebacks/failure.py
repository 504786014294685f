"""One message of an error as what was asked for and not there: a module, a name, an attribute, a keyword."""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Failure(NamedTuple):
    """What a message says, in the words of Python's own messages.

    ``kind`` is

    * ``module``: ``module`` cannot be found (``not_a_package``: because the module before its last dot is a file);
    * ``name``: ``name`` cannot be imported from ``module``, which is empty where older Pythons do not say it;
    * ``attribute``: the module ``module`` has no ``name``;
    * ``member``: the class ``callee`` has no ``name``;
    * ``keyword``: ``callee`` (``TrainingArguments.__init__``) takes no argument ``name``;
    * ``arguments``: ``callee`` was given another number of positional arguments than it takes;
    * ``missing``: ``callee`` asks for an argument ``name`` that it was not given;
    * ``demand``: the code asks for ``requirement``; ``found`` is the version that it saw, where it says so;
    * ``lazy``: ``name`` (or ``module``) of a package that loads on demand failed, for a reason told elsewhere.

    ``place`` is the file that the message names. ``circular``: Python was still executing that module. ``shadowed``:
    Python itself suspects a file of the user's own.
    """

    kind: str
    message: str
    module: str = ""
    name: str = ""
    callee: str = ""
    place: str = ""
    requirement: str = ""
    found: str = ""
    circular: bool = False
    shadowed: bool = False
    not_a_package: bool = False


_DOTTED = r"[^\W\d]\w{0,99}(?:\.\w{1,100}){0,30}"
_NAME = r"[^\W\d]\w{0,199}"
_PLACE = re.compile(r"\(((?:/|~|[A-Za-z]:\\|\.{1,2}/)[^()]{1,500}|unknown location)\)")
#: Requirements that libraries check themselves (transformers' require_version, optimum, accelerate).
_REQUIREMENT = (
    r"(?P<requirement1>[A-Za-z][\w.-]{0,60}) ?(?P<requirement2>(?:(?:===?|[!~<>]=|[<>])[\w.*+!]{1,40},?){1,4})"
)
#: Words that must stand in the message (titles begin with a capital), the kind, and what it says: a group gives the
#: column that it is named for, two with a number give one together. The first form that fits is taken.
_FORMS = (
    (
        "Failed to import",
        "lazy",
        rf"Failed to import (?P<module>{_DOTTED}) because of the following error[^:]{{0,60}}:?(?P<inner>.*)",
    ),
    ("Could not import module", "lazy", r"Could not import module '(?P<name>\w{1,200})'"),
    (
        "annot import name",
        "name",
        rf"[Cc]annot import name '?(?P<name>{_NAME})'?"
        rf"(?:,? from (?:partially initialized module )?'?(?P<module>{_DOTTED})'?)?",
    ),
    (
        "o module named",
        "module",
        rf"[Nn]o module named:? '?(?P<module>{_DOTTED})'?(?P<not_a_package>; '{_DOTTED}' is not a package)?",
    ),
    ("seems to be not installed", "module", r"package (?P<module>\w{1,100}) seems to be not installed"),
    ("was removed in the NumPy", "attribute", r"'(?P<module>np)\.(?P<name>\w{1,60})' was removed in the NumPy"),
    ("has no attribute", "attribute", rf"module '?(?P<module>{_DOTTED})'? has no attribute '?(?P<name>{_NAME})'?"),
    (
        "has no attribute",
        "member",
        rf"(?:'(?P<callee1>{_DOTTED})' object|(?:(?:type object|class) |(?<!module )(?=.[A-Z]))"
        rf"'(?P<callee2>{_DOTTED})')"
        r" has no attribute '(?P<name>\w{1,200})'",
    ),
    # The tokenizers of transformers say it without quotes; a class is written with a capital.
    (
        "has no attribute",
        "member",
        r"(?<![\w.'])(?P<callee>[A-Z]\w{1,100}) has no attribute '?(?P<name>\w{1,200})",
    ),
    # huggingface_hub's own wording.
    (" attribute ", "attribute", rf"\bNo (?P<module>{_DOTTED}) attribute (?P<name>\w{{1,200}})"),
    (
        "unexpected keyword argument",
        "keyword",
        r"(?<![A-Za-z0-9_.<>])(?P<callee>[A-Za-z0-9_.<>]{1,200})\(\) got (?:some |an )?"
        r"unexpected keyword arguments?:? '?(?P<name>\w{1,200})'?",
    ),
    ("nexpected keyword argument", "keyword", r"[Uu]nexpected keyword arguments?:? '(?P<name>\w{1,200})'"),
    (
        "invalid keyword argument",
        "keyword",
        r"'(?P<name>\w{1,200})' is an invalid keyword argument for (?P<callee>[\w.]{1,200})\(\)",
    ),
    ("HfArgumentParser", "keyword", r"not used by the HfArgumentParser: \['(?:--)?(?P<name>\w{1,200})'"),
    (
        "positional argument",
        "arguments",
        r"(?<![\w.<>])(?P<callee>[\w.<>]{1,200})\(\) takes [\w ]{1,40} positional arguments? but (?P<name>\d{1,4}) w",
    ),
    (
        "() missing ",
        "missing",
        r"(?<![\w.<>])(?P<callee>[\w.<>]{1,200})\(\) missing \d{1,3} required [\w -]{1,30} arguments?:"
        r" '(?P<name>\w{1,200})'",
    ),
    # How pip and libraries ask for a release: only the first two of these say which one was found.
    (
        "which is incompatible",
        "demand",
        rf"requires {_REQUIREMENT}(?:; [^;]{{1,200}})?, but you have \S{{1,60}} (?P<found>[\w.+!]{{1,40}}) which is",
    ),
    (
        "require",
        "demand",
        rf"{_REQUIREMENT} is required for a normal functioning.{{0,60}}found [\w.-]{{1,60}}"
        r"==(?P<found>[\w.+!]{1,40})",
    ),
    ("require", "demand", rf"(?:requires?|[Pp]lease (?:install|upgrade(?: to)?)|needs) '?{_REQUIREMENT}'?"),
    ("require", "demand", rf"{_REQUIREMENT} is required"),
    ("require", "demand", rf"'{_REQUIREMENT}'"),
    # Not to bring a release up to date: that says nothing of what is missing.
    (
        "pip install ",
        "demand",
        r"(?:requires?|needs?|not (?:installed|found|available)|[Pp]lease install)\b[^']{0,120}"
        r"['(:]{1,3}(?:!|python3? -m )?pip3? install (?P<requirement>[A-Za-z][\w.-]{0,60})['!).,]{0,3}(?: |\Z)",
    ),
)


def failure_of(message: str) -> Failure | None:
    """What a message says, wherever it stands in the text; None for a message of another kind."""
    for sign, kind, pattern in _FORMS:
        found = re.search(pattern, message) if sign in message else None
        if found is not None:
            return _failure(kind, message, found.groupdict(""))
    return None


def _failure(kind: str, message: str, groups: Mapping[str, str]) -> Failure:
    said: dict[str, str] = {}
    for group, text in groups.items():
        column = group.rstrip("12")
        said[column] = said.get(column, "") + text
    inner = failure_of(said.pop("inner", ""))
    if inner is not None:
        return inner
    failure = Failure(
        kind,
        message,
        {"np": "numpy"}.get(said.get("module", ""), said.get("module", "")),
        said.get("name", ""),
        said.get("callee", ""),
        requirement=said.get("requirement", "").rstrip(",."),
        found=said.get("found", "").rstrip("."),
        not_a_package=bool(said.get("not_a_package")),
    )
    if kind == "keyword":
        # Markdown takes the underscores of __init__ for bold print.
        return failure._replace(callee=re.sub(r"(^|\.)init\Z", r"\1__init__", failure.callee))
    if kind not in ("name", "attribute"):
        return failure
    place = _PLACE.search(message)
    return failure._replace(
        place=place[1] if place else "",
        circular="partially initialized module" in message or "circular import" in message,
        shadowed="consider renaming" in message,
    )
