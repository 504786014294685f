"""The value of an expression as far as it can be known without running anything: what guards of imports are made of.

Of functions and methods whose code is not followed (builtins, the standard library, packaging) it is known what they
answer.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envdoctor.source.values import (
    MOST,
    MOST_ROUNDS,
    PLAIN,
    UNKNOWN,
    Class,
    Following,
    Frame,
    Function,
    Made,
    Module,
    Version,
    compared,
    is_known,
    is_known_deep,
    is_small,
    joined,
    truth,
)
from envdoctor.versions.pep440 import base_release, satisfies
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
_CHANGING = frozenset(
    ("append", "extend", "update", "add", "setdefault", "pop", "remove", "insert", "clear", "discard")
)
_CALLS: Mapping[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in (
        *("len", "str", "int", "bool", "tuple", "list", "set", "frozenset", "dict"),
        *("any", "all", "sorted", "min", "max"),
    )
}
_BUILTINS = frozenset(dir(builtins))


def evaluate(node: ast.expr, frame: Frame, following: Following) -> Any:
    """The value of an expression. Raises :class:`Failed` for one that must raise."""
    if node.__class__ is ast.Constant:  # every second one
        return node.value
    following.step(node)
    method = _KINDS.get(type(node))
    return UNKNOWN if method is None else method(node, frame, following)


def _name(node: ast.Name, frame: Frame, following: Following) -> Any:
    found = frame.get(node.id)
    if found.__class__ is Made and found.dotted == f"builtins.{node.id}" and node.id not in _BUILTINS:
        return following.unbound(frame.module, node.id)
    return found


def _attribute(node: ast.Attribute, frame: Frame, following: Following) -> Any:
    match evaluate(node.value, frame, following):
        case Module(module=module):
            return following.attribute(module, node.attr, frame.module, node.lineno)
        case Made(dotted=dotted):
            return Made(f"{dotted}.{node.attr}")
        case Version(version=version):
            return _of_version(version, node.attr)
    return UNKNOWN


def _of_version(version: str, attribute: str) -> Any:
    base = base_release(version)
    if base is None:
        return UNKNOWN
    numbers = tuple(int(part) for part in base.split("."))
    if attribute == "base_version":
        return base
    if attribute == "release":
        return numbers
    if attribute in ("major", "minor", "micro"):
        return (*numbers, 0, 0)[("major", "minor", "micro").index(attribute)]
    return UNKNOWN


def _bool_op(node: ast.BoolOp, frame: Frame, following: Following) -> Any:
    stops = isinstance(node.op, ast.Or)
    unsure = False
    for value in node.values:
        found = following.unsure(evaluate, value, frame, following) if unsure else evaluate(value, frame, following)
        known = truth(found)
        if known is stops:
            return found if not unsure else (stops if isinstance(found, bool) else UNKNOWN)
        unsure = unsure or known is None
    return UNKNOWN if unsure else found


def _unary(node: ast.UnaryOp, frame: Frame, following: Following) -> Any:
    match node.op, evaluate(node.operand, frame, following):
        case ast.Not(), value:
            known = truth(value)
            return UNKNOWN if known is None else not known
        case ast.USub(), (int() | float()) as value:
            return -value
    return UNKNOWN


def _compare(node: ast.Compare, frame: Frame, following: Following) -> Any:
    left = evaluate(node.left, frame, following)
    result: Any = True
    for sign, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(right_node, frame, following)
        answer = compared(left, sign, right, following)
        if answer is False:
            return False
        if answer is not True:
            result = UNKNOWN
        left = right
    return result


def _if_else(node: ast.IfExp, frame: Frame, following: Following) -> Any:
    known = truth(evaluate(node.test, frame, following))
    if known is None:
        return joined(
            following.unsure(evaluate, node.body, frame, following),
            following.unsure(evaluate, node.orelse, frame, following),
        )
    return evaluate(node.body if known else node.orelse, frame, following)


def _sequence(node: ast.Tuple | ast.List | ast.Set, frame: Frame, following: Following) -> Any:
    values: list[Any] = []
    for one in node.elts:
        if isinstance(one, ast.Starred):
            inner = evaluate(one.value, frame, following)
            if not isinstance(inner, (tuple, list)):
                return UNKNOWN
            values += inner
        else:
            values.append(evaluate(one, frame, following))
    if not is_small(values):
        return UNKNOWN
    try:
        return _SEQUENCES[type(node)](values)
    except TypeError:
        return UNKNOWN


def _comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame, following: Following) -> Any:
    """The values of a comprehension, a generator's too; those of one whose conditions are all known."""
    rows = _rows(node.generators, Frame(frame.module, {}, frame), following)
    found = [evaluate(node.elt, row, following) for row in rows or ()]
    if rows is None or not is_small(found):
        return UNKNOWN
    if not isinstance(node, ast.SetComp):
        return found
    return set(found) if is_known(found) else UNKNOWN


def _rows(loops: Sequence[ast.comprehension], frame: Frame, following: Following) -> list[Frame] | None:
    """The names of every round of nested loops; None when these are not known."""
    rows = [frame]
    for loop in loops:
        before, rows = rows, []
        for row in before:
            values = evaluate(loop.iter, row, following)
            if not isinstance(values, (list, tuple, dict)) or not isinstance(loop.target, ast.Name):
                return None
            if len(values) > MOST_ROUNDS:
                return None
            for value in values:
                one = Frame(frame.module, {**row.names, loop.target.id: value}, frame.around)
                tests = [truth(evaluate(test, one, following)) for test in loop.ifs]
                if None in tests or len(rows) > MOST:
                    return None
                if all(tests):
                    rows.append(one)
    return rows


def _dict(node: ast.Dict, frame: Frame, following: Following) -> Any:
    found: dict[Any, Any] | None = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = UNKNOWN if key is None else evaluate(key, frame, following)
        content = evaluate(value, frame, following)
        if not isinstance(name, (str, int, tuple)) or name is UNKNOWN:
            found = None
        elif found is not None:
            found[name] = content
    return found if found is not None and is_small(found) else UNKNOWN


def _subscript(node: ast.Subscript, frame: Frame, following: Following) -> Any:
    base = evaluate(node.value, frame, following)
    match node.slice:
        case ast.Slice(lower=lower, upper=upper, step=step):
            bounds = [None if one is None else evaluate(one, frame, following) for one in (lower, upper)]
            if isinstance(base, (str, tuple, list)) and step is None and all(map(_whole, bounds)):
                return base[slice(*bounds)]
            return UNKNOWN
    key = evaluate(node.slice, frame, following)
    match base, key:
        case Made(dotted="sys.modules"), str():
            return Module(key)
        case Made(dotted="importlib.metadata.packages_distributions()"), str():
            return _distributions(key, following) or UNKNOWN
        case ((dict() | tuple() | list() | str()), _) if is_known(key):
            try:
                return base[key]
            except (KeyError, IndexError, TypeError):
                return UNKNOWN
    return UNKNOWN


def _whole(bound: Any) -> bool:
    return bound is None or (isinstance(bound, int) and abs(bound) < MOST)


def _text(node: ast.JoinedStr, frame: Frame, following: Following) -> Any:
    parts: list[str] = []
    for value in node.values:
        found = evaluate(value.value if isinstance(value, ast.FormattedValue) else value, frame, following)
        if not isinstance(found, (str, int)) or (isinstance(found, int) and abs(found) >= 1 << 63):
            return UNKNOWN
        parts.append(str(found))
        if sum(map(len, parts)) > MOST:
            return UNKNOWN
    return "".join(parts)


def _binary(node: ast.BinOp, frame: Frame, following: Following) -> Any:
    left, right = evaluate(node.left, frame, following), evaluate(node.right, frame, following)
    if not is_known(left) or not is_known(right) or type(left) is not type(right):
        return UNKNOWN
    match node.op, left:
        case ast.Add(), str() | tuple() | list() if len(left) + len(right) <= MOST:
            return left + right
        case ast.Add(), int():
            return left + right
        case ast.Sub(), int():
            return left - right
    return UNKNOWN


def _walrus(node: ast.NamedExpr, frame: Frame, following: Following) -> Any:
    value = evaluate(node.value, frame, following)
    frame.names[node.target.id] = value
    return value


def _starred(node: ast.Starred, frame: Frame, following: Following) -> Any:
    evaluate(node.value, frame, following)
    return UNKNOWN


def _call(node: ast.Call, frame: Frame, following: Following) -> Any:
    method = node.func
    if isinstance(method, ast.Attribute):
        holder = evaluate(method.value, frame, following)
        if isinstance(holder, (str, dict, set, frozenset, list, tuple)):
            arguments, keywords = _arguments(node, frame, following)
            if method.attr in _CHANGING and isinstance(holder, (dict, set, list)):
                return _changed(holder, method, arguments, frame, following)
            return UNKNOWN if keywords else _own_method(holder, method.attr, arguments)
    function = evaluate(method, frame, following)
    arguments, keywords = _arguments(node, frame, following)
    match function:
        case Function():
            return following.call(function, arguments, keywords, node)
        case Class():
            return following.made(function, keywords, frame.module, node.lineno)
        case Made(dotted=dotted):
            return _library(dotted, arguments, keywords, frame, following)
    return UNKNOWN


def _arguments(node: ast.Call, frame: Frame, following: Following) -> tuple[list[Any], dict[str, Any]]:
    """The values of a call's arguments; those behind ``*`` and ``**`` are not known."""
    values = [evaluate(one, frame, following) for one in node.args]
    named = {one.arg or "**": evaluate(one.value, frame, following) for one in node.keywords}
    return values, named


def _changed(holder: Any, method: ast.Attribute, arguments: list[Any], frame: Frame, following: Following) -> Any:
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


def _own_method(holder: Any, name: str, arguments: list[Any]) -> Any:
    """What a method of a known value gives that changes nothing."""
    allowed = _TEXT_METHODS if isinstance(holder, str) else _OTHER_METHODS
    if name not in allowed or not all(map(is_known_deep, arguments)):
        return UNKNOWN
    try:
        found = getattr(holder, name)(*arguments)
    except _REFUSED:
        return UNKNOWN
    return list(found) if name in ("keys", "values", "items") else found


def _library(dotted: str, values: list[Any], named: dict[str, Any], frame: Frame, following: Following) -> Any:
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
            return _distributions(first, following)
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


def _distributions(module: str, following: Following) -> Any:
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


_SEQUENCES: Mapping[type, Callable[[list[Any]], Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: set}
_KINDS: Mapping[type, Callable[[Any, Frame, Any], Any]] = {
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.BoolOp: _bool_op,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.IfExp: _if_else,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.Subscript: _subscript,
    ast.JoinedStr: _text,
    ast.BinOp: _binary,
    ast.NamedExpr: _walrus,
    ast.Starred: _starred,
    ast.Call: _call,
}
