"""Read what a module offers to others: names that it binds, names that it hands on, names that it makes on demand."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from envdoctor.source.definitions import blocks, keyword_of, last_name, of_kind, statements, text_of, texts_in

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

    ``names`` maps each bound name to its origin: ``class``, ``def``, ``value``, ``module M`` or, for an imported name,
    ``M:name``. ``stars`` are the modules whose names are taken over. ``lazy`` maps names to the modules that are loaded
    on demand; ``below`` is the folder whose modules' exports are lazy names too. ``exports`` is ``__all__`` where it is
    a literal. ``open`` says why other names may be there too, None when not. ``maker`` is the class, by its name here,
    that makes the lazy names. ``finder`` holds the texts of a module that puts itself into ``sys.meta_path``: it may
    serve modules of such names.
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
    """Read what a module's source offers. Names bound in any branch count."""
    reading = _Reading(name, is_package)
    reading.block(tree.body)
    for line in _lines_with(b"global ", source):
        match = _GLOBAL.match(line)
        for word in match[1].split(b",") if match else ():
            reading.names.setdefault(word.strip().decode("ascii", "replace"), "value")
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
    finder = tuple(text for text in texts_in(ast.walk(tree)) if len(text) < 200) if b"sys.meta_path" in source else None
    maker = reading.maker() if is_lazy else ""
    reading.leave_behind()
    return Offers(reading.names, tuple(reading.stars), lazy, below, reading.exports, reason, finder, maker)


def _executes(tree: ast.Module) -> bool:
    """Return whether a module calls exec() outside of its functions, where exec() makes names of the module."""
    queue: list[ast.AST] = [tree]
    for node in queue:  # it grows
        match node:
            case ast.Call(func=ast.Name(id="exec")):
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
        queue += ast.iter_child_nodes(node)
    return False


def _lines_with(word: bytes, source: bytes) -> Iterator[bytes]:
    """Yield the lines that contain a word, each with the next one: a search through the whole would take longer."""
    at = source.find(word)
    while at >= 0:
        end = source.find(b"\n", at) + 1 or len(source)
        yield source[source.rfind(b"\n", 0, at) + 1 : source.find(b"\n", end) + 1 or len(source)]
        at = source.find(word, end)


def absolute(module: str | None, level: int, within: str, is_package: bool) -> str:
    """Return the absolute name of ``from ..module import x`` inside a module."""
    if not level:
        return module or ""
    parts = within.split(".")
    base = parts[: len(parts) - level + is_package]
    return ".".join([*base, module] if module else base)


class _Reading:
    """The names found in one pass over the statements of a module."""

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
            match statement:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.names[name] = "def"
                case ast.ClassDef(name=name):
                    self.names[name] = "class"
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value)
                case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
                    self._assign([target], value, more=isinstance(statement, ast.AugAssign))
                case ast.Import(names=names):
                    for alias in names:
                        top = alias.name if alias.asname else alias.name.partition(".")[0]
                        self.names[alias.asname or top] = f"module {top}"
                case ast.ImportFrom():
                    self._import_from(statement, self.names, self.stars)
                case ast.If(test=test, body=for_types, orelse=orelse) if last_name(test) == "TYPE_CHECKING":
                    for inner in statements(for_types):
                        if isinstance(inner, ast.ImportFrom):
                            self._import_from(inner, self._for_types, self._for_types_stars)
                    self.block(orelse)
                case ast.Expr(value=value):
                    self._call(value)
                case _:
                    for target in (getattr(statement, "target", None), *(getattr(statement, "items", ()))):
                        self._bind(getattr(target, "optional_vars", target))
                    for block in blocks(statement):
                        self.block(block)

    def lazy(self) -> tuple[dict[str, str], str | None, bool]:
        """Return the names that are made on demand, the folder whose exports are among them (None: no folder), and
        whether the module is of a kind whose names are known."""
        calls = {last_name(call.func) for call in self._calls}
        table: dict[str, str] = {}
        if calls.isdisjoint((*_LAZY_CALLS, *_ATTACH_CALLS)):
            return table, None, False
        is_known = False
        for submodule, names in ((key, value) for entries in self._tables.values() for key, value in entries.items()):
            is_known = True
            table.setdefault(submodule.partition(".")[0], "")
            for name in names.split("\n") if names else ():
                table[name] = f"{self.name}.{submodule}"
        table.update(self._for_types)
        below = None
        for call in self._calls:
            if last_name(call.func) == _DEFINED_BELOW:
                # ``models`` of ``Path(__file__).parent / "models"``.
                is_known, below = True, text_of(getattr(next(iter(call.args), None), "right", None)) or ""
        if below is None:
            self.stars += self._for_types_stars
        return table, below, is_known or bool(self._for_types)

    def maker(self) -> str:
        """Return the class of the lazy module; empty if a function makes it."""
        return next((name for call in self._calls if (name := last_name(call.func)) in _LAZY_CALLS), "")

    def leave_behind(self) -> None:
        """Drop the functions and classes of a module that puts a lazy module in its place: that one has only the names
        in its tables, and ``extra_objects``."""
        extra = keyword_of(self._in_its_place, "extra_objects") or ast.Dict([], [])
        if self._in_its_place is not None and isinstance(extra, ast.Dict):
            extras = set(texts_in(extra.keys))
            rest = {name: kind for name, kind in self.names.items() if name in extras or kind not in ("def", "class")}
            self.names = rest

    def _import_from(self, statement: ast.ImportFrom, names: dict[str, str], stars: list[str]) -> None:
        module = absolute(statement.module, statement.level, self.name, self.is_package)
        for alias in statement.names:
            if alias.name == "*":
                stars.append(module)
            else:
                names[alias.asname or alias.name] = f"{module}:{alias.name}"

    def _assign(self, targets: list[ast.expr], value: ast.expr | None, *, more: bool = False) -> None:
        for target in targets:
            self._bind(target)
        if value is None:
            return
        if isinstance(value, ast.Call):
            self._calls += [value, *of_kind(value.args, ast.Call)]
        match targets[0]:
            case ast.Name(id="__all__"):
                names, before = _strings(value), self.exports if more else ()
                self.exports = None if names is None or before is None else (*before, *names)
            case ast.Name(id=name):
                entries = _submodules(value)
                if entries is not None:
                    self._tables[name] = entries
            case ast.Subscript(value=ast.Name()) as place:
                self._add(place, value)
            case ast.Subscript() if isinstance(value, ast.Call) and last_name(value.func) in _LAZY_CALLS:
                self._in_its_place = value

    def _call(self, value: ast.expr) -> None:
        """Read ``_import_structure["x"].append("Y")`` and ``.extend([...])``."""
        if isinstance(value, ast.Call):
            self._calls.append(value)
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Subscript() as place, attr="append" | "extend"), args=args):
                self._add(place, *args)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=args):
                for argument in args:
                    for key, names in (_submodules(argument) or {}).items():
                        self._tables.setdefault(name, {})[key] = names

    def _add(self, place: ast.Subscript, *values: ast.expr) -> None:
        match place:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
                table = self._tables.setdefault(name, {})
                for value in values:
                    text = text_of(value)
                    names = _strings(value) if text is None else [text]
                    if names:
                        table[key] = "\n".join(filter(None, [table.get(key, ""), *names]))

    def _bind(self, target: ast.AST | None) -> None:
        match target:
            case ast.Name(id=name):
                self.names.setdefault(name, "value")
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for inner in items:
                    self._bind(inner)
            case ast.Starred(value=inner):
                self._bind(inner)


def _strings(value: ast.expr) -> list[str] | None:
    """Return the texts of a literal list, tuple or set, or a sum of them; None for anything else."""
    match value:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _strings(left), _strings(right)
            return None if first is None or second is None else first + second
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            texts = [*texts_in(items)]
            return texts if len(texts) == len(items) else None
    return None


def _submodules(value: ast.expr) -> dict[str, str] | None:
    """Return ``{"submodule": ["Name", …]}`` with the names joined by line feeds; None for anything else."""
    if not isinstance(value, ast.Dict):
        return None
    table: dict[str, str] = {}
    for key, names in zip(value.keys, value.values, strict=True):
        submodule = text_of(key)
        texts = _strings(names) if submodule is not None else None
        if submodule is None or texts is None:
            return None
        table[submodule] = "\n".join(texts)
    return table
