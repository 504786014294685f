"""What a Python script takes besides its code: its options (argparse, classes of arguments, click, typer and fire), the
modules that it imports from its own folders, the documents that it reads, and what stands for their values."""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from envdoctor.observe.recipe.document import (
    LARGEST,
    RecipeEntry,
    RecipeError,
    folders_above,
    read_document,
    scalar,
)
from envdoctor.source.definitions import chain, defaults_of, keyword_of, parameters_of, texts_in
from envdoctor.source.notebook import parse_code
from envdoctor.source.values import UNKNOWN
from envdoctor.system.documents import content_of, text_of

_OPTION = re.compile(r"--?[A-Za-z]")
_KINDS = ("str", "int", "float", "bool")
_TRUE = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

#: Words of a command behind the script's name; None for one that is computed.
Words = Sequence[str | None]


#: What stands for a key that is given under a condition only.
PERHAPS: Any = object()


class Item(NamedTuple):
    """A value in a mapping, and its line; ``given`` by the command or a file, and no default."""

    value: Any
    line: int
    given: bool = False

    @property
    def certain(self) -> Any:
        """Return the value, unless it is given under a condition only."""
        return UNKNOWN if self.value is PERHAPS else self.value


@dataclass(frozen=True)
class Loaded:
    """The result of ``from_pretrained``: ``model``, ``tokenizer`` or a part of it; and the number of its call."""

    name: str
    call: int = -1


@dataclass(frozen=True)
class ForeignClass:
    """A class of a library, by its name in the script."""

    name: str


class ScriptObject(dict[str, Item]):
    """The attributes of a namespace or of an instance of a class of the script; ``open`` if there may be more."""

    kind: ast.ClassDef | None = None
    open = False


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
    """An ``argparse.ArgumentParser``, and its groups; ``open`` if it has options whose names are computed. A word that
    begins with one of ``prefixes`` names a file of options, which is not read: they are unknown."""

    def __init__(self, prefixes: str = "") -> None:
        self.open = False
        self._prefixes = tuple(prefixes)
        self.arguments: list[_Argument] = []
        self.defaults: dict[str, Any] = {}

    def add(self, values: Sequence[Any], keywords: Mapping[str, Any], node: ast.Call) -> None:
        """Take an ``add_argument``: the values that it is called with, and the call."""
        names = tuple(name for name in values if isinstance(name, str))
        if not names:
            self.open = True
            return
        words = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        longest = next((name for name in names if name.startswith("--")), names[0])
        action, dest, nargs = keywords.get("action"), keywords.get("dest"), keywords.get("nargs")
        action = action if isinstance(action, str) else words.get("action", "")
        default = keywords.get("default", {"store_true": False, "store_false": True}.get(action))
        kind = words.get("type", "")
        if kind not in _KINDS and type(default) in (int, float):
            kind = type(default).__name__  # type=field.type
        self.arguments.append(
            _Argument(
                names,
                dest if isinstance(dest, str) else longest.lstrip("-").replace("-", "_"),
                default,
                action.rpartition(".")[2],
                kind or "str",
                nargs in ("+", "*") or isinstance(nargs, int),
                keywords.get("required") is True or (not longest.startswith("-") and nargs not in ("?", "*")),
                node.lineno,
            )
        )

    def parsed(self, words: Words) -> Iterator[tuple[str, Any, int, bool]]:
        """Yield name, value and line of every argument, and whether the words give it."""
        behind = next((at for at in range(len(words), 0, -1) if (words[at - 1] or "").startswith(self._prefixes)), 0)
        options, alone = _options_of(words[behind:])
        for argument in self.arguments:
            default = self.defaults.get(argument.dest, UNKNOWN if argument.required else argument.default)
            value, is_typed = UNKNOWN if behind else default, False
            negated = [f"--no-{name.lstrip('-')}" for name in argument.names]
            if argument.names[0].startswith("-"):
                for name, texts in options:
                    if f"--{name}" in argument.names or f"-{name}" in argument.names:
                        is_typed = True
                        values = [_read(word, argument.kind) for word in texts]
                        value = values if argument.many else values[0] if values else argument.default
                        if argument.action in ("store_true", "store_false", "BooleanOptionalAction"):
                            value = argument.action != "store_false"
                    elif argument.action == "BooleanOptionalAction" and f"--{name}" in negated:
                        value, is_typed = False, True
            elif alone and not behind:
                value, is_typed = _read(alone.pop(0), argument.kind), True
            yield argument.dest, value, argument.line, is_typed

    def remaining(self, words: Words) -> list[Any]:
        """Return the words that no argument of the parser takes: what ``parse_known_args`` returns second."""
        known = {name: argument for argument in self.arguments for name in argument.names}
        known.update({f"--no-{name.lstrip('-')}": argument for name, argument in known.items()})
        rest, takes = list[Any](), 0
        waiting = sum(not argument.names[0].startswith("-") for argument in self.arguments)
        for word in words:
            if word is not None and _OPTION.match(word):
                name, _, value = word.partition("=")
                argument = known.get(name)
                is_flag = argument is None or bool(value) or re.match("store_|count|Bool", argument.action)
                waiting = 0 if argument is None else waiting
                takes = 0 if is_flag else len(words) if argument is not None and argument.many else 1
                is_taken = argument is not None
            else:
                is_taken = takes + waiting > 0
                waiting -= is_taken and not takes
                takes = max(0, takes - 1)
            rest += [] if is_taken else [UNKNOWN if word is None else word]
        return rest


class DataParser(NamedTuple):
    """A parser made of classes of arguments: transformers' HfArgumentParser, TRL's TrlParser. It has arguments that
    are ``added``, and takes ``words``; ``is_open`` if they may hold options for others."""

    kinds: Sequence[ast.expr]
    added: Parser
    words: Words = ()
    is_open: bool = False

    @staticmethod
    def given(words: Words) -> Iterator[tuple[str, Any]]:
        """Yield the options of the command by the names of fields."""
        for name, texts in _options_of(words)[0]:
            if not texts and name.startswith("no_"):
                yield name.removeprefix("no_"), False
                continue
            values = [scalar(str(word)) for word in texts]
            value: Any = True if not values else values[0] if len(values) == 1 else values
            yield name.replace("-", "_"), UNKNOWN if None in texts else value


def of_parameters(function: Any, words: Words, value: Callable[[ast.expr], Any]) -> dict[str, Any]:
    """Return the arguments of a function whose parameters are options (fire, typer); ``value`` reads a default."""
    options, alone = _options_of(words)
    by_name = {name.replace("-", "_"): values for name, values in options}
    defaults, arguments = defaults_of(function.args), dict[str, Any]()
    for name in (parameter.arg for parameter in parameters_of(function.args)):
        default = defaults.get(name)
        if name in by_name or f"no_{name}" in by_name:
            values = by_name.get(name)
            if values is None or None not in values:
                arguments[name] = False if values is None else scalar(str(values[0])) if values else True
        elif default is None:
            if alone and alone[0] is not None:
                arguments[name] = scalar(str(alone.pop(0)))
        elif isinstance(default, ast.Call) and ast.unparse(default.func).endswith(("Option", "Argument")):
            first = keyword_of(default, "default") or next(iter(default.args), None)
            if first is not None and getattr(first, "value", None) is not Ellipsis:
                arguments[name] = value(first)
    return arguments


def command_options(function: Any, words: Words, value: Callable[[ast.expr], Any]) -> dict[str, Any]:
    """Return the arguments of a function that decorators of click or typer make a command; nothing for another one."""
    decorators = [node for node in function.decorator_list if isinstance(node, ast.Call)]
    calls = [(ast.unparse(node.func).rpartition(".")[2], node) for node in decorators]
    if not any(name == "command" for name, _ in calls):
        return {}
    options = [node for name, node in calls if name in ("option", "argument")]
    if not options:
        return of_parameters(function, words, value)
    parser = Parser()
    for node in options:
        names = [*texts_in(node.args)]  # --shuffle/--no-shuffle
        dashed = [name.partition("/")[0] for name in names if name.startswith("-")]
        plain = [name for name in names if not name.startswith("-")]
        keywords = {keyword.arg: value(keyword.value) for keyword in node.keywords if keyword.arg}
        keywords |= {"dest": plain[0]} if plain else {}
        keywords |= {"action": "store_true"} if keywords.get("is_flag") is True or "/" in "".join(names) else {}
        parser.add(dashed or plain, keywords, node)
    return {name: value for name, value, *_ in parser.parsed(words)}


def _options_of(words: Words) -> tuple[list[tuple[str, list[str | None]]], list[str | None]]:
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


def _read(word: str | None, kind: str) -> Any:
    if word is None:
        return UNKNOWN
    try:
        if kind in ("int", "float"):
            return int(word) if kind == "int" else float(word)
    except ValueError:
        return UNKNOWN
    if kind == "bool":
        return bool(word)  # argparse calls bool("False"), which is true
    if "bool" in kind.lower() or (kind != "str" and word.lower() in ("true", "false")):
        return _TRUE.get(word.lower(), UNKNOWN)
    return word


#: Bounds: files (own copies of eight models are some fifty, and so are the metrics of one evaluation that Hydra
#: composes), and bytes of each.
_MOST_FILES = 200
_LARGEST = 1 << 20


#: More lines than a file has that is read.
MOST_LINES = LARGEST + 2


class Beside:
    """The files that a script reads, among them its ``modules``; ``folder`` is its own, empty where it has none (a
    report, a pipe). Modules of ``libraries`` count as those of a library wherever they lie."""

    def __init__(self, folder: str, libraries: Iterable[str] = ()) -> None:
        self.folder = folder
        self._libraries = frozenset(libraries)
        self._left = _MOST_FILES
        self.modules: dict[str, Any] = {}
        self._read: dict[str, bytes | None] = {}

    def module(self, name: str, level: int, folder: str) -> tuple[ast.Module, str] | None:
        """Return a module's syntax tree, whose lines are counted on from those of the modules before it (by
        :data:`MOST_LINES` each), and folder; None for a library's. ``level`` is that of a relative import."""
        above = os.path.normpath(os.path.join(folder, *[os.pardir] * (level - 1)))
        # A project's modules lie beside the script, above it, or in src there.
        tops = folders_above(self.folder)
        starts = [above] if level else [each for top in tops for each in (top, os.path.join(top, "src"))]
        own = self.folder and (level or name.partition(".")[0] not in self._libraries)
        for start in starts if own else ():
            base = os.path.join(start, *name.split("."))
            for path in (f"{base}.py", os.path.join(base, "__init__.py")):
                if (content := self._content(path)) is not None:
                    if path not in self.modules:
                        try:
                            tree = parse_code(content).tree
                        except (SyntaxError, RecursionError, MemoryError):
                            tree = ast.Module([], [])  # it is code of one's own, and who reads that says what it is
                        self.modules[path] = ast.increment_lineno(tree, (len(self.modules) + 1) * MOST_LINES)
                    return self.modules[path], os.path.dirname(path)
        return None

    def document(self, name: str) -> list[RecipeEntry] | None:
        """Return the settings of a YAML or JSON document; None where there is none."""
        text = self.text(name)
        try:
            return None if text is None else [*read_document(text)]
        except RecipeError:
            return None

    def has_folder(self, name: str) -> bool:
        """Return whether a folder of this name lies where :meth:`text` looks for files."""
        return any(os.path.isdir(os.path.join(start, name)) for start in folders_above(self.folder) if self.folder)

    def text(self, name: str) -> str | None:
        """Return the text of a file in the script's folder or one above it; None if it is missing or no text."""
        for start in folders_above(self.folder) if self.folder else ():
            content = self._content(os.path.join(start, name))
            if content is not None:
                try:
                    return text_of(content, RecipeError)
                except RecipeError:
                    return None
        return None

    def _content(self, path: str) -> bytes | None:
        if path in self._read or self._left <= 0 or not os.path.isfile(path):
            return self._read.get(path)
        self._left -= 1
        try:
            self._read[path] = content_of(path, _LARGEST, "recipe", RecipeError)
        except RecipeError:
            self._read[path] = None
        return self._read[path]


def dotted(node: ast.expr) -> str:
    """Return ``AutoModel.from_pretrained``; empty for what is no plain name."""
    root, names = chain(node)
    return ".".join([root.id, *names]) if isinstance(root, ast.Name) and len(names) <= 10 else ""


def joined_path(parts: Sequence[Any]) -> Any:
    """Return the path that parts of one make."""
    return os.path.join(*parts)[:4096] if all(isinstance(part, str) for part in parts) else UNKNOWN


#: What options of a command are called where hydra's decorator takes them.
_OF_HYDRA = {"config-path": "config_path", "cp": "config_path", "config-name": "config_name", "cn": "config_name"}


def composed(beside: Beside, options: dict[str, Any], words: Words) -> dict[str, Any] | None:
    """Return what hydra composes of the ``options`` of its decorator and the words of a command, by dotted keys; None
    where that is not known."""
    for option, (value, *_) in filter(itemgetter(1), _options_of(words)[0]):
        options[_OF_HYDRA.get(option, option)] = UNKNOWN if value is None else value
    folder, name = options.get("config_path"), options.get("config_name")
    if UNKNOWN in (folder, name):
        return None
    return _Composer(beside, str(folder or "."), words).settings(str(name or "config"))


class _Composer:
    """What hydra composes of the files in a folder, of which a list ``defaults`` names others, and of the ``words`` of
    a command."""

    def __init__(self, beside: Beside, folder: str, words: Words) -> None:
        self._beside, self._folder = beside, folder
        self._left, self._open = 0, list[str]()  # the files that are being read
        self._options, self._typed, self._added = dict[str, Any](), dict[str, Any](), list[Any]()
        self._files = cache(self._file)
        for word, behind in pairwise((*words, "")):
            key, equals, text = (word or "").lstrip("+").partition("=")
            value = UNKNOWN if behind is None and not text else scalar(text.strip("'\""))
            is_group = equals and beside.has_folder(os.path.join(folder, key.partition("@")[0]))
            self._added += [{key: value}] if is_group and str(word)[0] == "+" else []
            (self._options if is_group else self._typed).update({key: value} if equals else {})

    def settings(self, name: str) -> dict[str, Any] | None:
        """Return the settings by their dotted keys; None where the file ``name`` is missing."""
        if self._files(name) is None:
            return None
        for _ in range(2):  # a file may choose those of groups that come before it
            self._left = 2 * _MOST_FILES
            values = {**dict(self._composed(name, "")), **dict(self._of_others(self._added, "", "")), **self._typed}
        return {key: self._interpolated(value, values) for key, value in values.items()}

    def _interpolated(self, value: Any, values: Mapping[str, Any]) -> Any:
        if not (isinstance(value, str) and "${" in value):
            return [*value] if isinstance(value, tuple) else value
        other = values.get(value[2:-1]) if value.startswith("${") and value.endswith("}") else None
        return UNKNOWN if other is None or (isinstance(other, str) and "${" in other) else other

    def _file(self, name: str) -> tuple[list[RecipeEntry], list[Any], str | None] | None:
        """Return the settings of a file, its list of others, and the package that a comment gives it."""
        import yaml

        text = self._beside.text(os.path.join(self._folder, f"{name.removesuffix('.yaml')}.yaml"))
        try:
            listed = yaml.safe_load(text or "")
            entries = read_document(text or "") if isinstance(listed, dict) else ()
        except (yaml.YAMLError, RecursionError, RecipeError):
            return None
        package = re.match(r"#[ \t]{0,9}@package[ \t]{1,9}(\S+)", text or "")
        others = listed.get("defaults") if isinstance(listed, dict) else None
        settings = [entry for entry in entries if entry.key != "defaults"]
        return None if text is None else (settings, others if isinstance(others, list) else [], package and package[1])

    def _composed(self, name: str, package: str, *, forced: bool = False) -> list[tuple[str, Any]]:
        """Return the settings of a file and of those that it names, in their order. It has a package of its own, unless
        this one is ``forced``."""
        self._left -= 1
        file = self._files(name) if self._left > 0 and name not in self._open else None
        if file is None:
            return [(package, UNKNOWN)]
        self._open.append(name)
        entries, others, own_package = file
        package = package if own_package is None or forced else own_package.removeprefix("_global_")
        at = others.index("_self_") if "_self_" in others else len(others)
        before, behind = (self._of_others(part, os.path.dirname(name), package) for part in (others[:at], others[at:]))
        self._open.pop()
        own = [(f"{package}.{entry.key}".lstrip("."), entry.value) for entry in entries]
        # An empty section leaves what stands in it.
        empty = {key for key, value in own if value is None and any(name.startswith(f"{key}.") for name, _ in before)}
        return [*before, *(pair for pair in own if pair[0] not in empty), *behind]

    def _of_others(self, others: Sequence[Any], folder: str, package: str) -> list[tuple[str, Any]]:
        """Return the settings of the files that a list ``defaults`` names in a file of this folder and package."""
        pairs = list[tuple[str, Any]]()
        for item in others[:_MOST_FILES]:
            if isinstance(item, str) and item != "_self_":
                pairs += self._composed(os.path.normpath(os.path.join(folder, item)).lstrip("/"), package)
            for words, option in item.items() if isinstance(item, dict) else ():
                *how, group = str(words).split() or [""]
                group, _, into = group.partition("@")
                below = into.removeprefix("_here_") if into else group.strip("/").replace("/", ".")
                below = f"{'' if below.startswith('_global_') else package}.{below.removeprefix('_global_')}".strip(".")
                group = os.path.normpath(os.path.join("/", folder, group)).lstrip("/")
                key = f"{group}@{below}" if into else group
                if "override" in how:
                    self._options.setdefault(key, option)
                    continue
                option = self._options.get(key, option)
                for choice in option if isinstance(option, list) else [option] if option is not None else []:
                    name = f"{group}/{choice}" if isinstance(choice, (str, int, float)) else "${}"
                    if choice is UNKNOWN or "${" in name:
                        pairs.append((below, UNKNOWN))
                    elif "optional" not in how or self._files(name) is not None:
                        pairs += self._composed(name, below, forced=bool(into))
        return pairs
