"""The options that a Python script takes by itself: argparse, classes of arguments, click, typer and fire."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.observe.recipe.reading.document import scalar
from envdoctor.source.definitions import keyword_of, texts_in

_OPTION = re.compile(r"--?[A-Za-z]")
_TRUE = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

#: Words of a command behind the script's name; None for one that is computed.
Words = Sequence[str | None]


class _Argument(NamedTuple):
    names: tuple[str, ...]
    dest: str
    default: Any
    action: str
    kind: str
    many: bool
    required: bool
    line: int


class Parser:
    """An ``argparse.ArgumentParser``, and its groups."""

    def __init__(self) -> None:
        self.arguments: list[_Argument] = []
        self.defaults: dict[str, Any] = {}

    def add(self, given: Sequence[Any], named: Mapping[str, Any], node: ast.Call) -> None:
        """Take an ``add_argument``: the values that it is called with, and the call."""
        names = tuple(one for one in given if isinstance(one, str))
        if not names:
            return

        def said(key: str, otherwise: Any = None) -> Any:
            return named[key].value if key in named else otherwise

        words = {one.arg: ast.unparse(one.value) for one in node.keywords if one.arg in ("type", "action")}
        longest = next((one for one in names if one.startswith("--")), names[0])
        action = str(said("action")) if isinstance(said("action"), str) else words.get("action", "")
        default = {"store_true": False, "store_false": True}.get(action)
        self.arguments.append(
            _Argument(
                names,
                said("dest") if isinstance(said("dest"), str) else longest.lstrip("-").replace("-", "_"),
                said("default", default),
                action.rpartition(".")[2],
                words.get("type", "str"),
                said("nargs") in ("+", "*") or isinstance(said("nargs"), int),
                said("required") is True or (not longest.startswith("-") and said("nargs") not in ("?", "*")),
                node.lineno,
            )
        )

    def parsed(self, words: Words, unknown: Any) -> Iterator[tuple[str, Any, int]]:
        """Yield name, value and line of every argument; ``unknown`` stands for what the words leave open."""
        options, alone = options_of(words)
        for one in self.arguments:
            value = self.defaults.get(one.dest, unknown if one.required else one.default)
            if one.names[0].startswith("-"):
                for name, given in options:
                    if f"--{name}" in one.names or f"-{name}" in one.names:
                        value = _value(one, given, unknown)
                    elif one.action == "BooleanOptionalAction" and f"--{name.removeprefix('no-')}" in one.names:
                        value = False
            elif alone:
                value = _read(alone.pop(0), one.kind, unknown)
            yield one.dest, value, one.line


class DataParser:
    """A parser made of classes of arguments: transformers' HfArgumentParser, TRL's TrlParser."""

    def __init__(self, kinds: Sequence[ast.expr]) -> None:
        self.kinds = kinds

    @staticmethod
    def given(words: Words, unknown: Any) -> Iterator[tuple[str, Any]]:
        """Yield the options of the command by the names of fields."""
        for name, given in options_of(words)[0]:
            if not given and name.startswith("no_"):
                yield name.removeprefix("no_"), False
            elif None in given:
                yield name.replace("-", "_"), unknown
            else:
                values = [scalar(str(word)) for word in given]
                yield name.replace("-", "_"), True if not values else values[0] if len(values) == 1 else values


def of_parameters(function: Any, words: Words, value: Callable[[ast.expr], Any]) -> dict[str, Any]:
    """The arguments of a function whose parameters are the options (fire, typer). ``value`` evaluates a default."""
    options, alone = options_of(words)
    given = {name.replace("-", "_"): values for name, values in options}
    arguments = function.args
    defaults = dict(zip(reversed([one.arg for one in arguments.args]), reversed(arguments.defaults), strict=False))
    found: dict[str, Any] = {}
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        default = defaults.get(one.arg)
        if one.arg in given or f"no_{one.arg}" in given:
            values = given.get(one.arg)
            if values is None or None not in values:
                found[one.arg] = False if values is None else scalar(str(values[0])) if values else True
        elif default is None:
            if alone and alone[0] is not None:
                found[one.arg] = scalar(str(alone.pop(0)))
        elif isinstance(default, ast.Call) and ast.unparse(default.func).endswith(("Option", "Argument")):
            first = keyword_of(default, "default") or next(iter(default.args), None)
            if first is not None and getattr(first, "value", None) is not Ellipsis:
                found[one.arg] = value(first)
    return found


def command_options(function: Any, words: Words, value: Callable[[ast.expr], Any]) -> dict[str, Any]:
    """The arguments of a function that decorators of click or typer make a command; nothing for another one."""
    decorators = [one for one in function.decorator_list if isinstance(one, ast.Call)]
    named = [(ast.unparse(one.func).rpartition(".")[2], one) for one in decorators]
    if not any(name == "command" for name, _ in named):
        return {}
    options = [one for name, one in named if name in ("option", "argument")]
    if not options:
        return of_parameters(function, words, value)
    parser = Parser()
    for one in options:
        names = [*texts_in(one.args)]
        texts = [name.partition("/")[0] for name in names]
        plain = [name for name in texts if not name.startswith("-")]
        keywords = {keyword.arg: value(keyword.value) for keyword in one.keywords if keyword.arg}
        flag = keywords.get("is_flag") is True or any("/" in name for name in names)
        kind = next((ast.unparse(keyword.value) for keyword in one.keywords if keyword.arg == "type"), "")
        dashed = tuple(name for name in texts if name.startswith("-"))
        longest = next((name for name in dashed if name.startswith("--")), (dashed or tuple(plain) or ("",))[0])
        dest = plain[0] if plain else longest.lstrip("-").replace("-", "_")
        default = keywords.get("default", False if flag else None)
        is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
        kind = kind or (type(default).__name__ if is_number else "str")
        action, required = "store_true" if flag else "", keywords.get("required") is True
        parser.arguments.append(_Argument(dashed or (dest,), dest, default, action, kind, False, required, one.lineno))
    unknown = object()
    return {name: one for name, one, _ in parser.parsed(words, unknown) if one is not unknown}


def options_of(words: Words) -> tuple[list[tuple[str, list[str | None]]], list[str | None]]:
    """Options without their dashes, each with the words up to the next one, and the words before all of them."""
    options: list[tuple[str, list[str | None]]] = []
    alone: list[str | None] = []
    for word in words:
        if word is not None and _OPTION.match(word):
            name, equals, value = word.lstrip("-").partition("=")
            options.append((name, [value] if equals else []))
        elif options:
            options[-1][1].append(word)
        else:
            alone.append(word)
    return options, alone


def _value(one: _Argument, given: Sequence[str | None], unknown: Any) -> Any:
    if one.action in ("store_true", "store_false", "BooleanOptionalAction"):
        return one.action != "store_false"
    values = [_read(word, one.kind, unknown) for word in given]
    if one.many:
        return values
    return values[0] if values else one.default


def _read(word: str | None, kind: str, unknown: Any) -> Any:
    if word is None:
        return unknown
    try:
        if kind in ("int", "float"):
            return int(word) if kind == "int" else float(word)
    except ValueError:
        return unknown
    if kind == "bool":
        return bool(word)  # argparse calls bool("False"), which is true
    if "bool" in kind.lower() or (kind != "str" and word.lower() in ("true", "false")):
        return _TRUE.get(word.lower(), unknown)
    return word
