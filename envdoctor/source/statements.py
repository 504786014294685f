"""What the statements of a module or a function do, as far as imports depend on it."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from envdoctor.source.deciding import evaluate
from envdoctor.source.definitions import elements, last_name, names_in
from envdoctor.source.names import Names
from envdoctor.source.offers import absolute, is_type_checking
from envdoctor.source.values import MOST_ROUNDS, Frame, joined, truth
from envdoctor.source.world import UNKNOWN, Class, Failed, Following, Function, Module, Stop

_CAUGHT_BY = {
    "ModuleNotFoundError": ("ImportError",),
    "PackageNotFoundError": ("ModuleNotFoundError", "ImportError"),
    "KeyError": ("LookupError",),
    "IndexError": ("LookupError",),
    "VersionConflict": ("ImportError",),
}
_ALL = ("Exception", "BaseException")


class Returned(Exception):
    """A function returns ``value``."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Break(Exception):
    """A loop is left."""


class Continue(Exception):
    """The next round of a loop begins."""


class Statements(Following):
    """Follows statements. What an import does is said by who inherits this
    (:class:`envdoctor.source.importing.Importing`); ``pending`` are the values that a function may have returned
    before."""

    names: Names

    def __init__(self) -> None:
        self._unsure = self._catching = self._testing = 0
        self._mended: set[Stop] = set()

    @abstractmethod
    def _take(self, module: str, name: str, consumer: str, line: int) -> Any:
        """``from module import name``: its value. Raises :class:`Failed`."""

    @abstractmethod
    def _everything(self, module: str) -> Mapping[str, Any]:
        """``from module import *``: the names and their values."""

    @abstractmethod
    def _goes_on(self, failed: Failed) -> Any:
        """Raises :class:`Failed`, unless the statements behind it are followed too."""

    @abstractmethod
    def _frame(self, module: str) -> Frame:
        """The names of a module so far."""

    def unsure(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Do what may or may not happen: what would stop it is no proof."""
        self._unsure += 1
        try:
            return action(*arguments)
        except Failed:
            return UNKNOWN
        finally:
            self._unsure -= 1

    def _block(self, body: Iterable[ast.stmt], frame: Frame, pending: list[Any]) -> None:
        for statement in body:
            self.step(statement)
            method = self._STATEMENTS.get(type(statement))
            if method is not None:
                method(self, statement, frame, pending)

    def _import(self, statement: ast.Import, frame: Frame, pending: list[Any]) -> None:
        for alias in statement.names:
            try:
                self.load(alias.name, frame.module, statement.lineno)
            except Failed as failed:
                self._goes_on(failed)
            shown = alias.name if alias.asname else alias.name.partition(".")[0]
            frame.names[alias.asname or shown] = Module(shown)

    def _import_from(self, statement: ast.ImportFrom, frame: Frame, pending: list[Any]) -> None:
        found = self.names.library.find(frame.module)
        module = absolute(statement.module, statement.level, frame.module, bool(found and found.paths))
        try:
            self.load(module, frame.module, statement.lineno)
        except Failed as failed:
            self._goes_on(failed)
        for alias in statement.names:
            if alias.name == "*":
                frame.names.update(self._everything(module))
            else:
                try:
                    found = self._take(module, alias.name, frame.module, statement.lineno)
                except Failed as failed:
                    found = self._goes_on(failed)
                frame.names[alias.asname or alias.name] = found

    def _define(self, statement: ast.FunctionDef, frame: Frame, pending: list[Any]) -> None:
        parameters = statement.args
        if statement.decorator_list or parameters.defaults or parameters.kw_defaults:  # most have none
            for one in (*statement.decorator_list, *parameters.defaults, *filter(None, parameters.kw_defaults)):
                evaluate(one, frame, self)
        frame.names[statement.name] = Function(frame.module, statement, frame.around is None)

    def _class(self, statement: ast.ClassDef, frame: Frame, pending: list[Any]) -> None:
        for one in (*statement.bases, *statement.decorator_list):
            evaluate(one, frame, self)
        self._block(statement.body, Frame(frame.module, {}, frame), [])
        frame.names[statement.name] = Class(frame.module, statement.name)

    def _assign(self, statement: ast.Assign, frame: Frame, pending: list[Any]) -> None:
        value = evaluate(statement.value, frame, self)
        for target in statement.targets:
            bind(target, value, frame)

    def _annotated(self, statement: ast.AnnAssign, frame: Frame, pending: list[Any]) -> None:
        if statement.value is not None:
            bind(statement.target, evaluate(statement.value, frame, self), frame)

    def _augmented(self, statement: ast.AugAssign, frame: Frame, pending: list[Any]) -> None:
        evaluate(statement.value, frame, self)
        bind(statement.target, UNKNOWN, frame)

    def _expression(self, statement: ast.Expr, frame: Frame, pending: list[Any]) -> None:
        self._testing += 1  # a function that is called for what it does decides too
        try:
            evaluate(statement.value, frame, self)
        finally:
            self._testing -= 1

    def _if(self, statement: ast.If, frame: Frame, pending: list[Any]) -> None:
        if is_type_checking(statement.test):
            return self._block(statement.orelse, frame, pending)
        self._testing += 1
        try:
            known = truth(evaluate(statement.test, frame, self))
        finally:
            self._testing -= 1
        if known is None:
            self._either([statement.body, statement.orelse], frame, pending)
        else:
            self._block(statement.body if known else statement.orelse, frame, pending)

    def _either(self, blocks: list[list[ast.stmt]], frame: Frame, pending: list[Any]) -> None:
        """Follow several blocks of which one runs, it is not known which."""
        before = frame.names
        results: list[dict[str, Any]] = []
        self._unsure += 1
        try:
            for block in blocks:
                frame.names = dict(before)
                try:
                    self._block(block, frame, pending)
                except Returned as returned:
                    pending.append(returned.value)
                except (Failed, Break, Continue):
                    pass
                else:
                    results.append(frame.names)
        finally:
            self._unsure -= 1
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

    def _try(self, statement: ast.Try, frame: Frame, pending: list[Any]) -> None:
        self._catching += 1
        try:
            self._block(statement.body, frame, pending)
        except Failed as failed:
            self._catching -= 1
            try:
                self._handled(statement, failed, frame, pending)
            finally:
                self._catching += 1
        else:
            self._catching -= 1
            try:
                self._block(statement.orelse, frame, pending)
            finally:
                self._catching += 1
        finally:
            self._catching -= 1
            self._block(statement.finalbody, frame, pending)

    def _handled(self, statement: ast.Try, failed: Failed, frame: Frame, pending: list[Any]) -> None:
        for handler in statement.handlers:
            if _catches(handler, failed.kind):
                if handler.name:
                    frame.names[handler.name] = UNKNOWN
                try:
                    self._block(handler.body, frame, pending)
                except Failed as again:
                    first = failed.stop
                    silent = first is None or (first.kind == "raise" and not first.text)  # a bare assert
                    raise Failed(again.kind or failed.kind, again.stop or first if silent else first) from None
                return
        raise failed

    def _raise(self, statement: ast.Raise, frame: Frame, pending: list[Any]) -> None:
        said: Any = ""
        match statement.exc:
            case None:
                raise Failed("", None)
            case ast.Call(func=error, args=[first, *_]):
                said = self.unsure(evaluate, first, frame, self)
            case ast.Call(func=error) | error:
                pass
        name, text = last_name(error), said[:300] if isinstance(said, str) else ""
        self._raised(name or "Exception", Stop("raise", frame.module, statement.lineno, frame.module, name, text))

    def _return(self, statement: ast.Return, frame: Frame, pending: list[Any]) -> None:
        raise Returned(None if statement.value is None else evaluate(statement.value, frame, self))

    def _for(self, statement: ast.For, frame: Frame, pending: list[Any]) -> None:
        values = evaluate(statement.iter, frame, self)
        if isinstance(values, dict):
            values = list(values)
        if not isinstance(values, (list, tuple)) or len(values) > MOST_ROUNDS:
            bind(statement.target, UNKNOWN, frame)
            return self._either([statement.body, []], frame, pending)
        for value in list(values):
            bind(statement.target, value, frame)
            try:
                self._block(statement.body, frame, pending)
            except Break:
                return
            except Continue:
                continue
        self._block(statement.orelse, frame, pending)

    def _while(self, statement: ast.While, frame: Frame, pending: list[Any]) -> None:
        self._either([statement.body, []], frame, pending)

    def _with(self, statement: ast.With, frame: Frame, pending: list[Any]) -> None:
        suppressed = False
        for item in statement.items:
            evaluate(item.context_expr, frame, self)
            suppressed = suppressed or "suppress" in ast.dump(item.context_expr)[:200]
            if item.optional_vars is not None:
                bind(item.optional_vars, UNKNOWN, frame)
        if suppressed:
            self._either([statement.body, []], frame, pending)
        else:
            self._block(statement.body, frame, pending)

    def _match(self, statement: ast.Match, frame: Frame, pending: list[Any]) -> None:
        self._either([case.body for case in statement.cases] + [[]], frame, pending)

    def _delete(self, statement: ast.Delete, frame: Frame, pending: list[Any]) -> None:
        for name in names_in(statement.targets):
            frame.names.pop(name, None)

    def _break(self, statement: ast.Break, frame: Frame, pending: list[Any]) -> None:
        raise Break

    def _continue(self, statement: ast.Continue, frame: Frame, pending: list[Any]) -> None:
        raise Continue

    def _global(self, statement: ast.Global, frame: Frame, pending: list[Any]) -> None:
        around = self._frame(frame.module)
        for name in statement.names:
            around.names[name] = UNKNOWN

    def _assert(self, statement: ast.Assert, frame: Frame, pending: list[Any]) -> None:
        if truth(evaluate(statement.test, frame, self)) is False:
            stop = Stop("raise", frame.module, statement.lineno, frame.module, "AssertionError")
            self._raised("AssertionError", stop)

    def _raised(self, kind: str, stop: Stop) -> None:
        if stop not in self._mended:
            raise Failed(kind, stop)

    _STATEMENTS: ClassVar[Mapping[type, Callable[..., None]]] = {
        ast.Import: _import,
        ast.ImportFrom: _import_from,
        ast.FunctionDef: _define,
        ast.AsyncFunctionDef: _define,
        ast.ClassDef: _class,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.Expr: _expression,
        ast.If: _if,
        ast.Try: _try,
        ast.Raise: _raise,
        ast.Return: _return,
        ast.For: _for,
        ast.While: _while,
        ast.With: _with,
        ast.Match: _match,
        ast.Delete: _delete,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Assert: _assert,
        ast.Global: _global,
    }


def _catches(handler: ast.ExceptHandler, kind: str) -> bool:
    if handler.type is None or not kind:
        return True
    names = set(map(last_name, elements(handler.type)))
    return not names.isdisjoint((kind, *_CAUGHT_BY.get(kind, ()), *_ALL))


def bind(target: ast.expr, value: Any, frame: Frame) -> None:
    """Give the names of an assignment's target their value."""
    match target:
        case ast.Name(id=name):
            frame.names[name] = value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            known = isinstance(value, (tuple, list)) and len(value) == len(items)
            for index, inner in enumerate(items):
                bind(inner, value[index] if known else UNKNOWN, frame)
        case ast.Starred(value=inner):
            bind(inner, UNKNOWN, frame)
        case ast.Subscript(value=ast.Name(id=name), slice=key):
            match frame.get(name), key:
                case dict(held), ast.Constant(value=str() | int() as place):
                    held[place] = value
                case dict(), _:
                    frame.names[name] = UNKNOWN
