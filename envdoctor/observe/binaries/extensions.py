"""The fact ``extension``: what the compiled files of packages built against torch need, and whether this torch has it.

One item a package, because one wrong build is one cause however many files it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.binaries.elf_file import ElfError, ElfFile
from envdoctor.observe.binaries.extension_files import compiled_files, python_tag
from envdoctor.observe.binaries.torch_symbols import is_torch_symbol, spelled, unresolved
from envdoctor.observe.environment.files import Files, because_of
from envdoctor.observe.environment.layout import Layout

__all__ = ["read_extensions"]

#: libc10.so, libtorch_cuda.so, libtorch_cuda_cu.so; not libtorchaudio.so, which is torchaudio's own.
_OF_TORCH = re.compile(r"lib(?:c10|torch)(?:_[a-z_]{1,40})?\.so\Z")
_CORE = ("libc10.so", "libtorch_cpu.so")
_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d{1,4}(?:\.\d{1,4}){1,2})\Z")
_SHOWN = 4  # libraries named in one value


class _Read(NamedTuple):
    """One compiled file: the torch symbols and torch libraries it asks for, and the versions of the C libraries."""

    path: str
    name: str
    machine: str
    symbols: list[bytes]
    libraries: list[str]
    glibc: str | None
    glibcxx: str | None


class _Package(NamedTuple):
    """Everything read of one package. ``problem`` is (file, reason) of a damaged file."""

    dist: Mapping[str, Value]
    files: list[_Read]
    tags: list[str]
    problem: tuple[str, str, str] | None


class _Torch(NamedTuple):
    """The libraries of the installed torch. ``lacks`` says why nothing can be looked up in them; None when it can."""

    libraries: list[ElfFile]
    names: frozenset[str]
    lacks: str | None


def read_extensions(
    chosen: Mapping[str, Mapping[str, Value]],
    modules: Mapping[str, Sequence[str]],
    layout: Layout,
    missing: Value | None,
    incomplete: str | None,
) -> Fact:
    """The fact for the chosen distributions (items of ``dist`` by name). Never raises for what a file holds.

    ``modules`` are those of the table, ``missing`` is ``torch.missing_files`` and ``incomplete`` why distributions may
    be missing from ``chosen``.
    """
    why = incomplete
    packages: list[_Package] = []
    for name, dist in chosen.items():
        found, partly = compiled_files(
            str(dist.get("path")), str(dist.get("kind")), modules[name], layout.site_packages, layout.files
        )
        package, unread = _read_package(dist, found, layout.files)
        why = why or partly or unread
        if package.files or package.problem or package.tags:
            packages.append(package)
    torch = _open_torch(layout, missing) if packages else _Torch([], frozenset(), None)
    try:
        answers: dict[bytes, bool] = {}
        items = tuple(_judge(package, torch, packages, answers, layout.files) for package in packages)
    finally:
        for library in torch.libraries:
            library.close()
    return Fact("extension", Records(items, why), "compiled files", "environment")


def _read_package(
    dist: Mapping[str, Value], found: Sequence[tuple[str, str]], files: Files
) -> tuple[_Package, str | None]:
    read: list[_Read] = []
    problem: tuple[str, str, str] | None = None
    unread: str | None = None
    tags = [tag for _, name in found if (tag := python_tag(name)) is not None]
    for path, name in found:
        try:
            with ElfFile(files.open(path)) as file:
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
    return _Package(dist, read, sorted(set(tags)), problem), unread


def _read_file(path: str, name: str, file: ElfFile) -> _Read:
    libraries = [library for library in file.needed if _OF_TORCH.match(library)]
    symbols = [symbol for symbol in file.undefined() if is_torch_symbol(symbol)]
    highest: dict[str, str] = {}
    for version in file.versions():
        if match := _VERSION.match(version):
            highest[match[1]] = max(highest.get(match[1], "0"), match[2], key=_numbers)
    return _Read(path, name, file.machine, symbols, libraries, highest.get("GLIBC"), highest.get("GLIBCXX"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _open_torch(layout: Layout, missing: Value | None) -> _Torch:
    files = layout.files
    home = next(
        (folder for folder in layout.site_packages if files.is_file(os.path.join(folder, "torch", "version.py"))), None
    )
    if home is None:
        return _Torch([], frozenset(), "there is no torch to compare with")
    if isinstance(missing, tuple) and missing and not isinstance(missing, Unknown):  # which is a tuple too
        return _Torch([], frozenset(), "libraries of torch itself are missing")
    folders = [os.path.join(home, "torch", "lib")]
    if layout.kind == "conda":
        folders.append(os.path.join(layout.prefix, "lib"))
    paths: dict[str, str] = {}
    for folder in folders:
        for name in files.names_or_none(folder):
            if _OF_TORCH.match(name):
                paths.setdefault(name, os.path.join(folder, name))
    lacking = [name for name in _CORE if name not in paths]
    if lacking:
        return _Torch([], frozenset(), f"torch/lib has no {lacking[0]}")
    opened: list[ElfFile] = []
    # Most symbols are of libtorch_cpu and libc10.
    for name in sorted(paths, key=lambda name: (name not in _CORE[::-1], name)):
        try:
            opened.append(ElfFile(files.open(paths[name])))
        except (ElfError, OSError) as error:
            for library in opened:
                library.close()
            reason = because_of(error) if isinstance(error, OSError) else str(error)
            return _Torch([], frozenset(), f"torch/lib/{name} cannot be read: {reason}")
    return _Torch(opened, frozenset(paths), None)


def _judge(
    package: _Package, torch: _Torch, packages: Sequence[_Package], answers: dict[bytes, bool], files: Files
) -> dict[str, Value]:
    item: dict[str, Value] = {
        "package": package.dist.get("name", ABSENT),
        "version": package.dist.get("version", Unknown("not known")),
        "python_tag": ", ".join(package.tags) or ABSENT,
        "problem": package.problem[2] if package.problem else ABSENT,
    }
    read = package.files
    if not read:
        nothing = Unknown("none of its files could be read") if package.problem else ABSENT
        keys = ("arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library")
        item.update(dict.fromkeys(keys, nothing))
        if package.problem:
            item.update({"path": package.problem[0], "file": package.problem[1]})
        return item
    item["arch"] = ", ".join(sorted({one.machine for one in read}))
    for column, values in (
        ("glibc_needs", [one.glibc for one in read]),
        ("glibcxx_needs", [one.glibcxx for one in read]),
    ):
        item[column] = max((value for value in values if value), key=_numbers, default=ABSENT)
    worst, verdict = read[0], _looked_up(read, torch, packages, answers, files)
    if isinstance(verdict, Unknown):
        item.update(dict.fromkeys(("unresolved", "example", "missing_library"), verdict))
    else:
        lacking = list(dict.fromkeys(library for _, libraries, _ in verdict for library in libraries))
        open_names = list(dict.fromkeys(symbol for _, _, symbols in verdict for symbol in symbols))
        worst = max(verdict, key=lambda entry: (len(entry[1]), len(entry[2])))[0]
        item["unresolved"] = len(open_names)
        item["example"] = spelled(open_names[0]) if open_names else ABSENT
        item["missing_library"] = ", ".join(lacking[:_SHOWN]) or ABSENT
    damaged = package.problem is not None
    item["path"] = package.problem[0] if damaged and package.problem else worst.path
    item["file"] = package.problem[1] if damaged and package.problem else worst.name
    return item


def _looked_up(
    read: Sequence[_Read], torch: _Torch, packages: Sequence[_Package], answers: dict[bytes, bool], files: Files
) -> list[tuple[_Read, list[str], list[bytes]]] | Unknown:
    """Each file with the torch libraries and the symbols that it lacks."""
    if torch.lacks is not None:
        return Unknown(torch.lacks)
    machines = {library.machine for library in torch.libraries}
    verdict: list[tuple[_Read, list[str], list[bytes]]] = []
    for one in read:
        if one.machine not in machines:
            return Unknown(f"{one.name} is for {one.machine}, torch for {', '.join(sorted(machines))}")
        try:
            symbols = unresolved(one.symbols, torch.libraries, answers)
        except (ElfError, OSError) as error:
            reason = because_of(error) if isinstance(error, OSError) else str(error)
            return Unknown(f"a library of torch cannot be read: {reason}")
        if symbols:
            symbols = _not_of_siblings(symbols, one, packages, files)
        siblings = {os.path.basename(other.name) for package in packages for other in package.files}
        libraries = [library for library in one.libraries if library not in torch.names | siblings]
        verdict.append((one, libraries, symbols))
    return verdict


def _not_of_siblings(symbols: Sequence[bytes], one: _Read, packages: Sequence[_Package], files: Files) -> list[bytes]:
    """Those that no other extension gives: one file of a package may define what another one uses."""
    left = list(symbols)
    for package in packages:
        for other in package.files:
            if not left:
                return left
            if other is one:
                continue
            try:
                with ElfFile(files.open(other.path)) as file:
                    left = unresolved(left, [file])
            except (ElfError, OSError):
                continue
    return left
