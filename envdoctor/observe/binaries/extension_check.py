"""Comparing the compiled files of packages with the libraries of the installed torch: columns of ``extension``.

Of torch's symbols: which names are theirs, their hash, and how a person would write them.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.observe.binaries.elf_file import ElfError, ElfFile, newest
from envdoctor.observe.locate.layout import Layout
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import Message, said_by
from envdoctor.versions.pep440 import rank

_STEMS = ("libc10", "libtorch")
_LONGEST = 40
CORE = ("libc10.so", "libtorch_cpu.so")
#: Names in the namespaces c10, at, torch and caffe2 by the Itanium ABI (virtual tables and guards too), the C functions
#: of the stable ABI (aoti_torch_..., torch_call_dispatcher), and what the Python binding exports (THPVariable_Wrap).
_OURS = re.compile(
    rb"_Z(?:T[VTIS]|G[VR])?N[KVrRO]*(?:3c10|2at|5torch|6caffe2)[\dA-Za-z]|(?:aoti_)?torch_[a-z]|_Z\d+THP|THP[A-Z]"
)
_PREFIX = re.compile(r"_Z(?:T[VTISC]|G[VR])?N[KVrRO]*")
_PART = re.compile(r"(\d{1,3})([A-Za-z_]\w*)")
_PRINTABLE = re.compile(r"[\w.$@]+\Z", re.ASCII)
_SHOWN = 4  # libraries named in one value
#: A package uses a few symbols of its own in the names of torch; one that lacks more than this has another cause.
_MOST_OF_SIBLINGS = 4096
#: Bytes of symbols in one environment; all files of vllm together have less than 2 MB.
_MOST_NAMES = 48 << 20
_CUDART = re.compile(r"libcudart\.so\.(\d{1,2})(?:\.0)?\Z")


def is_of_torch(library: str) -> bool:
    """Return whether a library's name is one of torch's: libc10.so, libtorch_cuda_cu.so; not libtorchaudio.so."""
    if not library.startswith(_STEMS) or not library.endswith(".so"):
        return False
    stem, _, rest = library[:-3].partition("_")
    plain = rest.replace("_", "").isalpha() and rest.islower() and len(rest) <= _LONGEST
    return stem in _STEMS and (plain or not rest)


def find_torch_libraries(layout: Layout, missing: Value | None) -> dict[str, str] | Message:
    """Paths of torch's libraries by name; or why there is nothing to compare with.

    ``missing`` is the fact ``torch.missing_files``.
    """
    files = layout.files
    home = next(
        (folder for folder in layout.site_packages if files.is_file(os.path.join(folder, "torch", "version.py"))), None
    )
    if home is None:
        return Message("there is no torch to compare with")
    if isinstance(missing, tuple) and missing:
        return Message("libraries of torch itself are missing")
    folders = [os.path.join(home, "torch", "lib")]
    if layout.kind == "conda":
        folders.append(os.path.join(layout.prefix, "lib"))
    paths: dict[str, str] = {}
    for folder in folders:
        for name in files.names_or_none(folder):
            if is_of_torch(name):
                paths.setdefault(name, os.path.join(folder, name))
    lacking = [name for name in CORE if name not in paths]
    return Message("torch/lib has no {}", lacking[0]) if lacking else paths


def gnu_hash(name: bytes) -> int:
    """Return the hash of GNU hash tables (32 bits)."""
    value = 5381
    for letter in name:
        value = (value * 33 + letter) & 0xFFFFFFFF
    return value


def spelled(name: bytes) -> str:
    """Return the qualified name inside a mangled one (``c10::cuda::SetDevice``), without its arguments; at most 100
    characters. What cannot be told apart is left as it is."""
    text = name[:400].decode("ascii", "replace")
    if not _PRINTABLE.match(text):
        return Message("a symbol with odd characters")
    match = _PREFIX.match(text)
    parts: list[str] = []
    rest = text[match.end() :] if match else ""
    while part := _PART.match(rest):
        length = int(part[1])
        if length == 0 or length > len(part[2]):
            break
        parts.append(part[2][:length])
        rest = part[2][length:] + rest[part.end() :]
    if rest[:2] in ("C1", "C2") and parts:
        parts.append(parts[-1])
    return "::".join(parts)[:100] if len(parts) > 1 else text[:100]


class _CompiledFile(NamedTuple):
    """One compiled file: the torch symbols and torch libraries it asks for, the versions of the C and C++ libraries,
    and the CUDA major of the runtime library it is linked to."""

    path: str
    name: str
    machine: str
    symbols: list[bytes]
    libraries: list[str]
    glibc: str | None
    glibcxx: str | None
    cuda: str | None


class _Package(NamedTuple):
    """What was read of one package. ``problem`` is (path, name, reason) of a damaged file, ``unread`` why a file that
    need not be damaged was not read."""

    files: list[_CompiledFile]
    problem: tuple[str, str, Message] | None
    unread: Message | None


class _Torch:
    """Torch's libraries, opened. ``lacks`` says why nothing can be looked up in them; None when it can."""

    def __init__(self, paths: Mapping[str, str] | Message, files: Files) -> None:
        self.lacks = paths if isinstance(paths, Message) else None
        places: Mapping[str, str] = {} if isinstance(paths, Message) else paths
        self.names = frozenset(places)
        self.opened: list[ElfFile] = []
        self._known: dict[bytes, bool] = {}  # files of one package ask for the same names
        # Most symbols are of libtorch_cpu and libc10.
        for name in sorted(places, key=lambda name: (name not in CORE[::-1], name)):
            try:
                self.opened.append(ElfFile(places[name], files))
            except (ElfError, OSError) as error:
                self.lacks = Message("torch/lib/{} cannot be read: {}", name, because_of(error))
                break

    def lacking(self, names: Iterable[bytes]) -> list[bytes]:
        """Return the names that no library defines, in order. Raises ``ElfError`` and ``OSError`` of the libraries."""
        missing: list[bytes] = []
        for name in names:
            if name not in self._known:
                hashed = gnu_hash(name)
                self._known[name] = any(library.exports(name, hashed) for library in self.opened)
            if not self._known[name]:
                missing.append(name)
        return missing


def check_extensions(
    chosen: Sequence[Sequence[tuple[str, str]]], torch: Mapping[str, str] | Message, files: Files
) -> tuple[list[dict[str, Value] | None], Message | None]:
    """Return what the compiled files of each distribution tell, in the same order, and why a file was not read.

    ``chosen`` are the files (path, name) of each and ``torch`` the paths of its libraries, or why there are none. None
    stands for a distribution whose files ask nothing of torch. Never raises for what a file holds.
    """
    packages: list[_Package] = []
    room = _MOST_NAMES
    for found in chosen:
        packages.append(read_package(found, files, room))
        room -= sum(len(symbol) for one in packages[-1].files for symbol in one.symbols)
    libraries = _Torch(torch if any(package.files for package in packages) else Message("not needed"), files)
    try:
        items = [_columns(package, libraries, packages, files) for package in packages]
    finally:
        for library in libraries.opened:
            library.close()
    return items, next((package.unread for package in packages if package.unread), None)


def _columns(package: _Package, torch: _Torch, packages: Sequence[_Package], files: Files) -> dict[str, Value] | None:
    read, problem = package.files, package.problem
    item: dict[str, Value] = {"problem": problem[2] if problem else ABSENT}
    if package.unread and not read and not problem:
        item["problem"] = Unknown(package.unread)
    if problem:
        item["path"], item["file"] = problem[0], problem[1]
    if not read:
        if not problem and not package.unread:
            return None
        unread = package.unread or Message("not needed")
        nothing = Unknown(Message("none of its files could be read") if problem else unread)
        keys = ("arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library", "built_cuda")
        item.update(dict.fromkeys(keys, nothing))
        return item
    item["arch"] = ", ".join(sorted({one.machine for one in read}))
    item["glibc_needs"] = max((one.glibc for one in read if one.glibc), key=rank, default=ABSENT)
    item["glibcxx_needs"] = max((one.glibcxx for one in read if one.glibcxx), key=rank, default=ABSENT)
    runtimes = sorted({one.cuda for one in read if one.cuda}, key=int)
    item["built_cuda"] = runtimes[0] if runtimes else ABSENT
    if len(runtimes) > 1:
        item["built_cuda"] = Unknown(Message("its files are linked to CUDA {}", " and ".join(runtimes)))
    worst, verdict = read[0], _looked_up(read, torch, packages, files)
    if isinstance(verdict, Unknown):
        item.update(dict.fromkeys(("unresolved", "example", "missing_library"), verdict))
    else:
        lacking = list(dict.fromkeys(library for _, libraries, _ in verdict for library in libraries))
        open_names = list(dict.fromkeys(symbol for _, _, symbols in verdict for symbol in symbols))
        worst = max(verdict, key=lambda entry: (len(entry[1]), len(entry[2])))[0]
        item["unresolved"] = len(open_names)
        item["example"] = spelled(open_names[0]) if open_names else ABSENT
        item["missing_library"] = ", ".join(lacking[:_SHOWN]) or ABSENT
    if not problem:
        item["path"], item["file"] = worst.path, worst.name
    return item


def _looked_up(
    read: Sequence[_CompiledFile], torch: _Torch, packages: Sequence[_Package], files: Files
) -> list[tuple[_CompiledFile, list[str], list[bytes]]] | Unknown:
    """Return each file with the torch libraries and the symbols that it lacks."""
    if torch.lacks is not None:
        return Unknown(torch.lacks)
    machines = {library.machine for library in torch.opened}
    siblings = {os.path.basename(other.name) for package in packages for other in package.files}
    verdict: list[tuple[_CompiledFile, list[str], list[bytes]]] = []
    for one in read:
        if one.machine not in machines:
            return Unknown(Message("{} is for {}, torch for {}", one.name, one.machine, ", ".join(sorted(machines))))
        try:
            symbols = torch.lacking(one.symbols)
        except (ElfError, OSError) as error:
            return Unknown(Message("a library of torch cannot be read: {}", because_of(error)))
        libraries = [library for library in one.libraries if library not in torch.names | siblings]
        verdict.append((one, libraries, symbols))
    given = _of_siblings({name for _, _, names in verdict for name in names}, packages, files)
    return [(one, libraries, [name for name in names if name not in given]) for one, libraries, names in verdict]


def _of_siblings(wanted: set[bytes], packages: Sequence[_Package], files: Files) -> set[bytes]:
    """Return those that some extension gives: one file of a package may define what another one uses."""
    given: set[bytes] = set()
    if len(wanted) > _MOST_OF_SIBLINGS:
        return given
    for package in packages:
        for other in package.files:
            left = sorted(wanted - given)
            if not left:
                return given
            try:
                with ElfFile(other.path, files) as file:
                    given.update([name for name in left if file.exports(name, gnu_hash(name))])
            except (ElfError, OSError):
                continue
    return given


def read_package(found: Sequence[tuple[str, str]], files: Files, room: int = _MOST_NAMES) -> _Package:
    """Read the files (path, name) of a distribution. Those that ask nothing of torch are left out, and those that come
    when ``room`` bytes of symbols were read. Never raises for what a file holds."""
    read: list[_CompiledFile] = []
    problem: tuple[str, str, Message] | None = None
    unread: Message | None = None
    for path, name in found:
        if room <= 0:
            unread = unread or Message("{} was not read: the files before it ask for too many symbols", name)
            break
        if name.endswith(".pyd"):
            unread = unread or Message("compiled files for Windows are not read: {}", name)
            continue
        try:
            with ElfFile(path, files) as file:
                libraries = [library for library in file.needed if is_of_torch(library)]
                symbols = [symbol for symbol in file.undefined() if _OURS.match(symbol)]
                versions = file.versions()
                glibc, glibcxx = newest(versions, "GLIBC"), newest(versions, "GLIBCXX")
                cuda = next((match[1] for library in file.needed if (match := _CUDART.match(library))), None)
                one = _CompiledFile(path, name, file.machine, symbols, libraries, glibc, glibcxx, cuda)
        except ElfError as error:
            if error.damaged:
                problem = problem or (path, name, said_by(error))
            else:
                unread = unread or Message("{} was not read: {}", name, error)
            continue
        except (OSError, ValueError) as error:
            reason = because_of(error) if isinstance(error, OSError) else Message("its name is no path")
            unread = unread or Message("{} cannot be read: {}", name, reason)
            continue
        if one.symbols or one.libraries:
            read.append(one)
            room -= sum(map(len, one.symbols))
    return _Package(read, problem, unread)
