"""What functions and methods answer whose code is not followed: builtins, the standard library, packaging."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.source.values import MOST, PLAIN, Frame, compared, is_known, is_known_deep
from envdoctor.source.world import UNKNOWN, Following, Function, Made, Module, Version
from envdoctor.versions.pep440 import satisfies
from envdoctor.versions.requirement import NotARequirement, read_requirement

_OPERATORS: Mapping[str, type[ast.cmpop]] = {
    **{"eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt},
    **{"le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE},
}
_TEXT_METHODS = frozenset(
    ("upper", "lower", "strip", "lstrip", "rstrip", "split", "startswith", "endswith", "replace", "partition")
)
_OTHER_METHODS = frozenset(("union", "keys", "values", "items", "copy", "get", "count", "index", "difference"))
#: What a method says of arguments, or a value of a method, that it does not take.
_REFUSED = (TypeError, ValueError, KeyError, IndexError, AttributeError)
CHANGING = frozenset(("append", "extend", "update", "add", "setdefault", "pop", "remove", "insert", "clear", "discard"))
_CALLS: Mapping[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in (
        *("len", "str", "int", "bool", "tuple", "list", "set", "frozenset", "dict"),
        *("any", "all", "sorted", "min", "max"),
    )
}


def changed(holder: Any, method: ast.Attribute, arguments: list[Any], frame: Frame, following: Following) -> Any:
    """A method that changes a list, dictionary or set: done where it is certain to happen, else the name that holds it
    is not known any more."""
    if following.certain and len(holder) < MOST and all(map(is_known_deep, arguments)):
        try:
            return getattr(holder, method.attr)(*arguments)
        except _REFUSED:
            pass
    if isinstance(method.value, ast.Name):
        frame.forget(method.value.id)
    return UNKNOWN


def own_method(holder: Any, name: str, arguments: list[Any]) -> Any:
    """What a method of a known value gives that changes nothing."""
    allowed = _TEXT_METHODS if isinstance(holder, str) else _OTHER_METHODS
    if name not in allowed or not all(map(is_known_deep, arguments)):
        return UNKNOWN
    try:
        found = getattr(holder, name)(*arguments)
    except _REFUSED:
        return UNKNOWN
    return list(found) if name in ("keys", "values", "items") else found


def library(dotted: str, values: list[Any], named: dict[str, Any], frame: Frame, following: Following) -> Any:
    """What a function of the standard library, of packaging or a builtin answers."""
    first = values[0] if values else UNKNOWN
    last = dotted.rpartition(".")[2]
    if dotted in ("os.getenv", "os.environ.get"):
        return values[1] if len(values) > 1 else named.get("default")
    if dotted.endswith(".packages_distributions"):
        return Made("importlib.metadata.packages_distributions()")
    if isinstance(first, str):
        if last in ("find_spec", "find_loader"):
            return following.present(first)
        if dotted in ("importlib.metadata.version", "importlib_metadata.version"):
            return following.version(first)
        if dotted == "importlib.metadata.packages_distributions().get":
            return distributions(first, following)
        if dotted in ("importlib.import_module", "builtins.__import__") and not first.startswith("."):
            following.load(first, frame.module, 0)
            return Module(first)
        if last in ("parse", "parse_version", "Version", "LooseVersion", "StrictVersion") and "ersion" in dotted:
            return Version(first)
    if dotted.startswith("operator.") and last in _OPERATORS and len(values) == 2:
        return compared(first, _OPERATORS[last](), values[1], following)
    if (
        dotted == "builtins.isinstance"
        and values[1:] == [Made("builtins.str")]
        and isinstance(first, (*PLAIN, Version))
    ):
        return isinstance(first, str)
    if isinstance(first, Module) and len(values) > 1 and isinstance(values[1], str):
        if dotted == "builtins.hasattr":
            return following.has(first.module, values[1])
        if dotted == "builtins.getattr" and values[1] == "__version__":
            return following.attribute(first.module, "__version__", frame.module, 0)
    if isinstance(first, Function) and dotted in ("functools.lru_cache", "functools.cache"):
        return first
    if last.startswith("is_") and last.endswith("_available") and dotted.count("."):
        return following.available(last[3:-10])
    if dotted == "builtins.dict.fromkeys" and isinstance(first, (list, tuple)) and is_known(first):
        return dict.fromkeys(first)
    builtin = _CALLS.get(last) if dotted.startswith("builtins.") else None
    if builtin is not None and not named and all(map(is_known_deep, values)):
        try:
            return builtin(*values)
        except (TypeError, ValueError):
            return UNKNOWN
    return UNKNOWN


def distributions(module: str, following: Following) -> Any:
    """The installed distributions that a top-level module belongs to."""
    names = following.world.owners.get(module, (module,))
    versions = [following.world.version(name) for name in names]
    if any(version is UNKNOWN for version in versions):
        return UNKNOWN
    return [name for name, version in zip(names, versions, strict=True) if version is not None]


def demanded(text: str, version: Callable[[str], Any], python: tuple[int, ...] | None) -> bool | None:
    """Whether a requirement such as ``tokenizers>=0.20,<0.21`` is met; None when that is not known."""
    try:
        wanted = read_requirement(text)
    except NotARequirement:
        return None
    there = version(wanted.name)
    if wanted.name == "python":
        there = UNKNOWN if python is None else ".".join(map(str, python[:3]))
    if there is UNKNOWN or wanted.marker:
        return None
    if there is None:
        return False
    return satisfies(there, wanted.specifiers) if wanted.specifiers else True
