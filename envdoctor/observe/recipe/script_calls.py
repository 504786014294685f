"""What is known while a script is followed: values, with what stands for those that cannot be told, and what its calls
come to: its functions, classes and parsers of options, and what they read."""

import ast
import builtins
import os
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from envdoctor.observe.recipe.document import REST
from envdoctor.observe.recipe.script_options import (
    PERHAPS,
    Beside,
    DataParser,
    ForeignClass,
    Item,
    Loaded,
    Parser,
    ScriptObject,
    Words,
    command_options,
    composed,
    dotted,
    joined_path,
    of_parameters,
)
from envdoctor.source.definitions import defaults_of, elements, functions_in, keyword_of, last_name, texts_in
from envdoctor.source.values import PLAIN_CALLS, UNKNOWN, Expressions, builtin, own_method

#: Bounds of the work: statements and expressions, calls that are told, calls of the script's functions in each other.
_MOST_STEPS = 200_000
_LONGEST = 200  # characters of the name of a call that is told
_MOST_CALLS = 5000
_DEEPEST_MAPPING = 6
_DEEPEST_CALL = 8
_MOST_FIELDS = 5000
_PLAIN = (str, int, float, bool)
_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_LOADING = ("yaml.load", "json.load", "json.loads", "OmegaConf.load")
#: Methods of a model, and functions that take one first, whose result is that model.
_SAME_MODEL = {"half", "bfloat16", "float", "double", "to", "cuda", "cpu", "train", "eval", "requires_grad_"}
_WRAPPED_MODEL = {"get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training"}
#: Variables that a launcher sets for each process.
_OF_LAUNCHERS = frozenset({"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"})
#: Whose second argument is a reference model.
_WITH_REFERENCE = ("DPOTrainer", "KTOTrainer")


class Returned(Exception):
    """A function returns a value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ScriptTooLong(Exception):
    """The script has more statements than are followed."""


class Calls(Expressions):
    """The state of following a script: its ``calls`` in the order in which they run, each with its settings, ``(name,
    [[key, value, line, how, own]], whether it is made under a condition)``; ``how`` is 1 for a computed value (of one
    that is loaded: ``<model>``, ``<tokenizer>``), 2 for a key under a condition, ``own`` tells a field of the script's
    own class. What follows calls stands here."""

    def __init__(self, words: Sequence[str | None], beside: Beside, names: str) -> None:
        self.calls: list[tuple[str, list[Any], bool]] = []
        self._branches: list[int] = []  # of each branch that may not be taken, how many mappings there were before it
        self._born: dict[int, tuple[int, Any]] = {}
        self.words = words
        self._steps = 0
        self._running: list[Any] = []
        self._perhaps_returned: list[Any] = []  # what the function returns in branches that may not be taken
        self._entered: set[ast.AST] = set()
        self._globals: dict[str, Any] = {"__name__": "__main__"}
        #: The calls that give a model which is trained, and those of one that is frozen.
        self.trained, self.frozen, self.references = set[int](), set[int](), set[int]()
        self._wanted = re.compile(names)
        self._beside = beside
        self._place = beside.folder
        self._closures: dict[ast.AST, dict[str, Any]] = {}
        self._homes: dict[ast.AST, tuple[dict[str, Any], str]] = {}
        self._instances: dict[ast.ClassDef, ScriptObject] = {}

    @abstractmethod
    def _block(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> None: ...

    def step(self, size: int = 1) -> None:
        """Count a step, or so many: what is copied or parsed as a whole costs as much as it has parts."""
        self._steps += size
        if self._steps > _MOST_STEPS:
            raise ScriptTooLong

    @contextmanager
    def _at(self, node: ast.AST) -> Iterator[None]:
        """Follow what stands in the module of a node."""
        before = self._globals, self._place
        self._globals, self._place = self._homes.get(node, before)
        try:
            yield
        finally:
            self._globals, self._place = before

    def _put(self, base: dict[str, Item], key: str, value: Any, line: int) -> None:
        """Set an item; in a branch that may not be taken, of a mapping that was there before it, perhaps."""
        before = bool(self._branches) and self._born.get(id(base), (0, base))[0] <= self._branches[-1]
        base[key] = Item((UNKNOWN if key in base else PERHAPS) if before else value, line)

    def _new(self, mapping: Any) -> Any:
        self.step(len(mapping))
        self._born[id(mapping)] = (len(self._born) + 1, mapping)
        return mapping

    def tell(self, name: str, settings: list[Any], own: Collection[str] = ()) -> None:
        """Add a call to those that are told; the script itself declares its ``own`` keys."""
        if len(self.calls) < _MOST_CALLS and len(name) <= _LONGEST and self._wanted.fullmatch(name):
            self.calls.append((name, [[*setting, setting[0] in own] for setting in settings[:_MOST_CALLS]], False))

    def held(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Return what a variable holds to which an expression is assigned: its value, or a class by its name."""
        value, name = self.value(node, scope), dotted(node)
        return ForeignClass(name) if value is UNKNOWN and re.match("[A-Z]+[a-z]", name.rpartition(".")[2]) else value

    def callee(self, node: ast.expr, scope: Mapping[str, Any]) -> str:
        """Return the dotted name of what is called: of a class that a variable holds by the name of that class."""
        root, *rest = dotted(node).split(".")
        match scope.get(root, self._globals.get(root)):
            case ForeignClass(name=name) | ast.ClassDef(name=name):
                return ".".join([name, *rest])
        return dotted(node)

    def _result(
        self, node: ast.Call, callee: Any, values: Sequence[Any], keywords: Mapping[str, Item], scope: dict[str, Any]
    ) -> Any:
        name = self.callee(node.func, scope)
        last = name.rpartition(".")[2]
        match callee:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._enter(callee, values, self._command(callee) or _values_of(keywords))
            case ast.ClassDef():
                instance = self._instance(callee, values, keywords, scope)
                library = self._library(callee, scope)
                if library.endswith(_PARSERS):
                    return self._parser(node)
                if library:
                    settings: list[Any] = []
                    add_setting(settings, "", instance if instance else dict(keywords), node.lineno)
                    self.tell(library, settings, self._fields(callee, scope))
                return instance
            case Loaded(name=method, call=call):
                action = method.removeprefix("model.")
                self.frozen |= (
                    {call} if action == "eval" or (action == "requires_grad_" and values == [False]) else set()
                )
                self.trained |= {call} if action == "train" and not values else set()
                same_model = "model" if action in _SAME_MODEL else method if action == "parameters" else ""
                return Loaded(same_model, call) if same_model else UNKNOWN
        first = values[0] if values else UNKNOWN
        plain: tuple[type, ...] = (*_PLAIN, type(None), *([list] if name == "len" else []))  # lists may have grown
        match name, last, values:
            case _, "from_pretrained", _:
                is_told = bool(self.calls) and self.calls[-1][0].endswith("from_pretrained")
                return _loaded(f".{name}".split(".")[-2], len(self.calls) - 1 if is_told else -1)
            case _, _, [Loaded(name="model"), *_] if last in _WRAPPED_MODEL:
                return first
            case "dict", _, _:
                return self._new({**mapping_of(first), **keywords})
            case _, "Namespace" | "SimpleNamespace", _:
                return self._new(ScriptObject(keywords))
            case _, "vars" | "asdict", [dict(), *_]:
                return UNKNOWN if getattr(first, "open", False) else self._new(dict(first))
            case _, "deepcopy" | "to_container" | "to_object", [dict(), *_]:
                return first
            case _ if name in PLAIN_CALLS and not keywords and all(isinstance(value, plain) for value in values):
                return builtin(name, values)
            case "os.environ.get" | "os.getenv" | "environ.get" | "getenv", _, [str(key), *_] if key in _OF_LAUNCHERS:
                return UNKNOWN  # none under python, one for each process under torchrun
            case "os.environ.get" | "os.getenv" | "environ.get" | "getenv", _, _:
                return values[1] if len(values) > 1 else None if values else UNKNOWN
            case "getattr", _, [_, str(key), *_] if dotted(node.args[0]) == "torch":
                return f"torch.{key}"
            case "getattr", _, [ScriptObject(), str(key), *rest]:
                return first[key].value if key in first else rest[0] if rest else UNKNOWN
            case _, "ArgumentParser", _:
                prefixes = keyword_of(node, "fromfile_prefix_chars")
                return Parser("".join(texts_in([prefixes] if prefixes else [])))
            case _ if last in _PARSERS:
                return self._parser(node)
            case (_, "Path", [str(), *_]) | ("os.path.join", _, [str(), *_]):
                return joined_path(values)
            case "os.path.dirname", _, [str()]:
                return os.path.dirname(first)
            case ("open", _, _) | (_, "abspath" | "expanduser" | "realpath", [_]):
                return first
            case _ if last in ("safe_load", "full_load") or name in _LOADING:
                return self._document(first, node.lineno)
            case _, "fields", [ast.ClassDef(), *_]:
                of = self._fields(first, scope)
                return [ScriptObject({"name": Item(key, item.line), "default": item}) for key, item in of.items()]
            case _, "Fire" | "run", [ast.FunctionDef() | ast.AsyncFunctionDef(), *_]:
                return self._enter(first, [], of_parameters(first, self.words, self._default))
        if isinstance(node.func, ast.Attribute):
            return self._method(node, self.value(node.func.value, scope), values, keywords, scope)
        return UNKNOWN

    def _hand_on(self, callee: str, given: Sequence[Any], named: Mapping[str, Item]) -> None:
        """Note which models a call trains, and which others it takes beside them."""
        trainer = callee.endswith(("Trainer", ".prepare", ".initialize"))
        # A Trainer takes a model first, the others take several things.
        first = 0 if "model" in named else 1 if callee.endswith("Trainer") else len(given)
        places = ["model"] * first + ["#"] * len(given[first:])
        for place, value in [*zip(places, given, strict=False), *_values_of(named).items()]:
            match value:
                case Loaded(name="model.parameters", call=call) if not hasattr(builtins, callee):
                    self.trained.add(call)
                case Loaded(name="model", call=call) if trainer and place == "model":
                    self.trained.add(call)
                case Loaded(name="model", call=call) if trainer and place not in ("#", "ref_model"):
                    self.frozen.add(call)
                case Loaded(name="model", call=call) if place == "ref_model" or callee.endswith(_WITH_REFERENCE):
                    self.references.add(call)

    @staticmethod
    def _parser(node: ast.Call) -> Any:
        """Return the parser that is made of classes of arguments."""
        kinds = node.args[0] if node.args else keyword_of(node, "dataclass_types")
        listed = [kind for kind in elements(kinds) if kind is not None]
        return DataParser(listed, Parser()) if listed else UNKNOWN

    def _document(self, path: Any, line: int) -> Any:
        """Return what a YAML or JSON file says."""
        entries = self._beside.document(path) if isinstance(path, str) else None
        if entries is None:
            return UNKNOWN
        tree = ScriptObject()
        for entry in entries:
            value = [*entry.value] if isinstance(entry.value, tuple) else entry.value
            is_open = isinstance(value, str) and "${" in value  # an interpolation
            _set_below(tree, entry.key, Item(UNKNOWN if is_open else value, line, True))
        return tree

    def _method(
        self, node: ast.Call, base: Any, values: Sequence[Any], keywords: Mapping[str, Item], scope: dict[str, Any]
    ) -> Any:
        name, first = last_name(node.func), values[0] if values else UNKNOWN
        match base, name, values:
            case Parser(), "add_argument", _:
                base.add(values, _values_of(keywords), node)
            case Parser(), "set_defaults", _:
                base.defaults.update(_values_of(keywords))
            case Parser(), "parse_args" | "parse_known_args", _:
                self.step(len(base.arguments) * (1 + len(self.words) // 20))
                words = self._words(values, keywords)[0]
                parsed = {key: Item(*item) for key, *item in base.parsed(words)}
                space = self._new(ScriptObject(parsed))
                space.open = base.open
                return space if name == "parse_args" else [space, UNKNOWN if base.open else base.remaining(words)]
            case Parser(), _, _ if name.startswith("add_") and name.endswith("group"):
                return base
            case DataParser(), _, _ if name[:5] == "parse":
                named = (keywords[key].value for key in ("json_file", "yaml_file") if key in keywords)
                file = first if values else next(named, UNKNOWN)
                flag = keywords["args_file_flag"].value if "args_file_flag" in keywords else ""
                words, is_open = self._words([] if "file" in name else values, keywords)
                parser = base._replace(words=words, is_open=is_open or "return_remaining_strings" in keywords)
                return self._dataclasses(parser, scope, file if "file" in name else None, flag)
            case DataParser(added=added), "add_argument", _:
                added.add(values, _values_of(keywords), node)
            case ScriptObject(kind=ast.ClassDef() as kind), _, _:
                method = next((function for function in functions_in(kind.body) if function.name == name), None)
                return self._enter(method, [base, *values], _values_of(keywords)) if method else UNKNOWN
            case dict(), "get" | "pop", [str(), *_]:
                otherwise = UNKNOWN if REST in base else values[1] if len(values) > 1 else None
                value = base[first].certain if first in base else otherwise
                if name == "pop" and self._branches and first in base:
                    self._put(base, first, UNKNOWN, node.lineno)
                elif name == "pop":
                    base.pop(first, None)
                return value
            case dict(), "update", _:
                self.step(len(mapping_of(first)))
                rest = {REST: Item(UNKNOWN, node.lineno)} if values and not isinstance(first, dict) else {}
                for key, item in {**rest, **mapping_of(first), **keywords}.items():
                    self._put(base, key, item.value, item.line)
            case (dict(), "copy" | "items", _) | (str(), "read" | "resolve" | "absolute" | "as_posix", _):
                return base  # a file is its name
            case str(), _, _ if not keywords:
                return own_method(base, name, [*values])
        return UNKNOWN

    def _words(self, values: Sequence[Any], keywords: Mapping[str, Item]) -> tuple[Words, bool]:
        """Return the words that a parser is given, those of the command by default, and whether others may be."""
        given = values[0] if values else keywords["args"].value if "args" in keywords else None
        if isinstance(given, list):
            return [None if word is UNKNOWN else str(word) for word in given], False
        return self.words, given is not None

    def _enter(self, function: Any, values: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Follow a function of the script with these arguments; what it returns."""
        self._entered.add(function)
        if function in self._running or len(self._running) >= _DEEPEST_CALL:
            return UNKNOWN
        arguments = function.args
        scope: dict[str, Any] = dict(self._closures.get(function, {}))
        names = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
        own, defaults = [*names, *(parameter.arg for parameter in arguments.kwonlyargs)], defaults_of(arguments)
        with self._at(function):
            for name in own:
                scope[name] = self.value(defaults[name], self._globals) if name in defaults else UNKNOWN
        scope.update(zip(names, values, strict=False))
        scope.update({name: value for name, value in keywords.items() if name in own})
        if arguments.kwarg is not None:
            rest = {key: Item(value, function.lineno) for key, value in keywords.items() if key not in names}
            scope[arguments.kwarg.arg] = rest
        self._running.append(function)
        before, self._perhaps_returned, value = self._perhaps_returned, [], None
        try:
            with self._at(function):
                self._block(function.body, scope)
        except Returned as returned:
            value = returned.value
        finally:
            self._running.pop()
            perhaps, self._perhaps_returned = self._perhaps_returned, before
        return value if all(other is None or same(value, other) for other in perhaps) else UNKNOWN

    def _command(self, function: Any) -> dict[str, Any]:
        """Return the arguments of a function that hydra, click or typer make a command."""
        for node in function.decorator_list:
            if isinstance(node, ast.Call) and dotted(node.func) == "hydra.main" and function.args.args:
                return {function.args.args[0].arg: self._hydra(node)}
        return command_options(function, self.words, self._default)

    def _hydra(self, node: ast.Call) -> Any:
        """Return what hydra composes of the file that a decorator or the command names."""
        settings = {str(keyword.arg): self.value(keyword.value, self._globals) for keyword in node.keywords}
        document = composed(self._beside, settings, self.words)
        whole = ScriptObject()
        for key, value in (document or {}).items():
            _set_below(whole, key, Item(value, node.lineno))
        return UNKNOWN if document is None else whole

    def _default(self, node: ast.expr) -> Any:
        return self.value(node, self._globals)

    def _library(self, kind: ast.ClassDef, scope: dict[str, Any], depth: int = 0) -> str:
        """Return the class of a library that a class of the script is one of; empty where there is none."""
        with self._at(kind):
            for base in kind.bases if depth < _DEEPEST_CALL else ():
                below = self.value(base, scope)
                name = self._library(below, scope, depth + 1) if isinstance(below, ast.ClassDef) else dotted(base)
                if name:
                    return name
        return ""

    def _instance(
        self, kind: ast.ClassDef, values: Sequence[Any], keywords: Mapping[str, Item], scope: dict[str, Any]
    ) -> ScriptObject:
        instance: ScriptObject = self._new(ScriptObject(self._fields(kind, scope)))
        instance.kind = kind
        self._instances[kind] = instance
        start = next((method for method in functions_in(kind.body) if method.name == "__init__"), None)
        if start is not None:
            self._enter(start, [instance, *values], _values_of(keywords))
        else:
            instance.update(zip(instance, (Item(value, kind.lineno) for value in values), strict=False))
            instance.update(keywords)
        return instance

    def _fields(self, kind: ast.ClassDef, scope: dict[str, Any]) -> dict[str, Item]:
        """Return what is assigned in the body of a class and of the script's classes below it, as of a dataclass."""
        fields: dict[str, Item] = {}
        with self._at(kind):
            for base in kind.bases:
                below = self.value(base, scope)
                if isinstance(below, ast.ClassDef) and below is not kind and len(fields) < _MOST_FIELDS:
                    fields.update(self._fields(below, scope))
            for node in kind.body:
                self.step()
                match node:
                    case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name), *_]):
                        fields[name] = Item(self._field(node.value, scope), node.lineno)
        return fields

    def _field(self, node: ast.expr | None, scope: dict[str, Any]) -> Any:
        """Return the default of a field: ``field(default=…)`` and ``default_factory=lambda: …`` too."""
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("field", "Field", "HfArg"):
            factory = getattr(keyword_of(node, "default_factory"), "body", None)
            node = keyword_of(node, "default") or factory or next(iter(node.args), None)
        return self.value(node, scope) if node is not None else UNKNOWN

    def _dataclasses(self, parser: DataParser, scope: dict[str, Any], file: Any, flag: Any) -> list[Any]:
        """Return an object for each class. A class of a library becomes a call with the options that no other class
        has. The options come from a named ``file``, else from the command (line 0), the file that it names, and those
        behind a ``flag``. What a file says that cannot be read is open."""
        command = [(name, value) for name, value in parser.given(parser.words) if f"--{name}" != flag]
        lists = [self._beside.text(str(value)) for name, value in parser.given(parser.words) if f"--{name}" == flag]
        options = [(name, value, 1) for entry in lists for name, value in parser.given((entry or "").split())]
        options += [(name, value, 0) for name, value in command]
        first = parser.words[0] if parser.words else None
        if file is UNKNOWN:
            return [UNKNOWN] * len(parser.kinds)
        config = next((value for name, value, _ in options if name == "config"), None)
        file = next((entry for entry in (file, config, first) if entry is not UNKNOWN and entry), None)
        unread = None in lists
        if isinstance(file, str) and file.endswith((".yaml", ".yml", ".json")):
            document = self._document(file, 1)
            unread = unread or document is UNKNOWN
            options[:0] = [(key, entry.value, 1) for key, entry in mapping_of(document).items()]
        own: list[tuple[str, ast.ClassDef | None, dict[str, Item]]] = []
        for node in parser.kinds:
            kind = self.value(node, scope)
            local = kind if isinstance(kind, ast.ClassDef) else None
            library = dotted(node) if local is None else self._library(local, scope)
            own.append((library, local, self._fields(local, scope) if local else {}))
        fields = {name for _, local, defaults in own if local is not None for name in defaults}
        fields |= {argument.dest for argument in parser.added.arguments}
        # What the library's class does not have may go to a parser that was not followed.
        declared = {name for name, *_ in options} if parser.is_open or parser.added.open else set()
        values: list[Any] = []
        for library, local, defaults in own:
            fields_of = {name: Item(UNKNOWN, item.line) for name, item in defaults.items()} if unread else defaults
            instance: ScriptObject = self._new(ScriptObject(fields_of))
            instance.kind, instance.open = local, unread
            for name, value, line in options:
                if name in defaults or (library and name not in fields):
                    instance[name] = Item(value, defaults[name].line if name in defaults and line else line, True)
            # Of classes of the script's own what a file says, and their defaults: the command's options stand there.
            items = instance.items() if library else _plain(instance)
            settings: list[Any] = []
            for name, item in items:
                add_setting(settings, name, item.value, item.line)
            if unread and library:
                settings.append([REST, None, 1, 1])
            self.tell(library or _PARSERS[0], settings or [["#0", None, 1, 0]], {*defaults, *declared})
            values.append(instance)
        return values


def _plain(fields: Mapping[str, Item]) -> list[tuple[str, Item]]:
    """Return what is a plain value and was not typed in the command."""
    values = ((name, item) for name, item in fields.items() if item.line and item.value not in ("", None))
    return [(name, item) for name, item in values if type(item.value) in _PLAIN]


def _loaded(kind: str, call: int) -> Any:
    """Return what the ``from_pretrained`` of a class gives in a call."""
    if kind.endswith(("Tokenizer", "TokenizerFast", "Processor")):
        return Loaded("tokenizer")
    if kind.startswith("Fast") and kind.endswith("Model"):
        return [Loaded("model", call), Loaded("tokenizer")]  # Unsloth
    return Loaded("model", call) if "Model" in kind or "For" in kind else UNKNOWN


def _values_of(keywords: Mapping[str, Item]) -> dict[str, Any]:
    return {name: item.value for name, item in keywords.items()}


def _set_below(tree: ScriptObject, key: str, item: Item) -> None:
    """Set the item of a dotted key, in mappings below; nothing where something else stands in their place."""
    *sections, last = key.split(".")
    into: Any = tree
    for section in sections:
        into = into.setdefault(section, Item(ScriptObject(), item.line, item.given)).value
        if not isinstance(into, dict):
            return
    into[last] = item


def mapping_of(value: Any) -> dict[str, Item]:
    return value if isinstance(value, dict) else {}


def same(left: Any, right: Any) -> bool:
    if type(left) is type(right) is Loaded:
        return bool(left.name == right.name)
    return left is right or (type(left) is type(right) and not isinstance(left, (ast.AST, Parser)) and left == right)


def add_setting(settings: list[Any], key: str, value: Any, line: int, depth: int = 0) -> None:
    """Add the setting, or those of a mapping, each with its own line."""
    flat = isinstance(value, dict) and (not isinstance(value, ScriptObject) or not key) and depth < _DEEPEST_MAPPING
    if flat and value and len(settings) < _MOST_CALLS:
        for name, item in value.items():
            add_setting(settings, f"{key}.{name}" if key else name, item.value, item.line, depth + 1)
    elif key:
        cells = [cell for cell in value if type(cell) in _PLAIN] if isinstance(value, list) else None
        is_known = value is None or type(value) in _PLAIN or (isinstance(value, list) and cells == value)
        shown = f"<{value.name}>" if isinstance(value, Loaded) else value if is_known else cells or None
        settings.append([key, shown, line, 2 if value is PERHAPS else int(not is_known)])
