"""What one package's compiled files ask for: symbols and libraries of torch, versions of the C and C++ libraries."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile
from envdoctor.observe.binaries.reading.torch_libraries import is_of_torch
from envdoctor.observe.binaries.reading.torch_symbols import is_torch_symbol
from envdoctor.text.files import Files, because_of
from envdoctor.versions.dotted import rank

__all__ = ["MOST_NAMES", "CompiledFile", "Package", "read_package"]

_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d{1,4}(?:\.\d{1,4}){1,2})\Z")
#: Bytes of symbols in one environment; all files of vllm together have less than 2 MB.
MOST_NAMES = 48 << 20
_CUDART = re.compile(r"libcudart\.so\.(\d{1,2})(?:\.0)?\Z")


class CompiledFile(NamedTuple):
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

    @property
    def size(self) -> int:
        """Bytes of its symbols."""
        return sum(map(len, self.symbols))


class Package(NamedTuple):
    """Everything read of one package. ``problem`` is (path, name, reason) of a damaged file, ``unread`` why a file that
    need not be damaged was not read."""

    files: list[CompiledFile]
    problem: tuple[str, str, str] | None
    unread: str | None


def read_package(found: Sequence[tuple[str, str]], files: Files, room: int = MOST_NAMES) -> Package:
    """Read the files (path, name) of a distribution. Those that ask nothing of torch are left out, and those that come
    when ``room`` bytes of symbols were read. Never raises for what a file holds."""
    read: list[CompiledFile] = []
    problem: tuple[str, str, str] | None = None
    unread: str | None = None
    for path, name in found:
        if room <= 0:
            unread = unread or f"{name} was not read: the files before it ask for too many symbols"
            break
        if name.endswith(".pyd"):
            unread = unread or f"compiled files for Windows are not read: {name}"
            continue
        try:
            with ElfFile(path, files) as file:
                one = _read_file(path, name, file)
        except ElfError as error:
            if error.damaged:
                problem = problem or (path, name, str(error))
            else:
                unread = unread or f"{name} was not read: {error}"
            continue
        except (OSError, ValueError) as error:
            reason = because_of(error) if isinstance(error, OSError) else "its name is no path"
            unread = unread or f"{name} cannot be read: {reason}"
            continue
        if one.symbols or one.libraries:
            read.append(one)
            room -= one.size
    return Package(read, problem, unread)


def _read_file(path: str, name: str, file: ElfFile) -> CompiledFile:
    libraries = [library for library in file.needed if is_of_torch(library)]
    symbols = [symbol for symbol in file.undefined() if is_torch_symbol(symbol)]
    highest: dict[str, str] = {}
    for version in file.versions():
        if match := _VERSION.match(version):
            highest[match[1]] = max(highest.get(match[1], "0"), match[2], key=rank)
    cuda = next((match[1] for library in file.needed if (match := _CUDART.match(library))), None)
    return CompiledFile(
        path, name, file.machine, symbols, libraries, highest.get("GLIBC"), highest.get("GLIBCXX"), cuda
    )
