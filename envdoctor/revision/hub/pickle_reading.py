"""PyTorch checkpoints (``.bin``, ``.pt``, ``.pth``) from a few ranges: their globals and tensors, nothing unpickled.

A checkpoint is a zip archive whose ``data.pkl`` describes the tensors, or (before torch 1.6, and by choice) four
pickles in a row followed by raw storages. Weights are never read. A pickle is read by its opcodes in a bounded child:
its bytes are somebody else's, and may be made to cost time. No class is imported, nothing is called or built: what an
unpickler would put together in another way than torch.save writes it is said to be computed, or not known.
"""

import io
import pickletools
import re
import time
import warnings
import zipfile
import zlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from struct import error as StructError
from typing import Any, NamedTuple

from envdoctor.revision.hub.snapshot import Snapshot, Unread
from envdoctor.system.asking import ChildProblem, Limits, ask_once
from envdoctor.system.message import Message, MessageError, packed, unpacked

#: Bytes of a pickle that are looked at: 10,000 tensors take about 1.5 MB; and of an archive's directory, in which each
#: takes about 100, and some 25 µs.
_LARGEST_PICKLE, _LARGEST_DIRECTORY = 32 << 20, 8 << 20
#: Opcodes of one pickle that are followed, some seconds' worth. A tensor takes about 35.
_MOST_OPCODES = 4_000_000
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
#: What torch can build: int64 lengths, 64 dimensions.
_LONGEST = 1 << 63
_MOST_DIMENSIONS = 64
#: Opcodes by letter: what torch.save writes around texts (s), numbers (i) and globals (g). Others are a question mark.
_LETTERS = {
    **{"MARK": "(", "TUPLE": "t", "EMPTY_TUPLE": ")", "TUPLE1": "1", "TUPLE2": "2", "TUPLE3": "3", "BINPERSID": "Q"},
    **{"REDUCE": "R", "NEWTRUE": "b", "NEWFALSE": "b", "NONE": "n", "EMPTY_DICT": "}", "SETITEM": "u", "SETITEMS": "u"},
    **{"BUILD": "B"},
}
_PUT = ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE")
_GET = ("BINGET", "LONG_BINGET", "GET")
_LENGTHS = r"(?:i1|ii2|iii3|\(i*t|\))"
#: Name, perhaps a parameter around it, function, storage (kind, key, device, size), offset, shape, strides,
#: requires_grad, hooks; and the dtype where the storage does not say it (torch/_utils.py, torch/_tensor.py).
_TENSOR = rf"sg?g\(\(sgssin?tQi({_LENGTHS}){_LENGTHS}b(?:g\)R)?(g?)(?:n|\}})?tR(?:bg\)R3R)?"
#: The whole of a state: a table, and in it nothing but tensors and plain values.
_STATE = re.compile(rf"(?:\}}|g\)R)(?:\((?:{_TENSOR}|s[sibn])+u|(?:{_TENSOR}|s[sibn])u)*")
_REBUILD = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")


class PickledTensor(NamedTuple):
    """A tensor of a pickle. ``dtype`` as in safetensors, or torch's name where the format has none (``qint8``). Tensors
    with one ``storage`` and shape are one tensor under several names (tied weights)."""

    dtype: str
    shape: tuple[int, ...]
    storage: str


class _Scan:
    """Read the opcodes of the pickle that begins at ``start``. Never raises for bad input. ``globals`` are in the order
    of their first use; ``problem`` is None, or says why the reading ended early: ``cut`` where the bytes ended,
    ``limited`` when it was given up. ``letters`` and ``values`` are the opcodes up to ``end``."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.globals: dict[str, None] = {}
        self.problem: str | None = None
        self.cut = self.limited = False
        self.letters: list[str] = []
        self.values: list[Any] = []
        self._memo: dict[int, tuple[str, Any]] = {}
        if _LONG_NUMBER.search(data):
            self.problem, self.limited = Message("it holds a number of thousands of digits"), True
            return
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
                if count >= _MOST_OPCODES:
                    self.problem = Message("it has more than {} opcodes", f"{_MOST_OPCODES:,}")
                    self.limited = True
                    break
                self._add(opcode.name, argument)
        except ValueError as error:
            self.cut = stream.tell() >= len(data)
            self.problem = Message("it is no complete pickle ({})", str(error)[:80])
        self.end = stream.tell()

    def _add(self, opcode: str, argument: Any) -> None:
        letter, value = _LETTERS.get(opcode, "?"), argument
        if opcode in _PUT:
            place = len(self._memo) if opcode == "MEMOIZE" else int(argument)
            is_plain = self.letters[-1:] in (["s"], ["g"])
            self._memo[place] = (self.letters[-1], self.values[-1]) if is_plain else ("?", None)
            return
        if opcode in ("PROTO", "FRAME", "STOP"):
            return
        if opcode in _GET:
            letter, value = self._memo.get(int(argument), ("?", None))
        elif opcode in ("GLOBAL", "INST"):
            letter, value = "g" if opcode == "GLOBAL" else "?", self._name(*argument.split(" ", 1))
        elif opcode == "STACK_GLOBAL":
            # Only texts that stand right before it are the name for certain.
            if self.letters[-2:] == ["s", "s"]:
                letter, value = "g", self._name(*self.values[-2:])
                del self.letters[-2:], self.values[-2:]
            else:
                self.globals[COMPUTED_NAME] = None
        elif opcode.startswith("EXT"):
            self.globals[f"copyreg extension {argument}"] = None
        elif type(argument) in (str, int):
            letter = "?" if opcode == "PERSID" else "s" if type(argument) is str else "i"
        self.letters.append(letter)
        self.values.append(value)

    def _name(self, module: str, attribute: str = "") -> str:
        # Pickles of protocol 2, torch's own choice, spell modules as Python 2 did.
        name = ".".join(NAME_MAPPING.get((module, attribute), (IMPORT_MAPPING.get(module, module), attribute)))
        self.globals[name] = None
        return name

    def tensors(self) -> dict[str, PickledTensor] | None:
        """Return tensors by name; None unless the pickle is one table of them, made as torch.save makes it."""
        letters = "".join(self.letters)
        state = _STATE.match(letters)
        tensors: dict[str, PickledTensor] = {}
        if "?" in letters or "Q" in letters[state.end() if state else 0 :]:
            return None
        for match in re.finditer(_TENSOR, letters):
            name, *values = self.values[match.start() : match.end()]
            if values[0] == "torch._utils._rebuild_parameter":
                del values[0]
            function, _, _, _, kind, key, *_ = values
            shape = tuple(value for value in self.values[slice(*match.span(1))] if type(value) is int)
            is_valid = len(shape) <= _MOST_DIMENSIONS and all(0 <= length < _LONGEST for length in shape)
            if function not in _REBUILD or not is_valid:
                return None
            kind = (self.values[match.start(2)] if match[2] else kind).rpartition(".")[2]
            dtype = _DTYPES.get(kind, kind.removesuffix("Storage").lower())
            tensors[name] = PickledTensor(dtype, shape, f"{key}+{self.values[match.start(1) - 1]}")
        return tensors


#: For all headers and pickles of a comparison, beyond what a child takes that has little to do.
_SECONDS = 8.0
_USUAL = 1.0
#: What is said of the files behind the end of that time.
TOO_LONG = Message("looking at headers and pickles took more than {} s", f"{_SECONDS:g}")
#: What a file of torch's older format begins with: a pickle of this number (torch/serialization.py, MAGIC_NUMBER).
_OLD_MAGIC = 0x1950A86A20F9469CFC6C


class Checkpoint(NamedTuple):
    """What a checkpoint holds. ``globals`` are ``module.name`` in the order of use; ``all_globals`` is False when there
    may be more behind what was looked at. ``tensors`` is None when the names could not be made out: ``problem`` says
    why where the bytes are no complete pickle, ``cut`` that they ended."""

    globals: tuple[str, ...]
    all_globals: bool
    tensors: dict[str, PickledTensor] | None
    problem: str | None
    cut: bool = False

    @property
    def is_pickle(self) -> bool:
        """Return whether an unpickler would do anything with the bytes before it stops; True if unknown."""
        return bool(self.globals) or self.problem is None or self.cut or not self.all_globals


class Clock:
    """The seconds that are left for looking at what weight files say of themselves, however many they are."""

    def __init__(self) -> None:
        self.left = _SECONDS


def _read_pickle(kind: str, data: bytes, clock: Clock) -> Checkpoint:
    """Return what a pickle describes: of an archive (``zip``, ``torchscript``), or a file's beginning (``prefix``)."""
    problem = TOO_LONG
    if clock.left > 0:
        began = time.monotonic()
        limits = Limits(seconds=clock.left + _USUAL, mib=768, output=128 << 20)
        answer = ask_once("envdoctor.revision.hub.pickle_reading:described", {"kind": kind}, limits, data)
        clock.left -= max(0.0, time.monotonic() - began - _USUAL)
        if not isinstance(answer, ChildProblem):
            names, whole, rows, reason, cut = answer
            tensors = {name: PickledTensor(dtype, tuple(shape), key) for name, dtype, shape, key in rows or ()}
            return Checkpoint(tuple(names), whole, None if rows is None else tensors, unpacked(reason), cut)
        problem = TOO_LONG if answer.kind == "timeout" else Message("its pickle {}", answer.clause())
    return Checkpoint((), False, None, problem)


def described(data: bytes, kind: str) -> list[Any]:
    """Return the fields of a :class:`Checkpoint` as JSON: what the child answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickletools' own, about odd escapes in texts of protocol 0
        scans = [_Scan(data)]
        # The old format has five: number, protocol, machine, the object, keys of its storages.
        is_old = kind == "prefix" and scans[0].values[-1:] == [_OLD_MAGIC]
        while is_old and scans[-1].problem is None and len(scans) < 5:
            scans.append(_Scan(data, scans[-1].end))
    last = scans[-1]
    problem, whole = last.problem, not (last.cut or last.limited)
    if problem is None and kind == "torchscript":
        problem, whole = Message("it is a TorchScript program"), False
    tensors = scans[3 if is_old else 0].tensors() if problem is None else None
    rows = None if tensors is None else [[name, *tensor] for name, tensor in tensors.items()]
    names = dict.fromkeys(name for scan in scans for name in scan.globals)
    return [[*names], whole, rows, packed(problem), last.cut]


_TAIL = 32 << 10
_PREFIX = 64 << 10
_LARGEST_PREFIX = 8 << 20
_LOCAL = b"PK\x03\x04"
_EMPTY = b"PK\x05\x06"


class _Unreadable(MessageError):
    """The archive is damaged or not what it seems; the message is a clause."""


class _Archive:
    """The file for the standard library's reader of archives; little of it is read. Raises :class:`_Unreadable`."""

    def __init__(self, snapshot: Snapshot, path: str, size: int, end: bytes) -> None:
        self._snapshot, self._path, self.size = snapshot, path, size
        self._parts = {size - len(end): end}
        self._position = 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = max(0, offset + (0, self._position, self.size)[whence])
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, length: int = -1) -> bytes:
        left = max(0, self.size - self._position)
        start, length = self._position, left if length < 0 else min(left, length)
        self._position += length
        for begin, part in self._parts.items():
            if begin <= start and start + length <= begin + len(part):
                return part[start - begin : start - begin + length]
        self.fetch(start, length, _LARGEST_DIRECTORY)
        return self._parts[start]

    def fetch(self, start: int, length: int, most: int = _LARGEST_PICKLE) -> None:
        """Have a part at hand, in one request."""
        if length > most:
            raise _Unreadable("a part of its archive has {} bytes, too many to read", f"{length:,}")
        part = self._snapshot.read_range(self._path, start, min(length, self.size - start))
        if isinstance(part, Unread):
            raise _Unreadable(part.reason)
        self._parts[start] = part


def read_checkpoint(snapshot: Snapshot, path: str, clock: Clock) -> Checkpoint | Unread:
    """Read a checkpoint's description, about 30 kB of a file of any size, in the time that ``clock`` leaves."""
    size = snapshot.files[path].size
    if size < 4:
        return Unread(path, Message("it has {} bytes, which is no checkpoint", size))
    head = snapshot.read_range(path, 0, min(size, 512))
    if isinstance(head, Unread):
        return head
    if head.startswith(b"version https://git-lfs"):
        return Unread(path, Message("it is a Git LFS pointer, not the checkpoint itself"))
    if head[257:262] == b"ustar":
        return Unread(path, Message("it is a tar archive, torch's format before 0.1.10, which is not looked into"))
    if head[:4] not in (_LOCAL, _EMPTY):
        return _read_pickles(snapshot, path, size, clock)
    end = snapshot.read_range(path, max(0, size - _TAIL), min(size, _TAIL))
    if isinstance(end, Unread):
        return end
    began = time.process_time()
    try:
        kind, content = _pickle_in(_Archive(snapshot, path, size, end)) if clock.left > 0 else ("zip", b"")
    except _Unreadable as error:
        return Unread(path, error.message)
    finally:
        clock.left -= time.process_time() - began
    return _read_pickle(kind, content, clock)


def _pickle_in(archive: _Archive) -> tuple[str, bytes]:
    """Return the kind and the content of an archive's pickle."""
    try:
        with zipfile.ZipFile(archive) as directory:
            members = directory.infolist()
            pickles = [member for member in members if member.filename.rpartition("/")[2].lower() == "data.pkl"]
            if len(pickles) != 1:
                raise _Unreadable("the archive has {} files named data.pkl instead of one", len(pickles))
            (member,) = pickles
            if max(member.file_size, member.compress_size) > _LARGEST_PICKLE:
                raise _Unreadable("its data.pkl has {} bytes, too many to look at", f"{member.file_size:,}")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                text = "its data.pkl is compressed in a way that torch does not use ({})"
                raise _Unreadable(text, member.compress_type)
            # The local header repeats the name and has padding of its own, which torch uses to align the data.
            archive.fetch(member.header_offset, 30 + len(member.filename.encode()) + 256 + member.compress_size)
            with directory.open(member) as file:
                file._expected_crc = None  # type: ignore[attr-defined]  # torch does not check it either
                content = file.read(member.file_size + 1)  # a number, or a bomb would be unpacked before it is cut
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, OverflowError, StructError, zlib.error) as error:
        raise _Unreadable("its archive is damaged, or the file is cut ({})", str(error)[:80]) from None
    if len(content) != member.file_size:
        raise _Unreadable("its data.pkl does not have the size that the directory of its archive gives")
    script = any(member.filename.rpartition("/")[2].lower() == "constants.pkl" for member in members)
    return "torchscript" if script else "zip", content


def _read_pickles(snapshot: Snapshot, path: str, size: int, clock: Clock) -> Checkpoint | Unread:
    """Read the older format and plain pickles: a prefix, made longer while the description goes on behind it."""
    length = min(size, _PREFIX)
    while True:
        part = snapshot.read_range(path, 0, length)
        if isinstance(part, Unread):
            return part
        checkpoint = _read_pickle("prefix", part, clock)
        if not checkpoint.cut or length >= min(size, _LARGEST_PREFIX):
            # where the file itself ends, an unpickler fails: nothing is behind it
            return checkpoint._replace(all_globals=checkpoint.all_globals or (checkpoint.cut and length >= size))
        length = min(size, length * 8, _LARGEST_PREFIX)
