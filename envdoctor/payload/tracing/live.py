"""The bytes of all live tensors while code runs on fake tensors: the most of each part of a step, and what they hold.

A storage counts from the operation that makes it until nothing refers to it any more, rounded up as CUDA's allocator
does. What a kernel needs only inside one operation is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from .allocator import Allocator

#: Bytes that CUDA's caching allocator rounds every block up to (kMinBlockSize in c10/cuda/CUDACachingAllocator).
_BLOCK = 512
_VALUE = torch.ops.aten._local_scalar_dense.default
#: Two of three operations ask only where a tensor is.
_DEVICE = torch.ops.prim.device.default
#: The gradient of a gather is added up where it is, unless tensors are of a class of their own, as fake ones are
#: (gather_backward in torch/csrc/autograd/FunctionsManual.cpp).
_ADDED_UP = torch.ops.aten.scatter_add.default
_ADDED_UP_THERE = torch.ops.aten.scatter_add_.default


class Live(TorchDispatchMode):
    """Watches the operations inside ``with``; ``label`` and ``segment`` say what the code is at, ``allocator`` holds
    what torch's would.

    ``peaks`` holds for each segment the most live bytes, the operation there, and the bytes by label.
    """

    def __init__(self) -> None:
        super().__init__()
        self.label = "weights"
        self.segment = ""
        self.total = 0
        self.peaks: dict[str, tuple[int, str, dict[str, int]]] = {}
        self.allocator = Allocator()
        self._known: dict[int, list[Any]] = {}
        self._by_label: dict[str, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and to say so at each operation takes a tenth of the time."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            return args[0].fake_device
        if func is _VALUE and self.segment.startswith("step"):
            return 10.0  # optimizers read the number of their step, and no memory depends on it
        if func is _ADDED_UP and self.segment.startswith("backward"):
            func = _ADDED_UP_THERE
        out = func(*args, **(kwargs or {}))
        for leaf in tree_flatten(out)[0]:
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        if self.segment:
            self._note(func)
        return out

    def _note(self, func: Any) -> None:
        """Keep what is live after an operation where it is the most so far."""
        if self.total > self.peaks.get(self.segment, (-1,))[0]:
            self.peaks[self.segment] = (self.total, str(func), dict(self._by_label))

    def add(self, tensor: torch.Tensor, label: str = "") -> None:
        """Count the tensor's storage; with a ``label`` also one that is counted already gets it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        entry = self._known.get(key)
        if entry is None:
            named = label or self.label
            held = storage.nbytes()
            entry = [self._size(tensor, held, named), named, held, self.allocator.take(held)]
            self._known[key] = entry
            self._count(entry[0], named, 1)
            weakref.finalize(storage, self._gone, key).atexit = False
        elif label and label != entry[1]:
            self._count(entry[0], entry[1], -1)
            entry[1] = label
            self._count(entry[0], label, 1)

    def _gone(self, key: int) -> None:
        size, label, _, block = self._known.pop(key)
        self._count(size, label, -1)
        self.allocator.give(block)

    def _size(self, tensor: torch.Tensor, held: int, label: str) -> Any:
        """Return what a storage of so many bytes counts as."""
        return -(-held // _BLOCK) * _BLOCK

    def _count(self, size: Any, label: str, sign: int) -> None:
        self.total += sign * size
        self._by_label[label] = self._by_label.get(label, 0) + sign * size

    def clear(self) -> None:
        """Forget the peaks and what was freed, not what is live."""
        self.peaks = {}
        self.allocator = Allocator()
        for entry in self._known.values():
            entry[3] = self.allocator.take(entry[2])

    def measured(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield each segment and its peak as plain data: bytes, operation, bytes by label if there are any."""
        for segment, (size, operation, labels) in self.peaks.items():
            yield segment, [size, operation, {name: part for name, part in labels.items() if part}]


#: Classes of arguments that say by their value all that an operation's result depends on.
_PLAIN = {bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}


class Faking(FakeTensorMode):
    """torch's tensors without data, with its own keys of operations remembered: to make one anew takes a third of the
    time of a trace. Releases before 2.2 ask for none."""

    _keys: ClassVar[dict[Any, Any]] = {}

    def _cache_key(self, *given: Any) -> Any:
        *_, operation, args, kwargs = given
        parts = [operation, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        if not (_add_inputs(parts, args) and _add_inputs(parts, kwargs.items())):
            return super()._cache_key(*given)
        short = tuple(parts)
        if short not in self._keys:
            self._keys[short] = super()._cache_key(*given)
        return self._keys[short]


def _add_inputs(parts: list[Any], values: Iterable[Any]) -> bool:
    """Add what an operation's result depends on of these arguments; whether that is all."""
    for value in values:
        if type(value) is FakeTensor:
            if value.constant is not None or value.layout is not torch.strided:
                return False
            parts += (value.fake_device, value.dtype, value.shape, value.stride(), value.storage_offset())
            parts += (value.requires_grad, value.is_conj(), value.is_neg(), value.untyped_storage().nbytes())
        elif type(value) in (list, tuple):
            parts.append(len(value))
            if not _add_inputs(parts, value):
                return False
        elif type(value) in _PLAIN:
            parts += (type(value), value)
        else:
            return False
    return True
