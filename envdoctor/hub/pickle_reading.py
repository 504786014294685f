"""What a PyTorch pickle describes, its globals and its tensors, found in a bounded child.

Its bytes are somebody else's, and may be made to cost time.
"""

import io
import pickletools
import re
import time
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from envdoctor.sandbox.asking import Limits, Problem, ask_once
from envdoctor.text.message import Message, MessageError, packed, unpacked

# What a pickle would import and build, found by walking its opcodes: no class is imported and nothing is called.
#
# The unpickler's stack holds inert objects instead: names for classes, and of what calls would build tables and the
# names, shapes and dtypes of tensors.

#: Bytes of one pickle that are looked at. The state of a model with 10,000 tensors takes about 1.5 MB.
LARGEST_PICKLE = 32 << 20
#: Opcodes of one pickle that are followed, some seconds' worth. A tensor takes about 35.
MOST_OPCODES = 4_000_000
#: Stands for a global whose name the pickle puts together while it runs.
COMPUTED_NAME = "a name that is computed"

_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{4301}")
#: torch's storage classes and dtypes, in the spelling of safetensors where that has one.
_DTYPES = {
    **{"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"},
    **{"LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8"},
    **{"BoolStorage": "BOOL", "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128"},
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "bool": "BOOL", "complex128": "C128"},
    **{"uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "float4_e2m1fn_x2": "F4"},
    **{"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"},
    **{"float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"},
}
_REBUILD = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_tensor")
#: What torch can build: int64 lengths, 64 dimensions.
_LONGEST = 1 << 63
_MOST_DIMENSIONS = 64
_MARK = object()
#: By opcode: how many objects it takes from the stack, and whether it takes all down to a mark before them.
_TAKES = {
    opcode.name: (before.index(pickletools.markobject), True)
    if pickletools.markobject in before
    else (len(before), False)
    for opcode in pickletools.opcodes
    for before in [opcode.stack_before]
}
#: Opcodes whose argument is no value of its own.
_WITH_ARGUMENT = frozenset(
    {"GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID"}
    | {"PROTO", "FRAME"}
)


@dataclass(slots=True, eq=False)
class Name:
    """A global: ``module.attribute`` as Python 3 spells it."""

    text: str


@dataclass(slots=True, eq=False)
class Table:
    """A dict, as the pairs that were put into it (keys of a hostile pickle are better not hashed)."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Stored:
    """An object that the pickle names by a persistent ``id``, which torch uses for storages."""

    id: object


class PickledTensor(NamedTuple):
    """A tensor of a pickle. ``dtype`` as in safetensors, or torch's name where the format has none (``qint8``).

    Tensors with one ``storage`` and shape are one tensor under several names (tied weights).
    """

    dtype: str
    shape: tuple[int, ...]
    storage: str


@dataclass
class Scan:
    """The outcome. ``globals`` in the order of their first use; ``problem`` is None, or says why the walk ended early.

    ``result`` is the object that would come out, made of the classes above; ``end`` the position behind it.
    With a problem ``globals`` still holds what was found until there, and what the opcodes behind it name. ``cut`` is
    True when the bytes ended first, ``limited`` when the walk was given up: then the list of globals may be too short.
    Otherwise an unpickler fails where the walk did.
    """

    globals: dict[str, None] = field(default_factory=dict)
    problem: str | None = None
    result: object = None
    end: int = 0
    cut: bool = False
    limited: bool = False


def scan_pickle(data: bytes, start: int = 0) -> Scan:
    """Walk the pickle that begins at ``start``. Never raises for bad input: see :attr:`Scan.problem`."""
    if _LONG_NUMBER.search(data):
        return Scan(problem=Message("it holds a number of thousands of digits"), limited=True)
    scan = Scan()
    machine = _Machine(scan.globals)
    stream = io.BytesIO(data)
    stream.seek(start)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MOST_OPCODES:
                scan.problem = scan.problem or Message("it has more than {} opcodes", f"{MOST_OPCODES:,}")
                scan.limited = True
                break
            if scan.problem is None:
                try:
                    machine.step(opcode.name, argument)
                except _Broken as error:
                    scan.problem = error.message
            else:
                machine.names_only(opcode.name, argument)
    except ValueError as error:
        scan.cut = stream.tell() >= len(data)
        scan.problem = scan.problem or Message("it is no complete pickle ({})", str(error)[:80])
    if scan.problem is None:
        scan.result = machine.stack[-1] if machine.stack else None
        scan.end = stream.tell()
    return scan


class _Broken(MessageError):
    """The pickle could not be loaded by anyone."""


class _Machine:
    """Stack and memo; ``globals`` collects the names, ``strings`` the last two texts."""

    def __init__(self, found: dict[str, None]) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals = found
        self.strings: list[str] = []

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _Broken("it takes more from its stack than there is")
        return self.stack[-1]

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise _Broken("it ends a list that it did not begin")

    def name(self, module: str, attribute: str) -> Name:
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

    def names_only(self, opcode: str, argument: Any) -> None:
        """Behind the point where the stack is lost: globals by name, and by the last two texts."""
        if opcode in ("GLOBAL", "INST"):
            self.written(argument)
        elif opcode != "STACK_GLOBAL":
            self.heard(argument)
        elif len(self.strings) == 2:
            self.name(*self.strings)
        else:
            self.found(COMPUTED_NAME)

    def step(self, opcode: str, argument: Any) -> None:
        """Do what the opcode does, without importing or calling anything. Raises :class:`_Broken`."""
        if argument is not None and opcode not in _WITH_ARGUMENT:  # a text or a number
            self.heard(argument)
            self.stack.append(argument)
        elif opcode == "POP" and self.stack:
            self.stack.pop()  # a mark too
        elif opcode not in ("PROTO", "FRAME", "STOP", "READONLY_BUFFER"):
            count, marked = _TAKES[opcode]
            above = self.pop_mark() if marked else []
            below = [self.pop() for _ in range(count)][::-1]
            self.stack += self._result(opcode, argument, below, above)

    def _result(self, opcode: str, argument: Any, below: list[Any], above: list[Any]) -> Sequence[Any]:
        """Return what the opcode leaves of the objects ``below`` and ``above`` the mark: none, one, or two."""
        # The opcodes of a tensor come first: a checkpoint repeats them for each of its tensors.
        match opcode:
            case "BINGET" | "LONG_BINGET" | "GET":
                if int(argument) not in self.memo:
                    raise _Broken("it refers to an object that it did not keep")
                self.heard(self.memo[int(argument)])
                return [self.memo[int(argument)]]
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self.memo[int(argument)] = self.top()
                return []
            case "MARK":
                return [_MARK]
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3" | "EMPTY_TUPLE":
                return [(*below, *above)]
            case "BINPERSID":
                return [Stored(below[0])]
            case "REDUCE" | "NEWOBJ" | "NEWOBJ_EX":  # the third is given keywords too
                return [_built(*below[:2])]
            case "MEMOIZE":
                self.memo[len(self.memo)] = below[0]
                return below
            case "GLOBAL":
                return [self.written(argument)]
            case "STACK_GLOBAL":
                known = all(type(part) is str for part in below)
                return [self.name(*below) if known else self.found(COMPUTED_NAME)]
            case "EXT1" | "EXT2" | "EXT4":
                return [self.found(f"copyreg extension {argument}")]
            case "INST":
                return [_built(self.written(argument), tuple(above))]
            case "OBJ":
                if not above:
                    raise _Broken("it builds an object of no class")
                return [_built(above[0], tuple(above[1:]))]
            case "SETITEM" | "SETITEMS":
                if isinstance(below[0], Table):
                    below[0].items += _pairs([*below[1:], *above])
                return below[:1]
            case "APPEND" | "APPENDS" | "ADDITEMS":
                if isinstance(below[0], list):
                    below[0] += [*below[1:], *above]
                return below[:1]
            case "EMPTY_DICT" | "DICT":
                return [Table(_pairs(above))]
            case "EMPTY_LIST" | "EMPTY_SET" | "LIST" | "FROZENSET":
                return [above]
            case "BUILD":
                return below[:1]
            case "DUP":
                return below * 2
            case "PERSID":
                return [Stored(argument)]
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                return [{"NEWTRUE": True, "NEWFALSE": False}.get(opcode)]
            case "POP_MARK":
                return []
        raise _Broken("it uses the opcode {}, which no checkpoint needs", opcode)


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return [*zip(items[::2], items[1::2], strict=False)]


def _built(function: object, arguments: object) -> object:
    """Return what a call of a global builds for a state of PyTorch: a table, lengths, a tensor; else a mere object."""
    for _ in range(4):  # parameter around subclass around tensor
        match getattr(function, "text", ""), arguments:
            case "collections.OrderedDict", _:
                return Table()
            case "torch.Size", (lengths,):
                return lengths
            case (("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state"), (tensor, *_)):
                return tensor
            case "torch._tensor._rebuild_from_type_v2", (function, _, arguments, *_):
                continue
            case name, (Stored(id=tuple((_, Name() as kind, key, _, *_))), offset, shape, _, *others):
                if name in _REBUILD:
                    return _tensor(kind, key, offset, shape, others)
        break
    return object()


def _tensor(kind: Name, key: object, offset: object, shape: object, others: list[Any]) -> object:
    if not isinstance(shape, (tuple, list)) or len(shape) > _MOST_DIMENSIONS:
        return None
    if not all(type(length) is int and 0 <= length < _LONGEST for length in shape):
        return None
    if len(others) >= 3 and isinstance(others[2], Name):
        kind = others[2]
    name = kind.text.rpartition(".")[2]
    dtype = _DTYPES.get(name, name.removesuffix("Storage").lower())
    # Keys and offsets are text and numbers; anything else says nothing of what is shared.
    storage = key if type(key) is str else "?"
    return PickledTensor(dtype, tuple(shape), f"{storage}+{offset}" if type(offset) is int else storage)


#: For all headers and pickles of a comparison, beyond what a child takes that has little to do.
_SECONDS = 8.0
_USUAL = 1.0
#: What is said of the files behind the end of that time.
TOO_LONG = Message("looking at headers and pickles took more than {} s", f"{_SECONDS:g}")
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_DEEPEST = 5
_MOST = 500_000


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    ``globals`` are ``module.name`` in the order of use; ``all_globals`` is False when there may be more behind what was
    looked at. ``tensors`` is None when the names could not be made out: ``problem`` says why, ``cut`` that the bytes
    ended.
    """

    globals: tuple[str, ...]
    all_globals: bool
    tensors: dict[str, PickledTensor] | None
    problem: str | None
    cut: bool = False

    @property
    def is_pickle(self) -> bool:
        """Whether an unpickler would do anything with the bytes before it stops; True when that is not known."""
        return bool(self.globals) or self.problem is None or self.cut or not self.all_globals


class Clock:
    """The seconds that are left for looking at what weight files say of themselves, however many they are."""

    def __init__(self) -> None:
        self.left = _SECONDS


def read_pickle(kind: str, data: bytes, clock: Clock) -> Checkpoint:
    """What the pickle of an archive describes (``zip`` or ``torchscript``); ``prefix`` is the beginning of a file that
    is no archive."""
    problem = TOO_LONG
    if clock.left > 0:
        began = time.monotonic()
        limits = Limits(seconds=clock.left + _USUAL, mib=768, output=128 << 20)
        answer = ask_once("envdoctor.hub.pickle_reading:described", {"kind": kind}, limits, data)
        clock.left -= max(0.0, time.monotonic() - began - _USUAL)
        if not isinstance(answer, Problem):
            names, whole, tensors, reason, cut = answer
            built = None
            if tensors is not None:
                built = {name: PickledTensor(dtype, tuple(shape), key) for name, dtype, shape, key in tensors}
            return Checkpoint(tuple(names), whole, built, unpacked(reason), cut)
        problem = TOO_LONG if answer.kind == "timeout" else Message("its pickle {}", answer.clause())
    return Checkpoint((), False, None, problem)


def described(data: bytes, kind: str) -> list[Any]:
    """The fields of a :class:`Checkpoint` as JSON: what the child answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickletools' own, about odd escapes in texts of protocol 0
        scan = _of_prefix(data) if kind == "prefix" else scan_pickle(data)
    problem, whole, tensors = scan.problem, not (scan.cut or scan.limited), None
    if problem is None and kind == "torchscript":
        problem, whole = Message("it is a TorchScript program"), False
    if problem is None:
        tensors = [[name, *tensor] for name, tensor in _tensors_of(scan.result).items()]
    return [list(scan.globals), whole, tensors, packed(problem), scan.cut]


def _of_prefix(data: bytes) -> Scan:
    """Read a pickle, or all five of torch's old format: number, protocol, machine, the object, keys of its storages."""
    scans = [scan_pickle(data)]
    while scans[0].result == _OLD_MAGIC and scans[-1].problem is None and len(scans) < 5:
        scans.append(scan_pickle(data, scans[-1].end))
    names = {name: None for scan in scans for name in scan.globals}
    return replace(scans[-1], globals=names, result=scans[3 if len(scans) == 5 else -1].result)


def _tensors_of(result: object) -> dict[str, PickledTensor]:
    """Tensors by name; those of nested dictionaries as ``model.embed.weight``. The order is that of the pickle."""
    found: dict[str, PickledTensor] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object, int]] = [("", result, 0)]
    while waiting and len(found) < _MOST:
        prefix, table, depth = waiting.pop()
        if not isinstance(table, Table) or id(table) in seen or depth > _DEEPEST:
            continue
        seen.add(id(table))
        named = [(key, value) for key, value in table.items if type(key) is str]
        found |= {prefix + key: value for key, value in named if isinstance(value, PickledTensor)}
        waiting += [(f"{prefix}{key}.", value, depth + 1) for key, value in reversed(named) if isinstance(value, Table)]
    return found
