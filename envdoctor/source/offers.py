"""What a module offers to others: the names bound in it, those it hands on, those it makes when they are asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from envdoctor.source.definitions import blocks, last_name

#: Names are made at run time: a missing one proves nothing.
_MADE = re.compile(
    rb"globals\(\)\s*\[[^\[\]\n]*\]\s*=[^=]|globals\(\)\.(?:update|setdefault|__setitem__)|\bvars\(\)\s*\["
    rb"|setattr\(\s*(?:sys\.modules\[|_?module\b|this_module|_this)"
    rb"|\(\s*sys\.modules\[__name__\]\s*\)|sys\.modules\[__name__\]\.__(?:dict|class)__"
    rb"|\bglobals\(\)\.pop|= *globals\(\) *$|locals\(\)\s*\[[^\[\]\n]*\]\s*=[^=]|locals\(\)\.update",
    re.MULTILINE,
)
_MAKING = (b"globals()", b"vars()", b"setattr(", b"sys.modules[", b"locals()")
_GLOBAL = re.compile(rb"[ \t]+global[ \t]+([A-Za-z_][\w, \t]*)")
_REPLACED = re.compile(rb"sys\.modules\[\s*(?:__name__|\"[\w.]+\"|'[\w.]+')\s*\]\s*=")
_LAZY_CALLS = ("_LazyModule", "LazyModule", "_LazyModuleWrapper", "OptimumLazyModule")
_ATTACH_CALLS = ("_attach", "attach")
_DEFINED_BELOW = "define_import_structure"


class Offers(NamedTuple):
    """The names of one module.

    ``names`` maps each bound name to where it comes from: ``class``, ``def``, ``value``, ``module M`` or ``M:name`` for
    one that was imported. ``stars`` are the modules whose names are taken over. ``lazy`` maps names to the modules that
    are loaded when they are asked for; ``below`` says that these also hold what the modules in its folder export.
    ``exports`` is ``__all__`` where it is a literal. ``open`` says why other names may be there too, None when not.
    ``maker`` is the class, by its name here, that makes the lazy ones. ``finder`` holds the texts of a module that puts
    itself into ``sys.meta_path``: it may serve modules of such names.
    """

    names: dict[str, str]
    stars: tuple[str, ...] = ()
    lazy: Mapping[str, str] = {}
    below: str | None = None
    exports: tuple[str, ...] | None = None
    open: str | None = None
    finder: tuple[str, ...] | None = None
    maker: str = ""


def read_offers(tree: ast.Module, name: str, is_package: bool, source: bytes) -> Offers:
    """What a module's source offers. Names bound in any branch count."""
    reading = _Reading(name, is_package)
    reading.block(tree.body)
    for line in _lines_with(b"global ", source):
        found = _GLOBAL.match(line)
        for one in found[1].split(b",") if found else ():
            reading.names.setdefault(one.strip().decode("ascii", "replace"), "value")
    lazy, below, is_lazy = reading.lazy()
    reason = None
    itself = b"setattr(%b, " % name.rpartition(".")[2].encode()  # numpy.dtypes imports itself and adds to that
    making = any(_MADE.search(line) for word in _MAKING for line in _lines_with(word, source))
    if itself in source or making or (b"exec(" in source and (b"globals()" in source or _executes(tree))):
        reason = "it makes names while it is imported"
    elif "__getattr__" in reading.names and not is_lazy:
        reason = "it has a __getattr__ of its own"
    elif b"sys.modules" in source and _REPLACED.search(source) and not is_lazy:
        reason = "it replaces itself while it is imported"
    finder = tuple(_texts(tree)) if b"sys.meta_path" in source else None
    maker = reading.maker() if is_lazy else ""
    reading.leave_behind()
    return Offers(reading.names, tuple(reading.stars), lazy, below, reading.exports, reason, finder, maker)


def _executes(tree: ast.Module) -> bool:
    """Whether a module calls exec() outside of its functions, where that makes names of its own."""
    waiting: list[ast.AST] = [tree]
    for node in waiting:  # it grows
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec":
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return False


def _lines_with(word: bytes, source: bytes) -> Iterator[bytes]:
    """The lines in which a word stands, each with the one behind it: a search through the whole would take longer."""
    at = source.find(word)
    while at >= 0:
        end = source.find(b"\n", at) + 1 or len(source)
        yield source[source.rfind(b"\n", 0, at) + 1 : source.find(b"\n", end) + 1 or len(source)]
        at = source.find(word, end)


def absolute(module: str | None, level: int, within: str, is_package: bool) -> str:
    """The absolute name of ``from ..module import x`` inside a module."""
    if not level:
        return module or ""
    parts = within.split(".")
    kept = parts[: len(parts) - level + is_package]
    return ".".join([*kept, module] if module else kept)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, whichever branch they stand in; not those of functions and
    classes."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for block in blocks(statement):
            yield from statements(block)


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is ``TYPE_CHECKING``."""
    return last_name(test) == "TYPE_CHECKING"


class _Reading:
    """What one pass over the statements of a module finds."""

    def __init__(self, name: str, is_package: bool) -> None:
        self.name, self.is_package = name, is_package
        self.names: dict[str, str] = {}
        self.stars: list[str] = []
        self.exports: tuple[str, ...] | None = None
        self._for_types: dict[str, str] = {}
        self._for_types_stars: list[str] = []
        self._tables: dict[str, dict[str, str]] = {}
        self._calls: list[ast.Call] = []
        self._in_its_place: ast.Call | None = None

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def lazy(self) -> tuple[dict[str, str], str | None, bool]:
        """The names that are made when asked for, the folder's own exports if they are among them, and whether the
        module is of a kind whose names are known."""
        called = {last_name(call.func) for call in self._calls}
        table: dict[str, str] = {}
        if called.isdisjoint((*_LAZY_CALLS, *_ATTACH_CALLS)):
            return table, None, False
        known = False
        for submodule, names in ((key, value) for one in self._tables.values() for key, value in one.items()):
            known = True
            table.setdefault(submodule.partition(".")[0], "")
            for name in names.split("\n") if names else ():
                table[name] = f"{self.name}.{submodule}"
        table.update(self._for_types)
        below = None
        for call in self._calls:
            if last_name(call.func) == _DEFINED_BELOW:
                known, below = True, next(filter(None, map(_last_text, call.args[:1])), "")
        if below is None:
            self.stars += self._for_types_stars
        return table, below, known or bool(self._for_types)

    def maker(self) -> str:
        """The class of the lazy module; nothing for one that a function makes."""
        return next((name for call in self._calls if (name := last_name(call.func)) in _LAZY_CALLS), "")

    def leave_behind(self) -> None:
        """Drop the functions and classes defined in a module that puts a lazy one in its own place: that one has what
        it is told of, and ``extra_objects``."""
        if self._in_its_place is None:
            return
        told = (word.value for word in self._in_its_place.keywords if word.arg == "extra_objects")
        extra = next(told, ast.Dict([], []))
        if isinstance(extra, ast.Dict):
            kept = {getattr(key, "value", None) for key in extra.keys}
            left = {name: kind for name, kind in self.names.items() if name in kept or kind not in ("def", "class")}
            self.names = left

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.names[statement.name] = "def"
        elif isinstance(statement, ast.ClassDef):
            self.names[statement.name] = "class"
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                self.names[alias.asname or top] = f"module {top}"
        elif isinstance(statement, ast.ImportFrom):
            self._import_from(statement, self.names, self.stars)
        elif isinstance(statement, ast.If) and is_type_checking(statement.test):
            for inner in statements(statement.body):
                if isinstance(inner, ast.ImportFrom):
                    self._import_from(inner, self._for_types, self._for_types_stars)
            self.block(statement.orelse)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(statement)
        else:
            self._other(statement)

    def _other(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr):
            self._call(statement.value)
            return
        for target in (getattr(statement, "target", None), *(getattr(statement, "items", ()))):
            self._bind(getattr(target, "optional_vars", target))
        for block in blocks(statement):
            self.block(block)

    def _import_from(self, statement: ast.ImportFrom, names: dict[str, str], stars: list[str]) -> None:
        module = absolute(statement.module, statement.level, self.name, self.is_package)
        for alias in statement.names:
            if alias.name == "*":
                stars.append(module)
            else:
                names[alias.asname or alias.name] = f"{module}:{alias.name}"

    def _assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        value = statement.value
        for target in targets:
            if value is not None or isinstance(statement, ast.AnnAssign):
                self._bind(target)
        if value is None:
            return
        if isinstance(value, ast.Call):
            self._calls.append(value)
            self._calls += [inner for inner in value.args if isinstance(inner, ast.Call)]
        first = targets[0]
        if isinstance(first, ast.Name) and first.id == "__all__":
            self._exported(value, isinstance(statement, ast.AugAssign))
        elif isinstance(first, ast.Name) and isinstance(value, ast.Dict):
            entries = _submodules(value)
            if entries is not None:
                self._tables[first.id] = entries
        elif isinstance(first, ast.Subscript) and isinstance(first.value, ast.Name):
            self._add(first, value)
        elif isinstance(first, ast.Subscript) and isinstance(value, ast.Call) and last_name(value.func) in _LAZY_CALLS:
            self._in_its_place = value

    def _exported(self, value: ast.expr, more: bool) -> None:
        names = _strings(value)
        if names is None or (more and self.exports is None):
            self.exports = None
        else:
            self.exports = (*(self.exports or ()), *names) if more else tuple(names)

    def _call(self, value: ast.expr) -> None:
        """``_import_structure["x"].append("Y")`` and ``.extend([...])``."""
        if not isinstance(value, ast.Call):
            return
        self._calls.append(value)
        call = value.func
        if (
            isinstance(call, ast.Attribute)
            and call.attr in ("append", "extend")
            and isinstance(call.value, ast.Subscript)
        ):
            self._add(call.value, *value.args)
        elif isinstance(call, ast.Attribute) and call.attr == "update" and isinstance(call.value, ast.Name):
            for argument in value.args:
                entries = _submodules(argument) if isinstance(argument, ast.Dict) else None
                for key, names in (entries or {}).items():
                    self._tables.setdefault(call.value.id, {})[key] = names

    def _add(self, place: ast.Subscript, *values: ast.expr) -> None:
        key = place.slice
        if not isinstance(place.value, ast.Name) or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return
        table = self._tables.setdefault(place.value.id, {})
        for value in values:
            names = (
                [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else _strings(value)
            )
            if names:
                table[key.value] = "\n".join(filter(None, [table.get(key.value, ""), *names]))

    def _bind(self, target: ast.AST | None) -> None:
        if isinstance(target, ast.Name):
            self.names.setdefault(target.id, "value")
        elif isinstance(target, (ast.Tuple, ast.List)):
            for inner in target.elts:
                self._bind(inner)
        elif isinstance(target, ast.Starred):
            self._bind(target.value)


def _last_text(argument: ast.expr) -> str:
    """``models`` of ``Path(__file__).parent / "models"``."""
    if isinstance(argument, ast.BinOp) and isinstance(argument.right, ast.Constant):
        return str(argument.right.value)
    return ""


def _strings(value: ast.expr) -> list[str] | None:
    """The texts of a literal list, tuple or set, or a sum of them; None for anything else."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _strings(value.left), _strings(value.right)
        return None if left is None or right is None else left + right
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        found = [one.value for one in value.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return found if len(found) == len(value.elts) else None
    return None


def _submodules(value: ast.Dict) -> dict[str, str] | None:
    """``{"submodule": ["Name", …]}`` with the names joined by line feeds; None for another kind of table."""
    table: dict[str, str] = {}
    for key, names in zip(value.keys, value.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        found = _strings(names)
        if found is None:
            return None
        table[key.value] = "\n".join(found)
    return table


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield node.value
