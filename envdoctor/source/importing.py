"""Follow what an import executes, without executing it: what it takes, and what stops it.

If a condition is not known, both branches are followed, and a stop in one proves nothing. A module that is not followed
(its insides are not ours to check, or it is compiled) only says which names it has.
"""

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from envdoctor.source.deciding import COMPARING, MOST_STEPS, Deciding, More, TooLong, is_met
from envdoctor.source.definitions import defaults_of, elements, is_generator, last_name, names_in, parameters_of
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.offers import absolute
from envdoctor.source.signatures import accepts
from envdoctor.source.values import (
    MOST_ROUNDS,
    UNKNOWN,
    Class,
    Failed,
    Frame,
    Function,
    Module,
    Reference,
    Stop,
    World,
    joined,
    truth,
)

_MOST_IN_A_CALL = 20_000
_DEEPEST = 20
#: Functions whose answer may decide an import, where the call itself stands in no condition.
_DECIDES = re.compile(r"available|version|install|check|require|has_|is_|find|import|exist|support|compat|patch|lazy")
_IMPORT_ERRORS = (
    "ImportError",
    "ModuleNotFoundError",
    "PackageNotFoundError",
    "AttributeError",
    "NameError",
    "VersionConflict",
)
_MOST_STOPS = 8
_MARKED = re.compile(rb"^@(?:requires|export)\(", re.MULTILINE)
_CAUGHT_BY = {
    "ModuleNotFoundError": ("ImportError",),
    "PackageNotFoundError": ("ModuleNotFoundError", "ImportError"),
    "KeyError": ("LookupError",),
    "IndexError": ("LookupError",),
    "VersionConflict": ("ImportError",),
}
_ALL = ("Exception", "BaseException")


@dataclass(slots=True)
class _State:
    """One module that was, or is being, imported."""

    frame: Frame
    running: bool = True
    kind: str = ""
    stops: list[Stop] = field(default_factory=list)

    def stop(self, failed: Failed) -> None:
        """Note what stops the module, or would next."""
        self.kind = self.kind or failed.kind
        self.stops += [stop for stop in (failed.stop, *failed.behind) if stop is not None and stop not in self.stops]


class _Returned(Exception):
    """A function returns ``value``."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _LeftRound(Exception):
    """A round of a loop is left, or with ``ends`` the whole loop."""

    def __init__(self, ends: bool) -> None:
        super().__init__()
        self.ends = ends


class Importing(Deciding):
    """Imports in one environment."""

    def __init__(self, library: Library, world: World) -> None:
        super().__init__(library, world)
        self._states: dict[str, _State] = {}
        self._loaded: set[str] = set()  # with the packages around them, to their ends and without a stop
        self._mended: set[Stop] = set()
        self._current: list[_State] = []
        self._functions: dict[tuple[str, int], ast.FunctionDef | None] = {}
        self._calling: list[tuple[str, int]] = []
        self._guarded = False  # whether the module that is being followed may not be imported, or not have to be
        self.unread: dict[str, Unreadable] = {}  # files of modules that are certain to be imported
        self.needed: set[str] = set()  # top-level modules without which an import fails

    # What the caller asks

    def statement(self, module: str, names: Iterable[str]) -> list[Stop]:
        """Return what stops ``import module``, or ``from module import names``; empty if nothing is known to."""
        try:
            self.load(module, "", 0)
            for name in names:
                self._take(module, name, "", 0)
        except Failed as failed:
            return list(dict.fromkeys([failed.stop, *failed.behind]))[:_MOST_STOPS] if failed.stop else []
        return []

    def mend(self, stops: Iterable[Stop]) -> None:
        """Treat what stopped an import as present from now on: :meth:`statement` then tells what fails next."""
        self._mended.update(stops)
        self._states = {module: state for module, state in self._states.items() if not state.stops}

    # What expressions ask

    def unbound(self, module: str, name: str) -> Any:
        state = self._states.get(module)
        offers = self.names.offers(module) if state is not None and state.running and not self._unsure else None
        if offers is not None and name in offers.names and not offers.stars and offers.open is None:
            raise Failed("NameError", None)
        return UNKNOWN

    def attribute(self, module: str, name: str, consumer: str, line: int) -> Any:
        special = _special(module, name, self.world)
        if special is not None:
            return special
        state = self._states.get(module)
        if state is not None and name in state.frame.names:
            return state.frame.names[name]
        if self.library.find(f"{module}.{name}") is not None:
            return Module(f"{module}.{name}")
        if name == "__version__":
            return self._own_version(module)
        if module.partition(".")[0] in self.world.standard or module.startswith(COMPARING):
            return Reference(f"{module}.{name}")
        if name.startswith("__") or self.names.has(module, name) is not False or (state and state.running):
            return UNKNOWN
        return self._stopped("AttributeError", Stop("attribute", consumer, line, module, name))

    def instance(self, of: Class, keywords: Iterable[str], consumer: str, line: int) -> Any:
        if not self._unsure and of.module.partition(".")[0] != consumer.partition(".")[0]:
            for keyword in keywords:
                if keyword != "**" and accepts(f"{of.module}:{of.cls}", keyword, self.library.parameters) is False:
                    return self._stopped("TypeError", Stop("argument", consumer, line, of.module, of.cls, "", keyword))
        return UNKNOWN

    def call(self, function: Function, arguments: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        name = function.node.name
        if name.startswith("require_version") and arguments and isinstance(arguments[0], str):
            if is_met(arguments[0], self.world.version, self.world.python) is False:
                stop = Stop("raise", function.module, node.lineno, function.module, name, arguments[0])
                return self._stopped("ImportError", stop)
            return None
        key = function.module, function.node.lineno
        # A call that may not happen proves nothing, and a function that calls itself decides no import.
        if self._unsure or self._depth >= _DEEPEST or key in self._calling:
            return UNKNOWN
        if not self._depth and not self._testing and not _DECIDES.search(name):
            return UNKNOWN
        whole, around = self._whole(function), self._frame(function.module)
        if whole is None:
            return UNKNOWN
        names = self._bound(whole, arguments, keywords, Frame(function.module, {}, around))
        if names is None:
            return UNKNOWN
        self._calling.append(key)
        frame = Frame(function.module, names, around)
        if not self._depth:
            self._until = min(self._steps + _MOST_IN_A_CALL, MOST_STEPS)
        try:
            with More(self, "_depth"):
                self._block(whole.body, frame)
            value = None
        except _Returned as returned:
            value = returned.value
        except Failed as failed:
            # It may have returned before; any other error may come from a value that was read wrongly.
            is_proof = failed.kind in _IMPORT_ERRORS or (failed.stop is not None and failed.stop.kind == "argument")
            if frame.returned or not is_proof:
                return UNKNOWN
            raise
        except (_LeftRound, TooLong):
            return UNKNOWN
        finally:
            self._calling.pop()
            self._until = self._until if self._depth else MOST_STEPS
        for other in frame.returned:
            value = joined(value, other)
        return value

    def load(self, module: str, consumer: str, line: int) -> None:
        if module in self._loaded:
            return
        top = module.partition(".")[0]
        if not (self._unsure or self._catching or self._guarded):
            self.needed.add(top)
        if not module or top == "__main__" or top in self.world.standard:
            self._loaded.add(module)
            return
        running, length = False, 0
        while length < len(module):
            length = module.find(".", length + 1) % (len(module) + 1)  # behind the last one: all of it
            name = module[:length]
            if name in self._loaded:
                continue
            answer = self.names.exists(name)
            if answer is False:
                self._stopped("ModuleNotFoundError", Stop("module", consumer, line, name, ""))
                return
            if answer is None or not self.world.followed(top):
                continue
            spec = self.library.find(name)
            if spec is not None and spec.kind == "source":
                running = self._execute(name) or running
        if not running:
            self._loaded.add(module)

    # Modules

    def _bound(
        self, node: ast.FunctionDef, arguments: list[Any], keywords: dict[str, Any], frame: Frame
    ) -> dict[str, Any] | None:
        """Return the parameters of a call by name; None if that is unknown."""
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        if "**" in keywords or len(arguments) > len(positional):
            return None
        names = {parameter.arg: UNKNOWN for parameter in parameters_of(spec)}
        names |= {name: self.unsure(default, frame) for name, default in defaults_of(spec).items()}
        names |= {parameter.arg: value for parameter, value in zip(positional, arguments, strict=False)} | keywords
        return names

    def _whole(self, function: Function) -> ast.FunctionDef | None:
        """Return a function with its parameters and its body; None if it yields or cannot be read."""
        key = function.module, function.node.lineno
        if key not in self._functions:
            self._functions[key] = None
            if self._depth and not isinstance(function.node.body[0], ast.Pass):
                self._functions[key] = None if is_generator(function.node) else function.node
            elif function.at_top:
                self._functions[key] = self.library.function(*key)
        return self._functions[key]

    def _frame(self, module: str) -> Frame:
        state = self._states.get(module)
        return state.frame if state is not None else Frame(module, {})

    def _execute(self, module: str) -> bool:
        """Import one module; return whether that is still going on. Raises :class:`Failed`."""
        state = self._states.get(module)
        if state is None:
            state = self._states[module] = _State(Frame(module, {"__name__": module, "__file__": UNKNOWN}))
            try:
                body = self.library.tree(module).body
                if self.world.python is not None and self.world.python >= (3, 7):
                    self.library.check_bytecode(module, self.world.python)
            except Unreadable as unreadable:
                spec = self.library.find(module)
                if spec is not None and not self._unsure and not self._catching:
                    self.unread[spec.path] = unreadable
                state.running = False
                return False
            saved = self._unsure, self._catching, self._testing, self._depth, self._until, self._guarded
            self._guarded = bool(self._guarded or self._unsure or self._catching)
            self._unsure = self._catching = self._testing = self._depth = 0
            self._until = MOST_STEPS
            self._current.append(state)
            try:
                self._block(body, state.frame)
            except Failed as failed:
                if failed.stop is not None:  # else it rests on a value that may have been read wrongly
                    state.stop(failed)
            except (_Returned, _LeftRound, RecursionError):
                pass
            finally:
                self._current.pop()
                self._unsure, self._catching, self._testing, self._depth, self._until, self._guarded = saved
                state.running = False
        if state.stops and not state.running:
            raise Failed(state.kind, state.stops[0], state.stops[1:])
        return state.running

    def _take(self, module: str, name: str, consumer: str, line: int) -> Any:
        """Return the value of ``from module import name``. Raises :class:`Failed`."""
        special = _special(module, name, self.world)
        if special is not None:
            return special
        top = module.partition(".")[0]
        if top in self.world.standard:
            return Reference(f"{module}.{name}")
        state = self._states.get(module)
        if state is not None and name in state.frame.names:
            return state.frame.names[name]
        if self.world.followed(top):
            target = self.names.lazy_home(module, name)
            if target:
                try:
                    self.load(target, module, 0)
                except Failed as failed:
                    if self._has_placeholder(name, target, failed):
                        return UNKNOWN
                    raise
                return self._take(target, name, module, 0) if target != module else UNKNOWN
        if name == "__version__":
            return self._own_version(module)
        submodule = f"{module}.{name}"
        if self.library.find(submodule) is not None:
            offers = self.names.offers(module)
            if offers is None or offers.names.get(name, f"{module}:{name}") == f"{module}:{name}":
                self.load(submodule, consumer, line)
            return Module(submodule)
        if self.names.has(module, name) is False:  # also where it is not yet at its end
            return self._stopped("ImportError", Stop("name", consumer, line, module, name))
        if state is not None and state.running:
            return UNKNOWN
        if top in COMPARING:
            return Reference(f"{module}.{name}")
        return UNKNOWN

    def _has_placeholder(self, name: str, home: str, failed: Failed) -> bool:
        """Return whether a lazy package offers a placeholder for a name whose module needs a missing package: it marks
        such names with a decorator, or has modules of dummies."""
        stops = [stop for stop in (failed.stop, *failed.behind) if stop is not None]
        if all((stop.kind, stop.consumer) != ("module", home) for stop in stops):
            return False
        spec, tools = self.library.find(home), self.library.find(f"{home.partition('.')[0]}.utils")
        dummies = self.library.files_below(tools.paths[0], "_objects.py") if tools is not None and tools.paths else ()
        try:
            marked = spec is not None and _MARKED.search(self.library.text(spec.path)) is not None
            return marked or any(name.encode() in self.library.text(path) for path in dummies)
        except Unreadable:
            return True

    def _own_version(self, module: str) -> Any:
        top = module.partition(".")[0]
        versions = map(self.world.version, self.world.owners.get(top, (top,)))
        return next((version for version in versions if version is not None), UNKNOWN)

    def _stopped(self, kind: str, stop: Stop) -> Any:
        """Handle a statement that certainly fails. Raises :class:`Failed`, or goes on: see :meth:`_raise_or_note`."""
        return UNKNOWN if stop in self._mended else self._raise_or_note(Failed(kind, stop))

    def _raise_or_note(self, failed: Failed) -> Any:
        """Raise :class:`Failed`, except at the top of a module: there the statements behind it are followed too, to
        tell what fails next."""
        stands_at_top = self._current and not (self._unsure or self._catching or self._depth)
        if not stands_at_top or failed.stop is None or failed.stop.consumer == "":
            raise failed
        self._current[-1].stop(failed)
        return UNKNOWN

    # Statements

    def put(self, target: ast.expr, value: Any, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                frame.names[name] = value
            case ast.Subscript(value=ast.Name(id=name), slice=key):
                match frame.get(name), key:
                    case dict(held), ast.Constant(value=str() | int() as place):
                        held[place] = value
                    case dict(), _:
                        frame.names[name] = UNKNOWN

    def _block(self, body: Iterable[ast.stmt], frame: Frame) -> None:
        for statement in body:
            self.step()
            visit = self._visits.get(type(statement))
            if visit is not None:
                visit(self, statement, frame)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of an action; if it fails, see :meth:`_raise_or_note`."""
        try:
            return action(*arguments)
        except Failed as failed:
            return self._raise_or_note(failed)

    def visit_Import(self, statement: ast.Import, frame: Frame) -> None:
        for alias in statement.names:
            self._attempt(self.load, alias.name, frame.module, statement.lineno)
            shown = alias.name if alias.asname else alias.name.partition(".")[0]
            frame.names[alias.asname or shown] = Module(shown)

    def visit_ImportFrom(self, statement: ast.ImportFrom, frame: Frame) -> None:
        spec = self.names.library.find(frame.module)
        module = absolute(statement.module, statement.level, frame.module, bool(spec and spec.paths))
        self._attempt(self.load, module, frame.module, statement.lineno)
        for alias in statement.names:
            if alias.name != "*":
                target = self._attempt(self._take, module, alias.name, frame.module, statement.lineno)
                frame.names[alias.asname or alias.name] = target
                continue
            offers = self.names.offers(module)
            exports = offers.exports if offers is not None else None
            for name, value in [*self._frame(module).names.items()]:
                if name in exports if exports is not None else not name.startswith("_"):
                    frame.names[name] = value

    def visit_FunctionDef(self, statement: ast.FunctionDef, frame: Frame) -> None:
        parameters = statement.args
        if statement.decorator_list or parameters.defaults or parameters.kw_defaults:  # most have none
            for expression in (*statement.decorator_list, *parameters.defaults, *filter(None, parameters.kw_defaults)):
                self.value(expression, frame)
        frame.names[statement.name] = Function(frame.module, statement, frame.around is None)

    def visit_ClassDef(self, statement: ast.ClassDef, frame: Frame) -> None:
        for expression in (*statement.bases, *statement.decorator_list):
            self.value(expression, frame)
        self._block(statement.body, Frame(frame.module, {}, frame))
        frame.names[statement.name] = Class(frame.module, statement.name)

    def visit_Assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign, frame: Frame) -> None:
        if statement.value is not None:
            value = self.value(statement.value, frame)
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                self.bind(target, UNKNOWN if isinstance(statement, ast.AugAssign) else value, frame)

    def visit_Expr(self, statement: ast.Expr, frame: Frame) -> None:
        with More(self, "_testing"):  # a function that is called for what it does decides too
            self.value(statement.value, frame)

    def visit_If(self, statement: ast.If, frame: Frame) -> None:
        if last_name(statement.test) == "TYPE_CHECKING":
            return self._block(statement.orelse, frame)
        with More(self, "_testing"):
            verdict = truth(self.value(statement.test, frame))
        if verdict is None:
            self._either([statement.body, statement.orelse], frame)
        else:
            self._block(statement.body if verdict else statement.orelse, frame)

    def _either(self, blocks: list[list[ast.stmt]], frame: Frame) -> None:
        """Follow several blocks; one of them runs, and it is not known which."""
        before = frame.names
        results: list[dict[str, Any]] = []
        for block in blocks:
            frame.names = dict(before)
            try:
                with More(self, "_unsure"):
                    self._block(block, frame)
            except _Returned as returned:
                frame.returned.append(returned.value)
            except (Failed, _LeftRound):
                pass
            else:
                results.append(frame.names)
        after = dict(before)
        for names in results:
            for name, value in names.items():
                if name not in before:
                    after[name] = value if name not in after else joined(after[name], value)
                elif value is not before[name]:
                    after[name] = joined(after[name], value)
        if len(results) > 1:
            for name in after:
                if any(name not in names for names in results):
                    after[name] = UNKNOWN
        # The names of a module are one table: others hold it.
        before.clear()
        before.update(after)
        frame.names = before

    def visit_Try(self, statement: ast.Try, frame: Frame) -> None:
        try:
            try:
                with More(self, "_catching"):
                    self._block(statement.body, frame)
            except Failed as failed:
                self._handled(statement, failed, frame)
            else:
                self._block(statement.orelse, frame)
        finally:
            self._block(statement.finalbody, frame)

    def _handled(self, statement: ast.Try, failed: Failed, frame: Frame) -> None:
        handler = next((clause for clause in statement.handlers if _catches(clause, failed.kind)), None)
        if handler is None:
            raise failed
        if handler.name:
            frame.names[handler.name] = UNKNOWN
        try:
            self._block(handler.body, frame)
        except Failed as again:
            first = failed.stop
            silent = first is None or (first.kind == "raise" and not first.text)  # a bare assert
            raise Failed(again.kind or failed.kind, again.stop or first if silent else first) from None

    def visit_Raise(self, statement: ast.Raise, frame: Frame) -> None:
        text: Any = ""
        match statement.exc:
            case None:
                raise Failed("", None)
            case ast.Call(func=error, args=[first, *_]):
                text = self.unsure(first, frame)
            case ast.Call(func=error) | error:
                pass
        self._raised(last_name(error), statement, frame, text[:300] if isinstance(text, str) else "")

    def visit_Return(self, statement: ast.Return, frame: Frame) -> None:
        raise _Returned(None if statement.value is None else self.value(statement.value, frame))

    def visit_For(self, statement: ast.For, frame: Frame) -> None:
        values = self.value(statement.iter, frame)
        if isinstance(values, dict):
            values = list(values)
        if not isinstance(values, (list, tuple)) or len(values) > MOST_ROUNDS:
            self.bind(statement.target, UNKNOWN, frame)
            return self._either([statement.body, []], frame)
        for value in list(values):
            self.bind(statement.target, value, frame)
            try:
                self._block(statement.body, frame)
            except _LeftRound as left:
                if left.ends:
                    return
        self._block(statement.orelse, frame)

    def visit_While(self, statement: ast.While, frame: Frame) -> None:
        self._either([statement.body, []], frame)

    def visit_With(self, statement: ast.With, frame: Frame) -> None:
        for item in statement.items:
            self.value(item.context_expr, frame)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, UNKNOWN, frame)
        if any("suppress" in ast.dump(item.context_expr)[:200] for item in statement.items):
            self._either([statement.body, []], frame)
        else:
            self._block(statement.body, frame)

    def visit_Match(self, statement: ast.Match, frame: Frame) -> None:
        self._either([case.body for case in statement.cases] + [[]], frame)

    def visit_Delete(self, statement: ast.Delete, frame: Frame) -> None:
        for name in names_in(statement.targets):
            frame.names.pop(name, None)

    def visit_Break(self, statement: ast.Break | ast.Continue, frame: Frame) -> None:
        raise _LeftRound(ends=isinstance(statement, ast.Break))

    def visit_Global(self, statement: ast.Global, frame: Frame) -> None:
        around = self._frame(frame.module)
        for name in statement.names:
            around.names[name] = UNKNOWN

    def visit_Assert(self, statement: ast.Assert, frame: Frame) -> None:
        if truth(self.value(statement.test, frame)) is False:
            self._raised("AssertionError", statement, frame)

    def _raised(self, error: str, statement: ast.stmt, frame: Frame, text: str = "") -> None:
        stop = Stop("raise", frame.module, statement.lineno, frame.module, error, text)
        if stop not in self._mended:
            raise Failed(error or "Exception", stop)

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_AnnAssign = visit_AugAssign = visit_Assign
    visit_Continue = visit_Break


def _special(module: str, name: str, world: World) -> Any:
    """Return a value of the standard library or of typing that guards ask for; None for all others."""
    match module, name:
        case "sys", "version_info":
            return UNKNOWN if world.python is None else world.python
        case "sys", "platform":
            return {"linux": "linux", "windows": "win32", "darwin": "darwin"}.get(world.platform, UNKNOWN)
    return False if name == "TYPE_CHECKING" else None


def _catches(handler: ast.ExceptHandler, kind: str) -> bool:
    if handler.type is None or not kind:
        return True
    names = set(map(last_name, elements(handler.type)))
    return not names.isdisjoint((kind, *_CAUGHT_BY.get(kind, ()), *_ALL))
