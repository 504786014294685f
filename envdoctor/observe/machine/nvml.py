"""The NVIDIA driver and the GPUs through NVML, the driver's own library, called with ctypes and a time limit."""

import ctypes
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.observe.machine.system import container
from envdoctor.observe.request import Request
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import dotted

_GIB = 1 << 30
_MAX_DEVICES = 256
_COLUMNS = ("name", "cc", "memory_gib", "free_gib", "processes", "uuid")
Call = Callable[..., None]
_NOT_SUPPORTED, _NO_PERMISSION, _INSUFFICIENT_SIZE, _LIBRARY_NOT_FOUND, _MISMATCH = 3, 4, 7, 12, 18

#: Return codes of nvml.h that a person can do something with, in words; the others are given by number.
_ERRORS = {
    1: Message("NVML is not initialised"),
    _NOT_SUPPORTED: Message("this GPU does not support the question"),
    _NO_PERMISSION: Message("no permission to ask the driver"),
    9: Message("the NVIDIA driver is not loaded"),
    10: Message("the driver did not answer in its own time limit"),
    _LIBRARY_NOT_FOUND: Message("a library of the driver is missing"),
    13: Message("the driver's library is too old for the question"),
    15: Message("the GPU is lost (it has fallen off the bus)"),
    16: Message("the GPU must be reset"),
    17: Message("the operating system or the container forbids access to the GPU"),
    _MISMATCH: Message(
        "driver/library version mismatch: the driver was updated while the old one is still loaded; reboot"
    ),
    20: Message("out of memory in the driver"),
    999: Message("unknown error of the driver"),
}


class _NvmlError(Exception):
    """A call that did not return NVML_SUCCESS; ``code`` is nvml.h's number, 13 also for a missing function."""

    def __init__(self, code: int) -> None:
        super().__init__("NVML: " + _ERRORS.get(code, Message("error {}", code)))
        self.code = code


def ask_nvml(request: Request, libraries: Iterable[str]) -> dict[str, Value]:
    """Return driver version, highest CUDA version and all GPUs, or why NVML, one of the ``libraries``, does not tell.

    A sick driver can block a call for ever, so that the calls run in a thread which is left behind when it does not
    answer within ``request.nvml_timeout`` seconds.
    """
    answers: list[dict[str, Value]] = []

    def ask() -> None:
        try:
            answers.append(_ask(request, libraries))
        except _NvmlError as error:
            mismatch = {"driver.mismatch": True} if error.code == _MISMATCH else {}
            answers.append({**_unknown(said_by(error)), **mismatch})
        except Exception as error:
            answers.append(_unknown(Message("NVML could not be used: {}", type(error).__name__)))

    thread = threading.Thread(target=ask, name="nvml", daemon=True)
    thread.start()
    thread.join(request.nvml_timeout)
    return answers[0] if answers else _unknown(Message("NVML did not answer in {} s", f"{request.nvml_timeout:g}"))


def _unknown(reason: Message) -> dict[str, Value]:
    return dict.fromkeys(("driver.version", "driver.max_cuda", "driver.mismatch", "gpu"), Unknown(reason))


def _ask(request: Request, libraries: Iterable[str]) -> dict[str, Value]:
    call = _load(libraries)
    if call is None:
        return _unknown(Message("the driver's library libnvidia-ml is not installed here"))
    call("nvmlInit_v2")
    try:
        version = _cell(lambda: _text(call, "nvmlSystemGetDriverVersion"))
        if isinstance(version, str) and not dotted(version):
            version = Unknown(Message("NVML gives a driver version that is no version"))
        gpus, max_cuda = _cell(lambda: _gpus(call, request)), _cell(lambda: _max_cuda(call))
        # A library that answers is the kernel module's own.
        return {"driver.version": version, "driver.max_cuda": max_cuda, "driver.mismatch": False, "gpu": gpus}
    finally:
        _cell(lambda: call("nvmlShutdown"))


def _load(libraries: Iterable[str]) -> Call | None:
    """Return a function that calls NVML by name and raises :class:`_NvmlError`; None when no library can be loaded."""
    for name in libraries:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue

        def call(function: str, *arguments: Any, library: ctypes.CDLL = library) -> None:
            entry = getattr(library, function, None)
            code = 13 if entry is None else int(entry(*arguments))
            if code:
                raise _NvmlError(code)

        return call
    return None


def _cell(ask: Callable[[], Value | None]) -> Value:
    """Return the answer, or unknown with NVML's reason."""
    try:
        value = ask()
    except _NvmlError as error:
        return Unknown(said_by(error))
    return ABSENT if value is None else value


def _text(call: Call, function: str, *handle: Any) -> str:
    buffer = ctypes.create_string_buffer(256)
    call(function, *handle, buffer, ctypes.c_uint(len(buffer)))
    return buffer.value.decode("utf-8", "replace")


def _max_cuda(call: Call) -> Value:
    number = ctypes.c_int()
    try:
        call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number))
    except _NvmlError as error:
        if error.code == _LIBRARY_NOT_FOUND:
            return Unknown(Message("the driver's libcuda is not here (a container without the compute capability?)"))
        raise
    # nvml.h: 1000 * major + 10 * minor.
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _gpus(call: Call, request: Request) -> Value:
    count = ctypes.c_uint()
    call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    items: list[dict[str, Value]] = []
    incomplete = None
    for index in range(min(count.value, _MAX_DEVICES)):
        handle = ctypes.c_void_p()
        try:
            call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        except _NvmlError as error:
            # A GPU that this user or container may not open is counted but not seen by a process.
            if error.code != _NO_PERMISSION:
                items.append({"index": index, **dict.fromkeys(_COLUMNS, Unknown(said_by(error)))})
            continue
        item = _gpu(call, request, index, handle)
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        with suppress(_NvmlError):
            call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
        if current.value == 1:
            slices = Unknown(Message("MIG is on: a process sees a slice of this GPU"))
            item.update(memory_gib=slices, free_gib=slices, processes=slices)
            incomplete = Message("MIG is on for GPU {}, and its slices are not read", index)
        items.append(item)
    return Records(tuple(items), incomplete)


def _gpu(call: Call, request: Request, index: int, handle: Any) -> dict[str, Value]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used, in bytes

    def capability() -> Value:
        call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def size(position: int) -> Value:
        call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return round(memory[position] / _GIB, 3)

    return {
        "index": index,
        "name": _cell(lambda: _text(call, "nvmlDeviceGetName", handle)),
        "cc": _cell(capability),
        "memory_gib": _cell(lambda: size(0)),
        "free_gib": _cell(lambda: size(1)),
        "processes": _cell(lambda: _processes(call, request, handle)),
        "uuid": _cell(lambda: _text(call, "nvmlDeviceGetUUID", handle)),
    }


def _processes(call: Call, request: Request, handle: Any) -> Value:
    """Return how many processes compute on a GPU: without room for their list NVML answers with its length."""
    count = ctypes.c_uint(0)
    for version in ("_v3", "_v2"):
        try:
            call(f"nvmlDeviceGetComputeRunningProcesses{version}", handle, ctypes.byref(count), None)
        except _NvmlError as error:
            if error.code == 13 and version == "_v3":
                continue
            if error.code != _INSUFFICIENT_SIZE:
                raise
        break
    if count.value == 0 and container(request) is not ABSENT:
        return Unknown(Message("a container does not show the processes of others"))
    return count.value
