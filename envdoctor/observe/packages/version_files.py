"""What packages say in files of their own: versions, where METADATA drops the build's local tag or the code is another
release; the compiled files in the list of a distribution (RECORD), and which of them a second wheel of NVIDIA lists;
how torch was built, and whether its libraries are all there."""

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.observe.request import Found, Request, observes
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted, is_version, same_release
from envdoctor.versions.requirement import component_of

#: Packages of PyPI whose METADATA says "2.7.1" and whose version.py says "2.7.1+cu126": read in the wheels of torch
#: 2.5.1 to 2.15.0, torchvision 0.20.1, torchaudio 2.11.0, torchtext 0.18.0 and torchdata 0.11.0. Not so in those of
#: torchao, torchcodec, triton, xformers, vllm, fbgemm-gpu and bitsandbytes, where both say the same.
VERSION_FILES = ("torch", "torchvision", "torchaudio", "torchtext", "torchdata")

_LIMIT = 1 << 16
#: ``name = value`` and ``name: annotation = value`` at the left margin.
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w{0,60})[ \t]*(?::[^=\n]{1,200})?=([^\n]{0,1000})$", re.MULTILINE)
_LITERAL = re.compile(r"""(?:'([^'\\\n]*)'|"([^"\\\n]*)"|None)[ \t]*(?:#.*)?\Z""")
#: Where a package may say its own version.
_FILES = ("__init__.py", "version.py", "_version.py", "__version__.py")
_OWN_VERSION = re.compile(r"""\n__version__(?:[ \t]*:[ \t]*str)?[ \t]*=[ \t]*["']([0-9][^"'\\\r\n]{0,60})["']""")


class VersionFile(NamedTuple):
    """A version file that was read.

    ``folder`` is the folder of packages that it lies in and ``origin`` its name there. ``values`` are its simple
    assignments: text, absent for None, and unknown for anything else.
    """

    folder: str
    origin: str
    values: dict[str, str | Absent | Unknown]

    def get(self, name: str) -> str | Absent | Unknown:
        """Return the value assigned to a name, or unknown when the file does not assign it."""
        return self.values.get(name, Unknown(Message("{} does not say", self.origin)))


def read_version_file(name: str, folders: tuple[str, ...], files: Files) -> VersionFile | Unknown:
    """Return the version file of the package that would be imported from these folders: the first that has it.

    Unknown, with the reason, when no folder has it or it cannot be read.
    """
    origin = f"{name}/version.py"
    for folder in folders:
        if name not in files.names_or_none(folder):
            continue
        try:
            text = files.text(os.path.join(folder, name, "version.py"), _LIMIT)
        except FileNotFoundError:
            continue
        except OSError as error:
            return Unknown(Message("{} cannot be read: {}", origin, because_of(error)))
        # The last assignment of a name holds. The text is matched, never run.
        values: dict[str, str | Absent | Unknown] = {}
        for key, value in _ASSIGNMENT.findall(text):
            plain = _LITERAL.match(value.strip())
            otherwise = Unknown(Message("{} in {} is no plain value", key, origin))
            values[key] = (
                otherwise if plain is None else next((item for item in plain.groups() if item is not None), ABSENT)
            )
        return VersionFile(folder, origin, values)
    return Unknown(Message("there is no {}", origin))


def module_in(folder: str, module: str, files: Files) -> str | None:
    """Return the regular package or the module file that a folder gives under this name."""
    package = os.path.join(folder, module)
    if files.is_file(os.path.join(package, "__init__.py")):
        return package
    return f"{package}.py" if files.is_file(f"{package}.py") else None


def version_of_code(place: str, files: Files) -> tuple[str, str] | None:
    """Return the plain text that a package (or a module file) assigns to ``__version__``, and the name of the file
    below the package's folder. The text is matched, never run; None when no file says it so."""
    for name in _FILES if not place.endswith(".py") else ("",):
        path = os.path.join(place, name) if name else place
        match = _OWN_VERSION.search("\n" + files.text_or_empty(path, _LIMIT))
        if match and is_version(match[1]):
            return match[1], f"{os.path.basename(place)}/{name}" if name else os.path.basename(place)
    return None


def another_version(
    metadata: str, version: str, place: str, files: Files, *, listed: bool = True
) -> tuple[str, str] | None:
    """Return the version of the code at ``place`` and its file, if it is another release than the metadata's.

    ``listed``: the code is what an installer unpacked. Makers forget to raise ``__version__``; so the file must also
    be another one than RECORD lists. Where nothing lists it, nothing is said.
    """
    pair = version_of_code(place, files)
    if pair is None or same_release(pair[0], version):
        return None
    return pair if not listed or _replaced(metadata, place, pair[1], files) else None


def _replaced(metadata: str, place: str, name: str, files: Files) -> bool:
    """Return whether a file is another one than RECORD says, by its size or its hash."""
    try:
        record = files.head(os.path.join(metadata, "RECORD"), RECORD_LIMIT)
        content = files.head(os.path.join(os.path.dirname(place), *name.split("/")), _LIMIT << 4)
    except OSError:
        return False
    match = re.search(rb"^%s,sha256=([A-Za-z0-9_-]{43}),\d+\r?$" % re.escape(name.encode()), record, re.MULTILINE)
    if match is None:
        return False
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=") != match[1]


RECORD_LIMIT = 8 << 20
_ENDINGS = (b".so", b".pyd", b".dll")
_MOST = 500
#: A name that is neither quoted nor too long, and does not lead out of the folder.
_PLAIN = re.compile(rb"(?![\"/])(?!.*\.\.)[^\0]{0,400}\Z", re.DOTALL)


def listed_libraries(metadata: str, files: Files) -> list[str]:
    """Return what RECORD lists as extension modules and shared libraries, by their names below the folder of packages.
    Raises ``OSError``, ``FileNotFoundError`` for an empty list too."""
    libraries: list[str] = []
    piece = b""
    for piece in files.lines(os.path.join(metadata, "RECORD"), RECORD_LIMIT):
        names = (line.partition(b",")[0] for line in piece.split(b"\n"))
        libraries += [name.decode("utf-8", "replace") for name in names if is_library(name) and _PLAIN.match(name)]
        if len(libraries) >= _MOST:
            break
    if not piece:
        raise FileNotFoundError(errno.ENOENT, Message("it is empty"), metadata)
    return libraries[:_MOST]


def is_library(name: bytes) -> bool:
    """Return whether a file of that name is an extension module or a shared library."""
    return name.endswith(_ENDINGS) or name.rstrip(b".0123456789").endswith(b".so")


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
            record = files.head(os.path.join(str(item["path"]), "RECORD"), RECORD_LIMIT)
        except OSError as error:
            return Unknown(Message("RECORD of {} cannot be read: {}", item["name"], because_of(error)))
        names = set(re.findall(_LIBRARY, record))
        files.use(1 + len(names))
        if not names:
            return Unknown(Message("RECORD of {} lists no library", item["name"]))
        shared |= seen & names
        seen |= names
    return min(shared).decode("utf-8", "replace") if shared else ABSENT
