"""What a pickle would import and build, found by walking its opcodes: no class is imported and nothing is called."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["COMPUTED_NAME", "LARGEST_PICKLE", "MOST_OPCODES", "Call", "Name", "Scan", "Stored", "Table", "scan_pickle"]

#: Bytes of one pickle that are looked at. The state of a model with 10,000 tensors takes about 1.5 MB.
LARGEST_PICKLE = 32 << 20
#: Opcodes of one pickle that are followed, some seconds' worth. A tensor takes about 35.
MOST_OPCODES = 4_000_000
#: Stands for a global whose name the pickle puts together while it runs.
COMPUTED_NAME = "a name that is computed"

_LONG_NUMBER = re.compile(rb"[0-9]{4301}")


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


class Scan:
    """The outcome. ``globals`` in the order of their first use; ``problem`` is None, or says why the walk ended early.

    ``result`` is the object that would come out, made of the classes of this module; ``end`` the position behind it.
    With a problem ``globals`` still holds what was found until there, and what the opcodes behind it name. ``cut`` is
    True when the bytes ended first, ``limited`` when the walk was given up: then the list of globals may be too short.
    Otherwise an unpickler fails where the walk did.
    """

    __slots__ = ("cut", "end", "globals", "limited", "problem", "result")

    def __init__(self) -> None:
        self.globals: dict[str, None] = {}
        self.problem: str | None = None
        self.result: object = None
        self.end = 0
        self.cut = False
        self.limited = False


class _Broken(Exception):
    """The pickle could not be loaded by anyone."""


class _Mark:
    __slots__ = ()


_MARK = _Mark()


class _Machine:
    """The unpickler's stack and memo."""

    def __init__(self, found: dict[str, None]) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals = found
        self.strings: list[str] = []

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Broken("it takes more from its stack than there is")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Broken("it takes more from its stack than there is")
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise _Broken("it ends a list that it did not begin")

    def name(self, module: str, attribute: str) -> Name:
        from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

        # Pickles of protocol 2, torch's own choice, spell modules as Python 2 did.
        module, attribute = NAME_MAPPING.get((module, attribute), (IMPORT_MAPPING.get(module, module), attribute))
        text = f"{module}.{attribute}"
        self.globals[text] = None
        return Name(text)


def scan_pickle(data: bytes, start: int = 0) -> Scan:
    """Walk the pickle that begins at ``start``. Never raises for bad input: see :attr:`Scan.problem`."""
    import warnings

    scan = Scan()
    if _LONG_NUMBER.search(data):
        scan.problem = "it holds a number of thousands of digits"
        scan.limited = True
        return scan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickletools' own, about odd escapes in texts of protocol 0
        _walk(scan, data, start)
    return scan


def _walk(scan: Scan, data: bytes, start: int) -> None:
    import io
    import pickletools

    machine = _Machine(scan.globals)
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MOST_OPCODES:
                scan.problem = scan.problem or f"it has more than {MOST_OPCODES:,} opcodes"
                scan.limited = True
                break
            if scan.problem is None:
                try:
                    _step(machine, opcode.name, argument)
                except _Broken as error:
                    scan.problem = str(error)
            else:
                _names_only(machine, opcode.name, argument)
    except ValueError as error:
        scan.cut = stream.tell() >= len(data)
        scan.problem = scan.problem or f"it is no complete pickle ({str(error)[:80]})"
    if scan.problem is None:
        scan.result = machine.stack[-1] if machine.stack else None
        scan.end = stream.tell()


def _step(machine: _Machine, opcode: str, argument: Any) -> None:
    action = _ACTIONS.get(opcode)
    if action is not None:
        action(machine, argument)
    elif argument is not None or opcode in _CONSTANTS:
        if type(argument) is str:
            machine.strings = [*machine.strings[-1:], argument]
        machine.stack.append(_CONSTANTS.get(opcode, argument))
    elif opcode not in _IGNORED:
        raise _Broken(f"it uses the opcode {opcode}, which no checkpoint needs")


def _names_only(machine: _Machine, opcode: str, argument: Any) -> None:
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


def _split(machine: _Machine, argument: str) -> Name:
    module, _, attribute = argument.partition(" ")
    return machine.name(module, attribute)


def _global(machine: _Machine, argument: Any) -> None:
    machine.stack.append(_split(machine, argument))


def _stack_global(machine: _Machine, argument: Any) -> None:
    attribute, module = machine.pop(), machine.pop()
    if type(attribute) is str and type(module) is str:
        machine.stack.append(machine.name(module, attribute))
    else:
        machine.globals[COMPUTED_NAME] = None
        machine.stack.append(Name(COMPUTED_NAME))


def _extension(machine: _Machine, argument: Any) -> None:
    name = f"copyreg extension {argument}"
    machine.globals[name] = None
    machine.stack.append(Name(name))


def _instance(machine: _Machine, argument: Any) -> None:
    arguments = tuple(machine.pop_mark())
    machine.stack.append(Call(_split(machine, argument), arguments))


def _object(machine: _Machine, argument: Any) -> None:
    items = machine.pop_mark()
    if not items:
        raise _Broken("it builds an object of no class")
    machine.stack.append(Call(items[0], tuple(items[1:])))


def _call(machine: _Machine, argument: Any) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.stack.append(Call(function, arguments))


def _call_with_keywords(machine: _Machine, argument: Any) -> None:
    machine.pop()
    _call(machine, argument)


def _build(machine: _Machine, argument: Any) -> None:
    state, target = machine.pop(), machine.top()
    if isinstance(target, Call):
        target.state = state


def _set_item(machine: _Machine, argument: Any) -> None:
    value, key, target = machine.pop(), machine.pop(), machine.top()
    if isinstance(target, (Table, Call)):
        target.items.append((key, value))


def _set_items(machine: _Machine, argument: Any) -> None:
    pairs, target = machine.pop_mark(), machine.top()
    if isinstance(target, (Table, Call)):
        target.items += zip(pairs[::2], pairs[1::2], strict=False)


def _append(machine: _Machine, argument: Any) -> None:
    item, target = machine.pop(), machine.top()
    if isinstance(target, list):
        target.append(item)


def _append_all(machine: _Machine, argument: Any) -> None:
    items, target = machine.pop_mark(), machine.top()
    if isinstance(target, list):
        target += items


def _table(machine: _Machine, argument: Any) -> None:
    pairs = machine.pop_mark()
    table = Table()
    table.items += zip(pairs[::2], pairs[1::2], strict=False)
    machine.stack.append(table)


def _tuple_of(size: int) -> Callable[[_Machine, Any], None]:
    def build(machine: _Machine, argument: Any) -> None:
        items = [machine.pop() for _ in range(size)]
        machine.stack.append(tuple(reversed(items)))

    return build


def _pop(machine: _Machine, argument: Any) -> None:
    if not machine.stack:
        raise _Broken("it takes more from its stack than there is")
    machine.stack.pop()


def _pop_mark(machine: _Machine, argument: Any) -> None:
    machine.pop_mark()


def _memoize(machine: _Machine, argument: Any) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _put(machine: _Machine, argument: Any) -> None:
    machine.memo[int(argument)] = machine.top()


def _get(machine: _Machine, argument: Any) -> None:
    if int(argument) not in machine.memo:
        raise _Broken("it refers to an object that it did not keep")
    item = machine.memo[int(argument)]
    if type(item) is str:
        machine.strings = [*machine.strings[-1:], item]
    machine.stack.append(item)


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
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
