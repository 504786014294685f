"""The unpickler's stack machine over inert objects: names instead of classes, records instead of calls."""

from dataclasses import dataclass, field
from typing import Any

from envdoctor.text.message import Message

#: Stands for a global whose name the pickle puts together while it runs.
COMPUTED_NAME = "a name that is computed"


@dataclass(slots=True, eq=False)
class Name:
    """A global: ``module.attribute`` as Python 3 spells it."""

    text: str


@dataclass(slots=True, eq=False)
class Call:
    """A global called with arguments; ``items`` are what was put into the result as into a mapping or a list."""

    function: object
    arguments: object
    items: list[tuple[Any, Any]] = field(default_factory=list)
    state: object = None

    @property
    def name(self) -> str:
        """The called global, empty when something else is called."""
        return self.function.text if isinstance(self.function, Name) else ""


@dataclass(slots=True, eq=False)
class Table:
    """A dict, as the pairs that were put into it (keys of a hostile pickle are better not hashed)."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Stored:
    """An object that the pickle names by a persistent ``id``, which torch uses for storages."""

    id: object


class Broken(Exception):
    """The pickle could not be loaded by anyone."""


#: Opcodes whose argument is no value of its own.
_WITH_ARGUMENT = frozenset(
    {"GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID"}
    | {"PROTO", "FRAME"}
)


_MARK = object()


class Machine:
    """Stack and memo; ``globals`` collects the names, ``strings`` the last two texts."""

    def __init__(self, found: dict[str, None]) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals = found
        self.strings: list[str] = []

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Broken(Message("it takes more from its stack than there is"))
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise Broken(Message("it ends a list that it did not begin"))

    def name(self, module: str, attribute: str) -> Name:
        from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

        # Pickles of protocol 2, torch's own choice, spell modules as Python 2 did.
        module, attribute = NAME_MAPPING.get((module, attribute), (IMPORT_MAPPING.get(module, module), attribute))
        return self.found(f"{module}.{attribute}")

    def written(self, argument: str) -> Name:
        """The name of an opcode that has it as one text: module, blank, attribute."""
        module, _, attribute = argument.partition(" ")
        return self.name(module, attribute)

    def found(self, text: str) -> Name:
        self.globals[text] = None
        return Name(text)

    def heard(self, item: object) -> None:
        """Remember a text: a name that is put together comes from the last two."""
        if type(item) is str:
            self.strings = [*self.strings[-1:], item]


def names_only(machine: Machine, opcode: str, argument: Any) -> None:
    """Behind the point where the stack is lost: globals by name, and by the last two texts."""
    if opcode in ("GLOBAL", "INST"):
        machine.written(argument)
    elif opcode == "STACK_GLOBAL":
        if len(machine.strings) == 2:
            machine.name(*machine.strings)
        else:
            machine.found(COMPUTED_NAME)
    else:
        machine.heard(argument)


def step(machine: Machine, opcode: str, argument: Any) -> None:  # noqa: PLR0915 (one case an opcode)
    """Do what the opcode does, without importing or calling anything. Raises :class:`Broken`."""
    stack = machine.stack
    if argument is not None and opcode not in _WITH_ARGUMENT:  # a text or a number
        machine.heard(argument)
        stack.append(argument)
        return
    # The opcodes of a tensor come first: a checkpoint repeats them for each of its tensors.
    match opcode:
        case "BINGET" | "LONG_BINGET" | "GET":
            if int(argument) not in machine.memo:
                raise Broken(Message("it refers to an object that it did not keep"))
            machine.heard(machine.memo[int(argument)])
            stack.append(machine.memo[int(argument)])
        case "BINPUT" | "LONG_BINPUT" | "PUT":
            machine.memo[int(argument)] = machine.top()
        case "MARK":
            stack.append(_MARK)
        case "TUPLE":
            stack.append(tuple(machine.pop_mark()))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            items = [machine.pop() for _ in range(int(opcode[-1]))]
            stack.append(tuple(reversed(items)))
        case "BINPERSID":
            stack.append(Stored(machine.pop()))
        case "REDUCE" | "NEWOBJ" | "NEWOBJ_EX":
            if opcode == "NEWOBJ_EX":
                machine.pop()  # its keywords
            arguments, function = machine.pop(), machine.pop()
            stack.append(Call(function, arguments))
        case "EMPTY_TUPLE":
            stack.append(())
        case "MEMOIZE":
            machine.memo[len(machine.memo)] = machine.top()
        case "GLOBAL":
            stack.append(machine.written(argument))
        case "STACK_GLOBAL":
            attribute, module = machine.pop(), machine.pop()
            known = type(attribute) is str and type(module) is str
            stack.append(machine.name(module, attribute) if known else machine.found(COMPUTED_NAME))
        case "EXT1" | "EXT2" | "EXT4":
            stack.append(machine.found(f"copyreg extension {argument}"))
        case "INST":
            arguments = tuple(machine.pop_mark())
            stack.append(Call(machine.written(argument), arguments))
        case "OBJ":
            items = machine.pop_mark()
            if not items:
                raise Broken(Message("it builds an object of no class"))
            stack.append(Call(items[0], tuple(items[1:])))
        case "BUILD":
            state, target = machine.pop(), machine.top()
            if isinstance(target, Call):
                target.state = state
        case "SETITEM" | "SETITEMS":
            pairs = machine.pop_mark() if opcode == "SETITEMS" else [machine.pop(), machine.pop()][::-1]
            target = machine.top()
            if isinstance(target, (Table, Call)):
                target.items += zip(pairs[::2], pairs[1::2], strict=False)
        case "APPEND" | "APPENDS" | "ADDITEMS":
            items = [machine.pop()] if opcode == "APPEND" else machine.pop_mark()
            target = machine.top()
            if isinstance(target, list):
                target += items
        case "EMPTY_DICT" | "DICT":
            table = Table()
            pairs = machine.pop_mark() if opcode == "DICT" else []
            table.items += zip(pairs[::2], pairs[1::2], strict=False)
            stack.append(table)
        case "EMPTY_LIST" | "EMPTY_SET":
            stack.append([])
        case "LIST" | "FROZENSET":
            stack.append(machine.pop_mark())
        case "POP":
            if not stack:
                raise Broken(Message("it takes more from its stack than there is"))
            stack.pop()
        case "POP_MARK":
            machine.pop_mark()
        case "DUP":
            stack.append(machine.top())
        case "PERSID":
            stack.append(Stored(argument))
        case "PROTO" | "FRAME" | "STOP" | "READONLY_BUFFER":
            pass
        case "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append({"NEWTRUE": True, "NEWFALSE": False}.get(opcode))
        case _:
            raise Broken(Message("it uses the opcode {}, which no checkpoint needs", opcode))
