"""One message of an error as what was asked for and not there: a module, a name, an attribute, a keyword."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Failure", "failure_of"]


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
_PLACE = re.compile(r"\(((?:/|~|[A-Za-z]:\\|\.{1,2}/)[^)]{1,500}|unknown location)\)")
_SUSPECTED = ("consider renaming", "circular import")
#: Requirements that libraries check themselves (transformers' require_version, optimum, accelerate).
_REQUIREMENT = r"([A-Za-z][\w.-]{0,60}) ?((?:(?:===?|[!~<>]=|[<>])[\w.*+!]{1,40},?){1,4})"
#: How they say it: name, specifiers, the version that was found. The last one names no version.
_DEMANDS = (
    rf"requires {_REQUIREMENT}(?:; .{{1,200}})?, but you have \S{{1,60}} ([\w.+!]{{1,40}}) which is incompatible",
    rf"{_REQUIREMENT} is required for a normal functioning.{{0,60}}found [\w.-]{{1,60}}==([\w.+!]{{1,40}})",
    rf"(?:requires?|[Pp]lease (?:install|upgrade(?: to)?)|needs) '?{_REQUIREMENT}()'?",
    rf"{_REQUIREMENT}() is required|'{_REQUIREMENT}()'",
    r"requires? [^']{1,120}'(?:python -m )?pip install (?:-U )?([A-Za-z][\w.-]{0,60})()()'",
)


def failure_of(message: str) -> Failure | None:
    """What a message says, wherever it stands in the text; None for a message of another kind."""
    for sign, read in _FORMS:
        if sign in message:
            failure = read(message)
            if failure is not None:
                return failure
    return None


def _search(pattern: str, message: str) -> re.Match[str] | None:
    return re.search(pattern, message)


def _no_module(message: str) -> Failure | None:
    found = _search(rf"[Nn]o module named:? '?({_DOTTED})'?(; '{_DOTTED}' is not a package)?", message)
    if found is None:
        return None
    return Failure("module", message, found[1], not_a_package=bool(found[2]))


def _no_name(message: str) -> Failure | None:
    found = _search(
        r"[Cc]annot import name '?([^\W\d]\w{0,199})'?"
        rf"(?:,? from (?:partially initialized module )?'?({_DOTTED})'?)?",
        message,
    )
    return found and _about(message, Failure("name", message, found[2] or "", found[1]))


def _no_attribute(message: str) -> Failure | None:
    found = _search(rf"module '?({_DOTTED})'? has no attribute '?([^\W\d]\w{{0,199}})'?", message)
    return found and _about(message, Failure("attribute", message, found[1], found[2]))


def _numpy_removed(message: str) -> Failure | None:
    found = _search(r"'np\.(\w{1,60})' was removed in the NumPy", message)
    return found and Failure("attribute", message, "numpy", found[1])


def _no_lazy_attribute(message: str) -> Failure | None:
    """huggingface_hub's own wording."""
    found = _search(rf"\bNo ({_DOTTED}) attribute (\w{{1,200}})", message)
    return found and Failure("attribute", message, found[1], found[2])


def _no_member(message: str) -> Failure | None:
    found = _search(
        rf"(?:'({_DOTTED})' object|type object '({_DOTTED})'|class '({_DOTTED})') has no attribute '(\w{{1,200}})'",
        message,
    )
    if found is not None:
        return Failure("member", message, name=found[4], callee=found[1] or found[2] or found[3])
    # The tokenizers of transformers say it without quotes; a class is written with a capital.
    found = _search(r"(?<![\w.'])([A-Z]\w{1,100}) has no attribute '?(\w{1,200})", message)
    return found and Failure("member", message, name=found[2], callee=found[1])


def _no_keyword(message: str) -> Failure | None:
    found = _search(
        r"(?<![\w.<>])([\w.<>]{1,200})\(\) got (?:some |an )?unexpected keyword arguments?:? '?(\w{1,200})'?", message
    )
    if found is not None:
        # Markdown takes the underscores of __init__ for bold print.
        return Failure("keyword", message, name=found[2], callee=re.sub(r"(^|\.)init\Z", r"\1__init__", found[1]))
    found = _search(r"unexpected keyword arguments?:? '(\w{1,200})'", message)
    return found and Failure("keyword", message, name=found[1])


def _invalid_keyword(message: str) -> Failure | None:
    found = _search(r"'(\w{1,200})' is an invalid keyword argument for ([\w.]{1,200})\(\)", message)
    return found and Failure("keyword", message, name=found[1], callee=found[2])


def _unused_key(message: str) -> Failure | None:
    found = _search(r"not used by the HfArgumentParser: \['(?:--)?(\w{1,200})'", message)
    return found and Failure("keyword", message, name=found[1])


def _positional(message: str) -> Failure | None:
    found = _search(
        r"(?<![\w.<>])([\w.<>]{1,200})\(\) takes [\w ]{1,40} positional arguments? but (\d{1,4}) w", message
    )
    return found and Failure("arguments", message, name=found[2], callee=found[1])


def _not_given(message: str) -> Failure | None:
    found = _search(
        r"(?<![\w.<>])([\w.<>]{1,200})\(\) missing \d{1,3} required [\w -]{1,30} arguments?: '(\w{1,200})'", message
    )
    return found and Failure("missing", message, name=found[2], callee=found[1])


def _lazy_object(message: str) -> Failure | None:
    found = _search(r"Could not import module '(\w{1,200})'", message)
    return found and Failure("lazy", message, name=found[1])


def _lazy_module(message: str) -> Failure | None:
    found = _search(rf"Failed to import ({_DOTTED}) because of the following error[^:]{{0,60}}:?(.*)", message)
    if found is None:
        return None
    return failure_of(found[2]) or Failure("lazy", message, found[1])


def _demanded(message: str) -> Failure | None:
    found = next(filter(None, (_search(pattern, message) for pattern in _DEMANDS)), None)
    if found is None:
        return None
    parts = [part for part in found.groups() if part is not None]
    return Failure("demand", message, requirement=parts[0] + parts[1].rstrip(",."), found=parts[2].rstrip("."))


def _about(message: str, failure: Failure) -> Failure:
    """The same with what the message says of the file."""
    place = _PLACE.search(message)
    return failure._replace(
        place=place[1] if place else "",
        circular="partially initialized module" in message or "circular import" in message,
        shadowed=_SUSPECTED[0] in message,
    )


#: By words that must stand in the message (titles begin with a capital); the first form that fits is taken.
_FORMS: tuple[tuple[str, Callable[[str], Failure | None]], ...] = (
    ("Failed to import", _lazy_module),
    ("Could not import module", _lazy_object),
    ("annot import name", _no_name),
    ("o module named", _no_module),
    ("was removed in the NumPy", _numpy_removed),
    ("has no attribute", _no_attribute),
    ("has no attribute", _no_member),
    (" attribute ", _no_lazy_attribute),
    ("unexpected keyword argument", _no_keyword),
    ("invalid keyword argument", _invalid_keyword),
    ("HfArgumentParser", _unused_key),
    ("positional argument", _positional),
    ("() missing ", _not_given),
    ("require", _demanded),
)
