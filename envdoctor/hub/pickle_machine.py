"""The unpickler's stack machine over inert objects: names instead of classes, records instead of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["COMPUTED_NAME", "Broken", "Call", "Machine", "Name", "Stored", "Table", "names_only", "step"]

#: Stands for a global whose name the pickle puts together while it runs.
COMPUTED_NAME = "a name that is computed"


class Name:
    """A global: ``module.attribute`` as Python 3 spells it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Call:
    """A global called with arguments; ``items`` are what was put into the result as into a mapping or a list."""

    __slots__ = ("arguments", "function", "items", "state")

    def __init__(self, function: object, arguments: object) -> None:
        self.function = function
        self.arguments = arguments
        self.items: list[tuple[Any, Any]] = []
        self.state: object = None

    @property
    def name(self) -> str:
        """The called global, empty when something else is called."""
        return self.function.text if isinstance(self.function, Name) else ""


class Table:
    """A dict, as the pairs that were put into it (keys of a hostile pickle are better not hashed)."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[tuple[Any, Any]] = []


class Stored:
    """An object that the pickle names by a persistent id, which torch uses for storages."""

    __slots__ = ("id",)

    def __init__(self, identifier: object) -> None:
        self.id = identifier


class Broken(Exception):
    """The pickle could not be loaded by anyone."""


class _Mark:
    __slots__ = ()


_MARK = _Mark()


class Machine:
    """Stack and memo; ``globals`` collects the names, ``strings`` the last two texts."""

    def __init__(self, found: dict[str, None]) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals = found
        self.strings: list[str] = []

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Broken("it takes more from its stack than there is")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Broken("it takes more from its stack than there is")
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise Broken("it ends a list that it did not begin")

    def name(self, module: str, attribute: str) -> Name:
        from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

        # Pickles of protocol 2, torch's own choice, spell modules as Python 2 did.
        module, attribute = NAME_MAPPING.get((module, attribute), (IMPORT_MAPPING.get(module, module), attribute))
        text = f"{module}.{attribute}"
        self.globals[text] = None
        return Name(text)


def step(machine: Machine, opcode: str, argument: Any) -> None:
    """Do what the opcode does, without importing or calling anything. Raises :class:`Broken`."""
    action = _ACTIONS.get(opcode)
    if action is not None:
        action(machine, argument)
    elif argument is not None or opcode in _CONSTANTS:
        if type(argument) is str:
            machine.strings = [*machine.strings[-1:], argument]
        machine.stack.append(_CONSTANTS.get(opcode, argument))
    elif opcode not in _IGNORED:
        raise Broken(f"it uses the opcode {opcode}, which no checkpoint needs")


def names_only(machine: Machine, opcode: str, argument: Any) -> None:
    """Behind the point where the stack is lost: globals by name, and by the last two texts."""
    if opcode in ("GLOBAL", "INST"):
        _split(machine, argument)
    elif opcode == "STACK_GLOBAL":
        if len(machine.strings) == 2:
            machine.name(*machine.strings)
        else:
            machine.globals[COMPUTED_NAME] = None
    elif type(argument) is str:
        machine.strings = [*machine.strings[-1:], argument]


def _split(machine: Machine, argument: str) -> Name:
    module, _, attribute = argument.partition(" ")
    return machine.name(module, attribute)


def _global(machine: Machine, argument: Any) -> None:
    machine.stack.append(_split(machine, argument))


def _stack_global(machine: Machine, argument: Any) -> None:
    attribute, module = machine.pop(), machine.pop()
    if type(attribute) is str and type(module) is str:
        machine.stack.append(machine.name(module, attribute))
    else:
        machine.globals[COMPUTED_NAME] = None
        machine.stack.append(Name(COMPUTED_NAME))


def _extension(machine: Machine, argument: Any) -> None:
    name = f"copyreg extension {argument}"
    machine.globals[name] = None
    machine.stack.append(Name(name))


def _instance(machine: Machine, argument: Any) -> None:
    arguments = tuple(machine.pop_mark())
    machine.stack.append(Call(_split(machine, argument), arguments))


def _object(machine: Machine, argument: Any) -> None:
    items = machine.pop_mark()
    if not items:
        raise Broken("it builds an object of no class")
    machine.stack.append(Call(items[0], tuple(items[1:])))


def _call(machine: Machine, argument: Any) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.stack.append(Call(function, arguments))


def _call_with_keywords(machine: Machine, argument: Any) -> None:
    machine.pop()
    _call(machine, argument)


def _build(machine: Machine, argument: Any) -> None:
    state, target = machine.pop(), machine.top()
    if isinstance(target, Call):
        target.state = state


def _set_item(machine: Machine, argument: Any) -> None:
    value, key, target = machine.pop(), machine.pop(), machine.top()
    if isinstance(target, (Table, Call)):
        target.items.append((key, value))


def _set_items(machine: Machine, argument: Any) -> None:
    pairs, target = machine.pop_mark(), machine.top()
    if isinstance(target, (Table, Call)):
        target.items += zip(pairs[::2], pairs[1::2], strict=False)


def _append(machine: Machine, argument: Any) -> None:
    item, target = machine.pop(), machine.top()
    if isinstance(target, list):
        target.append(item)


def _append_all(machine: Machine, argument: Any) -> None:
    items, target = machine.pop_mark(), machine.top()
    if isinstance(target, list):
        target += items


def _table(machine: Machine, argument: Any) -> None:
    pairs = machine.pop_mark()
    table = Table()
    table.items += zip(pairs[::2], pairs[1::2], strict=False)
    machine.stack.append(table)


def _tuple_of(size: int) -> Callable[[Machine, Any], None]:
    def build(machine: Machine, argument: Any) -> None:
        items = [machine.pop() for _ in range(size)]
        machine.stack.append(tuple(reversed(items)))

    return build


def _pop(machine: Machine, argument: Any) -> None:
    if not machine.stack:
        raise Broken("it takes more from its stack than there is")
    machine.stack.pop()


def _pop_mark(machine: Machine, argument: Any) -> None:
    machine.pop_mark()


def _memoize(machine: Machine, argument: Any) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _put(machine: Machine, argument: Any) -> None:
    machine.memo[int(argument)] = machine.top()


def _get(machine: Machine, argument: Any) -> None:
    if int(argument) not in machine.memo:
        raise Broken("it refers to an object that it did not keep")
    item = machine.memo[int(argument)]
    if type(item) is str:
        machine.strings = [*machine.strings[-1:], item]
    machine.stack.append(item)


_ACTIONS: dict[str, Callable[[Machine, Any], None]] = {
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "EXT1": _extension,
    "EXT2": _extension,
    "EXT4": _extension,
    "INST": _instance,
    "OBJ": _object,
    "NEWOBJ": _call,
    "REDUCE": _call,
    "NEWOBJ_EX": _call_with_keywords,
    "BUILD": _build,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPEND": _append,
    "APPENDS": _append_all,
    "ADDITEMS": _append_all,
    "MARK": lambda machine, argument: machine.stack.append(_MARK),
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": lambda machine, argument: machine.stack.append(machine.top()),
    "EMPTY_DICT": lambda machine, argument: machine.stack.append(Table()),
    "DICT": _table,
    "EMPTY_LIST": lambda machine, argument: machine.stack.append([]),
    "EMPTY_SET": lambda machine, argument: machine.stack.append([]),
    "LIST": lambda machine, argument: machine.stack.append(machine.pop_mark()),
    "FROZENSET": lambda machine, argument: machine.stack.append(machine.pop_mark()),
    "EMPTY_TUPLE": lambda machine, argument: machine.stack.append(()),
    "TUPLE": lambda machine, argument: machine.stack.append(tuple(machine.pop_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "MEMOIZE": _memoize,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "PERSID": lambda machine, argument: machine.stack.append(Stored(argument)),
    "BINPERSID": lambda machine, argument: machine.stack.append(Stored(machine.pop())),
    "PROTO": lambda machine, argument: None,
    "FRAME": lambda machine, argument: None,
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset({"STOP", "READONLY_BUFFER"})
