"""The texts that the code can say, read from its syntax trees: what is passed to a call, followed through names,
fields, conditions, returned values and the arguments of callers. A text with values in it is a template:
``{} is not known``."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import envdoctor

_ROOT = Path(envdoctor.__file__).parent
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
#: Fields of many classes, most of which hold no sentence.
_TOO_COMMON = ("value", "before", "after", "label", "text", "name")
#: Exceptions that end the command: their texts are no part of a report.
_ENDING = ("JobError", "UsageProblem", "SnapshotError")
#: Calls whose value is, or holds, what they are given.
_PASSING = ("str", "join", "tuple", "list", "sorted", "next", "filter", "get", "removeprefix")


def is_sentence(template: str) -> bool:
    """Whether a text has English words that a person reads: no path, no key, no name alone."""
    words = [word.strip(",.;:()'`") for word in template.split()]
    return len(words) > 1 and any(word.isalpha() and word.islower() and len(word) > 1 for word in words)


class _Place(NamedTuple):
    """A call, the function that it stands in, and where that is."""

    call: ast.Call
    function: _Function
    path: str


class House:
    """All modules below some folders of envdoctor, but those named ``without``."""

    def __init__(self, folders: Iterable[str], without: Iterable[str] = ()) -> None:
        self._functions: dict[str, list[_Function]] = defaultdict(list)
        self._calls: dict[str, list[_Place]] = defaultdict(list)
        self._raised: dict[str, list[_Place]] = defaultdict(list)
        self._fields: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._attributes: dict[str, list[tuple[ast.expr, _Function]]] = defaultdict(list)
        self._bound: dict[int, dict[str, list[ast.expr]]] = {}
        self._module_of: dict[int, ast.Module] = {}
        left_out = {_ROOT / path for path in without}
        for path in sorted({path for folder in folders for path in (_ROOT / folder).rglob("*.py")} - left_out):
            module = ast.parse(path.read_bytes())
            self._enter(module, module)
            self._visit(module, module, path.relative_to(_ROOT.parent).as_posix())

    def said(self, sinks: Mapping[str, tuple[int | str, ...]]) -> dict[str, str]:
        """Every template that a call of these names can get as one of these arguments (by number or keyword), with
        the place of such a call."""
        found: dict[str, str] = {}
        todo = [
            (value, function, f"{path}:{call.lineno}")
            for name, arguments in sinks.items()
            for call, function, path in self._calls[name]
            for value in (_argument(call, argument) for argument in arguments)
            if value is not None
        ]
        seen: set[tuple[int, int]] = set()
        while todo:
            node, function, place = todo.pop()
            if (id(node), id(function)) not in seen:
                seen.add((id(node), id(function)))
                text = _template(node)
                if text is not None and text.replace("{}", ""):
                    found.setdefault(text, place)
                todo += [(part, owner, place) for part, owner in self._parts(node, function)]
        return found

    # --- reading ---------------------------------------------------------------------------------------------------

    def _enter(self, function: _Function, module: ast.Module) -> None:
        self._bound[id(function)], self._module_of[id(function)] = defaultdict(list), module

    def _visit(self, node: ast.AST, function: _Function, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            self._note(child, function, path)
            if isinstance(child, _FUNCTIONS):
                self._functions[child.name].append(child)
                self._enter(child, self._module_of[id(function)])
                self._visit(child, child, path)
            else:
                self._visit(child, function, path)

    def _note(self, node: ast.AST, function: _Function, path: str) -> None:
        """What the node says of names, calls, fields and exceptions."""
        if isinstance(node, ast.Call):
            name = _called(node)
            self._calls[name].append(_Place(node, function, path))
            if name in ("append", "add", "extend") and isinstance(node.func, ast.Attribute) and node.args:
                self._bind(node.func.value, node.args[0], function)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value, function)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            self._bind(node.target, node.value, function)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._bind(node.target, node.iter, function)
        elif isinstance(node, ast.ExceptHandler) and node.name and node.type:
            kinds = [kind.id for kind in ast.walk(node.type) if isinstance(kind, ast.Name) and kind.id not in _ENDING]
            self._bound[id(function)][node.name] += [ast.Call(ast.Name(f"raise {kind}"), [], []) for kind in kinds]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            self._raised[_called(node.exc)].append(_Place(node.exc, function, path))
        elif isinstance(node, ast.ClassDef):
            fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            for number, field in enumerate(field for field in fields if isinstance(field, ast.Name)):
                self._fields[field.id].append((node.name, number))

    def _bind(self, target: ast.expr, value: ast.expr, function: _Function) -> None:
        if isinstance(target, ast.Name):
            self._bound[id(function)][target.id].append(value)
        elif isinstance(target, ast.Attribute):
            self._attributes[target.attr].append((value, function))
        elif isinstance(target, ast.Subscript):
            self._bind(target.value, value, function)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for number, one in enumerate(target.elts):
                self._bind(one, parts[number] if len(parts) == len(target.elts) else value, function)

    # --- following -------------------------------------------------------------------------------------------------

    def _parts(self, node: ast.expr, function: _Function) -> Iterator[tuple[ast.expr, _Function]]:
        """The expressions that the node can have the value of, or that are its items, each with its function."""
        if isinstance(node, ast.Name):
            yield from self._name(node.id, function)
        elif isinstance(node, ast.Call):
            yield from self._call(node, function)
        elif isinstance(node, ast.Attribute) and node.attr not in _TOO_COMMON:
            yield from self._attributes.get(node.attr, ())
            for kind, number in self._fields.get(node.attr, ()):
                for call, caller, _ in self._calls[kind]:
                    value = _argument(call, node.attr) or _argument(call, number)
                    yield from [(value, caller)] if value is not None else []
        else:
            yield from ((part, function) for part in _inside(node))

    def _name(self, name: str, function: _Function) -> Iterator[tuple[ast.expr, _Function]]:
        module = self._module_of[id(function)]
        for owner in {id(function): function, id(module): module}.values():
            yield from ((value, owner) for value in self._bound[id(owner)].get(name, ()))
        if isinstance(function, _FUNCTIONS):
            arguments = function.args
            numbered = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg not in ("self", "cls")]
            if name in numbered or name in [one.arg for one in arguments.kwonlyargs]:
                for call, caller, _ in self._calls[function.name]:
                    value = _argument(call, name)
                    if value is None and name in numbered:
                        value = _argument(call, numbered.index(name))
                    yield from [(value, caller)] if value is not None else []

    def _call(self, call: ast.Call, function: _Function) -> Iterator[tuple[ast.expr, _Function]]:
        name = _called(call)
        if name.startswith("raise "):
            for raised, thrower, _ in self._raised[name[6:]]:
                yield from ((argument, thrower) for argument in raised.args)
        elif name in _PASSING:
            held = [call.func.value] if name == "get" and isinstance(call.func, ast.Attribute) else []
            yield from ((part, function) for part in (*call.args, *held))
        for called in self._functions.get(name, ()):
            for node in ast.walk(called):
                if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
                    yield node.value, called


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _argument(call: ast.Call, which: int | str) -> ast.expr | None:
    if isinstance(which, int):
        plain = which < len(call.args) and not any(isinstance(one, ast.Starred) for one in call.args[: which + 1])
        return call.args[which] if plain else None
    return next((keyword.value for keyword in call.keywords if keyword.arg == which), None)


def _template(node: ast.expr) -> str | None:
    """The text of a constant, a formatted text or a sum of such, with ``{}`` for what is put in; None for others."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_template(side) for side in (node.left, node.right)]
        return None if sides == [None, None] else "".join("{}" if side is None else side for side in sides)
    return None


def _inside(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, (ast.BoolOp, ast.Dict)):
        return list(node.values)
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return list(node.elts)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return [node.elt]
    if isinstance(node, ast.JoinedStr):
        return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    if isinstance(node, ast.BinOp):
        return [side for side in (node.left, node.right) if _template(side) is None]
    return [node.value] if isinstance(node, (ast.NamedExpr, ast.Starred, ast.Subscript)) else []
