"""Find the values of guards of imports.

It knows the answers of functions and methods whose code is not followed (builtins, the standard library, packaging).
"""

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envdoctor.source.library import Library
from envdoctor.source.names import Names
from envdoctor.source.values import (
    MOST,
    MOST_ROUNDS,
    PLAIN,
    REFUSED,
    UNKNOWN,
    Class,
    Expressions,
    Failed,
    Frame,
    Function,
    Module,
    Reference,
    Version,
    World,
    builtin,
    is_known,
    is_known_deep,
    is_small,
    joined,
    own_method,
    truth,
)
from envdoctor.versions.pep440 import NotASpecifier, base_release, satisfies
from envdoctor.versions.requirement import NotARequirement, read_requirement

_CHANGING = frozenset(
    ("append", "extend", "update", "add", "setdefault", "pop", "remove", "insert", "clear", "discard")
)
_BUILTINS = frozenset(dir(builtins))
MOST_STEPS = 5_000_000
#: Packages whose functions guards compare versions with.
COMPARING = ("packaging", "importlib_metadata", "pkg_resources")
_OPERATORS = {"eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE}
_SPELLED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SEQUENCES: Mapping[type, Callable[[list[Any]], Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: set}


class OutOfBudget(Exception):
    """Following took more steps than one environment may cost."""


class TooLong(Exception):
    """A function does more than decide."""


class More:
    """Raise a counter by one for as long as a ``with`` lasts. (A generator takes five times as long.)"""

    def __init__(self, following: "Deciding", counter: str) -> None:
        self._following, self._counter = following, counter

    def __enter__(self) -> None:
        setattr(self._following, self._counter, getattr(self._following, self._counter) + 1)

    def __exit__(self, *_: object) -> None:
        setattr(self._following, self._counter, getattr(self._following, self._counter) - 1)


class Deciding(Expressions):
    """The values of expressions in one environment, while what an import executes is followed.

    :class:`envdoctor.source.importing.Importing` adds how modules are imported, and what their names, attributes,
    objects and functions give; each raises :class:`Failed` for what certainly fails.
    """

    load: Callable[[str, str, int], None]
    unbound: Callable[[str, str], Any]
    attribute: Callable[[str, str, str, int], Any]
    instance: Callable[[Class, Iterable[str], str, int], Any]
    call: Callable[[Function, list[Any], dict[str, Any], ast.Call], Any]

    def __init__(self, library: Library, world: World) -> None:
        followed = world.followed
        self.library = library
        self.world = world._replace(followed=lambda top: top not in COMPARING and followed(top))
        self.names = Names(library, self.world)
        self._unsure = self._catching = self._testing = self._depth = 0
        self._steps, self._until = 0, MOST_STEPS

    def unsure(self, node: ast.expr, frame: Frame) -> Any:
        """Like :meth:`value`, of an expression that may not be evaluated at all: a failure in it proves nothing."""
        with More(self, "_unsure"):
            try:
                return self.value(node, frame)
            except Failed:
                return UNKNOWN

    def step(self) -> None:
        """Count work. Raises :class:`OutOfBudget`."""
        self._steps += 1
        if self._steps > self._until:
            raise TooLong if self._steps <= MOST_STEPS else OutOfBudget

    # Hooks for following imports in several environments at once (tools/harvesting)

    def compare(self, left: str, right: str) -> None:
        """Note that two versions are compared."""

    def present(self, module: str) -> Any:
        """Return what ``find_spec`` gives: None for a missing module."""
        answer = self.names.exists(module)
        return None if answer is False else Reference(f"spec of {module}") if answer is None else Module(module)

    def available(self, module: str) -> Any:
        """Return what ``is_X_available()`` of a package that is not followed gives: False if X is missing."""
        return False if self.world.complete and self.library.find(module) is None else UNKNOWN

    def has(self, module: str, name: str) -> Any:
        """Return what ``hasattr`` gives for a module."""
        answer = self.names.has(module, name)
        return UNKNOWN if answer is None else answer

    # Expressions

    def visit_Name(self, node: ast.Name, frame: Frame) -> Any:
        value = frame.get(node.id)
        if value.__class__ is Reference and value.dotted == f"builtins.{node.id}" and node.id not in _BUILTINS:
            return self.unbound(frame.module, node.id)
        return value

    def visit_Attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        match self.value(node.value, frame):
            case Module(module=module):
                return self.attribute(module, node.attr, frame.module, node.lineno)
            case Reference(dotted=dotted):
                return Reference(f"{dotted}.{node.attr}")
            case Version(version=version):
                base = base_release(version)
                if base is None:
                    return UNKNOWN
                numbers = tuple(int(part) for part in base.split("."))
                parts = dict(zip(("major", "minor", "micro"), (*numbers, 0, 0), strict=False))
                return {"base_version": base, "release": numbers, **parts}.get(node.attr, UNKNOWN)
        return UNKNOWN

    def visit_IfExp(self, node: ast.IfExp, frame: Frame) -> Any:
        verdict = truth(self.value(node.test, frame))
        if verdict is None:
            return joined(self.unsure(node.body, frame), self.unsure(node.orelse, frame))
        return self.value(node.body if verdict else node.orelse, frame)

    def sequence(self, node: ast.Tuple | ast.List | ast.Set, values: list[Any]) -> Any:
        try:
            return _SEQUENCES[type(node)](values) if is_small(values) else UNKNOWN
        except TypeError:
            return UNKNOWN

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Any:
        """Return the values of a comprehension or a generator if all its conditions are known."""
        rows = self._rows(node.generators, Frame(frame.module, {}, frame))
        values = [self.value(node.elt, row) for row in rows or ()]
        if rows is None or not is_small(values):
            return UNKNOWN
        if not isinstance(node, ast.SetComp):
            return values
        return set(values) if is_known(values) else UNKNOWN

    def _rows(self, loops: Sequence[ast.comprehension], frame: Frame) -> list[Frame] | None:
        """Return the names in every round of nested loops; None if these are unknown."""
        rows = [frame]
        for loop in loops:
            before, rows = rows, []
            for row in before:
                values = self.value(loop.iter, row)
                if not isinstance(values, (list, tuple, dict)) or not isinstance(loop.target, ast.Name):
                    return None
                if len(values) > MOST_ROUNDS:
                    return None
                for value in values:
                    scope = Frame(frame.module, {**row.names, loop.target.id: value}, frame.around)
                    tests = [truth(self.value(test, scope)) for test in loop.ifs]
                    if None in tests or len(rows) > MOST:
                        return None
                    if all(tests):
                        rows.append(scope)
        return rows

    def visit_Dict(self, node: ast.Dict, frame: Frame) -> Any:
        table: dict[Any, Any] | None = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = UNKNOWN if key is None else self.value(key, frame)
            content = self.value(value, frame)
            if not isinstance(name, (str, int, tuple)) or name is UNKNOWN:
                table = None
            elif table is not None:
                table[name] = content
        return table if table is not None and is_small(table) else UNKNOWN

    def item(self, base: Any, key: Any) -> Any:
        match base, key:
            case Reference(dotted="sys.modules"), str():
                return Module(key)
            case Reference(dotted="importlib.metadata.packages_distributions()"), str():
                return self._distributions(key) or UNKNOWN
        return super().item(base, key)

    def visit_Starred(self, node: ast.Starred, frame: Frame) -> Any:
        self.value(node.value, frame)
        return UNKNOWN

    def visit_Call(self, node: ast.Call, frame: Frame) -> Any:
        method, holder = node.func, UNKNOWN
        if isinstance(method, ast.Attribute):
            holder = self.value(method.value, frame)
        is_held = isinstance(holder, (str, dict, set, frozenset, list, tuple))
        function = UNKNOWN if is_held else self.value(method, frame)
        arguments = [self.value(argument, frame) for argument in node.args]  # one behind * or ** is not known
        keywords = {keyword.arg or "**": self.value(keyword.value, frame) for keyword in node.keywords}
        if is_held and isinstance(method, ast.Attribute):
            if method.attr in _CHANGING and isinstance(holder, (dict, set, list)):
                return self._changed(holder, method, arguments, frame)
            return UNKNOWN if keywords else own_method(holder, method.attr, arguments)
        match function:
            case Function():
                return self.call(function, arguments, keywords, node)
            case Class():
                return self.instance(function, keywords, frame.module, node.lineno)
            case Reference(dotted=dotted):
                return self._answer(dotted, arguments, keywords, frame)
        return UNKNOWN

    def _changed(self, holder: Any, method: ast.Attribute, arguments: list[Any], frame: Frame) -> Any:
        """Apply a method that changes a list, dictionary or set if it certainly runs; else the name that holds it is
        unknown from now on."""
        if not self._unsure and len(holder) < MOST and all(map(is_known_deep, arguments)):
            try:
                return getattr(holder, method.attr)(*arguments)
            except REFUSED:
                pass
        if isinstance(method.value, ast.Name):
            frame.forget(method.value.id)
        return UNKNOWN

    def _answer(self, dotted: str, values: list[Any], keywords: dict[str, Any], frame: Frame) -> Any:
        """Return what a function of the standard library, of packaging or a builtin answers."""
        first = values[0] if values else UNKNOWN
        last = dotted.rpartition(".")[2]
        if dotted in ("os.getenv", "os.environ.get"):
            return values[1] if len(values) > 1 else keywords.get("default")
        if dotted.endswith(".packages_distributions"):
            return Reference("importlib.metadata.packages_distributions()")
        if isinstance(first, str):
            if last in ("find_spec", "find_loader"):
                return self.present(first)
            if dotted in ("importlib.metadata.version", "importlib_metadata.version"):
                installed = self.world.version(first)
                if installed is None:
                    raise Failed("PackageNotFoundError", None)
                return installed
            if dotted == "importlib.metadata.packages_distributions().get":
                return self._distributions(first)
            if dotted in ("importlib.import_module", "builtins.__import__") and not first.startswith("."):
                self.load(first, frame.module, 0)
                return Module(first)
            if last in ("parse", "parse_version", "Version", "LooseVersion", "StrictVersion") and "ersion" in dotted:
                return Version(first)
        if dotted.startswith("operator.") and last in _OPERATORS and len(values) == 2:
            return self.compared(first, _OPERATORS[last](), values[1])
        if (
            dotted == "builtins.isinstance"
            and values[1:] == [Reference("builtins.str")]
            and isinstance(first, (*PLAIN, Version))
        ):
            return isinstance(first, str)
        if isinstance(first, Module) and len(values) > 1 and isinstance(values[1], str):
            if dotted == "builtins.hasattr":
                return self.has(first.module, values[1])
            if dotted == "builtins.getattr" and values[1] == "__version__":
                return self.attribute(first.module, "__version__", frame.module, 0)
        if isinstance(first, Function) and dotted in ("functools.lru_cache", "functools.cache"):
            return first
        if last.startswith("is_") and last.endswith("_available") and dotted.count("."):
            return self.available(last[3:-10])
        if dotted == "builtins.dict.fromkeys" and isinstance(first, (list, tuple)) and is_known(first):
            return dict.fromkeys(first)
        return builtin(last, values) if dotted.startswith("builtins.") and not keywords else UNKNOWN

    def _distributions(self, module: str) -> Any:
        """Return the installed distributions that a top-level module belongs to."""
        names = self.world.owners.get(module, (module,))
        versions = [self.world.version(name) for name in names]
        if any(version is UNKNOWN for version in versions):
            return UNKNOWN
        return [name for name, version in zip(names, versions, strict=True) if version is not None]

    def compared(self, left: Any, sign: ast.cmpop, right: Any) -> Any:
        match left, right:
            case Version(version=version), Version(version=other) if type(sign) in _SPELLED:
                self.compare(version, other)
                try:
                    return satisfies(version, _SPELLED[type(sign)] + other.partition("+")[0])
                except NotASpecifier:
                    return UNKNOWN
        return super().compared(left, sign, right)

    visit_SetComp = visit_GeneratorExp = visit_ListComp


def is_met(text: str, version: Callable[[str], Any], python: tuple[int, ...] | None) -> bool | None:
    """Return whether a requirement such as ``tokenizers>=0.20,<0.21`` is met; None if unknown."""
    try:
        requirement = read_requirement(text)
    except NotARequirement:
        return None
    release = version(requirement.name)
    if requirement.name == "python":
        release = UNKNOWN if python is None else ".".join(map(str, python[:3]))
    if release is UNKNOWN or requirement.marker:
        return None
    if release is None:
        return False
    return satisfies(release, requirement.specifiers) if requirement.specifiers else True
