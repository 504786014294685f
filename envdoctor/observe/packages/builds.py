"""How torch was built, by its files, and whether its libraries are all there; and files that two of NVIDIA's wheels
list as theirs."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.observe.packages.version_files import read_version_file
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted
from envdoctor.versions.requirement import component_of

#: c10::Error's constructor takes a std::string; its mangled name tells which one, in libc10.so of torch 1.13 to 2.15.
#: (torch/share/cmake/Torch/TorchConfig.cmake says it in 2.5.1 and 2.7.1, and no longer in 2.13.0 and 2.15.0.)
_NEW_ABI = b"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_string"
_OLD_ABI = b"_ZN3c105ErrorC2ENS_14SourceLocationESs"
_LIBRARY_LIMIT = 64 << 20
_TOGETHER = ("libc10.so", "libtorch_cpu.so")


@observes("environment", "torch.cuda torch.hip torch.git torch.cxx11_abi torch.missing_files", kept=True)
def torch_build(request: Request) -> Found:
    """Find how torch was built, and whether its libraries are all there."""
    files, folders = request.place.files, request.place.site_packages
    installed = [item for item in request.items("dist") if item["name"] == "torch"]
    version_file = read_version_file("torch", folders, files)
    if isinstance(version_file, Unknown) and not installed:
        version_file = Unknown(Message("torch is not installed"))
    if isinstance(version_file, Unknown):
        return version_file
    origin = version_file.origin
    abi, abi_origin = _cxx11_abi(version_file.folder, files)
    is_damaged = any(item["package"] == "torch" for item in request.items("package_damage"))
    missing = () if is_damaged else _half_gone(version_file.folder, files)
    return [
        ("torch.cuda", _dotted(version_file.get("cuda"), origin), origin),
        ("torch.hip", _dotted(version_file.get("hip"), origin), origin),
        ("torch.git", version_file.get("git_version"), origin),
        ("torch.cxx11_abi", abi, abi_origin),
        ("torch.missing_files", missing, "torch/lib"),
    ]


def _dotted(value: Value, origin: str) -> Value:
    """Return a version of CUDA or HIP as dotted integers: HIP writes "6.2.41133-dd7f95766"."""
    if not isinstance(value, str):
        return value
    numbers = value.partition("-")[0]
    return numbers if dotted(numbers) is not None else Unknown(Message("{} says {}", origin, repr(value[:60])))


def _cxx11_abi(folder: str, files: Files) -> tuple[Value, str]:
    libraries = os.path.join(folder, "torch", "lib")
    try:
        names = files.names(libraries)
    except OSError as error:
        return Unknown(Message("torch/lib cannot be listed: {}", because_of(error))), ""
    if "libc10.so" in names:
        origin = "torch/lib/libc10.so"
        try:
            mangled = _first_of((_NEW_ABI, _OLD_ABI), files.lines(os.path.join(libraries, "libc10.so"), _LIBRARY_LIMIT))
        except OSError as error:
            return Unknown(Message("{} cannot be read: {}", origin, because_of(error))), origin
        if mangled is None:
            return Unknown(Message("{} has none of the symbols that tell", origin)), origin
        return mangled == _NEW_ABI, origin
    for other in ("libc10.dylib", "c10.dll"):
        if other in names:
            return ABSENT, f"torch/lib/{other}"
    return Unknown(Message("there is no torch/lib/libc10.so")), ""


def _first_of(needles: tuple[bytes, ...], pieces: Iterable[bytes]) -> bytes | None:
    tail = b""
    for piece in pieces:
        text = tail + piece
        for needle in needles:
            if needle in text:
                return needle
        tail = text[1 - max(map(len, needles)) :]
    return None


def _half_gone(folder: str, files: Files) -> tuple[str, ...]:
    """Return the one of two libraries that is gone, if every build for Linux keeps both in this folder and nothing else
    tells it. (conda-forge and Linux distributions keep both elsewhere.)"""
    libraries = os.path.join(folder, "torch", "lib")
    there = files.names_or_none(libraries)
    gone = [name for name in _TOGETHER if name not in there or files.is_gone(os.path.join(libraries, name))]
    return tuple(f"torch/lib/{name}" for name in gone) if len(gone) == 1 else ()


_RECORD_LIMIT = 4 << 20
_LIBRARY = rb"(?m)^([^\",\r\n]{1,400}\.(?:so(?:\.[\d.]{1,20})?|dll)),"


@observes("environment", "shared_file", kept=True)
def shared_files(request: Request) -> Found:
    """Files that two of NVIDIA's wheels for one component list as theirs: the one that was installed last has them."""
    wheels: dict[str, dict[str, Mapping[str, Value]]] = {}
    for item in request.items("dist"):
        named = component_of(str(item["name"]))
        if named is not None:
            wheels.setdefault(named[0], {}).setdefault(str(item["name"]), item)
    items = tuple(
        {"component": component, "file": _shared(list(owners.values()), request.place.files)}
        for component, owners in wheels.items()
        if len(owners) > 1
    )
    return [("shared_file", Records(items), Message("installed packages"))]


def _shared(owners: Sequence[Mapping[str, Value]], files: Files) -> Value:
    seen: set[bytes] = set()
    shared: set[bytes] = set()
    for item in owners:
        try:
            record = files.head(os.path.join(str(item["path"]), "RECORD"), _RECORD_LIMIT)
        except OSError as error:
            return Unknown(Message("RECORD of {} cannot be read: {}", item["name"], because_of(error)))
        names = set(re.findall(_LIBRARY, record))
        files.use(1 + len(names))
        if not names:
            return Unknown(Message("RECORD of {} lists no library", item["name"]))
        shared |= seen & names
        seen |= names
    return min(shared).decode("utf-8", "replace") if shared else ABSENT
