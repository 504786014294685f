"""What a Python script hands to the calls that it makes: its statements are followed by their syntax, nothing is run.

Constants, dictionaries, dataclasses, arithmetic, functions of the script and its own options count: a branch that the
options do not take is left out, and what cannot be told stays open.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from envdoctor.observe.recipe.reading.document import scalar
from envdoctor.observe.recipe.reading.script_files import Beside
from envdoctor.observe.recipe.reading.script_options import DataParser, Parser, command_options, of_parameters

#: Bounds of the work: statements and expressions, calls that are told, calls of the script's functions in each other.
_MOST_STEPS = 200_000
_MOST_CALLS = 5000
_DEEPEST_CALL = 8
_DEEPEST_MAPPING = 6

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_TYPES: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool}
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Open:
    """The value of what cannot be told."""

    def __bool__(self) -> bool:
        raise TypeError("nobody knows")


OPEN: Any = _Open()
#: Stands for a key that is given under a condition only.
PERHAPS: Any = _Open()
_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")


class Item(NamedTuple):
    """A value in a mapping, and its line."""

    value: Any
    line: int


class Object(dict[str, Item]):
    """The attributes of a namespace or of an instance of a class of the script."""

    kind: ast.ClassDef | None = None


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class TooLong(Exception):
    """The script has more statements than are followed."""


class Script:
    """The calls of a script in the order in which they run, each with its settings: ``(name, [[key, value, line,
    whether it is computed]])``. ``words`` are those behind the script's name in a command, None for a word that is
    computed; ``names`` is a pattern of the calls that are told. Modules that it imports from ``beside`` it are
    followed, too, their lines being that of the import."""

    def __init__(self, tree: ast.Module, words: Sequence[str | None], beside: Beside, names: str = ".*") -> None:
        self.calls: list[tuple[str, list[Any], bool]] = []
        self._branches: list[int] = []  # of each branch that may not be taken, how many mappings there were before it
        self._born: dict[int, tuple[int, Any]] = {}
        self.words = words
        self._steps = 0
        self._running: list[str] = []
        self._entered: set[ast.AST] = set()
        self._functions: list[tuple[Any, ast.ClassDef | None]] = []
        self._globals: dict[str, Any] = {"__name__": "__main__"}
        self._wanted = re.compile(names)
        self._beside = beside
        self._place = beside.folder
        self._modules: dict[tuple[str, int, str], Object | None] = {}
        self._closures: dict[ast.AST, dict[str, Any]] = {}
        self._homes: dict[ast.AST, tuple[dict[str, Any], str]] = {}
        for node in ast.walk(tree):
            self._homes[node] = (self._globals, beside.folder)
        try:
            self._block(tree.body, self._globals)
            # What nobody was seen to call may be called from elsewhere.
            for function, kind in self._functions:
                if function not in self._entered:
                    self._enter(function, [Object()] if kind else [], self._command(function))
        except TooLong:
            pass
        except _Returned:
            pass

    # statements

    def _block(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> None:
        for statement in body:
            self._step()
            self._statement(statement, scope)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLong

    def _statement(self, node: ast.stmt, scope: dict[str, Any]) -> None:
        if isinstance(node, _Function):
            scope[node.name] = node
            self._functions.append((node, None))
            if scope is not self._globals:
                self._closures[node] = scope
        elif isinstance(node, ast.ClassDef):
            scope[node.name] = node
            self._functions += [(method, node) for method in node.body if isinstance(method, _Function)]
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, scope)
            for target in node.targets:
                self._bind(target, value, scope)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._bind(node.target, self.value(node.value, scope), scope)
        elif isinstance(node, ast.AugAssign):
            self.value(node.value, scope)
            self._bind(node.target, OPEN, scope)
        elif isinstance(node, ast.If):
            self._either(self._truth(node.test, scope), node.body, node.orelse, scope)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self.value(node.iter, scope)
            self._bind(node.target, OPEN, scope)
            self._block([*node.body, *node.orelse], scope)
        elif isinstance(node, ast.While):
            self.value(node.test, scope)
            self._block([*node.body, *node.orelse], scope)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = self.value(item.context_expr, scope)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, value, scope)
            self._block(node.body, scope)
        elif isinstance(node, ast.Try):
            self._block(node.body, scope)
            for handler in node.handlers:
                self._either(None, handler.body, [], scope)
            self._block([*node.orelse, *node.finalbody], scope)
        elif isinstance(node, ast.Return):
            raise _Returned(self.value(node.value, scope) if node.value is not None else None)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, scope)
        elif isinstance(node, ast.Match):
            self.value(node.subject, scope)
            for case in node.cases:
                self._either(None, case.body, [], scope)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: dict[str, Any]) -> None:
        """Bind what comes out of modules in the script's own folders."""
        if isinstance(node, ast.Import):
            for one in node.names:
                module = self._module(one.name, 0, node.lineno)
                if module is not None and ("." not in one.name or one.asname):
                    scope[one.asname or one.name] = module
            return
        module = self._module(node.module, node.level, node.lineno) if node.module else None
        for one in node.names:
            inner = module.get(one.name) if module is not None else None
            if one.name == "*":
                scope.update({name: item.value for name, item in (module or {}).items() if name[:1] != "_"})
            elif inner is not None:
                scope[one.asname or one.name] = inner.value
            elif node.level or module is not None:
                below = self._module(f"{node.module}.{one.name}" if node.module else one.name, node.level, node.lineno)
                scope.update({one.asname or one.name: below} if below is not None else {})

    def _module(self, name: str, level: int, line: int) -> Object | None:
        """The names of a module beside the script; its calls are told as they run."""
        key = (name, level, self._place if level else "")
        if key not in self._modules:
            self._modules[key] = None  # imports may go in circles
            found = self._beside.module(name, level, self._place)
            if found is not None:
                tree, place = found
                names: dict[str, Any] = {"__name__": name}
                for node in ast.walk(tree):
                    self._homes[node] = (names, place)
                    if hasattr(node, "lineno"):
                        node.lineno = line
                own = len(self._functions)
                with self._at(tree):
                    try:
                        self._block(tree.body, names)
                    except _Returned:
                        pass
                del self._functions[own:]
                self._modules[key] = Object({one: Item(value, line) for one, value in names.items()})
        return self._modules[key]

    @contextmanager
    def _at(self, node: ast.AST) -> Iterator[None]:
        """Follow what stands in the module of a node."""
        before = self._globals, self._place
        self._globals, self._place = self._homes.get(node, before)
        try:
            yield
        finally:
            self._globals, self._place = before

    def _either(
        self, truth: bool | None, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt], scope: dict[str, Any]
    ) -> None:
        """One of two branches; both, where it is open which one: what they set differently is open afterwards."""
        if truth is not None:
            self._block(body if truth else otherwise, scope)
            return
        ends = []
        starts = [len(self.calls)]
        for branch in (body, otherwise):
            end = dict(scope)
            self._branches.append(len(self._born))
            try:
                self._block(branch, end)
            except _Returned as returned:
                end["return"] = returned.value
            finally:
                self._branches.pop()
            ends.append(end)
            starts.append(len(self.calls))
        first, second = ends
        start, middle, end_ = starts
        both = {one[0] for one in self.calls[start:middle]} & {one[0] for one in self.calls[middle:end_]}
        for at in range(start, end_):
            name, settings, perhaps = self.calls[at]
            self.calls[at] = (name, settings, perhaps or name not in both)
        for name in {*first, *second}:
            one, other = first.get(name, OPEN), second.get(name, OPEN)
            if name in scope and one is not other and not _same(one, other):
                scope[name] = OPEN
            elif name != "return":
                scope[name] = one if name in first else other
        if "return" in first and "return" in second:
            raise _Returned(first["return"] if _same(first["return"], second["return"]) else OPEN)

    def _truth(self, test: ast.expr, scope: dict[str, Any]) -> bool | None:
        value = self.value(test, scope)
        try:
            return bool(value) if value is None or isinstance(value, (bool, int, float, str, list)) else None
        except TypeError:
            return None

    def _bind(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            known = isinstance(value, list) and len(value) == len(target.elts)
            for number, one in enumerate(target.elts):
                self._bind(one, value[number] if known else OPEN, scope)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value, scope)
            if isinstance(base, Object):
                self._put(base, target.attr, value, target.lineno)
            elif name := dotted(target.value):
                # tokenizer.padding_side = "left" says what tokenizer(padding_side="left") does
                settings: list[Any] = []
                _add(settings, target.attr, value, target.lineno)
                self.tell(name, settings)
        elif isinstance(target, ast.Subscript):
            base, key = self.value(target.value, scope), self.value(target.slice, scope)
            if isinstance(base, dict) and isinstance(key, str):
                self._put(base, key, value, target.lineno)

    def _put(self, base: dict[str, Item], key: str, value: Any, line: int) -> None:
        """Set an item; in a branch that may not be taken, of a mapping that was there before it, perhaps."""
        before = bool(self._branches) and self._born.get(id(base), (0, base))[0] <= self._branches[-1]
        base[key] = Item((OPEN if key in base else PERHAPS) if before else value, line)

    def _new(self, mapping: Any) -> Any:
        self._born[id(mapping)] = (len(self._born) + 1, mapping)
        return mapping

    # expressions

    def value(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        """Evaluate an expression; its calls are told."""
        self._step()
        method = getattr(self, f"_of_{type(node).__name__}", None)
        if method is not None:
            return method(node, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.comprehension):
                self.value(child.iter, scope)
                self._bind(child.target, OPEN, scope)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)
        return OPEN

    def _of_Constant(self, node: ast.Constant, scope: dict[str, Any]) -> Any:
        return node.value if node.value is None or isinstance(node.value, (str, int, float, bool)) else OPEN

    def _of_Name(self, node: ast.Name, scope: dict[str, Any]) -> Any:
        return scope.get(node.id, self._globals.get(node.id, OPEN))

    def _of_Lambda(self, node: ast.Lambda, scope: dict[str, Any]) -> Any:
        return OPEN

    def _of_Attribute(self, node: ast.Attribute, scope: dict[str, Any]) -> Any:
        name = dotted(node)
        if name == "sys.argv":
            return ["", *(OPEN if word is None else word for word in self.words)]
        if name.startswith("torch."):
            return name
        base = self.value(node.value, scope)
        if isinstance(base, Object) and node.attr in base:
            return _told(base[node.attr].value)
        fields = self._fields(base, scope) if isinstance(base, ast.ClassDef) else {}
        return fields[node.attr].value if node.attr in fields else OPEN

    def _of_Subscript(self, node: ast.Subscript, scope: dict[str, Any]) -> Any:
        base, key = self.value(node.value, scope), self.value(node.slice, scope)
        if isinstance(base, dict) and isinstance(key, str):
            return _told(base[key].value) if key in base else OPEN
        at = isinstance(base, list) and isinstance(key, int) and -len(base) <= key < len(base)
        return base[key] if at else OPEN

    def _of_Dict(self, node: ast.Dict, scope: dict[str, Any]) -> Any:
        found: dict[str, Item] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                found.update(value if isinstance(value, dict) else {})
            elif isinstance(name := self.value(key, scope), str):
                found[name] = Item(value, item.lineno)
        return self._new(found)

    def _of_List(self, node: ast.List | ast.Tuple | ast.Set, scope: dict[str, Any]) -> Any:
        return [self.value(item, scope) for item in node.elts]

    _of_Tuple = _of_Set = _of_List

    def _of_IfExp(self, node: ast.IfExp, scope: dict[str, Any]) -> Any:
        truth = self._truth(node.test, scope)
        if truth is not None:
            return self.value(node.body if truth else node.orelse, scope)
        one, other = self.value(node.body, scope), self.value(node.orelse, scope)
        return one if _same(one, other) else OPEN

    def _of_BoolOp(self, node: ast.BoolOp, scope: dict[str, Any]) -> Any:
        stops = isinstance(node.op, ast.Or)
        value: Any = OPEN
        for part in node.values:
            value = self.value(part, scope)
            if value is OPEN or isinstance(value, (dict, ast.AST)):
                for other in node.values[node.values.index(part) + 1 :]:
                    self.value(other, scope)
                return OPEN
            if bool(value) is stops:
                return value
        return value

    def _of_UnaryOp(self, node: ast.UnaryOp, scope: dict[str, Any]) -> Any:
        if isinstance(node.op, ast.Not):
            truth = self._truth(node.operand, scope)
            return OPEN if truth is None else not truth
        value = self.value(node.operand, scope)
        number = isinstance(value, (int, float))
        return -value if number and isinstance(node.op, ast.USub) else value if number else OPEN

    def _of_BinOp(self, node: ast.BinOp, scope: dict[str, Any]) -> Any:
        one, other = self.value(node.left, scope), self.value(node.right, scope)
        numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
        texts = isinstance(one, str) and isinstance(other, str) and isinstance(node.op, ast.Add)
        if not (numbers or texts) or type(node.op) not in _OPERATORS:
            return OPEN
        try:
            value = _OPERATORS[type(node.op)](one, other)
        except (ArithmeticError, ValueError):
            return OPEN
        return value if not isinstance(value, str) or len(value) < 4096 else OPEN

    def _of_Compare(self, node: ast.Compare, scope: dict[str, Any]) -> Any:
        values = [self.value(part, scope) for part in (node.left, *node.comparators)]
        if any(not (value is None or isinstance(value, (str, int, float, list))) for value in values):
            return OPEN
        try:
            return all(
                _COMPARED[type(kind)](one, other)
                for kind, one, other in zip(node.ops, values, values[1:], strict=False)
            )
        except (TypeError, KeyError):
            return OPEN

    def _of_JoinedStr(self, node: ast.JoinedStr, scope: dict[str, Any]) -> Any:
        parts = [
            self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope) for part in node.values
        ]
        return "".join(map(str, parts))[:4096] if all(isinstance(part, (str, int, float)) for part in parts) else OPEN

    def _of_Call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        name = dotted(node.func)
        if not name:
            self.value(node.func, scope)
        settings: list[Any] = []
        given: list[Any] = []
        named: dict[str, Item] = {}
        for number, argument in enumerate(node.args, 1):
            given.append(self.value(argument, scope))
            _add(settings, f"#{number}", given[-1], argument.lineno)
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            # **options: a mapping that is written out, as it stands
            _add(settings, keyword.arg or "", value, keyword.value.lineno)
            named.update({keyword.arg: Item(value, keyword.value.lineno)} if keyword.arg else _mapping(value))
        told = name or f"._.{getattr(node.func, 'attr', '')}"
        self.tell(told, settings or [["#0", None, node.lineno, 0]])
        return self._result(node, name, given, named, scope)

    def tell(self, name: str, settings: list[Any]) -> None:
        """Add a call to those that are told."""
        if len(self.calls) < _MOST_CALLS and self._wanted.fullmatch(name) is not None:
            self.calls.append((name, settings[:_MOST_CALLS], False))

    # calls

    def _result(
        self, node: ast.Call, name: str, given: Sequence[Any], named: Mapping[str, Item], scope: dict[str, Any]
    ) -> Any:
        last = name.rpartition(".")[2]
        called = self.value(node.func, scope) if name else OPEN
        if isinstance(called, _Function):
            return self._enter(called, given, self._command(called) or {key: one.value for key, one in named.items()})
        if isinstance(called, ast.ClassDef):
            found = self._instance(called, given, named, scope)
            library = self._library(called, scope)
            if library.endswith(_PARSERS):
                return self._parser(node)
            if library:
                settings: list[Any] = []
                _add(settings, "", found if found else dict(named), node.lineno)
                self.tell(library, settings)
            return found
        if name == "dict":
            return self._new({**_mapping(given[0] if given else {}), **named})
        if last in ("vars", "asdict", "deepcopy") and given and isinstance(given[0], dict):
            return dict(given[0]) if last != "deepcopy" else given[0]
        if name in _TYPES and len(given) == 1 and isinstance(given[0], (str, int, float)):
            try:
                return _TYPES[name](given[0])
            except ValueError:
                return OPEN
        if name in ("os.environ.get", "os.getenv", "environ.get", "getenv"):
            return given[1] if len(given) > 1 else None if given else OPEN
        if name == "getattr" and len(given) > 1 and isinstance(given[1], str):
            return self._attribute(node.args[0], given, scope)
        if last == "ArgumentParser":
            return Parser()
        if last in _PARSERS:
            return self._parser(node)
        if name == "open" or last in ("abspath", "expanduser", "Path"):
            return given[0] if given else OPEN
        if last in ("safe_load", "full_load") or name in ("yaml.load", "json.load", "json.loads", "OmegaConf.load"):
            return self._document(given[0] if given else OPEN, node.lineno)
        if name == "len" and given and isinstance(given[0], (str, list)):
            return len(given[0])
        if last in ("Fire", "run") and given and isinstance(given[0], _Function):
            return self._enter(given[0], [], of_parameters(given[0], self.words, self._default))
        if isinstance(node.func, ast.Attribute):
            return self._method(node, self.value(node.func.value, scope), given, named, scope)
        return OPEN

    @staticmethod
    def _parser(node: ast.Call) -> Any:
        """The parser that is made of classes of arguments."""
        named = [one.value for one in node.keywords if one.arg == "dataclass_types"]
        kinds = next(iter((*node.args, *named)), None)
        listed = list(kinds.elts) if isinstance(kinds, (ast.Tuple, ast.List)) else [kinds] if kinds is not None else []
        return DataParser(listed) if listed else OPEN

    def _document(self, path: Any, line: int) -> Any:
        """What a YAML or JSON file says."""
        found = self._beside.document(path) if isinstance(path, str) else None
        return _items(found, line) if found is not None else OPEN

    def _attribute(self, base: ast.expr, given: Sequence[Any], scope: dict[str, Any]) -> Any:
        if dotted(base) == "torch":
            return f"torch.{given[1]}"
        if isinstance(given[0], Object):
            return given[0][given[1]].value if given[1] in given[0] else given[2] if len(given) > 2 else OPEN
        return OPEN

    def _method(
        self, node: ast.Call, base: Any, given: Sequence[Any], named: Mapping[str, Item], scope: dict[str, Any]
    ) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(base, Parser):
            if name == "add_argument":
                base.add(given, named, node)
            elif name == "set_defaults":
                base.defaults.update({key: one.value for key, one in named.items()})
            elif name in ("parse_args", "parse_known_args"):
                space = self._new(
                    Object({key: Item(value, line) for key, value, line in base.parsed(self.words, OPEN)})
                )
                return space if name == "parse_args" else [space, OPEN]
            return base if name.startswith("add_") and name.endswith("group") else OPEN
        if isinstance(base, DataParser):
            file = given[0] if given else named["json_file"].value if "json_file" in named else OPEN
            return self._dataclasses(base, scope, file if "file" in name else None) if name[:5] == "parse" else OPEN
        if isinstance(base, Object) and base.kind is not None:
            method = next((one for one in base.kind.body if isinstance(one, _Function) and one.name == name), None)
            return self._enter(method, [base, *given], {k: v.value for k, v in named.items()}) if method else OPEN
        if isinstance(base, dict) and name == "get" and given and isinstance(given[0], str):
            return base[given[0]].value if given[0] in base else given[1] if len(given) > 1 else None
        if isinstance(base, dict) and name == "update":
            for key, item in {**_mapping(given[0] if given else {}), **named}.items():
                self._put(base, key, item.value, item.line)
        if isinstance(base, str) and name in ("startswith", "endswith") and given and isinstance(given[0], str):
            return getattr(base, name)(given[0])
        if isinstance(base, str) and name == "read":
            return base  # a file is its name
        if isinstance(base, str) and name in ("lower", "upper", "strip") and not given:
            return getattr(base, name)()
        return base if isinstance(base, dict) and name in ("copy", "items") else OPEN

    def _enter(self, function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Follow a function of the script with these arguments; what it returns."""
        self._entered.add(function)
        if function.name in self._running or len(self._running) >= _DEEPEST_CALL:
            return OPEN
        arguments = function.args
        scope: dict[str, Any] = dict(self._closures.get(function, {}))
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        defaults |= {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                     if value is not None}  # fmt: skip
        with self._at(function):
            for name in (*names, *(one.arg for one in arguments.kwonlyargs)):
                scope[name] = self.value(defaults[name], self._globals) if name in defaults else OPEN
        scope.update(zip(names, given, strict=False))
        own = {*names, *(one.arg for one in arguments.kwonlyargs)}
        scope.update({name: value for name, value in named.items() if name in own})
        if arguments.kwarg is not None:
            rest = {key: Item(value, function.lineno) for key, value in named.items() if key not in names}
            scope[arguments.kwarg.arg] = rest
        self._running.append(function.name)
        try:
            with self._at(function):
                self._block(function.body, scope)
        except _Returned as returned:
            return returned.value
        finally:
            self._running.pop()
        return None

    def _command(self, function: Any) -> dict[str, Any]:
        """The arguments of a function that hydra, click or typer make a command."""
        for one in function.decorator_list:
            if isinstance(one, ast.Call) and dotted(one.func) == "hydra.main" and function.args.args:
                return {function.args.args[0].arg: self._hydra(one)}
        return command_options(function, self.words, self._default)

    def _hydra(self, node: ast.Call) -> Any:
        """The configuration that hydra composes: the named file, the files of its list ``defaults``, the command."""
        said = {one.arg: self.value(one.value, self._globals) for one in node.keywords}
        words = [word for word in self.words if word is not None]
        asked = dict(pairwise(words))
        folder = asked.get("--config-path", said.get("config_path")) or "."
        name = asked.get("--config-name", asked.get("-cn", said.get("config_name"))) or "config"
        found = self._document(f"{folder}/{str(name).removesuffix('.yaml')}.yaml", node.lineno)
        if not isinstance(found, dict):
            return OPEN
        found = Object(found)
        for group, item in _mapping(found.pop("defaults", Item({}, 0)).value).items():
            inner = self._document(f"{folder}/{group}/{item.value}.yaml", node.lineno)
            found[group] = Item(Object({**_mapping(inner), **_mapping(found.get(group, item).value)}), node.lineno)
        for word in self.words:
            key, equals, value = (word or "").lstrip("+").partition("=")
            *sections, last = key.split(".")
            into: Any = found
            for section in sections if equals else ():
                into = into.setdefault(section, Item(Object(), node.lineno)).value if isinstance(into, dict) else None
            if equals and isinstance(into, dict):
                into[last] = Item(scalar(value.strip("'\"")), node.lineno)
        return found

    def _default(self, node: ast.expr) -> Any:
        return self.value(node, self._globals)

    def _library(self, kind: ast.ClassDef, scope: dict[str, Any], depth: int = 0) -> str:
        """The class of a library that a class of the script is one of; empty where there is none."""
        with self._at(kind):
            for base in kind.bases if depth < _DEEPEST_CALL else ():
                below = self.value(base, scope)
                name = self._library(below, scope, depth + 1) if isinstance(below, ast.ClassDef) else dotted(base)
                if name:
                    return name
        return ""

    def _instance(
        self, kind: ast.ClassDef, given: Sequence[Any], named: Mapping[str, Item], scope: dict[str, Any]
    ) -> Object:
        found: Object = self._new(Object(self._fields(kind, scope)))
        found.kind = kind
        start = next((one for one in kind.body if isinstance(one, _Function) and one.name == "__init__"), None)
        if start is not None:
            self._enter(start, [found, *given], {key: one.value for key, one in named.items()})
        else:
            found.update({**dict(zip(found, (Item(one, kind.lineno) for one in given), strict=False)), **named})
        return found

    def _fields(self, kind: ast.ClassDef, scope: dict[str, Any]) -> dict[str, Item]:
        """What is assigned in the body of a class, as of a dataclass, with that of classes of the script below it."""
        with self._at(kind):
            return self._fields_here(kind, scope)

    def _fields_here(self, kind: ast.ClassDef, scope: dict[str, Any]) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for base in kind.bases:
            below = self.value(base, scope)
            if isinstance(below, ast.ClassDef) and below is not kind and len(found) < _MOST_CALLS:
                found.update(self._fields(below, scope))
        for node in kind.body:
            self._step()
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = Item(self._field(node.value, scope), node.lineno)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = Item(self._field(node.value, scope), node.lineno)
        return found

    def _field(self, node: ast.expr | None, scope: dict[str, Any]) -> Any:
        """The default of a field: ``field(default=…)`` and ``default_factory=lambda: …`` too."""
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("field", "Field", "HfArg"):
            for keyword in node.keywords:
                if keyword.arg == "default":
                    return self.value(keyword.value, scope)
                if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
                    return self.value(keyword.value.body, scope)
            return self.value(node.args[0], scope) if node.args else OPEN
        return self.value(node, scope) if node is not None else OPEN

    def _dataclasses(self, parser: DataParser, scope: dict[str, Any], file: Any) -> list[Any]:
        """An object for each class; a class of a library is told as a call with the options that no other one has. A
        ``file`` that is named gives them, else the command, and the file that it names."""
        options = [(name, value, 1) for name, value in parser.given(self.words, OPEN)]
        first = self.words[0] if self.words else None
        file = file or next((value for name, value, _ in options if name == "config"), None) or first
        if isinstance(file, str) and file.endswith((".yaml", ".yml", ".json")):
            document = self._document(file, 1)
            options[:0] = [(key, one.value, 1) for key, one in _mapping(document).items()]
        own: list[tuple[str, ast.ClassDef | None, dict[str, Item]]] = []
        for node in parser.kinds:
            kind = self.value(node, scope)
            local = kind if isinstance(kind, ast.ClassDef) else None
            library = dotted(node) if local is None else self._library(local, scope)
            own.append((library, local, self._fields(local, scope) if local else {}))
        fields = {name for _, local, known in own if local is not None for name in known}
        values: list[Any] = []
        for library, local, known in own:
            found = Object(known)
            found.kind = local
            for name, value, _ in options:
                if name in known or (library and name not in fields):
                    found[name] = Item(value, parser.line(known.get(name)))
            if library:
                settings: list[Any] = []
                for name, item in found.items():
                    _add(settings, name, item.value, item.line)
                self.tell(library, settings or [["#0", None, 1, 0]])
            values.append(found)
        return values


def dotted(node: ast.expr) -> str:
    """``AutoModel.from_pretrained``; empty for what is no plain name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < 10:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _items(value: Any, line: int) -> Any:
    """Dictionaries of a document as those of a script, whose values have lines; interpolations are open."""
    if isinstance(value, dict):
        return Object({key: Item(_items(one, line), line) for key, one in value.items()})
    return OPEN if isinstance(value, str) and "${" in value else value


def _told(value: Any) -> Any:
    return OPEN if value is PERHAPS else value


def _mapping(value: Any) -> dict[str, Item]:
    return value if isinstance(value, dict) else {}


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and not isinstance(one, (ast.AST, Parser)) and one == other)


def _add(settings: list[Any], key: str, value: Any, line: int, depth: int = 0) -> None:
    """The setting, or those of a mapping, each with its own line."""
    flat = isinstance(value, dict) and (not isinstance(value, Object) or not key) and depth < _DEEPEST_MAPPING
    if flat and value and len(settings) < _MOST_CALLS:
        for name, item in value.items():
            _add(settings, f"{key}.{name}" if key else name, item.value, item.line, depth + 1)
    elif key:
        known = value is None or isinstance(value, (str, int, float, bool)) or _plain(value)
        settings.append([key, value if known else None, line, 2 if value is PERHAPS else int(not known)])


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, (str, int, float, bool)) for one in value)
