"""Following what an import executes, statement by statement, without executing it: what it takes, and what stops it.

A branch whose condition is not known is followed on both sides, and what would stop it there is no proof. A module that
is not followed (its insides are not ours to check, or it is compiled) only says which names it has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from envdoctor.source.deciding import Frame, demanded, evaluate, joined, truth
from envdoctor.source.library import Library, Unreadable
from envdoctor.source.offers import Offers, absolute, is_type_checking
from envdoctor.source.signatures import accepts
from envdoctor.source.world import UNKNOWN, Class, Failed, Function, Made, Module, Stop, World

__all__ = ["Importing", "OutOfBudget"]

_MOST_STEPS = 5_000_000
_MOST_IN_A_CALL = 20_000
_DEEPEST = 20
#: Functions whose answer may decide an import, where the call itself stands in no condition.
_DECIDES = re.compile(r"available|version|install|check|require|has_|is_|find|import|exist|support|compat|patch|lazy")
#: Exceptions by the classes that catch them, beside their own.
_CAUGHT_BY = {
    "ModuleNotFoundError": ("ImportError",),
    "PackageNotFoundError": ("ModuleNotFoundError", "ImportError"),
    "KeyError": ("LookupError",),
    "IndexError": ("LookupError",),
    "VersionConflict": ("ImportError",),
}
_IMPORT_ERRORS = (
    "ImportError",
    "ModuleNotFoundError",
    "PackageNotFoundError",
    "AttributeError",
    "NameError",
    "VersionConflict",
)
_MOST_ALIASES = 6
_MOST_STOPS = 8
_BY_ENDING = re.compile(rb"\bname\.(endswith|startswith)\(\s*[\"'](\w+)[\"']")
_MARKED = re.compile(rb"^@(?:requires|export)\(", re.MULTILINE)
#: Packages whose functions guards compare versions with.
_COMPARING = ("packaging", "importlib_metadata", "pkg_resources")
_OWN = ("__name__", "__file__", "__doc__", "__path__", "__spec__")
_ALL = ("Exception", "BaseException")


class OutOfBudget(Exception):
    """Following took more steps than one environment may cost."""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _TooLong(Exception):
    """A function does more than decide."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _State:
    """One module that was, or is being, imported."""

    __slots__ = ("frame", "kind", "running", "stops")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.running = True
        self.kind = ""
        self.stops: list[Stop] = []

    def stop(self, failed: Failed) -> None:
        """Note what stops it, or would next."""
        self.kind = self.kind or failed.kind
        self.stops += [one for one in (failed.stop, *failed.behind) if one is not None and one not in self.stops]


class Importing:
    """Imports in one environment. ``problems`` are modules whose source could not be parsed."""

    def __init__(self, library: Library, world: World) -> None:
        followed = world.followed
        self.library = library
        self.world = world._replace(followed=lambda top: top not in _COMPARING and followed(top))
        self.problems: dict[str, str] = {}
        self._states: dict[str, _State] = {}
        self._steps = 0
        self._depth = 0
        self._unsure = 0
        self._catching = 0
        self._current: list[_State] = []
        self._functions: dict[tuple[str, int], ast.FunctionDef | None] = {}
        self._calling: list[tuple[str, int]] = []
        self._until = 0
        self._testing = 0

    # What the caller asks

    def statement(self, module: str, names: Iterable[str]) -> list[Stop]:
        """What stops ``import module``, or ``from module import names``: nothing when it works or cannot be told."""
        try:
            self.load(module, "", 0)
            for name in names:
                self._take(module, name, "", 0)
        except Failed as failed:
            return list(dict.fromkeys([failed.stop, *failed.behind]))[:_MOST_STOPS] if failed.stop else []
        return []

    def offered(self, module: str, name: str) -> bool | None:
        """Whether a module has a name, or a submodule of it; None when that cannot be told."""
        return self._has(module, name, set())

    def exported_below(self, module: str) -> Mapping[str, str]:
        """The names that a package offers because the modules in its folder export them, and these modules."""
        offers = self._offers(module)
        return {} if offers is None or offers.below is None else self._exported_below(module, offers.below)

    # What expressions ask

    @property
    def certain(self) -> bool:
        """Whether what is followed now is certain to happen."""
        return not self._unsure

    def step(self, node: ast.AST) -> None:
        """Count work. Raises :class:`OutOfBudget`."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise OutOfBudget
        if self._depth and self._steps > self._until:
            raise _TooLong

    def compare(self, left: str, right: str) -> None:
        """Told that two versions are compared."""

    def unsure(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Do what may or may not happen: what would stop it is no proof."""
        self._unsure += 1
        try:
            return action(*arguments)
        except Failed:
            return UNKNOWN
        finally:
            self._unsure -= 1

    def present(self, module: str) -> Any:
        """What ``find_spec`` gives: None for a module that is not there."""
        there = self._exists(module)
        return None if there is False else Made(f"spec of {module}") if there is None else Module(module)

    def version(self, distribution: str) -> Any:
        """What ``importlib.metadata.version`` gives. Raises :class:`Failed`."""
        found = self.world.version(distribution)
        if found is None:
            raise Failed("PackageNotFoundError", None)
        return found

    def available(self, module: str) -> Any:
        """What ``is_X_available()`` of a package that is not followed gives: False where X is not there."""
        return False if self.world.complete and self.library.find(module) is None else UNKNOWN

    def has(self, module: str, name: str) -> Any:
        """What ``hasattr`` gives for a module."""
        found = self._has(module, name, set())
        return UNKNOWN if found is None else found

    def unbound(self, module: str, name: str) -> Any:
        """A name that nothing has bound so far. Raises :class:`Failed` where the module binds it further down."""
        state = self._states.get(module)
        offers = self._offers(module) if state is not None and state.running and self.certain else None
        if offers is not None and name in offers.names and not offers.stars and offers.open is None:
            raise Failed("NameError", None)
        return UNKNOWN

    def attribute(self, module: str, name: str, consumer: str, line: int) -> Any:
        """``module.name`` where ``consumer`` asks for it. Raises :class:`Failed` when it is certain not to be there."""
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
        if module.partition(".")[0] in self.world.standard or module.startswith(_COMPARING):
            return Made(f"{module}.{name}")
        if name.startswith("__") or self._has(module, name, set()) is not False or (state and state.running):
            return UNKNOWN
        return self._stopped("AttributeError", Stop("attribute", consumer, line, module, name))

    def made(self, of: Class, keywords: Iterable[str], consumer: str, line: int) -> Any:
        """An object of a class. Raises :class:`Failed` where the class of another package does not take a keyword."""
        if not self._unsure and of.module.partition(".")[0] != consumer.partition(".")[0]:
            for keyword in keywords:
                if keyword != "**" and accepts(f"{of.module}:{of.cls}", keyword, self.library.parameters) is False:
                    return self._stopped("TypeError", Stop("argument", consumer, line, of.module, of.cls, "", keyword))
        return UNKNOWN

    def call(self, function: Function, arguments: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """What a function of a followed module returns. Raises :class:`Failed` when it must raise."""
        name = function.node.name
        if name.startswith("require_version") and arguments and isinstance(arguments[0], str):
            if demanded(arguments[0], self.world.version, self.world.python) is False:
                stop = Stop("raise", function.module, node.lineno, function.module, name, arguments[0])
                return self._stopped("ImportError", stop)
            return None
        key = function.module, function.node.lineno
        # Where it is not certain to be called, nothing follows from it; and what calls itself decides no import.
        if self._unsure or self._depth >= _DEEPEST or key in self._calling:
            return UNKNOWN
        if not self._depth and not self._testing and not _DECIDES.search(name):
            return UNKNOWN
        whole = self._whole(function)
        around = self._frame(function.module)
        names = None
        if whole is not None:
            names = _bound(whole, arguments, keywords, Frame(function.module, {}, around), self)
        if whole is None or names is None:
            return UNKNOWN
        frame = Frame(function.module, names, around)
        self._depth += 1
        self._calling.append(key)
        pending: list[Any] = []
        if self._depth == 1:
            self._until = self._steps + _MOST_IN_A_CALL
        try:
            self._block(whole.body, frame, pending)
            value = None
        except _Return as returned:
            value = returned.value
        except Failed as failed:
            # It may have returned before; and what raises anything else may rest on a value that was read wrongly.
            known = failed.kind in _IMPORT_ERRORS or (failed.stop is not None and failed.stop.kind == "argument")
            if pending or not known:
                return UNKNOWN
            raise
        except (_Break, _Continue, _TooLong):
            return UNKNOWN
        finally:
            self._calling.pop()
            self._depth -= 1
        for other in pending:
            value = joined(value, other)
        return value

    def load(self, module: str, consumer: str, line: int) -> None:
        """Import a module and the packages around it. Raises :class:`Failed`."""
        parts = module.split(".")
        top = parts[0]
        if top in self.world.standard or top == "__main__" or (not module and not top):
            return
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[:length])
            there = self._exists(name)
            if there is False:
                self._stopped("ModuleNotFoundError", Stop("module", consumer, line, name, ""))
                return
            if there is None or not self.world.followed(top):
                continue
            found = self.library.find(name)
            if found is not None and found.kind == "source":
                self._execute(name)

    # Modules

    def _whole(self, function: Function) -> ast.FunctionDef | None:
        """A function with its parameters and its body; None for one that yields, or cannot be read."""
        key = function.module, function.node.lineno
        if key not in self._functions:
            node: ast.FunctionDef | None = function.node
            if self._depth == 0 or isinstance(function.node.body[0], ast.Pass):
                node = self.library.function(function.module, function.node.lineno)
            yields = node is None or any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(node))
            self._functions[key] = None if yields else node
        return self._functions[key]

    def _frame(self, module: str) -> Frame:
        state = self._states.get(module)
        return state.frame if state is not None else Frame(module, {})

    def _execute(self, module: str) -> None:
        state = self._states.get(module)
        if state is None:
            state = self._states[module] = _State(Frame(module, {"__name__": module, "__file__": UNKNOWN}))
            try:
                body = self.library.tree(module).body
            except Unreadable as problem:
                self.problems[module] = str(problem)
                state.running = False
                return
            saved = self._unsure, self._catching, self._depth, self._until, self._testing
            self._unsure = self._catching = self._depth = self._testing = 0
            self._current.append(state)
            try:
                self._block(body, state.frame, [])
            except Failed as failed:
                if failed.stop is not None:  # else it rests on a value that may have been read wrongly
                    state.stop(failed)
            except (_Return, _Break, _Continue):
                pass
            except RecursionError:
                self.problems[module] = "is nested too deeply"
            finally:
                self._current.pop()
                self._unsure, self._catching, self._depth, self._until, self._testing = saved
                state.running = False
        if state.stops and not state.running:
            raise Failed(state.kind, state.stops[0], state.stops[1:])

    def _exists(self, module: str) -> bool | None:
        """Whether a module is there; None when that cannot be told."""
        top = module.partition(".")[0]
        if top in self.world.standard or top == "__main__":
            return True
        if self.library.find(module) is not None:
            return True
        parent = module.rpartition(".")[0]
        if not parent:
            return False if self.world.complete else None
        above = self.library.find(parent)
        if above is None:
            return self._exists(parent) and None
        if above.kind == "compiled" or not above.paths:
            return None if above.kind == "compiled" else self._made(parent)
        if above.kind == "namespace":
            return False if self.world.complete else None
        return self._served(module, parent)

    def _made(self, parent: str) -> bool | None:
        """Whether a module that is no package may be replaced by one."""
        offers = self._offers(parent)
        return False if offers is not None and offers.open is None else None

    def _served(self, module: str, parent: str) -> bool | None:
        """Whether a package makes a submodule that has no file: by a finder of its own, or by putting it there."""
        last = module.rpartition(".")[2]
        above = parent
        while above:
            offers = self._offers(above)
            if offers is None:
                return None
            if above == parent and (offers.open or last in offers.names or last in offers.lazy):
                return None
            if offers.finder is not None:
                for text in offers.finder:
                    try:
                        if text == last or ("(" in text and re.search(text, module)):
                            return None
                    except (re.error, RecursionError, OverflowError):
                        return None
                # Its pattern may be put together from pieces.
                if any(
                    piece in module for text in offers.finder for piece in re.findall(r"\w{8,}_", text) if "\\" in text
                ):
                    return None
            above = above.rpartition(".")[0]
        return False

    def _offers(self, module: str) -> Offers | None:
        try:
            return self.library.offers(module)
        except Unreadable as problem:
            self.problems[module] = str(problem)
            return None

    def _has(self, module: str, name: str, seen: set[str]) -> bool | None:
        if module.partition(".")[0] in self.world.standard or module in seen or len(seen) > 200:
            return None
        seen.add(module)
        if self.library.find(f"{module}.{name}") is not None:
            return True
        found = self.library.find(module)
        if found is None or found.kind == "compiled":
            return None
        if found.kind == "namespace":
            return False
        if not self.world.followed(module.partition(".")[0]) and self.library.mentions(module, name):
            return True
        offers = self._offers(module)
        if offers is None:
            return None
        if name in offers.names or name in offers.lazy or name in _OWN:
            return True
        answer: bool | None = False
        for star in offers.stars:
            inner = self._through_star(star, name, seen)
            if inner:
                return True
            answer = None if inner is None else answer
        if offers.below is not None and name in self._exported_below(module, offers.below):
            return True
        if offers.open or (answer is False and offers.maker and self._makes(offers.names.get(offers.maker, ""), name)):
            return None
        return answer

    def _makes(self, home: str, name: str) -> bool:
        """Whether the class that makes a lazy module's names has a way of its own for names like this one."""
        kinds = self.making(home)
        return kinds is None or any(
            name.endswith(kind[1:]) if kind[0] == "*" else name.startswith(kind[:-1]) for kind in kinds
        )

    def making(self, home: str) -> list[str] | None:
        """The kinds of names (``*TokenizerFast``) for which the class that makes a lazy module's names has a way of its
        own; None when that cannot be told."""
        for _ in range(_MOST_ALIASES):
            module, _, bound = home.partition(":")
            offers = self._offers(module) if bound and self.library.find(module) is not None else None
            if offers is None:
                return [] if bound else None
            if offers.names.get(bound) == "class":
                found = self.library.find(module)
                source = self.library.text(found.path) if found is not None else b""
                ways = {(way, word.decode()) for way, word in _BY_ENDING.findall(source)}
                return sorted(f"*{word}" if way == b"endswith" else f"{word}*" for way, word in ways)
            home = offers.names.get(bound, "")
        return None

    def _through_star(self, module: str, name: str, seen: set[str]) -> bool | None:
        """Whether ``from module import *`` gives the name."""
        if name.startswith("_"):
            offers = self._offers(module) if self.library.find(module) is not None else None
            return None if offers is None else name in (offers.exports or ())
        return self._has(module, name, seen)

    def _exported_below(self, module: str, folder: str) -> dict[str, str]:
        """The names in ``__all__`` of the modules in a folder of a package, and their modules."""
        known = self.library.exported
        key = f"{module} {folder}"
        if key not in known:
            known[key] = dict(self._exports_in(f"{module}.{folder}" if folder else module, 0))
        return known[key]

    def _exports_in(self, package: str, depth: int) -> Iterable[tuple[str, str]]:
        found = self.library.find(package)
        if found is None or not found.paths or depth > 3:
            return
        files = self.library.files_below(found.paths[0])
        stems = [path.replace("\\", "/").rpartition("/")[2][:-3] for path in files]
        generated = any(stem.startswith("modeling_") for stem in stems)
        for path, stem in zip(files, stems, strict=True):
            if stem == "__init__" or (generated and stem.startswith("modular_")):
                continue  # what a modeling file is generated from is never imported
            for name in _exports(self.library.text(path)):
                yield name, f"{package}.{stem}"
        for path in self.library.folders_below(found.paths[0]):
            stem = path.replace("\\", "/").rpartition("/")[2]
            if not stem.startswith("_"):
                yield from self._exports_in(f"{package}.{stem}", depth + 1)

    def _take(self, module: str, name: str, consumer: str, line: int) -> Any:
        """``from module import name``: its value. Raises :class:`Failed`."""
        special = _special(module, name, self.world)
        if special is not None:
            return special
        top = module.partition(".")[0]
        if top in self.world.standard:
            return Made(f"{module}.{name}")
        state = self._states.get(module)
        if state is not None and name in state.frame.names:
            return state.frame.names[name]
        if self.world.followed(top):
            target = self._lazy_home(module, name)
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
            offers = self._offers(module)
            if offers is None or offers.names.get(name, f"{module}:{name}") == f"{module}:{name}":
                self.load(submodule, consumer, line)
            return Module(submodule)
        if state is not None and state.running:
            return UNKNOWN
        if self._has(module, name, set()) is False:
            return self._stopped("ImportError", Stop("name", consumer, line, module, name))
        if top in _COMPARING:
            return Made(f"{module}.{name}")
        return UNKNOWN

    def _lazy_home(self, module: str, name: str) -> str | None:
        """The module that is loaded when a lazy package is asked for a name."""
        found = self.library.find(module)
        if found is None or found.kind != "source":
            return None
        offers = self._offers(module)
        if offers is None:
            return None
        home = offers.lazy.get(name)
        if home:
            return home.partition(":")[0]
        if home is None and offers.below is not None and name not in offers.names:
            return self._exported_below(module, offers.below).get(name)
        return None

    def _has_placeholder(self, name: str, home: str, failed: Failed) -> bool:
        """Whether a lazy package stands something in for a name whose module asks for a package that is not there: it
        marks such names with a decorator, or has modules of dummies."""
        stops = [stop for stop in (failed.stop, *failed.behind) if stop is not None]
        if all((stop.kind, stop.consumer) != ("module", home) for stop in stops):
            return False
        found, tools = self.library.find(home), self.library.find(f"{home.partition('.')[0]}.utils")
        dummies = self.library.files_below(tools.paths[0], "_objects.py") if tools is not None and tools.paths else ()
        try:
            marked = found is not None and _MARKED.search(self.library.text(found.path)) is not None
            return marked or any(name.encode() in self.library.text(path) for path in dummies)
        except Unreadable:
            return True

    def _own_version(self, module: str) -> Any:
        top = module.partition(".")[0]
        for distribution in self.world.owners.get(top, (top,)):
            found = self.world.version(distribution)
            if found is not None:
                return found
        return UNKNOWN

    def _stopped(self, kind: str, stop: Stop) -> Any:
        """What happens at something that is certain to fail. Raises :class:`Failed`, or goes on: see
        :meth:`_goes_on`."""
        return self._goes_on(Failed(kind, stop))

    def _goes_on(self, failed: Failed) -> Any:
        """Raises :class:`Failed`, unless it stands at the top of a module: there the statements behind it are followed
        too, to tell what fails next."""
        stop = failed.stop
        if self._unsure or self._catching or self._depth or not self._current or stop is None or stop.consumer == "":
            raise failed
        self._current[-1].stop(failed)
        return UNKNOWN

    # Statements

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
        found = self.library.find(frame.module)
        module = absolute(statement.module, statement.level, frame.module, bool(found and found.paths))
        try:
            self.load(module, frame.module, statement.lineno)
        except Failed as failed:
            self._goes_on(failed)
        for alias in statement.names:
            if alias.name == "*":
                state = self._states.get(module)
                offers = self._offers(module) if state is not None else None
                exports = offers.exports if offers is not None else None
                for name, value in list(state.frame.names.items()) if state is not None else ():
                    if name in exports if exports is not None else not name.startswith("_"):
                        frame.names[name] = value
            else:
                try:
                    found = self._take(module, alias.name, frame.module, statement.lineno)
                except Failed as failed:
                    found = self._goes_on(failed)
                frame.names[alias.asname or alias.name] = found

    def _define(self, statement: ast.FunctionDef, frame: Frame, pending: list[Any]) -> None:
        for one in (*statement.decorator_list, *statement.args.defaults, *filter(None, statement.args.kw_defaults)):
            evaluate(one, frame, self)
        frame.names[statement.name] = Function(frame.module, statement)

    def _class(self, statement: ast.ClassDef, frame: Frame, pending: list[Any]) -> None:
        for one in (*statement.bases, *statement.decorator_list):
            evaluate(one, frame, self)
        self._block(statement.body, Frame(frame.module, {}, frame), [])
        frame.names[statement.name] = Class(frame.module, statement.name)

    def _assign(self, statement: ast.Assign, frame: Frame, pending: list[Any]) -> None:
        value = evaluate(statement.value, frame, self)
        for target in statement.targets:
            _bind(target, value, frame)

    def _annotated(self, statement: ast.AnnAssign, frame: Frame, pending: list[Any]) -> None:
        if statement.value is not None:
            _bind(statement.target, evaluate(statement.value, frame, self), frame)

    def _augmented(self, statement: ast.AugAssign, frame: Frame, pending: list[Any]) -> None:
        evaluate(statement.value, frame, self)
        _bind(statement.target, UNKNOWN, frame)

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
                except _Return as returned:
                    pending.append(returned.value)
                except (Failed, _Break, _Continue):
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
        error = statement.exc
        if error is None:
            raise Failed("", None)
        kind = error.func if isinstance(error, ast.Call) else error
        name = getattr(kind, "id", "") or getattr(kind, "attr", "")
        text = ""
        if isinstance(error, ast.Call) and error.args:
            found = self.unsure(evaluate, error.args[0], frame, self)
            text = found[:300] if isinstance(found, str) else ""
        raise Failed(name or "Exception", Stop("raise", frame.module, statement.lineno, frame.module, name, text))

    def _return(self, statement: ast.Return, frame: Frame, pending: list[Any]) -> None:
        raise _Return(None if statement.value is None else evaluate(statement.value, frame, self))

    def _for(self, statement: ast.For, frame: Frame, pending: list[Any]) -> None:
        values = evaluate(statement.iter, frame, self)
        if isinstance(values, dict):
            values = list(values)
        if not isinstance(values, (list, tuple)) or len(values) > 500:
            _bind(statement.target, UNKNOWN, frame)
            return self._either([statement.body, []], frame, pending)
        for value in list(values):
            _bind(statement.target, value, frame)
            try:
                self._block(statement.body, frame, pending)
            except _Break:
                return
            except _Continue:
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
                _bind(item.optional_vars, UNKNOWN, frame)
        if suppressed:
            self._either([statement.body, []], frame, pending)
        else:
            self._block(statement.body, frame, pending)

    def _match(self, statement: ast.Match, frame: Frame, pending: list[Any]) -> None:
        self._either([case.body for case in statement.cases] + [[]], frame, pending)

    def _delete(self, statement: ast.Delete, frame: Frame, pending: list[Any]) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                frame.names.pop(target.id, None)

    def _break(self, statement: ast.Break, frame: Frame, pending: list[Any]) -> None:
        raise _Break

    def _continue(self, statement: ast.Continue, frame: Frame, pending: list[Any]) -> None:
        raise _Continue

    def _global(self, statement: ast.Global, frame: Frame, pending: list[Any]) -> None:
        around = self._frame(frame.module)
        for name in statement.names:
            around.names[name] = UNKNOWN

    def _assert(self, statement: ast.Assert, frame: Frame, pending: list[Any]) -> None:
        if truth(evaluate(statement.test, frame, self)) is False:
            raise Failed(
                "AssertionError", Stop("raise", frame.module, statement.lineno, frame.module, "AssertionError")
            )

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
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(one, "id", "") or getattr(one, "attr", "") for one in types}
    return not names.isdisjoint((kind, *_CAUGHT_BY.get(kind, ()), *_ALL))


def _bind(target: ast.expr, value: Any, frame: Frame) -> None:
    if isinstance(target, ast.Name):
        frame.names[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value if isinstance(value, (tuple, list)) and len(value) == len(target.elts) else None
        for index, inner in enumerate(target.elts):
            _bind(inner, UNKNOWN if values is None else values[index], frame)
    elif isinstance(target, ast.Starred):
        _bind(target.value, UNKNOWN, frame)
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        held = frame.get(target.value.id)
        key = target.slice.value if isinstance(target.slice, ast.Constant) else None
        if isinstance(held, dict):
            if isinstance(key, (str, int)):
                held[key] = value
            else:
                frame.names[target.value.id] = UNKNOWN


def _bound(
    node: ast.FunctionDef, arguments: list[Any], keywords: dict[str, Any], frame: Frame, following: Importing
) -> dict[str, Any] | None:
    """The parameters of a call by name; None when it cannot be told."""
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    if "**" in keywords or len(arguments) > len(positional):
        return None
    names: dict[str, Any] = {one.arg: value for one, value in zip(positional, arguments, strict=False)}
    for one, default in zip(reversed(positional), reversed(spec.defaults), strict=False):
        names.setdefault(one.arg, following.unsure(evaluate, default, frame, following))
    for one, given in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        names[one.arg] = UNKNOWN if given is None else following.unsure(evaluate, given, frame, following)
    names.update(keywords)
    for one in (*positional, *spec.kwonlyargs):
        names.setdefault(one.arg, UNKNOWN)
    for rest in (spec.vararg, spec.kwarg):
        if rest is not None:
            names[rest.arg] = UNKNOWN
    return names


def _special(module: str, name: str, world: World) -> Any:
    """Values of the standard library and of typing that guards ask for; None for all others."""
    if module == "sys" and name == "version_info":
        return UNKNOWN if world.python is None else world.python
    if (module, name) == ("sys", "platform"):
        return {"linux": "linux", "windows": "win32", "darwin": "darwin"}.get(world.platform, UNKNOWN)
    if name == "TYPE_CHECKING":
        return False
    return None


def _exports(source: bytes) -> list[str]:
    """The names of ``__all__ = [...]`` in a module's source."""
    start = source.rfind(b"\n__all__")
    if start < 0:
        return []
    end = source.find(b"]", start)
    try:
        value = ast.parse(source[start : end + 1].strip() or b"0").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    listed = getattr(value, "value", None)
    if not isinstance(listed, (ast.List, ast.Tuple)):
        return []
    return [one.value for one in listed.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
