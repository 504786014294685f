"""The tensors of weight files, read from their headers only: names, dtypes, shapes and the file of each."""

from collections.abc import Iterable, Mapping
from time import process_time
from typing import NamedTuple

from envdoctor.hub.pickle_reading import TOO_LONG, Clock
from envdoctor.hub.safetensors_header import HeaderError, parse_header
from envdoctor.hub.snapshot import Snapshot, Unread
from envdoctor.hub.torch_zip import read_checkpoint
from envdoctor.text.message import Message, said_by


class Spec(NamedTuple):
    """What a tensor is: dtype as safetensors spells it, and shape."""

    dtype: str
    shape: tuple[int, ...]


class Layout:
    """Tensors of some files, ``files`` being those that were read and ``unread`` those that could not be.

    ``tensors`` maps names to their :class:`Spec`, ``where`` to their file. ``twins`` are names that share their data
    with an earlier name (tied weights in a pickle). ``twice`` are names that two files hold. ``raw`` are the headers'
    own bytes by file, to tell "the same header" from "the same tensors". ``remarks`` are odd things by file.
    """

    __slots__ = ("files", "raw", "remarks", "tensors", "twice", "twins", "unread", "where")

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.tensors: dict[str, Spec] = {}
        self.where: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        self.twice: list[str] = []
        self.raw: dict[str, int] = {}
        self.remarks: dict[str, tuple[str, ...]] = {}
        self.unread: list[Unread] = []

    def add(self, path: str, tensors: Iterable[tuple[str, str, tuple[int, ...]]], specs: dict[Spec, Spec]) -> None:
        """Add one file's tensors; ``specs`` keeps equal dtypes and shapes as one object."""
        self.files.add(path)
        for name, dtype, shape in tensors:
            spec = Spec(dtype, shape)
            if name in self.tensors:
                self.twice.append(name)
            self.tensors[name] = specs.setdefault(spec, spec)
            self.where[name] = path


def read_safetensors(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> Layout:
    """The layout of safetensors files. Files that could not be read are in ``unread`` and nowhere else."""
    layout = Layout()
    specs: dict[Spec, Spec] = {}
    wanted = list(paths)
    headers: Mapping[str, bytes | Unread] = snapshot.headers(wanted) if wanted else {}
    for path in wanted:
        raw = headers.get(path, Unread(path, Message("its header was not answered for")))
        if isinstance(raw, Unread):
            layout.unread.append(raw)
            continue
        if clock.left <= 0:
            layout.unread.append(Unread(path, TOO_LONG))
            continue
        began = process_time()
        try:
            header = parse_header(raw, snapshot.files[path].size)
        except HeaderError as error:
            layout.unread.append(Unread(path, said_by(error)))
            continue
        finally:
            clock.left -= process_time() - began
        layout.add(path, ((name, tensor.dtype, tensor.shape) for name, tensor in header.tensors.items()), specs)
        layout.raw[path] = hash(raw[: header.header_bytes])
        if header.remarks:
            layout.remarks[path] = header.remarks
    return layout


def read_pickled(snapshot: Snapshot, paths: Iterable[str], clock: Clock) -> Layout:
    """The layout of PyTorch checkpoints, as far as their pickles name the tensors."""
    layout = Layout()
    specs: dict[Spec, Spec] = {}
    for path in paths:
        checkpoint = read_checkpoint(snapshot, path, clock)
        if isinstance(checkpoint, Unread):
            layout.unread.append(checkpoint)
            continue
        if checkpoint.tensors is None:
            layout.unread.append(Unread(path, Message("its tensors' names could not be read: {}", checkpoint.problem)))
            continue
        tensors = checkpoint.tensors
        layout.add(path, ((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()), specs)
        first: dict[tuple[str, tuple[int, ...]], str] = {}
        for name, tensor in tensors.items():
            owner = first.setdefault((tensor.storage, tensor.shape), name)
            if owner != name:
                layout.twins[name] = owner
    return layout
